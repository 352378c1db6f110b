"""What a load consists of before it is checked: typed rows per table, each with its place in the input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa

from omnigraph.errors import ErrorLocation

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
    """A record that a load rejects, and why.

    `place` counts lines, rows or records from 1. `location` is the part of the message that names it.
    """

    place: int
    reason: str
    record: Any = None
    source: str | None = None
    location: ErrorLocation | None = None

    @property
    def message(self) -> str:
        """The reason, preceded by the location if there is one."""
        return self.reason if self.location is None else f"{self.location}: {self.reason}"

    def shifted(self, count: int) -> Reject:
        """Return the reject for an input that is preceded by `count` lines or rows."""
        location = None if self.location is None else self.location.shifted(count)
        return replace(self, place=self.place + count, location=location)

    def to_json(self) -> dict[str, Any]:
        """Return the line of a file of rejected records."""
        return {"source": self.source, "line": self.place, "error": self.message, "record": self.record}

    def to_state(self) -> dict[str, Any]:
        """Return the fields as JSON, for `from_state`."""
        location = None if self.location is None else asdict(self.location)
        return {
            "place": self.place,
            "reason": self.reason,
            "record": self.record,
            "source": self.source,
            "location": location,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Reject:
        """Return the reject that `to_state` wrote."""
        location = state["location"]
        return cls(**{**state, "location": None if location is None else ErrorLocation(**location)})


# Where rejected records go. Without one the first bad record ends the load.
OnReject: TypeAlias = Callable[[Reject], None]
