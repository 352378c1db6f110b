"""What changed between two states, entity by entity, and what a commit changed against its first parent.

Types are matched by their identity and properties by theirs, so that a rename is no change. What both states pin
alike is not opened; of the rest only rows are read that one state alone has in storage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
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
from omnigraph.changes.cursors import Place
from omnigraph.engine.diff.table_diff import DELETE, INSERT, UPDATE, ChangeBatch, Side, TableDiff
from omnigraph.errors import ChangeFeedGap, Conflict, NotFound
from omnigraph.graph.history import get_commit
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot, reclaimed
from omnigraph.store.manifest.records import CommitRecord

OPS: Final[Mapping[int, Op]] = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}


@dataclass(frozen=True)
class TypeDiff:
    """A type whose rows may differ between two states; `None` where a state does not have it."""

    before: Table | None
    after: Table | None
    rows: TableDiff

    @property
    def table(self) -> Table:
        """The type as it is after, or was."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def kind(self) -> Kind:
        """Whether it is a type of nodes or of edges."""
        return "edge" if self.table.kind == "edge" else "node"

    @property
    def type_id(self) -> str:
        """The type's identity."""
        return str(self.table.type_id)

    @property
    def version(self) -> int:
        """The version of the type's data after, or before when there is none after."""
        side = self.rows.after or self.rows.before
        assert side is not None
        return side.pin.version

    def count(self, ops: tuple[Op, ...] = ()) -> dict[str, int]:
        """How many changes of each operation there are; those that are not wanted count nothing."""
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
        """The changes by id, of the wanted operations, after an id."""
        if not self.possible.intersection(ops or OPS.values()):
            return
        wanted = [number for number, op in OPS.items() if not ops or op in ops]
        for batch in self.rows.batches(after_id=after_id):
            yield from self._changes_of(batch, np.isin(batch.ops, wanted))

    @property
    def possible(self) -> frozenset[Op]:
        """The operations that there may be, by what is stored where."""
        if not self.rows.removes:
            return frozenset({"insert"})
        return frozenset(OPS.values()) if self.rows.adds else frozenset({"delete"})

    def _changes_of(
        self, batch: ChangeBatch, wanted: np.ndarray[Any, np.dtype[np.bool_]]
    ) -> Iterator[EntityChange]:
        ops = batch.ops[wanted]
        before = self._images(self.before, batch.before.filter(pa.array(wanted & (batch.ops != INSERT))))
        after = self._images(self.after, batch.after.filter(pa.array(wanted & (batch.ops != DELETE))))
        ids = batch.ids.filter(pa.array(wanted)).to_pylist()
        changed = self._changed_names(batch, wanted & (batch.ops == UPDATE))
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
            # Two properties that had one name at different times are one here.
            yield tuple(dict.fromkeys(name for name, flag in zip(names, row, strict=True) if flag))

    def _images(self, table: Table | None, rows: pa.Table) -> Iterator[Image]:
        return iter(()) if table is None else images(table, rows, self.names)

    @cached_property
    def names(self) -> dict[str, str]:
        """What every column is called in images of both sides: as it is after, where it is."""
        after = () if self.after is None else self.after.columns
        names = {column.physical: ENDPOINT_NAMES.get(column.name, column.name) for column in after}
        before = () if self.before is None else self.before.columns
        shared = {names[column.physical] for column in before if column.physical in names}
        for column in before:
            own = ENDPOINT_NAMES.get(column.name, column.name)
            # A name that another property has taken over would stand for two.
            names.setdefault(column.physical, column.physical if own in shared else own)
        return names


def compare_states(before: Snapshot, after: Snapshot, wanted: ChangeFilter) -> list[TypeDiff]:
    """The types whose rows may differ, nodes before edges, each by the text of its id. Nothing is opened for it."""
    old = {table.type_id: table for table in before.catalog.tables.values()}
    new = {table.type_id: table for table in after.catalog.tables.values()}
    found = []
    for type_id in {**old, **new}:
        was, is_ = old.get(type_id), new.get(type_id)
        names = [table.name for table in (was, is_) if table is not None]
        diff = TypeDiff(was, is_, TableDiff(_side(before, was), _side(after, is_)))
        if wanted.wants_table(diff.kind, names) and not _pinned_alike(diff.rows):
            found.append(diff)
    return sorted(found, key=lambda diff: (diff.kind != "node", diff.type_id))


def stream_changes(
    diffs: list[TypeDiff], wanted: ChangeFilter, place: Place | None = None
) -> Iterator[EntityChange]:
    """The changes of types in their order, from behind a place on; types before it are not looked at."""
    start = None if place is None else (place.kind != "node", place.type_id)
    for diff in diffs:
        here = (diff.kind != "node", diff.type_id)
        if start is None or here > start:
            yield from diff.changes(wanted.ops)
        elif here == start and place is not None:
            yield from diff.changes(wanted.ops, place.id)


@contextmanager
def reading_both(before: Snapshot, after: Snapshot) -> Iterator[None]:
    """Whoever finds data missing in here is told which of the two states cleanup has taken."""
    try:
        yield
    except NotFound as error:
        kept = all(after.tables.exists(pin) for pin in after.commit.tables.values())
        raise reclaimed((before if kept else after).commit) from error


def _side(snapshot: Snapshot, table: Table | None) -> Side | None:
    if table is None:
        return None
    return Side(
        snapshot.tables,
        snapshot.pin(table.key),
        {column.physical: column.physical for column in table.columns},
    )


def _pinned_alike(rows: TableDiff) -> bool:
    if rows.before is None or rows.after is None:
        side = rows.before or rows.after
        return side is None or not side.pin.rows
    before, after = rows.before.pin, rows.after.pin
    return before.content == after.content or (before.path, before.version) == (after.path, after.version)


# --- one commit -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CommitChanges:
    """A commit whose changes can be told."""

    commit: CommitRecord
    wanted: ChangeFilter
    diffs: list[TypeDiff]

    def stream(self, place: Place | None = None) -> Generator[EntityChange]:
        """The changes against the first parent, from behind a place on."""
        with _gap_at(self.commit):
            yield from stream_changes(self.diffs, self.wanted, place)


def open_commit(repository: Repository, commit: CommitRecord, wanted: ChangeFilter) -> CommitChanges:
    """The changes of a commit against its first parent, when they can be told.

    `Conflict` for the first commit of a graph, which has nothing to be compared with, and for one that changed the
    properties of a type or dropped one with rows; `ChangeFeedGap` when cleanup took the data of either state.
    """
    before, after = states_of(repository, commit)
    type_name = schema_boundary(before, after)
    if type_name is not None:
        raise _refusal(
            commit,
            f"commit '{commit.id}' changed the schema of '{type_name}', which row changes cannot tell",
            reason="schema_boundary",
            type_name=type_name,
        )
    diffs = compare_states(before, after, wanted)
    with _gap_at(commit):
        for diff in diffs:
            for side in (diff.rows.before, diff.rows.after):
                if side is not None:
                    side.tables.open(side.pin.path, side.pin.version)
    return CommitChanges(commit, wanted, diffs)


def states_of(repository: Repository, commit: CommitRecord) -> tuple[Snapshot, Snapshot]:
    """The states that the changes of a commit lie between."""
    if commit.parent is None:
        text = f"commit '{commit.id}' is the first of its graph: there is nothing to compare it with"
        raise _refusal(commit, text, reason="parentless_commit")
    parent = get_commit(repository.manifest, repository.manifest.view, commit.parent)
    return repository.state(parent), repository.state(commit)


def schema_boundary(before: Snapshot, after: Snapshot) -> str | None:
    """The first type whose properties differ, or that was dropped with rows in it; new types and names are none."""
    if before.commit.schema == after.commit.schema:
        return None
    new = {table.type_id: table for table in after.catalog.tables.values()}
    for key, table in before.catalog.tables.items():
        other = new.get(table.type_id)
        if other is None:
            if before.pin(key).rows:
                return table.name
        elif {column.physical for column in table.columns} != {column.physical for column in other.columns}:
            return other.name
    return None


def _refusal(commit: CommitRecord, text: str, **details: str) -> Conflict:
    return Conflict(text, details={"change_diff_refusal": {**details, "graph_commit_id": commit.id}})


def gap(commit: CommitRecord) -> ChangeFeedGap:
    """The error of a commit whose changes cannot be told because data that they lie between is gone."""
    return ChangeFeedGap(
        f"the changes of commit '{commit.id}' were reclaimed by cleanup,"
        " or by a schema change that allowed data loss",
        details={"change_feed_gap": {"first_unreadable_commit_id": commit.id}},
        hint="take a baseline, and follow from its cursor",
    )


@contextmanager
def _gap_at(commit: CommitRecord) -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise gap(commit) from error
