"""State merge: the changes of both sides since the merge base become one state, or a list of conflicts.

A table that one side changed is adopted by its version. Where both sides changed a table, the changes of the side
that changed less are applied to the version of the other, so a merge costs the smaller of the two sets of
changes. The merged rows are checked like those of every write. Tables that cannot contradict each other are not
read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from omnigraph.catalog.catalog import Catalog, table_key
from omnigraph.engine.memory.row_lookups import CachedIds
from omnigraph.graph.damage import reading
from omnigraph.graph.progress import Progress
from omnigraph.graph.transaction import Transaction
from omnigraph.lang.schema import EdgeType
from omnigraph.merge.conflicts import MergeConflict, UnresolvedConflicts
from omnigraph.merge.merge_base import SIDES, MergeSide, MergeStates, other_side
from omnigraph.merge.merge_checks import MergedTables, constraint_conflicts, has_new_rules
from omnigraph.merge.merge_staging import Counts, count_rows, stage_rows
from omnigraph.merge.rekeyed_edges import rekey_edges
from omnigraph.merge.resolutions import Resolutions
from omnigraph.merge.row_merge import KEEP, RowMerge
from omnigraph.merge.schema_merge import MergedSchema, ReserveIdentities, merge_schemas
from omnigraph.merge.table_merge import ThreeWayTable
from omnigraph.store.tables.staged_table import StagedTable

# A merge that writes more than this to a table has an intent, so that a crash does not lose its work. A smaller one
# is repeated like any small write.
ROWS_WITHOUT_INTENT = 1_000
BYTES_WITHOUT_INTENT = 8 << 20


@dataclass(frozen=True)
class MergeOptions:
    """The options of a merge or a revert. A dry run writes nothing and returns its conflicts.

    `cache` has rows of the graph that are in memory.
    """

    resolutions: Resolutions
    reserve_identities: ReserveIdentities
    progress: Progress | None = None
    dry_run: bool = False
    cache: CachedIds | None = None


@dataclass(frozen=True)
class StagedMerge:
    """The effect of a merge on ours.

    `affected` has the changed rows by table key, of tables that were merged row by row. `adopted` are the keys of
    the tables that became the version of theirs, as it is or with our changes applied.
    """

    affected: Mapping[str, Counts] = field(default_factory=dict)
    adopted: tuple[str, ...] = ()


class StateMerge:
    """The merge of their state into ours. Nothing is written before `stage`.

    With `theirs_is_temporary` their versions are never adopted: no branch refers to that state, so garbage
    collection may remove it.
    """

    def __init__(
        self,
        states: MergeStates,
        options: MergeOptions,
        *,
        theirs_is_temporary: bool = False,
        schema: MergedSchema | None = None,
    ) -> None:
        self._states = states
        self._options = options
        self._theirs_is_temporary = theirs_is_temporary
        self._schema: MergedSchema = schema or merge_schemas(
            states, options.resolutions, options.reserve_identities
        )
        self._tables = {item.table.key: ThreeWayTable(item, states) for item in self._schema.tables}
        self._applied_side: MergeSide = "theirs"
        self._row_merges: dict[str, RowMerge] = {}
        self._resolved: set[str] = set()
        # Versions that this merge wrote because the key of their edges had changed.
        self._rekeyed: Mapping[tuple[MergeSide, str], StagedTable] = {}

    @property
    def catalog(self) -> Catalog:
        """The merged schema."""
        return self._schema.catalog

    @property
    def kept_side(self) -> MergeSide:
        """The side whose version of a table stays where both sides changed it."""
        return other_side(self._applied_side)

    # --- merging -----------------------------------------------------------------------------------------

    def merge(self, begin_intent: Callable[[], None] = lambda: None) -> UnresolvedConflicts:
        """Merge schemas and rows and check the result; return the conflicts without a resolution.

        `begin_intent` is called before edges are written with new ids, which a changed key of their type requires.
        """
        with reading(*self._states.commits):
            return self._merge(begin_intent)

    def _merge(self, begin_intent: Callable[[], None]) -> UnresolvedConflicts:
        if self._schema.conflicts:
            return self._schema.conflicts
        rekeyed = rekey_edges(self._states, self._schema, begin_intent)
        if rekeyed.conflicts:
            return UnresolvedConflicts.of(list(rekeyed.conflicts))
        if rekeyed.states is not self._states:
            self._states, self._rekeyed = rekeyed.states, rekeyed.staged
            self._tables = {item.table.key: ThreeWayTable(item, self._states) for item in self._schema.tables}
        self._choose_kept_side()
        conflicts: list[MergeConflict] = []
        for key in self._tables_to_read():
            conflicts += self._row_merge(key).merge(self._options.resolutions)
        return UnresolvedConflicts.of(conflicts) if conflicts else self._check_constraints()

    def _check_constraints(self) -> UnresolvedConflicts:
        """Check the constraints of the schema, and apply the resolutions of violations."""
        while True:
            self._report("check", sum(len(item.applied) for item in self._row_merges.values()))
            merged = MergedTables(self.catalog, self._tables, self._row_merges, self.kept_side, self._states)
            conflicts, total = constraint_conflicts(merged)
            if not conflicts:
                return UnresolvedConflicts()
            # A resolution can violate another constraint. The loop ends because no conflict is resolved twice: one
            # that comes back was undone by another resolution, so the two contradict each other.
            unresolved = [item for item in conflicts if not self._resolve(item)]
            if unresolved:
                resolved = len(conflicts) - len(unresolved)
                return UnresolvedConflicts.of(unresolved, total - resolved)

    def _resolve(self, conflict: MergeConflict) -> bool:
        """Give the entities of a conflict the state of the chosen side; False if there is no new resolution."""
        side = self._options.resolutions.resolve(conflict)
        if side is None or conflict.id in self._resolved:
            return False
        self._resolved.add(conflict.id)
        ids: dict[str, list[str]] = {}
        for key, id_ in conflict.entities:
            ids.setdefault(key, []).append(id_)
        for key, of_table in ids.items():
            merge = self._row_merge(key)
            if side == self.kept_side:
                merge.take_kept(of_table)
            else:
                merge.take_applied(of_table, partial(self._tables[key].changes, self.kept_side))
        return True

    # --- tables to read ----------------------------------------------------------------------------------

    def _choose_kept_side(self) -> None:
        """Apply the smaller set of changes, if the version of the larger side can hold the result."""
        both = [
            item for item in self._tables.values() if item.is_changed("ours") and item.is_changed("theirs")
        ]
        ours = sum(diff.rows for item in both if (diff := item.diff("ours")) is not None)
        theirs = sum(diff.rows for item in both if (diff := item.diff("theirs")) is not None)
        states = self._states
        schemas = {state.catalog.fingerprint for state in (states.base, states.ours, states.theirs)}
        is_stored = "theirs" not in states.virtual
        can_keep_theirs = len(schemas) == 1 and is_stored and not self._theirs_is_temporary
        self._applied_side = "ours" if ours < theirs and can_keep_theirs else "theirs"

    def _tables_to_read(self) -> list[str]:
        """Return the tables whose changes are read: those that both sides changed, and those checked with them."""
        changed = {key for key, item in self._tables.items() if item.is_changed(self._applied_side)}
        selected = {
            key
            for key in changed
            if self._needs_row_merge(self._tables[key])
            or has_new_rules(self.catalog, self._tables[key], self._applied_side)
        }
        for edge in self.catalog.schema.edges:
            group = _connected_tables(edge)
            if group & changed and self._may_orphan_edges(edge):
                selected |= group & changed
        # A table is checked together with all connected ones: an edge that was deleted with its node is no orphan.
        return sorted(self._with_connected(selected, changed))

    def _with_connected(self, selected: set[str], changed: set[str]) -> set[str]:
        groups = [_connected_tables(edge) & changed for edge in self.catalog.schema.edges]
        while True:
            extended = selected.union(*(group for group in groups if group & selected))
            if extended == selected:
                return selected
            selected = extended

    def _may_orphan_edges(self, edge: EdgeType) -> bool:
        """Whether one side may have added edges to nodes that the other side deleted."""
        edges = self._tables[table_key("edge", edge.name)]
        for node in (edge.source, edge.target):
            nodes = self._tables[table_key("node", node)]
            for side in SIDES:
                added, removed = edges.diff(side), nodes.diff(other_side(side))
                if added is not None and removed is not None and added.adds and removed.removes:
                    return True
        return False

    def _needs_row_merge(self, table: ThreeWayTable) -> bool:
        """Whether the version of the applied side cannot be adopted."""
        if table.is_changed(self.kept_side) or not table.has_all_columns(self._applied_side):
            return True
        return self._theirs_is_temporary and table.table_of("ours") is not None

    def _row_merge(self, key: str) -> RowMerge:
        merge = self._row_merges.get(key)
        if merge is None:
            table = self._tables[key]
            applied = table.changes(self._applied_side)
            kept = table.changes(self.kept_side, applied.ids)
            self._report("compare", len(applied))
            merge = self._row_merges[key] = RowMerge(
                table.table, applied, kept, applied_side=self._applied_side, shared=table.shared_columns
            )
        return merge

    # --- staging -----------------------------------------------------------------------------------------

    def stage(self, transaction: Transaction) -> StagedMerge:
        """Stage the merged state into a transaction on our head.

        A dry run counts rows and writes none; its transaction must not be published.
        """
        affected: dict[str, Counts] = {}
        adopted = []
        for key, table in self._tables.items():
            side = self._unmodified_side(table, self._row_merges.get(key))
            if side is None:
                counts = self._stage_rows(table, self._row_merge(key), transaction)
                if self.kept_side == "ours":
                    affected[key] = counts
                else:
                    # The rows that were written are our own changes, applied to their version.
                    adopted.append(key)
                continue
            rekeyed = self._rekeyed.get((side, key))
            if rekeyed is not None:
                transaction.adopt_staged(table.table, rekeyed)
                adopted.append(key)
                continue
            pin, ours = table.pin(side), table.pin("ours")
            if pin is not None and (ours is None or (pin.path, pin.version) != (ours.path, ours.version)):
                transaction.adopt(table.table, pin)
                adopted.append(key)
        self._stage_schema(transaction)
        for key in self._read_set():
            transaction.read(key)
        return StagedMerge(affected, tuple(adopted))

    def _stage_rows(self, table: ThreeWayTable, merge: RowMerge, transaction: Transaction) -> Counts:
        if self._options.dry_run:
            return count_rows(table, merge, self.kept_side)
        rows = int((merge.actions != KEEP).sum())
        if rows > ROWS_WITHOUT_INTENT or merge.rows.nbytes > BYTES_WITHOUT_INTENT:
            transaction.begin_intent()
        self._report("stage", rows)
        staged, counts = stage_rows(table, merge, self.kept_side)
        rekeyed = self._rekeyed.get((self.kept_side, table.table.key))
        staged = staged if rekeyed is None else rekeyed.followed_by(staged)
        # A type that ours does not have is built on the version of theirs, too.
        theirs = table.pin("theirs") if "theirs" in (self.kept_side, table.only_side) else None
        transaction.adopt_staged(table.table, staged, None if theirs is None else theirs.version)
        return counts

    def _unmodified_side(self, table: ThreeWayTable, merge: RowMerge | None) -> MergeSide | None:
        """Return the side whose version is the merged table; None where rows have to be written."""
        can_adopt = not self._needs_row_merge(table) and (merge is None or merge.is_applied_only)
        applied: MergeSide | None = self._applied_side if can_adopt else None
        if not table.has_all_columns(self.kept_side):
            return applied
        changes = table.is_changed(self._applied_side) if merge is None else merge.changes_rows
        return applied if changes else self.kept_side

    def _stage_schema(self, transaction: Transaction) -> None:
        ours = self._states.ours.catalog
        for table in ours.tables.values():
            if not any(item.table.id == table.id for item in self._tables.values()):
                transaction.drop(table)
        if self.catalog.fingerprint != ours.fingerprint:
            transaction.evolve(self.catalog)

    def _read_set(self) -> set[str]:
        """Return the tables of ours whose change would change the merge.

        A table that only ours changed is not among them, unless an edge type connects it with a table that theirs
        changed: a merge must not depend on writes that do not concern it.
        """
        changed = {key for key, item in self._tables.items() if item.is_changed("theirs")}
        for group in map(_connected_tables, self.catalog.schema.edges):
            if group & changed:
                changed |= group
        tables = (self._tables[key].table_of("ours") for key in changed)
        return {table.key for table in tables if table is not None}

    def _report(self, stage: str, rows: int) -> None:
        if self._options.progress is not None:
            self._options.progress(stage, rows)


def _connected_tables(edge: EdgeType) -> set[str]:
    """Return the keys of an edge type and of the types at its ends."""
    return {table_key("edge", edge.name), table_key("node", edge.source), table_key("node", edge.target)}


def fast_forward(transaction: Transaction, states: MergeStates) -> tuple[str, ...]:
    """Adopt all versions of theirs without reading them; return the keys of the tables that changed."""
    ours, theirs = states.ours, states.theirs
    adopted = []
    for key, table in theirs.catalog.tables.items():
        pin = theirs.pin(key)
        if ours.commit.tables.get(str(table.id)) != pin:
            transaction.adopt(table, pin)
            adopted.append(key)
    present = {table.id for table in theirs.catalog.tables.values()}
    for key, table in ours.catalog.tables.items():
        # A concurrent change of any table could contradict the adopted versions.
        transaction.read(key)
        if table.id not in present:
            transaction.drop(table)
    if theirs.catalog.fingerprint != ours.catalog.fingerprint:
        transaction.evolve(theirs.catalog)
    return tuple(adopted)
