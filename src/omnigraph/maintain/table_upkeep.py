"""The upkeep of one table: what is to be rewritten and indexed, and what of it an earlier attempt has done.

A branch may move while the work is done. What was made before is used again wherever it still fits: a rewritten
fragment when those that it was made from are as they were, a segment when its fragments are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph.maintain.compaction_policy import groups_to_rewrite, segments_to_build
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.index_segments import build_segment, index_name
from omnigraph.store.tables.table_fragments import TableFragment, list_fragments
from omnigraph.store.tables.table_indexes import IndexSegment, list_segments
from omnigraph.store.tables.tables import StagedTable, Tables
from omnigraph.store.tables.uncommitted_fragments import decode_fragments, rewrite_fragments

# The numbers of rewritten fragments begin so far above all others: those that others add meanwhile come to lie
# between, and what was built over the rewritten ones stays right.
_GAP = 1_024


@dataclass(frozen=True, slots=True)
class Rewriting:
    """Fragments of a version that become one, which gets this number. A value that can be pickled."""

    pin: TablePin
    group: tuple[TableFragment, ...]
    number: int

    @property
    def rows(self) -> int:
        """The rows to be written."""
        return sum(item.rows for item in self.group)

    @property
    def nbytes(self) -> int:
        """The bytes to be read."""
        return sum(item.nbytes for item in self.group)

    def run(self, root: LanceRoot) -> str:
        """Write them; the new fragment as text."""
        return rewrite_fragments(root, self.pin, [item.id for item in self.group], self.number)


@dataclass(frozen=True, slots=True)
class Indexing:
    """A segment of a column's index over some fragments of a version. A value that can be pickled."""

    pin: TablePin
    column: str
    kind: str
    fragments: tuple[TableFragment, ...]

    @property
    def rows(self) -> int:
        """The rows to be indexed."""
        return sum(item.rows for item in self.fragments)

    @property
    def spots(self) -> frozenset[tuple[int, str]]:
        """The fragments, by what must not have changed for the segment to be right: rows may have gone."""
        return frozenset((item.id, item.files) for item in self.fragments)

    def run(self, root: LanceRoot) -> Any:
        """Build it."""
        return build_segment(root, self.pin, self.column, self.kind, [item.id for item in self.fragments])


@dataclass
class TableUpkeep:
    """One table's upkeep, over all attempts."""

    rewritten: list[tuple[Rewriting, str]] = field(default_factory=list)
    built: list[tuple[Indexing, Any]] = field(default_factory=list)
    removed: list[Any] = field(default_factory=list)

    def plan_rewrites(self, tables: Tables, pin: TablePin) -> list[Rewriting]:
        """What remains to be rewritten of a version; what was before and still fits stays in `rewritten`."""
        fragments = list_fragments(tables, pin)
        taken = {item.id for item in fragments}.union(
            *(part.fragments for part in list_segments(tables, pin))
        )
        present = set(fragments)
        self.rewritten = [
            (item, text)
            for item, text in self.rewritten
            if present.issuperset(item.group) and item.number not in taken
        ]
        done = {fragment for item, _ in self.rewritten for fragment in item.group}
        rest = [item for item in fragments if item not in done]
        first = max(taken.union(item.number for item, _ in self.rewritten), default=0) + _GAP
        return [Rewriting(pin, group, first + number) for number, group in enumerate(groups_to_rewrite(rest))]

    def stage_compaction(self, tables: Tables, pin: TablePin) -> StagedTable:
        """The version with everything in `rewritten` in its place."""
        new = decode_fragments([text for _, text in self.rewritten])
        old = [[fragment.id for fragment in item.group] for item, _ in self.rewritten]
        return tables.stage_compaction(pin, list(zip(old, new, strict=True)))

    def plan_segments(
        self, tables: Tables, pin: TablePin, columns: Iterable[str], kind: str
    ) -> list[Indexing]:
        """What remains to be indexed of a version's columns; what was before and still fits stays in `built`.

        `removed` is what is to go from the table for all of it.
        """
        fragments = {item.id: item for item in list_fragments(tables, pin)}
        rows = {id_: item.rows for id_, item in fragments.items()}
        present = {(item.id, item.files) for item in fragments.values()}
        stored = list_segments(tables, pin)
        made, self.built, self.removed = self.built, [], []
        wanted: list[Indexing] = []
        for column in columns:
            name = index_name(column, kind)
            old = [item for item in stored if item.index == name]
            kept = [
                (item, segment)
                for item, segment in made
                if item.column == column and item.spots <= present and _fits(item, old, rows.keys())
            ]
            covered = {fragment.id for item, _ in kept for fragment in item.fragments}
            # What was built before stands in for the segments whose fragments it took over.
            left = [item for item in old if not (item.fragments & rows.keys() & covered)]
            self.removed += [item.handle for item in old if item not in left]
            new = [
                IndexSegment(name, frozenset(part.id for part in item.fragments), item) for item, _ in kept
            ]
            builds, gone = segments_to_build(rows, [*left, *new])
            self.removed += [item.handle for item in gone if item in left]
            self.built += [
                pair for pair, segment in zip(kept, new, strict=True) if all(item != segment for item in gone)
            ]
            wanted += [Indexing(pin, column, kind, tuple(fragments[id_] for id_ in ids)) for ids in builds]
        return wanted

    def stage_segments(self, tables: Tables, pin: TablePin) -> StagedTable:
        """The version with the segments in `built`, and without those in `removed`."""
        return tables.stage_segments(pin, [segment for _, segment in self.built], self.removed)


def _fits(item: Indexing, old: Sequence[IndexSegment], present: Iterable[int]) -> bool:
    """Whether a segment takes over all or nothing of each one that is there, and has more than that."""
    mine = {fragment.id for fragment in item.fragments}
    live = [part.fragments.intersection(present) for part in old]
    return all(part.isdisjoint(mine) or part < mine for part in live)
