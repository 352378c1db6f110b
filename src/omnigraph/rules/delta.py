"""The change that one operation makes to a table: the rows it leaves behind and the rows it takes away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from omnigraph.catalog.catalog import Table


@dataclass(frozen=True)
class TableDelta:
    """The final image of an operation in one table, by logical column.

    `rows` are new or rewritten, one per id. `shadowed` are the ids of committed rows that no longer count: deleted
    or rewritten. `deleted` are those of them that have no successor in `rows`. For an edge table, `vacated` are
    the source ids of the committed rows that are shadowed.
    """

    table: Table
    rows: pa.Table
    shadowed: pa.Array
    deleted: pa.Array
    vacated: pa.Array | None = None


class RowLookup(Protocol):
    """The committed state that an operation is checked against; what is asked of it joins the read-set."""

    def find(self, key: str, column: str, values: pa.Array, columns: list[str]) -> pa.Table:
        """Rows of a table whose column has one of the values, by logical column name."""
        ...

    def find_tuples(self, key: str, columns: list[str], tuples: pa.Table, wanted: list[str]) -> pa.Table:
        """Rows of a table that may agree with one of the tuples in all the columns (a superset is fine)."""
        ...


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule. `message` is the one line that people read."""

    rule: str
    table_key: str
    message: str
    id: str | None = None
    property: str | None = None
    value: Any = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The wire form."""
        return {
            "rule": self.rule,
            "type": self.table_key,
            "message": self.message,
            "id": self.id,
            "property": self.property,
            "value": self.value,
            **self.details,
        }
