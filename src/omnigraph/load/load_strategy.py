"""The interface of the implementations of a load: in memory, spilling to disk, or with rows written by tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Catalog
from omnigraph.rules.violations import Violation, Violations

# The place of a record in its input, and the name of the input.
RecordOrigin: TypeAlias = tuple[int, str | None]


# The positions of records in the input of their table, ascending.
Positions: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


class Offense(NamedTuple):
    """A record that breaks a rule between rows. `missing` is the type and the id of the node that an edge lacks.

    In a load with resolved operations it is an id, without a position and an origin; with `is_deleted` that of a
    stored row whose deletion breaks the rule.
    """

    position: int
    origin: RecordOrigin
    id: str | None
    rule: str
    reason: str
    missing: tuple[str, str] | None = None
    is_deleted: bool = False


def offense_of(
    violation: Violation, position: int, origin: RecordOrigin, id_: str | None, catalog: Catalog
) -> Offense:
    """Return the offense of a record with a violation."""
    missing = None
    if violation.rule == "endpoint":
        edge = catalog.schema.edge(catalog.tables[violation.table_key].name)
        assert edge is not None, "only edges have endpoints"
        node = edge.source if violation.property == "src" else edge.target
        missing = node, str(violation.value)
    return Offense(position, origin, id_, violation.rule, violation.message, missing)


class LoadStrategy(Protocol):
    """Checks the rules between the rows of a load, and stages the rows.

    `superseded` counts the records of each table that a later record with the same id replaces. `seconds` has the
    duration of steps of `stage` that are reported separately. `unchanged` is set by `stage` if the load is a merge
    of rows that are all stored already with the same values.
    """

    superseded: dict[str, int]
    seconds: dict[str, float]
    unchanged: bool

    def violations(self) -> Iterator[Violations]:
        """Yield the violations of each stage of checks, in order. A stage runs when it is asked for."""
        ...

    def origins(self, key: str, ids: Sequence[str]) -> Mapping[str, RecordOrigin]:
        """Return the origin of the last record with each of these ids; ids without a record are missing."""
        ...

    def offenders(self) -> Mapping[str, Iterator[Offense]]:
        """Return the records of each table that break a rule of the first stage with violations, by position.

        A record with several violations is repeated. The result is empty if no record of the input is at fault.
        In a load with resolved operations they are the ids of final rows, and of stored rows that it deletes.
        """
        ...

    def leave_out(self, positions: Mapping[str, Positions]) -> None:
        """Continue without the records that the last call of `offenders` returned, at these positions."""
        ...

    def rows_at(self, key: str, positions: Positions) -> Iterator[pa.Table]:
        """Yield the rows of records at these positions, in order, in the logical columns of their table."""
        ...

    def stage(self, *, dry_run: bool = False) -> dict[str, dict[str, int]]:
        """Stage the rows as detached versions; return the inserted, updated and deleted rows of each table.

        A dry run stages nothing and returns the same.
        """
        ...
