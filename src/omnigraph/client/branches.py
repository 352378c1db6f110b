"""The branches of a remote graph."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from omnigraph.api.interface.branches import Branch, Branches
from omnigraph.api.results.commits import At
from omnigraph.api.results.merges import Merged, MergeRequest
from omnigraph.client.request_names import segment, state_of
from omnigraph.graph.argument_checks import require_text
from omnigraph.protocol.codec import decode, to_json_value

if TYPE_CHECKING:
    from omnigraph.client.server_decisions import TokenActor
    from omnigraph.client.transport import Transport


class RemoteBranches(Branches):
    """`Branches` on a server; each call is one request."""

    def __init__(self, transport: Transport, actor: TokenActor) -> None:
        self._transport = transport
        self._actor = actor

    def _list(self, prefix: str, after: str | None, limit: int | None) -> list[str]:
        params = {"prefix": prefix or None, "after": after, "limit": limit}
        return self._transport.call(
            "GET", "/branches", lambda answer: decode(list[str], answer["branches"]), params=params
        )

    def delete(self, name: str) -> None:
        path = f"/branches/{segment(require_text('branch', name))}"
        self._transport.call("DELETE", path, lambda answer: answer["name"], writes=True)

    def _create(self, name: str, source: str, at: At, actor: str | None) -> Branch:
        self._actor.check(actor)
        state = state_of(source, at)
        state.pop("branch", None)
        body = {"name": require_text("branch", name), "from": source, **state}
        return self._transport.call("POST", "/branches", partial(decode, Branch), body=body, writes=True)

    def _merge(self, source: str, options: MergeRequest) -> Merged:
        self._actor.check(options.actor, message=options.message, if_commit=options.if_commit)
        body = {
            "source": require_text("branch", source),
            "target": require_text("branch", options.into),
            "delete_branch": options.delete_source,
            "resolve": to_json_value(options.resolve),
            "dry_run": options.dry_run,
            "message": options.message,
            "if_commit": options.if_commit,
        }
        return self._transport.call(
            "POST", "/branches/merge", partial(decode, Merged), body=body, writes=not options.dry_run
        )
