"""The interface of the implementations of a load: in memory, spilling to disk, or with rows written by tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from omnigraph.rules.violations import Violations

# The place of a record in its input, and the name of the input.
RecordOrigin: TypeAlias = tuple[int, str | None]


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

    def stage(self, *, dry_run: bool = False) -> dict[str, dict[str, int]]:
        """Stage the rows as detached versions; return the inserted, updated and deleted rows of each table.

        A dry run stages nothing and returns the same.
        """
        ...
