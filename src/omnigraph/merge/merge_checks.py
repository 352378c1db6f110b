"""The rules of the schema, held against what a merge lays over its basis, as conflicts that can be settled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog, Table, table_key
from omnigraph.catalog.columns import ENDPOINT_NAMES
from omnigraph.catalog.entity_images import Image, images
from omnigraph.engine.diff.table_diff import DELETE
from omnigraph.lang.schema import Cardinality, EdgeType, NodeType
from omnigraph.merge.conflicts import Choice, ConflictKind, MergeConflict, other_side
from omnigraph.merge.merge_basis import MergeBasis
from omnigraph.merge.merge_tables import Sides, TypeSides
from omnigraph.merge.row_merge import KEEP, PUT, REMOVE, Delta, TableMerge
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


def broken_rules(
    catalog: Catalog,
    types: Mapping[str, TypeSides],
    merges: Mapping[str, TableMerge],
    basis: Choice,
    sides: Sides,
) -> tuple[list[MergeConflict], int]:
    """What the first stage of rules finds that finds anything, and how many violations there are in all."""
    stricter = {
        key for key, item in types.items() if item.changed(basis) and has_new_rules(catalog, item, basis)
    }
    every = {key: _nothing(types[key], basis) for key in stricter} | dict(merges)
    deltas = {key: _delta(types[key], merge, basis, own=key in stricter) for key, merge in every.items()}
    for found in _stages(catalog, deltas, MergeBasis(types, basis, sides.of(basis))):
        if found:
            blamed = [_blamed_on_theirs(item, types[item.table_key].table, basis) for item in found]
            return list(_conflicts(blamed, catalog, types)), found.total
    return [], 0


def _stages(
    catalog: Catalog, deltas: Mapping[str, TableDelta], committed: MergeBasis
) -> Iterator[Violations]:
    yield Violations.merge(
        row_violations(delta.table, entity_of(catalog, delta.table), delta.rows) for delta in deltas.values()
    )
    yield from set_violations(catalog, deltas, committed)


def has_new_rules(catalog: Catalog, item: TypeSides, choice: Choice) -> bool:
    """Whether the merged schema says other things about a type than one of the sides knew."""
    known = item.known(choice)
    before = item.sides.of(choice).catalog
    if known is None or before.fingerprint == catalog.fingerprint:
        return False
    old, new = entity_of(before, known), entity_of(catalog, item.table)
    return old.properties != new.properties or old.constraints != new.constraints or _card(old) != _card(new)


def _card(entity: NodeType | EdgeType) -> Cardinality | None:
    return entity.cardinality if isinstance(entity, EdgeType) else None


def _nothing(item: TypeSides, basis: Choice) -> TableMerge:
    upper: Choice = other_side(basis)
    none = Delta.read(None, item.table)
    return TableMerge(item.table, none, none, upper_is=upper, shared=item.shared_columns)


def _delta(item: TypeSides, merge: TableMerge, basis: Choice, *, own: bool) -> TableDelta:
    """What is laid over a table; with `own` also what the basis itself changed, under rules it did not know."""
    put = pa.array(np.flatnonzero(merge.actions == PUT))
    rows = merge.rows.take(put)
    touched = merge.ids.filter(pa.array(merge.actions != KEEP))
    removed = merge.ids.filter(pa.array(merge.actions == REMOVE))
    if own:
        changes = item.delta(basis)
        alone = pc.invert(pc.is_in(changes.ids, value_set=touched))
        kept = pc.and_(pa.array(changes.ops != DELETE), alone)
        rows = pa.concat_tables([rows, changes.after.filter(kept)])
        touched = pa.concat_arrays([touched, changes.ids.filter(kept)])
    logical = rows.rename_columns([column.name for column in item.table.columns])
    vacated = _sources(merge) if item.table.kind == "edge" else None
    return TableDelta(item.table, logical, touched, removed, vacated)


def _sources(merge: TableMerge) -> pa.Array:
    """The sources that edges had on the basis which are laid over or removed."""
    moved = pa.array(merge.actions[: len(merge.upper)] != KEEP)
    # What the basis changed itself is no longer where the common ancestor has it.
    alone = pc.invert(pc.is_in(merge.upper.ids, value_set=merge.under.ids))
    before = merge.upper.before["src"].filter(pc.and_(moved, alone))
    under = merge.under.after["src"]
    return pc.unique(pa.chunked_array([*before.chunks, *under.chunks], pa.string())).drop_null()


# --- conflicts ----------------------------------------------------------------------------------------------


def _blamed_on_theirs(found: Violation, table: Table, basis: Choice) -> Violation:
    """The same of the entity of theirs where a value is held twice, so that the basis does not show."""
    if basis == "ours" or found.rule != "unique":
        return found
    columns = tuple(found.details["columns"])
    members = (found.value,) if len(columns) == 1 else tuple(found.value)
    return duplicate_violation(table, columns, members, found.id, found.details["held_by"])


def _conflicts(
    found: Sequence[Violation], catalog: Catalog, types: Mapping[str, TypeSides]
) -> Iterator[MergeConflict]:
    of_table: dict[str, list[str]] = {}
    for item in found:
        if item.id is not None:
            of_table.setdefault(item.table_key, []).append(item.id)
    counted = {item.table_key for item in found if item.rule == "card"}
    states = {key: _states(types[key], ids) for key, ids in of_table.items() if key not in counted}
    edges = {key: _edges_of(types[key], of_table[key]) for key in counted}
    for item in found:
        key, id_ = item.table_key, item.id or ""
        kind = _KINDS.get(item.rule, "value_constraint_violation")
        ours, theirs = (side.get(id_) for side in states.get(key, ({}, {})))
        entities = (
            [(key, edge) for edge in edges[key].get(id_, ())]
            if key in counted
            else list(_entities(item, kind, catalog, types))
        )
        yield MergeConflict(
            kind,
            types[key].table.kind,
            types[key].table.name,
            item.id if kind in ("unique_violation", "orphan_edge") else None,
            item.message,
            ENDPOINT_NAMES.get(item.property or "", item.property),
            None,
            ours,
            theirs,
            entities=tuple(entities),
        )


def _entities(
    found: Violation, kind: ConflictKind, catalog: Catalog, types: Mapping[str, TypeSides]
) -> Iterator[tuple[str, str]]:
    """The entities that taking a side is about."""
    key = found.table_key
    if found.id is not None:
        yield key, found.id
    if kind == "unique_violation" and found.details.get("held_by") is not None:
        yield key, found.details["held_by"]
    if kind == "orphan_edge":
        edge = catalog.schema.edge(types[key].table.name)
        assert edge is not None
        yield table_key("node", edge.source if found.property == "src" else edge.target), str(found.value)


def _edges_of(item: TypeSides, sources: Sequence[str]) -> dict[str, list[str]]:
    """The edges of each source that either side changed."""
    found: dict[str, set[str]] = {}
    wanted = pa.array(sources, pa.string())
    for diff in (item.diff("ours"), item.diff("theirs")):
        for batch in () if diff is None else diff.batches(columns=["src"]):
            for image in (batch.before, batch.after):
                mine = pc.is_in(image["src"], value_set=wanted)
                pairs = zip(image["src"].filter(mine), batch.ids.filter(mine.combine_chunks()), strict=True)
                for source, id_ in pairs:
                    found.setdefault(source.as_py(), set()).add(id_.as_py())
    return {source: sorted(ids) for source, ids in found.items()}


def _states(item: TypeSides, ids: Sequence[str]) -> tuple[dict[str, Image], dict[str, Image]]:
    """How ours and how theirs left entities that they changed and still have."""
    wanted = pa.array(sorted(set(ids)), pa.string())
    return _left_by(item, "ours", wanted), _left_by(item, "theirs", wanted)


def _left_by(item: TypeSides, choice: Choice, ids: pa.Array) -> dict[str, Image]:
    delta = item.delta(choice, ids)
    alive = pa.array(delta.ops != DELETE)
    left = images(item.table, delta.after.filter(alive))
    return dict(zip(delta.ids.filter(alive).to_pylist(), left, strict=True))
