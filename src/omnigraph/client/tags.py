"""The tags of a remote graph."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from omnigraph.api.interface.tags import Tag, Tags
from omnigraph.api.results.changes import State, named_state
from omnigraph.client.request_names import segment, timestamp
from omnigraph.graph.argument_checks import require_text
from omnigraph.protocol.codec import decode

if TYPE_CHECKING:
    from omnigraph.client.server_decisions import TokenActor
    from omnigraph.client.transport import Transport


class RemoteTags(Tags):
    """`Tags` on a server; each call is one request."""

    def __init__(self, transport: Transport, actor: TokenActor) -> None:
        self._transport = transport
        self._actor = actor

    def _list(self, prefix: str, after: str | None, limit: int | None) -> list[Tag]:
        params = {"prefix": prefix or None, "after": after, "limit": limit}
        return self._transport.call("GET", "/tags", partial(decode, list[Tag]), params=params)

    def delete(self, name: str) -> None:
        path = f"/tags/{segment(require_text('tag', name))}"
        self._transport.call("DELETE", path, lambda answer: answer["name"], writes=True)

    def _create(self, name: str, at: State, message: str | None, actor: str | None) -> Tag:
        self._actor.check(actor, message=message)
        body = {"name": require_text("tag", name), "at": _state_name(at), "message": message}
        return self._transport.call("POST", "/tags", partial(decode, Tag), body=body, writes=True)


def _state_name(state: State) -> str:
    named = named_state(state)
    if isinstance(named, datetime):
        return timestamp(named)
    return named if isinstance(named, str) else named.commit_id
