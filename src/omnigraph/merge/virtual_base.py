"""Virtual merge base: several best common ancestors, merged into one state.

After criss-cross merges two heads have several best common ancestors. Each of them misses changes that both heads
have, so with one of them as the merge base, a change that one head has undone since would come back. Therefore all
of them are merged, with their own common ancestors as the merge base, and so on. Nothing is written.

A conflict between merge bases is left undecided: such a value counts as changed on both sides, so that the heads
either agree on it or are in conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from omnigraph.catalog.schema_merge.schema_conflicts import WHOLE_SCHEMA
from omnigraph.engine.diff.table_diff import UPDATE
from omnigraph.errors import NotFound
from omnigraph.graph.damage import RECLAIMED, reading
from omnigraph.graph.history import MAX_BASE_DEPTH
from omnigraph.graph.snapshot import Snapshot
from omnigraph.merge.merge_base import BaseState, MergeStates, VirtualTable
from omnigraph.merge.merge_checks import MergedTables, ViolatingEntities, violating_entities
from omnigraph.merge.resolutions import Resolutions
from omnigraph.merge.schema_merge import merge_base_schemas
from omnigraph.merge.state_merge import MergeOptions, StateMerge
from omnigraph.merge.table_merge import ThreeWayTable
from omnigraph.store.manifest.records import TablePin

# Returns the best common ancestors of two states, oldest first. Several commits stand for a merge of them.
FindBases: TypeAlias = Callable[[Sequence[Snapshot], Sequence[Snapshot]], list[Snapshot]]


def find_merge_base(find_bases: FindBases, ours: Snapshot, theirs: Snapshot) -> BaseState:
    """Return the merge base of two commits: their best common ancestor, or a virtual one merged from several.

    The result does not depend on which of the commits is ours. With one best common ancestor no state is read.
    """
    return _VirtualBases(find_bases).base_of((ours,), theirs, 1)


def has_same_content(one: Snapshot, other: Snapshot) -> bool:
    """Whether two states have the same rows, schema and pipeline runs, even if they are stored differently."""
    states = [
        (item.commit.schema, item.commit.runs, {key: pin.content for key, pin in item.commit.tables.items()})
        for item in (one, other)
    ]
    return states[0] == states[1]


class _VirtualBases:
    """The merge bases of commits, of merge bases, and so on, each computed once."""

    def __init__(self, find_bases: FindBases) -> None:
        self._find_bases = find_bases
        self._known: dict[tuple[frozenset[str], str], BaseState] = {}

    def base_of(self, many: Sequence[Snapshot], one: Snapshot, depth: int) -> BaseState:
        """Return the merge base of a commit and of others that were merged into one state."""
        pair = (frozenset(item.commit_id for item in many), one.commit_id)
        if pair not in self._known:
            bases = self._find_bases(many, (one,))
            state = BaseState(bases[0])
            for number in range(1, len(bases)):
                state = self._merge(state, bases[:number], bases[number], depth)
            self._known[pair] = state
        return self._known[pair]

    def _merge(
        self, merged: BaseState, sources: Sequence[Snapshot], added: Snapshot, depth: int
    ) -> BaseState:
        """Merge one more commit into a merge base that was merged from `sources`."""
        if not merged.is_virtual and has_same_content(merged.snapshot, added):
            return BaseState(added)
        if depth < MAX_BASE_DEPTH:
            try:
                base = self.base_of(sources, added, depth + 1)
                return BaseMerge(MergeStates.of_bases(base, added, merged)).merge_bases()
            except NotFound as error:
                if error.details.get("reason") != RECLAIMED:
                    raise
        # The older ancestors are out of reach, so that either state may have made the difference.
        return BaseMerge(MergeStates.of_bases(BaseState(added), added, merged)).merge_unrelated()


class BaseMerge(StateMerge):
    """The merge of two merge bases into a virtual one. Ours is a commit, theirs may be virtual."""

    def __init__(self, states: MergeStates) -> None:
        schema, self._undecided = merge_base_schemas(states)
        super().__init__(states, MergeOptions(Resolutions(), lambda _, first: first), schema=schema)

    def merge_bases(self) -> BaseState:
        """Return the merged state. What is in conflict is undecided."""
        with reading(*self._states.commits):
            self._choose_kept_side()
            for key in self._tables_to_read():
                self._row_merge(key).merge(None)
            self._leave_violations_undecided()
            return self._virtual_base()

    def merge_unrelated(self) -> BaseState:
        """Return the merged state of two merge bases whose merge base is unknown: every difference is undecided."""
        with reading(*self._states.commits):
            for key, table in self._tables.items():
                if table.is_changed("theirs"):
                    self._leave_changes_undecided(key)
            state = self._virtual_base()
        if self._states.ours.catalog.fingerprint != self._states.theirs.catalog.fingerprint:
            state = replace(state, undecided=frozenset({(WHOLE_SCHEMA, WHOLE_SCHEMA)}))
        return state

    # --- undecided rows ----------------------------------------------------------------------------------

    def _leave_changes_undecided(self, key: str) -> None:
        merge = self._row_merge(key)
        applied = merge.applied
        kept_changes = partial(self._tables[key].changes, self.kept_side)
        updated = applied.ops == UPDATE
        merge.leave_undecided(applied.ids.filter(~updated).to_pylist(), None, kept_changes)
        for name, changed in applied.changed.items():
            ids = applied.ids.filter(changed & updated).to_pylist()
            merge.leave_undecided(ids, [name], kept_changes)

    def _leave_violations_undecided(self) -> None:
        """Leave the entities undecided that violate a rule between rows, which one of the heads may have resolved.

        A row whose existence is undecided is missing in the check, and an undecided value is null.
        """
        while self._leave_first_violations_undecided():
            pass

    def _leave_first_violations_undecided(self) -> bool:
        merged = MergedTables(self.catalog, self._tables, self._row_merges, self.kept_side, self._states)
        return any(self._leave_all_undecided(stage) for stage in violating_entities(merged))

    def _leave_all_undecided(self, stage: Sequence[ViolatingEntities]) -> bool:
        return sum(self._leave_undecided(item) for item in stage) > 0

    def _leave_undecided(self, entities: ViolatingEntities) -> bool:
        kept_changes = partial(self._tables[entities.key].changes, self.kept_side)
        return self._row_merge(entities.key).leave_undecided(entities.ids, entities.columns, kept_changes)

    # --- the merged state --------------------------------------------------------------------------------

    def _virtual_base(self) -> BaseState:
        pins: dict[str, TablePin] = {}
        tables: dict[str, VirtualTable] = {}
        for key, table in self._tables.items():
            pin, virtual = self._virtual_table(key, table)
            pins[str(table.table.id)] = pin
            tables[str(table.table.id)] = virtual
        states = self._states
        newest = max(states.ours, states.theirs, key=lambda item: (item.commit.created_at, item.commit_id))
        commit = replace(newest.commit, tables=pins)
        theirs = states.virtual.get("theirs")
        sources = (states.ours, *((states.theirs,) if theirs is None else theirs.sources))
        snapshot = replace(newest, commit=commit, catalog=self.catalog)
        return BaseState(snapshot, tables, self._undecided, sources)

    def _virtual_table(self, key: str, table: ThreeWayTable) -> tuple[TablePin, VirtualTable]:
        side = self._unmodified_side(table, self._row_merges.get(key))
        if side is None and table.pin(self.kept_side) is None:
            side = self._applied_side
        stored = self.kept_side if side is None else side
        pin = table.pin(stored)
        assert pin is not None, "a merged table exists on the side that it is taken from"
        overlay = self._row_merge(key).overlay() if side is None else table.overlay_of(side)
        return pin, VirtualTable(table.stored_columns_of(stored), overlay)
