"""Split the difference between two states into shares that processes read independently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from omnigraph.catalog.catalog import Table
from omnigraph.changes.change_records import ChangeFilter, Op
from omnigraph.changes.change_rows import read_change_rows
from omnigraph.changes.diff import TypeDiff, compare_states
from omnigraph.engine.diff.table_diff import ChangeBatch, Side, TableDiff
from omnigraph.graph.damage import CommitState, reading
from omnigraph.graph.snapshot import Snapshot
from omnigraph.store.manifest.records import CommitRecord, TablePin
from omnigraph.store.tables.tables import Tables

# At most this many shares form one partition, however small they are: opening table versions takes time too.
_SMALL_SHARES = 16
# Each share reads all ids of its type, so more shares would cost more than they save.
_MOST_PARTS = 64


@dataclass(frozen=True)
class TableVersion:
    """A type in one state."""

    table: Table
    pin: TablePin

    def side(self, tables: Tables) -> Side:
        """Return the side of a diff."""
        return Side(tables, self.pin, {column.physical: column.physical for column in self.table.columns})


@dataclass(frozen=True)
class Share:
    """Changes of one type between two commits: all of them, or those of one hash partition of the ids.

    `rows` is an upper bound of the stored rows to read. The commit records do not contain their tables.
    """

    before: TableVersion | None
    after: TableVersion | None
    parent: CommitRecord
    commit: CommitRecord
    ops: tuple[Op, ...]
    rows: int
    part: tuple[int, int] | None = None

    def read(self, tables: Tables, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the changes in the columns of a schema. Raises `NotFound` if garbage collection removed the
        data.
        """
        with reading(*self._states(tables)):
            yield from read_change_rows(self._diff(tables), self.commit, self.ops, self.part, schema)

    def changes(self, tables: Tables) -> Iterator[ChangeBatch]:
        """Yield the changes with the stored rows before and after. Raises `NotFound` as `read` does."""
        with reading(*self._states(tables)):
            yield from self._diff(tables).rows.batches(part=self.part)

    def _states(self, tables: Tables) -> Iterator[CommitState]:
        for version, commit in ((self.after, self.commit), (self.before, self.parent)):
            if version is not None:
                pins = {str(version.table.id): version.pin}
                yield CommitState(tables, replace(commit, tables=pins), [version.table])

    def _diff(self, tables: Tables) -> TypeDiff:
        before, after = self.before, self.after
        rows = TableDiff(
            None if before is None else before.side(tables), None if after is None else after.side(tables)
        )
        return TypeDiff(
            None if before is None else before.table, None if after is None else after.table, rows
        )


def plan_shares(
    before: Snapshot, after: Snapshot, change_filter: ChangeFilter, share_rows: int
) -> Iterator[Share]:
    """Split the changes from one state to another into shares of about `share_rows` rows or fewer.

    A type has at most 64 shares. Reads the fragments of table versions, but no rows.
    """
    parent, commit = _without_tables(before.commit), _without_tables(after.commit)
    for diff in compare_states(before, after, change_filter):
        rows = diff.rows.rows
        if not rows or (change_filter.ops and not diff.possible.intersection(change_filter.ops)):
            continue
        parts = min(-(-rows // share_rows), _MOST_PARTS)
        for number in range(parts):
            yield Share(
                _version(diff.before, diff.rows.before),
                _version(diff.after, diff.rows.after),
                parent,
                commit,
                change_filter.ops,
                -(-rows // parts),
                None if parts == 1 else (number, parts),
            )


def bundle_shares(shares: Sequence[Share], rows: int) -> list[tuple[Share, ...]]:
    """Combine consecutive shares up to a number of rows and of shares."""
    bundles: list[list[Share]] = []
    room = 0
    for share in shares:
        weight = max(share.rows, rows // _SMALL_SHARES)
        if not bundles or weight > room:
            bundles.append([])
            room = rows
        bundles[-1].append(share)
        room -= weight
    return [tuple(bundle) for bundle in bundles]


def _version(table: Table | None, side: Side | None) -> TableVersion | None:
    return None if table is None or side is None else TableVersion(table, side.pin)


def _without_tables(commit: CommitRecord) -> CommitRecord:
    return replace(commit, tables={}, touched=())
