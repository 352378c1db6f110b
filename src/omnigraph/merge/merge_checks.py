"""Constraint checks of a merge: violations in the merged rows become conflicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog, Table, table_key
from omnigraph.catalog.columns import ENDPOINT_NAMES
from omnigraph.catalog.entity_images import Image, images
from omnigraph.engine.diff.table_diff import DELETE
from omnigraph.lang.schema import Cardinality, EdgeType, NodeType
from omnigraph.merge.conflicts import ConflictKind, MergeConflict
from omnigraph.merge.merge_base import SIDES, MergeSide, MergeStates, other_side
from omnigraph.merge.row_merge import KEEP, PUT, REMOVE, RowMerge
from omnigraph.merge.side_rows import SideRows
from omnigraph.merge.table_changes import TableChanges
from omnigraph.merge.table_merge import ThreeWayTable
from omnigraph.rules.delta import TableDelta
from omnigraph.rules.row_rules import row_violations
from omnigraph.rules.set_rules import duplicate_violation, entity_of
from omnigraph.rules.validate import set_violations
from omnigraph.rules.violations import Violation, Violations

_KINDS: Mapping[str, ConflictKind] = {
    "unique": "unique_violation",
    "endpoint": "orphan_edge",
    "orphan": "orphan_edge",
    "card": "cardinality_violation",
}


@dataclass(frozen=True)
class MergedTables:
    """The tables of a merge, and the row merges of those that are merged row by row."""

    catalog: Catalog
    tables: Mapping[str, ThreeWayTable]
    row_merges: Mapping[str, RowMerge]
    kept_side: MergeSide
    states: MergeStates


def constraint_conflicts(merged: MergedTables) -> tuple[list[MergeConflict], int]:
    """Return the conflicts of the first stage of checks that fails, and the total number of its violations."""
    tables, kept_side = merged.tables, merged.kept_side
    stricter = {
        key
        for key, table in tables.items()
        if table.is_changed(kept_side) and has_new_rules(merged.catalog, table, kept_side)
    }
    row_merges = {key: _empty_merge(tables[key], kept_side) for key in stricter} | dict(merged.row_merges)
    deltas = {
        key: _delta(tables[key], merge, kept_side, with_kept=key in stricter)
        for key, merge in row_merges.items()
    }
    committed = SideRows(tables, kept_side, merged.states)
    for violations in _stages(merged.catalog, deltas, committed):
        if violations:
            reported = [
                _attributed_to_theirs(item, tables[item.table_key].table, kept_side) for item in violations
            ]
            return list(_conflicts(reported, merged.catalog, tables)), violations.total
    return [], 0


@dataclass(frozen=True)
class ViolatingEntities:
    """Entities of one table that violate a rule, and its physical columns; None for a rule about existence."""

    key: str
    ids: tuple[str, ...]
    columns: tuple[str, ...] | None = None


def violating_entities(merged: MergedTables) -> Iterator[list[ViolatingEntities]]:
    """Yield for each rule between rows the entities of a virtual merge base that violate it.

    They are those that a resolution of the conflict would apply to.
    """
    tables = merged.tables
    deltas = {
        key: _delta(tables[key], merge, merged.kept_side, with_kept=False)
        for key, merge in merged.row_merges.items()
    }
    committed = SideRows(tables, merged.kept_side, merged.states)
    for violations in set_violations(merged.catalog, deltas, committed):
        yield [entity for item in violations for entity in _violating(item, merged)]


def _violating(violation: Violation, merged: MergedTables) -> Iterator[ViolatingEntities]:
    key, id_ = violation.table_key, violation.id or ""
    table = merged.tables[key]
    if violation.rule == "card":
        yield ViolatingEntities(key, tuple(_changed_edges(table, [id_]).get(id_, ())))
    elif violation.rule == "unique":
        columns = tuple(table.table.physical(name) for name in violation.details["columns"])
        yield ViolatingEntities(key, (id_, violation.details["held_by"]), columns)
    else:
        for entity_key, entity_id in _entities(violation, "orphan_edge", merged.catalog, merged.tables):
            yield ViolatingEntities(entity_key, (entity_id,))


def _stages(catalog: Catalog, deltas: Mapping[str, TableDelta], committed: SideRows) -> Iterator[Violations]:
    yield Violations.merge(
        row_violations(delta.table, entity_of(catalog, delta.table), delta.rows) for delta in deltas.values()
    )
    yield from set_violations(catalog, deltas, committed)


def has_new_rules(catalog: Catalog, table: ThreeWayTable, side: MergeSide) -> bool:
    """Whether the merged schema has other properties or constraints for a type than one of the sides."""
    known = table.table_of(side)
    before = table.states.of(side).catalog
    if known is None or before.fingerprint == catalog.fingerprint:
        return False
    old, new = entity_of(before, known), entity_of(catalog, table.table)
    return (
        old.properties != new.properties
        or old.constraints != new.constraints
        or _cardinality(old) != _cardinality(new)
    )


def _cardinality(entity: NodeType | EdgeType) -> Cardinality | None:
    return entity.cardinality if isinstance(entity, EdgeType) else None


def _empty_merge(table: ThreeWayTable, kept_side: MergeSide) -> RowMerge:
    applied_side: MergeSide = other_side(kept_side)
    none = TableChanges.read(None, table.table)
    return RowMerge(table.table, none, none, applied_side=applied_side, shared=table.shared_columns)


def _delta(table: ThreeWayTable, merge: RowMerge, kept_side: MergeSide, *, with_kept: bool) -> TableDelta:
    """Return the changes to the kept side; with `with_kept` also its own changes, for rules that are new to it."""
    rows = merge.rows.take(pa.array(np.flatnonzero(merge.actions == PUT)))
    shadowed = merge.ids.filter(pa.array(merge.actions != KEEP))
    deleted = merge.ids.filter(pa.array(merge.actions == REMOVE))
    if with_kept:
        changes = table.changes(kept_side)
        untouched = pc.invert(pc.is_in(changes.ids, value_set=shadowed))
        remaining = pc.and_(pa.array(changes.ops != DELETE), untouched)
        rows = pa.concat_tables([rows, changes.after.filter(remaining)])
        shadowed = pa.concat_arrays([shadowed, changes.ids.filter(remaining)])
    logical = rows.rename_columns([column.name for column in table.table.columns])
    vacated = _vacated(merge) if table.table.kind == "edge" else None
    return TableDelta(table.table, logical, shadowed, deleted, vacated)


def _vacated(merge: RowMerge) -> pa.Array:
    """Return the sources in the kept side of edges that are replaced or removed."""
    replaced = pa.array(merge.actions[: len(merge.applied)] != KEEP)
    # An edge that the kept side changed no longer has the source of the merge base.
    unchanged = pc.invert(pc.is_in(merge.applied.ids, value_set=merge.kept.ids))
    before = merge.applied.before["src"].filter(pc.and_(replaced, unchanged))
    kept = merge.kept.after["src"]
    return pc.unique(pa.chunked_array([*before.chunks, *kept.chunks], pa.string())).drop_null()


# --- violations as conflicts --------------------------------------------------------------------------------


def _attributed_to_theirs(violation: Violation, table: Table, kept_side: MergeSide) -> Violation:
    """Return a uniqueness violation with the entity of theirs as the second one, whichever side is kept."""
    if kept_side == "ours" or violation.rule != "unique":
        return violation
    columns = tuple(violation.details["columns"])
    members = (violation.value,) if len(columns) == 1 else tuple(violation.value)
    return duplicate_violation(table, columns, members, violation.id, violation.details["held_by"])


def _conflicts(
    violations: Sequence[Violation], catalog: Catalog, tables: Mapping[str, ThreeWayTable]
) -> Iterator[MergeConflict]:
    ids: dict[str, list[str]] = {}
    for item in violations:
        if item.id is not None:
            ids.setdefault(item.table_key, []).append(item.id)
    counted = {item.table_key for item in violations if item.rule == "card"}
    after = {key: _images_after(tables[key], of_table) for key, of_table in ids.items() if key not in counted}
    edges = {key: _changed_edges(tables[key], ids[key]) for key in counted}
    for item in violations:
        key, id_ = item.table_key, item.id or ""
        kind = _KINDS.get(item.rule, "value_constraint_violation")
        ours, theirs = (side.get(id_) for side in after.get(key, ({}, {})))
        entities = (
            [(key, edge) for edge in edges[key].get(id_, ())]
            if key in counted
            else list(_entities(item, kind, catalog, tables))
        )
        yield MergeConflict(
            kind,
            tables[key].table.kind,
            tables[key].table.name,
            item.id if kind in ("unique_violation", "orphan_edge") else None,
            item.message,
            property_name=ENDPOINT_NAMES.get(item.property or "", item.property),
            ours=ours,
            theirs=theirs,
            entities=tuple(entities),
        )


def _entities(
    violation: Violation, kind: ConflictKind, catalog: Catalog, tables: Mapping[str, ThreeWayTable]
) -> Iterator[tuple[str, str]]:
    """Yield the entities that a resolution of the conflict applies to."""
    key = violation.table_key
    if violation.id is not None:
        yield key, violation.id
    if kind == "unique_violation" and violation.details.get("held_by") is not None:
        yield key, violation.details["held_by"]
    if kind == "orphan_edge":
        edge = catalog.schema.edge(tables[key].table.name)
        assert edge is not None
        node = edge.source if violation.property == "src" else edge.target
        yield table_key("node", node), str(violation.value)


def _changed_edges(table: ThreeWayTable, sources: Sequence[str]) -> dict[str, list[str]]:
    """Return the ids of the edges of each source that either side changed."""
    edges: dict[str, set[str]] = {}
    wanted = pa.array(sources, pa.string())
    for side in SIDES:
        for changed, image in table.changed_sources(side):
            selected = pc.is_in(image, value_set=wanted)
            ids = changed.filter(selected.combine_chunks())
            for source, id_ in zip(image.filter(selected), ids, strict=True):
                edges.setdefault(source.as_py(), set()).add(id_.as_py())
    return {source: sorted(ids) for source, ids in edges.items()}


def _images_after(table: ThreeWayTable, ids: Sequence[str]) -> tuple[dict[str, Image], dict[str, Image]]:
    """Return the images of changed entities in ours and in theirs; deleted entities are missing."""
    wanted = pa.array(sorted(set(ids)), pa.string())
    return _images_in(table, "ours", wanted), _images_in(table, "theirs", wanted)


def _images_in(table: ThreeWayTable, side: MergeSide, ids: pa.Array) -> dict[str, Image]:
    changes = table.changes(side, ids)
    alive = pa.array(changes.ops != DELETE)
    after = images(table.table, changes.after.filter(alive))
    return dict(zip(changes.ids.filter(alive).to_pylist(), after, strict=True))
