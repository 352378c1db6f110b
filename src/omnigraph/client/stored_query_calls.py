"""Stored queries: what only servers have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.api.commits import At
from omnigraph.api.receipts import Receipt
from omnigraph.client.request_names import condition, params_of, place_of, segment
from omnigraph.client.transport import ROWS, Transport, is_arrow, rows_of
from omnigraph.protocol.codec import decode

if TYPE_CHECKING:
    import httpx

    from omnigraph.api.result import Result


@dataclass(frozen=True, slots=True)
class QueryParam:
    """A parameter of a stored query. `item_kind` is that of a list's items, `vector_dim` the length of a vector."""

    name: str
    kind: str
    nullable: bool
    item_kind: str | None = None
    vector_dim: int | None = None


@dataclass(frozen=True, slots=True)
class QueryEntry:
    """A query that a server keeps, to be run by its name."""

    name: str
    tool_name: str
    mutation: bool
    params: tuple[QueryParam, ...] = ()
    description: str | None = None
    instruction: str | None = None


@dataclass(frozen=True, slots=True)
class StoredQueryCalls:
    """The calls of stored queries of one graph."""

    transport: Transport

    def list(self) -> list[QueryEntry]:
        """Every stored query, by name."""
        return self.transport.call(
            "GET", "/queries", lambda found: decode(list[QueryEntry], found["queries"])
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
        """Run one. Whether it writes is known by what comes back: until then it may, unless a state is named."""

        def read(response: httpx.Response) -> Result | Receipt:
            return rows_of(response) if is_arrow(response) else decode(Receipt, response.json())

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
