"""The history of a remote graph."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from omnigraph.api.interface.graph_history import GraphHistory, LogOptions
from omnigraph.api.results.commits import At, Commit
from omnigraph.api.results.history import EntityVersion, PropertyOrigin
from omnigraph.api.results.maintenance_reports import Recovery
from omnigraph.client.request_names import place_of, segment, timestamp
from omnigraph.protocol.codec import decode

if TYPE_CHECKING:
    from omnigraph.client.transport import Transport


class RemoteHistory(GraphHistory):
    """`GraphHistory` on a server."""

    _transport: Transport

    def commit(self, id: str) -> Commit:  # noqa: A002 - the name is part of the API
        return self._transport.call("GET", f"/commits/{segment(id)}", partial(decode, Commit))

    def recoveries(self) -> list[Recovery]:
        return self._transport.call("GET", "/recoveries", partial(decode, list[Recovery]))

    def _commits(self, options: LogOptions) -> list[Commit]:
        params: dict[str, Any] = {
            **place_of(self._transport, options.branch, options.at),
            "limit": options.limit,
            "actor": options.actor,
            "since": None if options.since is None else timestamp(options.since),
            "type": list(options.types) or None,
            "merged": True if options.merged else None,
        }
        return self._transport.call("GET", "/commits", partial(decode, list[Commit]), params=params)

    def _history(
        self, type_name: str, id_: str, branch: str, at: At, limit: int | None
    ) -> list[EntityVersion]:
        params = {"type": type_name, "id": id_, **place_of(self._transport, branch, at), "limit": limit}
        return self._transport.call("GET", "/history", partial(decode, list[EntityVersion]), params=params)

    def _blame(self, type_name: str, id_: str, branch: str, at: At) -> list[PropertyOrigin]:
        params = {"type": type_name, "id": id_, **place_of(self._transport, branch, at)}
        return self._transport.call("GET", "/blame", partial(decode, list[PropertyOrigin]), params=params)
