"""Schema merge: the schemas of the three states become one, or conflicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.schema_merge.merge import (
    MergedCatalog,
    MergedColumn,
    MergedTable,
    SchemaConflict,
    merge_catalogs,
)
from omnigraph.catalog.schema_merge.schema_conflicts import UndecidedAspect
from omnigraph.lang.schema import TypeKind
from omnigraph.merge.conflicts import MergeConflict, UnresolvedConflicts
from omnigraph.merge.merge_base import MergeSide, MergeStates
from omnigraph.merge.resolutions import Resolutions
from omnigraph.merge.table_merge import ThreeWayTable, tables_of_one_schema

# Reserves a number of consecutive identities, the first of them not below a minimum; returns the first.
ReserveIdentities: TypeAlias = Callable[[int, int], int]

# Identities of a virtual merge base are above those of every branch. Nothing stores them.
_FIRST_VIRTUAL_ID: Final = 2**40


@dataclass(frozen=True)
class MergedSchema:
    """The merged schema, its tables with their counterparts in the three states, and the unresolved conflicts."""

    catalog: Catalog
    tables: tuple[MergedTable, ...]
    conflicts: UnresolvedConflicts = field(default_factory=UnresolvedConflicts)


def merge_schemas(
    states: MergeStates, resolutions: Resolutions, reserve_identities: ReserveIdentities
) -> MergedSchema:
    """Merge the schemas of three states."""
    base, ours, theirs = (state.catalog for state in (states.base, states.ours, states.theirs))
    if base.fingerprint == ours.fingerprint == theirs.fingerprint:
        return MergedSchema(ours, tables_of_one_schema(ours))
    undecided = states.undecided("base")
    chosen: dict[str, MergeSide] = {}
    highest = max(base.next_id, ours.next_id, theirs.next_id)
    while True:
        merged = merge_catalogs(base, ours, theirs, choose=chosen, undecided=undecided)
        resolved = dict(_resolve(merged.conflicts, resolutions))
        if resolved.keys() <= chosen.keys():
            break
        # The resolution of one conflict can reveal another.
        chosen |= resolved
    if merged.catalog.next_id > highest:
        first = reserve_identities(merged.catalog.next_id - highest, highest)
        merged = merge_catalogs(base, ours, theirs, choose=chosen, counter=first, undecided=undecided)
    unresolved = [_merge_conflict(item) for item in merged.conflicts if item.id not in chosen]
    unresolved += [
        conflict
        for conflict, dropping in _dropped_with_changes(merged, states)
        if resolutions.resolve(conflict) != dropping
    ]
    return MergedSchema(merged.catalog, merged.tables, UnresolvedConflicts.of(unresolved))


def merge_base_schemas(states: MergeStates) -> tuple[MergedSchema, frozenset[UndecidedAspect]]:
    """Merge the schemas of two merge bases; return the schema of a virtual one, and the aspects left undecided."""
    base, ours, theirs = (state.catalog for state in (states.base, states.ours, states.theirs))
    carried = states.undecided("theirs")
    if base.fingerprint == ours.fingerprint == theirs.fingerprint:
        return MergedSchema(ours, tables_of_one_schema(ours)), carried
    undecided = states.undecided("base")
    merged = merge_catalogs(base, ours, theirs, undecided=undecided)
    if merged.catalog.next_id > max(base.next_id, ours.next_id, theirs.next_id):
        merged = merge_catalogs(base, ours, theirs, undecided=undecided, counter=_FIRST_VIRTUAL_ID)
    dropped = {
        (f"{conflict.entity_kind}:{conflict.type_name}", "existence")
        for conflict, _ in _dropped_with_changes(merged, states)
    }
    return MergedSchema(merged.catalog, merged.tables), merged.undecided | carried | dropped


def _resolve(
    conflicts: Iterable[SchemaConflict], resolutions: Resolutions
) -> Iterable[tuple[str, MergeSide]]:
    for item in conflicts:
        side = resolutions.resolve(_merge_conflict(item))
        if side == "ours" or side == "theirs":
            yield item.id, side


def _merge_conflict(conflict: SchemaConflict) -> MergeConflict:
    kind, _, name = conflict.entity.partition(":")
    type_name, _, property_name = name.partition(".")
    return MergeConflict(
        "schema_conflict",
        _type_kind(kind),
        type_name,
        None,
        conflict.message,
        property_name=property_name or None,
        base=conflict.base,
        ours=conflict.ours,
        theirs=conflict.theirs,
        schema_id=conflict.id,
    )


def _type_kind(text: str) -> TypeKind:
    return "edge" if text == "edge" else "interface" if text == "interface" else "node"


def _dropped_with_changes(
    merged: MergedCatalog, states: MergeStates
) -> Iterable[tuple[MergeConflict, MergeSide]]:
    """Yield a conflict for each type that one side dropped and whose rows the other changed, and the first side.

    The drop discards those changes, so only that side resolves the conflict.
    """
    for item in merged.dropped:
        base = states.base.commit.tables[str(item.base.id)]
        is_virtual = states.virtual_table("base", item.base) is not None
        counterparts: tuple[tuple[MergeSide, MergeSide, Table | None], ...] = (
            ("ours", "theirs", item.ours),
            ("theirs", "ours", item.theirs),
        )
        for side, dropping, table in counterparts:
            if table is None:
                continue
            is_changed = states.of(side).commit.tables[str(table.id)].content != base.content
            if is_virtual:
                is_changed = ThreeWayTable(_kept_table(item.base, table, side), states).is_changed(side)
            if is_changed:
                yield _drop_conflict(item.base, side), dropping


def _kept_table(base: Table, table: Table, side: MergeSide) -> MergedTable:
    """Return a table that one side dropped, as the other side has it."""
    known = {column.physical: column for column in base.columns}
    columns = tuple(
        MergedColumn(
            column,
            known.get(column.physical),
            column if side == "ours" else None,
            column if side == "theirs" else None,
        )
        for column in table.columns
    )
    ours, theirs = (table, None) if side == "ours" else (None, table)
    return MergedTable(table, base, ours, theirs, columns)


def _drop_conflict(table: Table, changing: MergeSide) -> MergeConflict:
    dropped, changed = "dropped", "rows changed"
    return MergeConflict(
        "schema_conflict",
        table.kind,
        table.name,
        None,
        f"{table.kind} type '{table.name}' was dropped on one side and its rows changed on the other",
        ours=changed if changing == "ours" else dropped,
        theirs=changed if changing == "theirs" else dropped,
    )
