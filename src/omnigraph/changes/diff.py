"""The changes between two states, entity by entity.

Types and properties are matched by identity, so a rename is no change. Tables with equal pins in both states are
not opened. Of other tables, only rows that one state alone stores are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import ENDPOINT_NAMES
from omnigraph.catalog.entity_images import images
from omnigraph.changes.change_records import ChangeFilter, EntityChange, Image, Kind, Op
from omnigraph.changes.cursors import EntityKey
from omnigraph.engine.diff.table_diff import DELETE, INSERT, UPDATE, ChangeBatch, Side, TableDiff
from omnigraph.graph.damage import reading
from omnigraph.graph.snapshot import Snapshot
from omnigraph.store.tables.version_diff import KnownFragments

OPS: Final[Mapping[int, Op]] = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}


@dataclass(frozen=True)
class TypeDiff:
    """A type whose rows may differ between two states. None is a state without the type."""

    before: Table | None
    after: Table | None
    rows: TableDiff

    @property
    def table(self) -> Table:
        """The type after, or before if it was dropped."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def kind(self) -> Kind:
        """The kind of the type."""
        return "edge" if self.table.kind == "edge" else "node"

    @property
    def type_id(self) -> str:
        """The identity of the type."""
        return str(self.table.type_id)

    @property
    def version(self) -> int:
        """The version of the type's data after, or before if the type was dropped."""
        side = self.rows.after or self.rows.before
        assert side is not None
        return side.pin.version

    def count(self, ops: tuple[Op, ...] = ()) -> dict[str, int]:
        """Return the number of changes of each operation; 0 for operations that are not selected."""
        found: Counter[str] = Counter()
        if not self.rows.removes:
            found["insert"] = self.rows.rows
        elif not self.rows.adds:
            found["delete"] = self.rows.rows
        else:
            for batch in self.rows.batches():
                for number, op in OPS.items():
                    found[op] += int((batch.ops == number).sum())
        return {op: found[op] if not ops or op in ops else 0 for op in OPS.values()}

    def changes(self, ops: tuple[Op, ...] = (), after_id: str | None = None) -> Iterator[EntityChange]:
        """Yield the changes of the selected operations by id, after an id if one is given."""
        if not self.possible.intersection(ops or OPS.values()):
            return
        selected = [number for number, op in OPS.items() if not ops or op in ops]
        for batch in self.rows.batches(after_id=after_id):
            yield from self._changes_of(batch, np.isin(batch.ops, selected))

    @property
    def possible(self) -> frozenset[Op]:
        """The operations that can occur, judging by which side stores rows alone."""
        if not self.rows.removes:
            return frozenset({"insert"})
        return frozenset(OPS.values()) if self.rows.adds else frozenset({"delete"})

    def _changes_of(
        self, batch: ChangeBatch, selected: np.ndarray[Any, np.dtype[np.bool_]]
    ) -> Iterator[EntityChange]:
        ops = batch.ops[selected]
        before = self._images(self.before, batch.before.filter(pa.array(selected & (batch.ops != INSERT))))
        after = self._images(self.after, batch.after.filter(pa.array(selected & (batch.ops != DELETE))))
        ids = batch.ids.filter(pa.array(selected)).to_pylist()
        changed = self._changed_names(batch, selected & (batch.ops == UPDATE))
        kind, name, type_id = self.kind, self.table.name, self.type_id
        for id_, op in zip(ids, ops.tolist(), strict=True):
            yield EntityChange(
                kind,
                name,
                type_id,
                id_,
                OPS[op],
                None if op == INSERT else next(before),
                None if op == DELETE else next(after),
                next(changed) if op == UPDATE else (),
            )

    def _changed_names(
        self, batch: ChangeBatch, updated: np.ndarray[Any, np.dtype[np.bool_]]
    ) -> Iterator[tuple[str, ...]]:
        columns = [column for column in self.names if column in batch.changed]
        flags = np.array([batch.changed[column][updated] for column in columns])
        names = [self.names[column] for column in columns]
        for row in flags.T.tolist():
            # Two properties that had the same name at different times are reported as one.
            yield tuple(dict.fromkeys(name for name, flag in zip(names, row, strict=True) if flag))

    def _images(self, table: Table | None, rows: pa.Table) -> Iterator[Image]:
        return iter(()) if table is None else images(table, rows, self.names)

    @cached_property
    def names(self) -> dict[str, str]:
        """The name of each column in the images of both sides: the name after, if the column still exists."""
        after = () if self.after is None else self.after.columns
        names = {column.physical: ENDPOINT_NAMES.get(column.name, column.name) for column in after}
        before = () if self.before is None else self.before.columns
        shared = {names[column.physical] for column in before if column.physical in names}
        for column in before:
            own = ENDPOINT_NAMES.get(column.name, column.name)
            # A name that another property has taken over would be ambiguous.
            names.setdefault(column.physical, column.physical if own in shared else own)
        return names


def compare_states(
    before: Snapshot,
    after: Snapshot,
    change_filter: ChangeFilter,
    known: KnownFragments | None = None,
) -> list[TypeDiff]:
    """Return the types whose rows may differ, nodes before edges, each ordered by type id. Opens no table.

    Rows of small fragments that are `known` are not read from storage.
    """
    old = {table.type_id: table for table in before.catalog.tables.values()}
    new = {table.type_id: table for table in after.catalog.tables.values()}
    found = []
    for type_id in {**old, **new}:
        was, is_ = old.get(type_id), new.get(type_id)
        names = [table.name for table in (was, is_) if table is not None]
        diff = TypeDiff(was, is_, TableDiff(_side(before, was, known), _side(after, is_, known)))
        if change_filter.selects_table(diff.kind, names) and not _has_same_pins(diff.rows):
            found.append(diff)
    return sorted(found, key=lambda diff: (diff.kind != "node", diff.type_id))


def require_stored(diffs: list[TypeDiff]) -> None:
    """Raise `NotFound` if a state of a diff is not in storage any more.

    Counts and cached changes need no read of rows. Without this check, a handle that has opened a version would
    still answer from it after garbage collection.
    """
    for diff in diffs:
        for side in (diff.rows.before, diff.rows.after):
            if side is not None:
                side.tables.require_stored(side.pin)


def stream_changes(
    diffs: list[TypeDiff], change_filter: ChangeFilter, after: EntityKey | None = None
) -> Iterator[EntityChange]:
    """Yield the changes of types in order, after an entity if one is given. Types before it are not read."""
    start = None if after is None else after.order[:2]
    for diff in diffs:
        here = (diff.kind != "node", diff.type_id)
        if start is None or here > start:
            yield from diff.changes(change_filter.ops)
        elif here == start and after is not None:
            yield from diff.changes(change_filter.ops, after.id)


@contextmanager
def reading_both(before: Snapshot, after: Snapshot) -> Iterator[None]:
    """Report data that is missing or damaged, with the state that it belongs to."""
    with reading(after.state, before.state), before.held(), after.held():
        yield


def _side(snapshot: Snapshot, table: Table | None, known: KnownFragments | None) -> Side | None:
    if table is None:
        return None
    return Side(
        snapshot.tables,
        snapshot.pin(table.key),
        {column.physical: column.physical for column in table.columns},
        known,
    )


def _has_same_pins(rows: TableDiff) -> bool:
    if rows.before is None or rows.after is None:
        side = rows.before or rows.after
        return side is None or not side.pin.rows
    before, after = rows.before.pin, rows.after.pin
    return before.content == after.content or (before.path, before.version) == (after.path, after.version)
