"""The compaction and indexing of one table over several attempts of an optimize.

The branch may move while the work is done. The results of an earlier attempt are used again where they still
apply: a rewritten fragment if its source fragments are unchanged, an index segment if its fragments are
unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph.maintain.compaction_policy import SEGMENT_ROWS, groups_to_rewrite, segments_to_build
from omnigraph.search.inverted.segment_building import TextSegmentPlan, build_text_segment
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.index_segments import BuiltSegment, build_segment, index_name
from omnigraph.store.tables.staged_table import StagedTable
from omnigraph.store.tables.table_fragments import TableFragment, list_fragments
from omnigraph.store.tables.table_indexes import IndexSegment, list_segments
from omnigraph.store.tables.tables import Tables
from omnigraph.store.tables.uncommitted_fragments import WrittenFragment, rewrite_fragments

# The ids of rewritten fragments start this far above all others. Fragments that concurrent writers add get ids in
# between, so that index segments over the rewritten fragments remain valid.
_ID_GAP = 1_024


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Rewrite some fragments of a version as one with the id `new_id`. It can be pickled."""

    pin: TablePin
    group: tuple[TableFragment, ...]
    new_id: int

    @property
    def rows(self) -> int:
        """The number of rows to write."""
        return sum(item.rows for item in self.group)

    @property
    def nbytes(self) -> int:
        """The number of bytes to read."""
        return sum(item.nbytes for item in self.group)

    def run(self, root: LanceRoot) -> WrittenFragment:
        """Write the new fragment."""
        return rewrite_fragments(root, self.pin, [item.id for item in self.group], self.new_id)


@dataclass(frozen=True, slots=True)
class WantedIndex:
    """An index to complete. `kind` is as for `build_segment`.

    Fewer than `min_rows` rows without an index get none, and a segment covers about `max_rows` at most. `row_bytes`
    estimates what a segment reads of a row. `text` is how to build a segment of a full-text index.
    """

    column: str
    kind: str
    min_rows: int = 0
    row_bytes: int = 32
    max_rows: int = SEGMENT_ROWS
    text: TextSegmentPlan | None = None

    @property
    def name(self) -> str:
        """The name of the index in the table."""
        return index_name(self.column, self.kind)

    def build(self, root: LanceRoot, pin: TablePin, fragments: Sequence[int]) -> BuiltSegment | None:
        """Build an uncommitted segment over some fragments; None if there are none."""
        if self.text is None or not fragments:
            return build_segment(root, pin, self.column, self.kind, fragments)
        return build_text_segment(root, pin, self.column, self.text, fragments)


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """Build a segment of an index over some fragments of a version. It can be pickled."""

    pin: TablePin
    index: WantedIndex
    fragments: tuple[TableFragment, ...]

    @property
    def rows(self) -> int:
        """The number of rows to index."""
        return sum(item.rows for item in self.fragments)

    @property
    def nbytes(self) -> int:
        """The estimated number of bytes to read."""
        return self.rows * self.index.row_bytes

    @property
    def fragment_files(self) -> frozenset[tuple[int, str]]:
        """The id and files of each fragment. The segment is valid while these are unchanged."""
        return frozenset((item.id, item.files) for item in self.fragments)

    def run(self, root: LanceRoot) -> BuiltSegment | None:
        """Build the segment."""
        return self.index.build(root, self.pin, [item.id for item in self.fragments])


@dataclass
class TableMaintenance:
    """The results of finished tasks of one table.

    `rewritten` has rewritten fragments, `built` has index segments, and `removed` has the handles of the
    segments that the built ones replace.
    """

    rewritten: list[tuple[RewriteTask, WrittenFragment]] = field(default_factory=list)
    built: list[tuple[SegmentTask, BuiltSegment]] = field(default_factory=list)
    removed: list[Any] = field(default_factory=list)

    def plan_rewrites(self, tables: Tables, pin: TablePin) -> list[RewriteTask]:
        """Return the remaining rewrites of a version. Earlier results that no longer apply leave `rewritten`."""
        fragments = list_fragments(tables, pin)
        used_ids = {item.id for item in fragments}.union(
            *(segment.fragments for segment in list_segments(tables, pin))
        )
        present = set(fragments)
        self.rewritten = [
            (task, new)
            for task, new in self.rewritten
            if present.issuperset(task.group) and task.new_id not in used_ids
        ]
        done = {fragment for task, _ in self.rewritten for fragment in task.group}
        remaining = [item for item in fragments if item not in done]
        first = max(used_ids.union(task.new_id for task, _ in self.rewritten), default=0) + _ID_GAP
        return [
            RewriteTask(pin, group, first + number)
            for number, group in enumerate(groups_to_rewrite(remaining))
        ]

    def stage_compaction(self, tables: Tables, pin: TablePin) -> StagedTable:
        """Stage the fragments in `rewritten` in place of their sources."""
        rewritten = [([fragment.id for fragment in task.group], new) for task, new in self.rewritten]
        return tables.stage_compaction(pin, rewritten)

    def plan_segments(
        self, tables: Tables, pin: TablePin, indexes: Iterable[WantedIndex], obsolete: Collection[str] = ()
    ) -> list[SegmentTask]:
        """Return the remaining index segments of a version. Earlier results that no longer apply leave `built`.

        Sets `removed` to the segments that are replaced, and to those of the indexes whose names are `obsolete`.
        """
        fragments = {item.id: item for item in list_fragments(tables, pin)}
        rows = {id_: item.rows for id_, item in fragments.items()}
        present = {(item.id, item.files) for item in fragments.values()}
        stored = list_segments(tables, pin)
        earlier, self.built = self.built, []
        self.removed = [item.handle for item in stored if item.index in obsolete]
        tasks: list[SegmentTask] = []
        for index in indexes:
            name = index.name
            old = [item for item in stored if item.index == name]
            kept = [
                (task, segment)
                for task, segment in earlier
                if task.index == index
                and task.fragment_files <= present
                and _is_applicable(task, old, rows.keys())
            ]
            covered = {fragment.id for task, _ in kept for fragment in task.fragments}
            # A kept segment replaces the stored segments of its fragments.
            unreplaced = [item for item in old if not (item.fragments & rows.keys() & covered)]
            self.removed += [item.handle for item in old if item not in unreplaced]
            new = [
                IndexSegment(name, frozenset(part.id for part in task.fragments), task) for task, _ in kept
            ]
            builds, gone = segments_to_build(rows, [*unreplaced, *new], index.min_rows, index.max_rows)
            self.removed += [item.handle for item in gone if item in unreplaced]
            self.built += [
                pair for pair, segment in zip(kept, new, strict=True) if all(item != segment for item in gone)
            ]
            tasks += [SegmentTask(pin, index, tuple(fragments[id_] for id_ in ids)) for ids in builds]
        return tasks

    def stage_segments(self, tables: Tables, pin: TablePin) -> StagedTable:
        """Stage the segments in `built`, and the removal of those in `removed`."""
        return tables.stage_segments(pin, [segment for _, segment in self.built], self.removed)


def _is_applicable(task: SegmentTask, stored: Sequence[IndexSegment], present: Iterable[int]) -> bool:
    """Return whether a segment can be added: each stored segment is disjoint from it or a proper subset of it."""
    covered = {fragment.id for fragment in task.fragments}
    live = [segment.fragments.intersection(present) for segment in stored]
    return all(fragments.isdisjoint(covered) or fragments < covered for fragments in live)
