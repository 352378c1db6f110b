"""The walk back along the history of one node or edge, over both parents of merges.

Most commits are passed without a read. The pins of a table name the commit that last changed its rows, so commits
that did not change the type cost nothing. A row is followed by the data file that holds it: commits record the
files that they wrote, so a commit that did not write the file of the row did not change the row. Only a commit that
wrote the row, or a merge, compares the versions of the table around it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Table
from omnigraph.engine.diff.column_equality import differing
from omnigraph.errors import NotFound, PermissionDenied
from omnigraph.graph.damage import RECLAIMED
from omnigraph.graph.history import get_commit
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.store.lance.lance_filters import quote_string
from omnigraph.store.manifest.records import CommitRecord, TablePin
from omnigraph.store.tables.row_addresses import ROW_ADDRESS, Addresses, fragments_of, offsets_of
from omnigraph.store.tables.table_fragments import TableFragment, find_rows, list_fragments, live_offsets
from omnigraph.store.tables.version_diff import compare_versions, slice_rows, take_addresses

# Commits of these operations store only rows that they write themselves. A merge, a revert or a repair may store a
# row again that an older version of the table has.
_ORDINARY: Final = frozenset({"mutate", "load"})
# Up to this many replaced rows are searched by their ids; for more, the index of the version is.
_SEARCHED_ROWS: Final = 16_384


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a row is stored: its fragment, which the data files identify, and its offset there."""

    fragment: TableFragment
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredEntity:
    """One row by physical column, and its place in the version in which it was found, if that is known."""

    values: pa.Table
    place: _Place | None


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A commit, the entity in its state, and the states that it came from; None is a state without the entity.

    With `changed` the entity differs from all of them. `sources` has one state for each parent that the walk
    follows. It is empty at the first commit of a graph, and if `known` is false because the state before may not
    be read or was reclaimed. With `gap`, states between the commit and a source were reclaimed.
    """

    commit: CommitRecord
    entity: StoredEntity | None
    sources: tuple[tuple[CommitRecord, StoredEntity | None], ...]
    changed: bool
    known: bool = True
    gap: bool = False


class EntityWalk:
    """The walk for one entity. `authorize` raises `PermissionDenied` for a commit whose rows may not be read."""

    def __init__(
        self,
        repository: Repository,
        type_id: int,
        id_: str,
        authorize: Callable[[CommitRecord], None] | None = None,
    ) -> None:
        self._repository = repository
        self._type_id = type_id
        self._id = id_
        self._authorize = authorize
        self._tables: dict[str, Table | None] = {}

    def steps(self, start: CommitRecord) -> Iterator[Step]:
        """Yield a step for every commit that the walk passes, children before parents and newest first."""
        # The commit as a branch head does not have the names of its files.
        start = get_commit(self._repository.manifest, self._repository.manifest.view, start.id)
        waiting = {start.id: (start, self.find(start))}
        queue = [(-start.created_at, start.id)]
        while queue:
            _, id_ = heapq.heappop(queue)
            step = self._step(*waiting.pop(id_))
            for commit, entity in step.sources:
                if commit.id not in waiting:
                    heapq.heappush(queue, (-commit.created_at, commit.id))
                waiting[commit.id] = (commit, entity)
            yield step

    def table(self, commit: CommitRecord) -> Table | None:
        """Return the type in the schema of a commit; None if the schema does not have it."""
        if commit.schema not in self._tables:
            tables = self._snapshot(commit).catalog.tables.values()
            self._tables[commit.schema] = next(
                (item for item in tables if item.type_id == self._type_id), None
            )
        return self._tables[commit.schema]

    def find(self, commit: CommitRecord) -> StoredEntity | None:
        """Look the entity up in the state of a commit. Raises the errors of `Snapshot.reading`."""
        table, snapshot = self.table(commit), self._snapshot(commit)
        if table is None or not snapshot.pin(table.key).rows:
            return None
        pin = snapshot.pin(table.key)
        columns = [column.physical for column in table.columns]
        with snapshot.reading(), snapshot.held():
            addresses, rows = find_rows(snapshot.tables, pin, f"id = {quote_string(self._id)}", columns)
            if not len(addresses):
                return None
            return StoredEntity(rows.slice(0, 1), _place_of(snapshot, pin, addresses[:1]))

    def changed_columns(self, before: StoredEntity, after: StoredEntity) -> list[str]:
        """Return the physical columns whose values differ. A column that one side lacks is null there."""
        names = dict.fromkeys([*after.values.column_names, *before.values.column_names])
        return [name for name in names if not _is_equal(before.values, after.values, name)]

    def _step(self, commit: CommitRecord, entity: StoredEntity | None) -> Step:
        first = None if self.table(commit) is None else self._parent(commit.parent)
        if first is None:
            return Step(commit, entity, (), changed=entity is not None)
        if not self._is_readable(first):
            return Step(commit, entity, (), changed=entity is not None, known=False)
        merged = self._parent(commit.merged_parent)
        parents = [first] if merged is None or not self._is_readable(merged) else [first, merged]
        for parent in parents:
            if self._has_same_rows(commit, parent):
                return Step(commit, entity, ((parent, self._moved(commit, parent, entity)),), changed=False)
        sources = []
        gap = False
        for parent in parents:
            source, skipped = self._source(commit, entity, parent)
            gap = gap or skipped
            if source is None:
                continue
            if self._is_same(entity, source[1]):
                return Step(commit, entity, (source,), changed=False, gap=skipped)
            sources.append(source)
        return Step(commit, entity, tuple(sources), changed=True, known=bool(sources), gap=gap)

    def _source(
        self, commit: CommitRecord, entity: StoredEntity | None, parent: CommitRecord
    ) -> tuple[tuple[CommitRecord, StoredEntity | None] | None, bool]:
        """Return the nearest readable state at or before a parent, and whether reclaimed states were skipped."""
        skipped = False
        candidate: CommitRecord | None = parent
        while candidate is not None and self._is_readable(candidate):
            try:
                return (candidate, self._before(commit, entity, candidate)), skipped
            except NotFound as error:
                _require_reclaimed(error)
            skipped = True
            candidate = self._parent(candidate.parent)
        return None, skipped

    def _before(
        self, commit: CommitRecord, entity: StoredEntity | None, earlier: CommitRecord
    ) -> StoredEntity | None:
        """Return the entity in an earlier state: the same object if the row is stored there unchanged."""
        table, pin = self._pin(earlier)
        if table is None or pin is None or not pin.rows:
            return None
        place = None if entity is None else self._place(commit, entity)
        if entity is not None and place is not None:
            known = replace(entity, place=place)
            if earlier.id == commit.parent and _wrote_elsewhere(commit, self._pin(commit)[1], place):
                return known
            if self._is_stored(earlier, pin, place):
                return known
        return self._find_replaced(commit, earlier, table, pin)

    def _place(self, commit: CommitRecord, entity: StoredEntity) -> _Place | None:
        """Return the place of a row in the state of a commit; None if the state was reclaimed."""
        if entity.place is not None:
            return entity.place
        try:
            found = self.find(commit)
        except NotFound as error:
            _require_reclaimed(error)
            return None
        return None if found is None else found.place

    def _is_stored(self, commit: CommitRecord, pin: TablePin, place: _Place) -> bool:
        """Return whether a version stores the row at a place. No data file is read."""
        snapshot = self._snapshot(commit)
        with snapshot.reading(), snapshot.held():
            for fragment in list_fragments(snapshot.tables, pin):
                if fragment.files == place.fragment.files:
                    if fragment.deletions in (None, place.fragment.deletions):
                        return True
                    return bool(np.isin(place.offset, live_offsets(snapshot.tables, pin, fragment)))
        return False

    def _find_replaced(
        self, commit: CommitRecord, earlier: CommitRecord, table: Table, pin: TablePin
    ) -> StoredEntity | None:
        """Return the entity in an earlier state, given that a commit does not store its row any more.

        Only the rows that the commit does not store any more are searched, unless they are many.
        """
        snapshot = self._snapshot(earlier)
        try:
            with self._snapshot(commit).reading():
                stored = compare_versions(snapshot.tables, pin, self._pin(commit)[1])
        except NotFound as error:
            _require_reclaimed(error)
            return self.find(earlier)
        if stored.removed_rows > _SEARCHED_ROWS:
            return self.find(earlier)
        with snapshot.reading(), snapshot.held():
            for keys in slice_rows(snapshot.tables, pin, stored.removed, ["id"]):
                found = pc.index(keys.column(0), self._id).as_py()
                if found >= 0:
                    address = keys.column(ROW_ADDRESS).to_numpy()[found : found + 1]
                    columns = [column.physical for column in table.columns]
                    rows = take_addresses(snapshot.tables, pin, address, columns)
                    return StoredEntity(rows, _place_of(snapshot, pin, address))
        return None

    def _has_same_rows(self, commit: CommitRecord, parent: CommitRecord) -> bool:
        (_, one), (_, other) = self._pin(commit), self._pin(parent)
        if one is None or other is None:
            return one is other
        return one.content == other.content

    def _moved(
        self, commit: CommitRecord, parent: CommitRecord, entity: StoredEntity | None
    ) -> StoredEntity | None:
        """Return the entity for a parent with the same rows, which compaction may have stored elsewhere."""
        (_, one), (_, other) = self._pin(commit), self._pin(parent)
        if entity is None or one is None or other is None or one.version == other.version:
            return entity
        return replace(entity, place=None)

    def _is_same(self, one: StoredEntity | None, other: StoredEntity | None) -> bool:
        if one is None or other is None:
            return one is other
        return one.values is other.values or not self.changed_columns(one, other)

    def _pin(self, commit: CommitRecord) -> tuple[Table | None, TablePin | None]:
        table = self.table(commit)
        return table, None if table is None else commit.tables.get(str(table.id))

    def _snapshot(self, commit: CommitRecord) -> Snapshot:
        return self._repository.snapshot_of(commit)

    def _parent(self, id_: str | None) -> CommitRecord | None:
        manifest = self._repository.manifest
        return None if id_ is None else get_commit(manifest, manifest.view, id_)

    def _is_readable(self, commit: CommitRecord) -> bool:
        try:
            if self._authorize is not None:
                self._authorize(commit)
        except PermissionDenied:
            return False
        return True


def _require_reclaimed(error: NotFound) -> None:
    """Raise an error again unless it says that garbage collection removed the data."""
    if error.details.get("reason") != RECLAIMED:
        raise error


def _place_of(snapshot: Snapshot, pin: TablePin, address: Addresses) -> _Place:
    """Return the place of a row of a version, given its address in an array of one."""
    fragment = int(fragments_of(address)[0])
    stored = next(item for item in list_fragments(snapshot.tables, pin) if item.id == fragment)
    return _Place(stored, int(offsets_of(address)[0]))


def _wrote_elsewhere(commit: CommitRecord, pin: TablePin | None, place: _Place) -> bool:
    """Return whether a commit wrote files of a table, but not those that hold a row. False if it is not known."""
    if pin is None or commit.operation not in _ORDINARY or commit.merged_parent is not None:
        return False
    lines = [line for line in commit.files.splitlines() if line.startswith(f"{pin.path}\t")]
    written = {line.split("\t")[1] for line in lines}
    return bool(written) and not any(f"data/{name}" in written for name in place.fragment.file_names)


def _is_equal(before: pa.Table, after: pa.Table, name: str) -> bool:
    sides = [side[name] for side in (before, after) if name in side.column_names]
    if len(sides) == 1:
        return bool(sides[0].null_count)
    one, other = sides
    return one.type == other.type and not differing(one, other)[0]
