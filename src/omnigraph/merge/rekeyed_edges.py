"""Edges whose key was added or changed since the merge base, in a merge.

Rows are matched by id, and a key that only one side has gives the same edge another id there. The ids of the other
states are therefore derived from the key of the merged schema, before the three states are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.keys import TypeKey, table_id_key
from omnigraph.catalog.schema_merge.merge import MergedTable
from omnigraph.engine.edge_ids import EdgeRekeying
from omnigraph.graph.snapshot import Snapshot
from omnigraph.merge.conflicts import ConflictKind, MergeConflict
from omnigraph.merge.merge_base import SIDES, MergeSide, MergeStates, StateName
from omnigraph.merge.schema_merge import MergedSchema
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.staged_table import StagedTable

_STATES: tuple[StateName, ...] = ("base", "ours", "theirs")


@dataclass(frozen=True)
class RekeyedStates:
    """The states of a merge in which the ids of all edges are derived from the keys of the merged schema.

    `staged` has the versions that were written for the sides, by side and key of the merged table. Nothing refers
    to them yet. `conflicts` are the edges that have no id under the key, or the same as another edge.
    """

    states: MergeStates
    staged: Mapping[tuple[MergeSide, str], StagedTable] = field(default_factory=dict)
    conflicts: tuple[MergeConflict, ...] = ()


def rekey_edges(states: MergeStates, schema: MergedSchema, begin: Callable[[], None]) -> RekeyedStates:
    """Return the states with derived ids; the same states if their keys agree. `begin` is called before a write."""
    pins: dict[StateName, dict[str, TablePin]] = {}
    staged: dict[tuple[MergeSide, str], StagedTable] = {}
    conflicts: list[MergeConflict] = []
    for merged in schema.tables:
        table = _KeyedTable(merged, schema.catalog, states)
        needed = table.states_to_rekey()
        if not needed:
            continue
        found = list(table.conflicts(needed))
        conflicts += found
        for state in () if found else needed:
            begin()
            version = table.stage(state)
            pins.setdefault(state, {})[str(table.of(state).id)] = version.pin(
                f"rekeyed-{table.pin(state).content}"
            )
            if state != "base":
                staged[state, merged.table.key] = version
    if conflicts:
        return RekeyedStates(states, conflicts=tuple(conflicts))
    base, ours, theirs = (_with_pins(states.of(name), pins.get(name, {})) for name in _STATES)
    return RekeyedStates(replace(states, base=base, ours=ours, theirs=theirs) if pins else states, staged)


def _with_pins(snapshot: Snapshot, pins: Mapping[str, TablePin]) -> Snapshot:
    if not pins:
        return snapshot
    commit = replace(snapshot.commit, tables={**snapshot.commit.tables, **pins})
    return replace(snapshot, commit=commit)


@dataclass(frozen=True)
class _KeyedTable:
    """A table of the merged schema and its versions in the three states."""

    merged: MergedTable
    catalog: Catalog
    merge_states: MergeStates

    def of(self, state: StateName) -> Table:
        table: Table | None = getattr(self.merged, state)
        assert table is not None
        return table

    def pin(self, state: StateName) -> TablePin:
        return self.merge_states.of(state).commit.tables[str(self.of(state).id)]

    def states_to_rekey(self) -> list[StateName]:
        """Return the states whose edges have other ids than the merged key gives, where that affects the merge.

        A side that has the rows of the merge base is taken over or replaced as a whole, and is never compared.
        """
        if self.merged.table.kind != "edge" or table_id_key(self.catalog, self.merged.table) is None:
            return []
        base = None if self.merged.base is None else self.pin("base")
        changed = [
            side
            for side in SIDES
            if getattr(self.merged, side) is not None
            and (base is None or self.pin(side).content != base.content)
        ]
        needed: list[StateName] = [side for side in changed if not self._is_derived(side)]
        if base is not None and base.rows and len(changed) == len(SIDES) and not self._is_derived("base"):
            needed.append("base")
        return needed

    def _is_derived(self, state: StateName) -> bool:
        """Whether the ids of a state are derived from the merged key, in all commits that it was merged from."""
        virtual = self.merge_states.virtual.get(state)
        wanted = self._physical_key(state)
        sources = () if virtual is None else virtual.sources
        return all(
            _id_columns(snapshot, self.of(state).id) == wanted
            for snapshot in (self.merge_states.of(state), *sources)
        )

    def _physical_key(self, state: StateName) -> list[str | None]:
        """Return the columns of the merged key in one of the states; None for a column that it does not have."""
        key = table_id_key(self.catalog, self.merged.table)
        assert key is not None
        columns = {item.column.name: getattr(item, state) for item in self.merged.columns}
        return [
            None if columns[item.name] is None else str(columns[item.name].physical) for item in key.columns
        ]

    def conflicts(self, needed: list[StateName]) -> Iterator[MergeConflict]:
        """Yield why the ids of these states cannot be derived."""
        edge = self.merged.table.name
        for state in needed:
            if None in self._physical_key(state):
                yield self._conflict(
                    f"the key of edge type '{edge}' has a property that the edges of the other side do not have",
                )
                return
            if state in self.merge_states.virtual:
                yield self._conflict(
                    f"the key of edge type '{edge}' was changed, and the branches have several merge bases"
                )
                return
        for side in needed:
            if side != "base":
                for violation in self._rekeying(side).violations(self.pin(side)):
                    yield self._conflict(violation.message, violation.id)

    def _conflict(self, message: str, id_: str | None = None) -> MergeConflict:
        kind: ConflictKind = "schema_conflict" if id_ is None else "unique_violation"
        return MergeConflict(kind, "edge", self.merged.table.name, id_, message)

    def stage(self, state: StateName) -> StagedTable:
        """Write the edges of a state with their new ids."""
        return self._rekeying(state).stage(self.pin(state), leave_out_repeated=state == "base")

    def _rekeying(self, state: StateName) -> EdgeRekeying:
        key = table_id_key(self.catalog, self.merged.table)
        assert key is not None
        stored = {item.column.name: getattr(item, state) for item in self.merged.columns}
        columns = tuple(stored[item.name] for item in key.columns)
        table = replace(self.of(state), name=self.merged.table.name)
        return EdgeRekeying(self.merge_states.of(state).tables, table, TypeKey("edge", table.name, columns))


def _id_columns(snapshot: Snapshot, table_id: int) -> list[str] | None:
    """Return the physical columns that the ids of a table are derived from; None without a key."""
    table = next((item for item in snapshot.catalog.tables.values() if item.id == table_id), None)
    key = None if table is None else table_id_key(snapshot.catalog, table)
    return None if key is None else [item.physical for item in key.columns]
