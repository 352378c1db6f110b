"""What a load consists of before it is checked: typed rows per table, each with its place in the input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

# Columns beside the logical ones that say where a row came from. No property can have such a name.
PLACE = ".place"
SOURCE = ".source"


@dataclass(frozen=True)
class InputBatch:
    """Rows for one table, in input order, in the logical columns of `catalog.columns.logical_schema`.

    The id of a keyed node is derived from its key already. Elsewhere a null id stands for a fresh one. `places`
    counts from 1: the line of a strict NDJSON input, the record of a stream, the row of a table.
    """

    key: str
    rows: pa.Table
    places: pa.Array
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that a load leaves out, and why."""

    place: int
    message: str
    record: Any = None
    source: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The line that a file of rejects has for it."""
        return {"source": self.source, "line": self.place, "error": self.message, "record": self.record}


# Where rejected records go. Without one the first bad record ends the load.
Rejecting: TypeAlias = Callable[[Reject], None]
