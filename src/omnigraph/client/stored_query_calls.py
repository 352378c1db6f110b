"""The stored queries of a remote graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.api.results.commits import At
from omnigraph.api.results.receipts import Receipt
from omnigraph.client.request_names import condition, params_of, place_of, segment
from omnigraph.client.transport import ROWS, Transport, decode_rows, is_arrow
from omnigraph.protocol.codec import decode

if TYPE_CHECKING:
    import httpx

    from omnigraph.api.results.result import Result


@dataclass(frozen=True, slots=True)
class QueryParam:
    """A parameter of a stored query. `item_kind` is the kind of list items, `vector_dim` the vector dimension."""

    name: str
    kind: str
    nullable: bool
    item_kind: str | None = None
    vector_dim: int | None = None


@dataclass(frozen=True, slots=True)
class QueryEntry:
    """A stored query of a server, which clients run by name."""

    name: str
    tool_name: str
    mutation: bool
    params: tuple[QueryParam, ...] = ()
    description: str | None = None
    instruction: str | None = None


@dataclass(frozen=True, slots=True)
class StoredQueryCalls:
    """Requests for the stored queries of one graph."""

    transport: Transport

    def list(self) -> list[QueryEntry]:
        """Return all stored queries, by name."""
        return self.transport.call(
            "GET", "/queries", lambda answer: decode(list[QueryEntry], answer["queries"])
        )

    def invoke(
        self,
        name: str,
        params: Mapping[str, Any] | None,
        branch: str,
        at: At,
        if_commit: str | None,
        expect_mutation: bool | None,
    ) -> Result | Receipt:
        """Run a stored query.

        Only the response tells whether it is a mutation. Until then it counts as a write, unless a state is
        given or a read is expected.
        """

        def read(response: httpx.Response) -> Result | Receipt:
            return decode_rows(response) if is_arrow(response) else decode(Receipt, response.json())

        path = f"/queries/{segment(name)}"
        place = place_of(self.transport, branch, at)
        return self.transport.request(
            "POST",
            path if if_commit is None else f"{path}/if-graph-commit",
            read,
            body={"params": params_of(params), "expect_mutation": expect_mutation, **place},
            headers={**ROWS, **(condition(if_commit) or {})},
            writes=at is None and expect_mutation is not False,
        )
