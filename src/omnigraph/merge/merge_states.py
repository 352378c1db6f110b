"""Three-way merge: two histories that meet in a base become one state, or a list of what they disagree in.

A table that one side alone changed is that side's version, taken over by its number. Where both changed a table,
the changes of the side that changed less are laid over the other's version, so that a merge costs the smaller of
the two deltas. What is laid over is checked by the rules that every write is checked by, against the state that it
is laid over; tables that cannot have come into contradiction are not read at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from omnigraph.catalog.catalog import Catalog, table_key
from omnigraph.errors import NotFound
from omnigraph.graph.progress import Progress
from omnigraph.graph.snapshot import reclaimed_error
from omnigraph.graph.transaction import Transaction
from omnigraph.lang.schema import EdgeType
from omnigraph.merge.conflicts import (
    CHOICES,
    Choice,
    MergeConflict,
    Resolutions,
    in_order,
    other_side,
    refuse_conflicts,
)
from omnigraph.merge.merge_checks import broken_rules, has_new_rules
from omnigraph.merge.merge_staging import Counts, count_rows, stage_rows
from omnigraph.merge.merge_tables import Sides, TypeSides
from omnigraph.merge.row_merge import KEEP, TableMerge
from omnigraph.merge.schema_merge import MergedSchema, Reserve, merge_schemas


@dataclass(frozen=True)
class MergedState:
    """What a merge came to. `affected` counts by table key the rows of ours that changed, of types merged by row.

    `taken` are the types that became the other side's version, as a whole or with our own changes on top.
    """

    affected: Mapping[str, Counts] = field(default_factory=dict)
    taken: tuple[str, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()
    total: int = 0


class Merge:
    """The merge of their state into ours. Nothing is written until `stage`.

    Their versions are taken over where that will do, unless `theirs_may_go`: a state that no branch stands at
    belongs to cleanup, so its rows are written again.
    """

    def __init__(
        self,
        sides: Sides,
        resolutions: Resolutions,
        reserve: Reserve,
        progress: Progress | None = None,
        *,
        theirs_may_go: bool = False,
    ) -> None:
        self._theirs_may_go = theirs_may_go
        self._sides = sides
        self._resolutions = resolutions
        self._progress = progress
        self._schema: MergedSchema = merge_schemas(sides, resolutions, reserve)
        self._types = {item.table.key: TypeSides(item, sides) for item in self._schema.tables}
        self._upper: Choice = "theirs"
        self._merges: dict[str, TableMerge] = {}
        self._settled: set[str] = set()

    @property
    def catalog(self) -> Catalog:
        """The schema of the merged state."""
        return self._schema.catalog

    @property
    def basis(self) -> Choice:
        """The side whose tables stay where both changed them."""
        return other_side(self._upper)

    # --- deciding ----------------------------------------------------------------------------------------

    def decide(self) -> MergedState:
        """Find out what the merged state is, or what stands in its way."""
        try:
            return self._decide()
        except NotFound as error:
            if error.details.get("reason") == "reclaimed":
                raise
            raise self._unreadable(error) from error

    def _decide(self) -> MergedState:
        if self._schema.conflicts:
            return MergedState(conflicts=self._schema.conflicts, total=len(self._schema.conflicts))
        self._choose_basis()
        conflicts: list[MergeConflict] = []
        for key in self._to_read():
            conflicts += self._merge(key).decide(self._resolutions)
        if conflicts:
            return MergedState(conflicts=tuple(in_order(conflicts)), total=len(conflicts))
        return self._check()

    def _check(self) -> MergedState:
        """Hold the result against the rules of the schema; what is decided about a broken one is carried out."""
        while True:
            self._tell("check", sum(len(item.upper) for item in self._merges.values()))
            found, total = broken_rules(self.catalog, self._types, self._merges, self.basis, self._sides)
            if not found:
                return MergedState()
            # What is settled can break another rule. It ends because nothing is settled twice: what comes back has
            # been undone by another decision, so that the two cannot both be had.
            open_ = [item for item in found if not self._settle(item)]
            if open_:
                settled = len(found) - len(open_)
                return MergedState(conflicts=tuple(in_order(open_)), total=total - settled)

    def _settle(self, conflict: MergeConflict) -> bool:
        """Give the entities of a conflict the state of the side that was chosen, if one was, for the first time."""
        choice = self._resolutions.choose(conflict)
        if choice is None or conflict.id in self._settled:
            return False
        self._settled.add(conflict.id)
        by_table: dict[str, list[str]] = {}
        for key, id_ in conflict.entities:
            by_table.setdefault(key, []).append(id_)
        for key, ids in by_table.items():
            merge = self._merge(key)
            if choice == self.basis:
                merge.take_under(ids)
            else:
                merge.take_upper(ids, partial(self._types[key].delta, self.basis))
        return True

    # --- what has to be read -----------------------------------------------------------------------------

    def _choose_basis(self) -> None:
        """Lay the smaller delta over the larger, where the larger side's versions can hold the result."""
        both = [item for item in self._types.values() if item.changed("ours") and item.changed("theirs")]
        ours = sum(diff.rows for item in both if (diff := item.diff("ours")) is not None)
        theirs = sum(diff.rows for item in both if (diff := item.diff("theirs")) is not None)
        schemas = {
            state.catalog.fingerprint for state in (self._sides.base, self._sides.ours, self._sides.theirs)
        }
        smaller = ours < theirs and len(schemas) == 1
        self._upper = "ours" if smaller and not self._theirs_may_go else "theirs"

    def _to_read(self) -> list[str]:
        """The tables whose upper changes are read: those both sides changed, and what is checked with them."""
        upper = {key for key, item in self._types.items() if item.changed(self._upper)}
        wanted = {
            key
            for key in upper
            if self._is_by_row(self._types[key]) or has_new_rules(self.catalog, self._types[key], self._upper)
        }
        for edge in self.catalog.schema.edges:
            group = _connected(edge)
            if group & upper and self._may_contradict(edge):
                wanted |= group & upper
        # What is checked is checked with everything around it: an edge that went with its node is no orphan.
        return sorted(self._closure(wanted, upper))

    def _closure(self, wanted: set[str], upper: set[str]) -> set[str]:
        groups = [_connected(edge) & upper for edge in self.catalog.schema.edges]
        while True:
            grown = wanted.union(*(group for group in groups if group & wanted))
            if grown == wanted:
                return wanted
            wanted = grown

    def _may_contradict(self, edge: EdgeType) -> bool:
        """Whether one side may have added edges to nodes that the other removed."""
        edges = self._types[table_key("edge", edge.name)]
        for node in (edge.source, edge.target):
            ends = self._types[table_key("node", node)]
            for side in CHOICES:
                added, removed = edges.diff(side), ends.diff(other_side(side))
                if added is not None and removed is not None and added.adds and removed.removes:
                    return True
        return False

    def _is_by_row(self, item: TypeSides) -> bool:
        """Whether the upper side's version cannot simply be taken."""
        if item.changed(self.basis) or not item.has_all_columns(self._upper):
            return True
        return self._theirs_may_go and item.known("ours") is not None

    def _merge(self, key: str) -> TableMerge:
        found = self._merges.get(key)
        if found is None:
            item = self._types[key]
            upper = item.delta(self._upper)
            under = item.delta(self.basis, upper.ids)
            self._tell("compare", len(upper))
            found = self._merges[key] = TableMerge(
                item.table, upper, under, upper_is=self._upper, shared=item.shared_columns
            )
        return found

    # --- storing -----------------------------------------------------------------------------------------

    def stage(self, transaction: Transaction, *, dry: bool = False) -> MergedState:
        """Put the merged state, which has been decided, into a transaction on our head.

        With `dry` rows are counted and not written, and the transaction is not fit to be published.
        """
        affected: dict[str, Counts] = {}
        taken = []
        for key, item in self._types.items():
            merge = self._merges.get(key)
            side = self._whole_side(item, merge)
            if side is None:
                counts = self._write(item, self._merge(key), transaction, dry=dry)
                if self.basis == "ours":
                    affected[key] = counts
                else:
                    # What was written are our own changes, on top of their version.
                    taken.append(key)
                continue
            pin, ours = item.pin(side), item.pin("ours")
            if pin is not None and (ours is None or (pin.path, pin.version) != (ours.path, ours.version)):
                transaction.adopt(item.table, pin)
                taken.append(key)
        self._finish(transaction)
        return MergedState(affected, tuple(taken))

    def _write(self, item: TypeSides, merge: TableMerge, transaction: Transaction, *, dry: bool) -> Counts:
        if dry:
            return count_rows(item, merge, self.basis)
        transaction.begin_intent()
        self._tell("stage", int((merge.actions != KEEP).sum()))
        staged, counts = stage_rows(item, merge, self.basis)
        # Where ours does not have the type the rows are theirs too.
        theirs = item.pin("theirs") if "theirs" in (self.basis, item.only_side) else None
        transaction.adopt_staged(item.table, staged, None if theirs is None else theirs.version)
        return counts

    def _whole_side(self, item: TypeSides, merge: TableMerge | None) -> Choice | None:
        """The side whose version is the merged table as it is; None where rows have to be written."""
        upper: Choice | None = None if self._is_by_row(item) or not _is_pure(merge) else self._upper
        if not item.has_all_columns(self.basis):
            return upper
        lays = item.changed(self._upper) if merge is None else bool((merge.actions != KEEP).any())
        return upper if lays else self.basis

    def _finish(self, transaction: Transaction) -> None:
        ours = self._sides.ours.catalog
        for table in ours.tables.values():
            if not any(item.table.id == table.id for item in self._types.values()):
                transaction.drop(table)
        if self.catalog.fingerprint != ours.fingerprint:
            transaction.evolve(self.catalog)
        for key in self._related():
            transaction.read(key)

    def _related(self) -> set[str]:
        """Every table of ours that a change of could have made another merge of this.

        What only ours changed is not among them, unless an edge type connects it with what theirs changed: a merge
        must not wait for a writer of something else to pause.
        """
        changed = {key for key, item in self._types.items() if item.changed("theirs")}
        for group in map(_connected, self.catalog.schema.edges):
            if group & changed:
                changed |= group
        known = (self._types[key].known("ours") for key in changed)
        return {table.key for table in known if table is not None}

    # --- parts -------------------------------------------------------------------------------------------

    def _tell(self, stage: str, rows: int) -> None:
        if self._progress is not None:
            self._progress(stage, rows)

    def _unreadable(self, error: NotFound) -> NotFound:
        for snapshot in (self._sides.base, self._sides.ours, self._sides.theirs):
            if not all(snapshot.tables.exists(pin) for pin in snapshot.commit.tables.values()):
                return reclaimed_error(snapshot.commit)
        return error


def _is_pure(merge: TableMerge | None) -> bool:
    return merge is None or merge.is_pure


def _connected(edge: EdgeType) -> set[str]:
    """An edge type and the types that it connects."""
    return {table_key("edge", edge.name), table_key("node", edge.source), table_key("node", edge.target)}


def fast_forward(transaction: Transaction, sides: Sides) -> tuple[str, ...]:
    """Make our state theirs: versions taken by their numbers, nothing read; the keys of the types that changed."""
    ours, theirs = sides.ours, sides.theirs
    taken = []
    for key, table in theirs.catalog.tables.items():
        pin = theirs.pin(key)
        if ours.commit.tables.get(str(table.id)) != pin:
            transaction.adopt(table, pin)
            taken.append(key)
    kept = {table.id for table in theirs.catalog.tables.values()}
    for key, table in ours.catalog.tables.items():
        # All of it: a rival's change of any table could contradict what is taken over.
        transaction.read(key)
        if table.id not in kept:
            transaction.drop(table)
    if theirs.catalog.fingerprint != ours.catalog.fingerprint:
        transaction.evolve(theirs.catalog)
    return tuple(taken)


def refuse(result: MergedState, resolutions: Resolutions) -> None:
    """Raise `MergeConflicts` when a merge came to any."""
    if result.conflicts:
        raise refuse_conflicts(result.conflicts, result.total, resolutions.idle())
