"""The rules of the schema, held against what a merge lays over its basis, as conflicts that can be settled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog, table_key
from omnigraph.catalog.images import Image, images
from omnigraph.engine.table_diff import DELETE
from omnigraph.lang.schema import Cardinality, EdgeType, NodeType
from omnigraph.write.delta import TableDelta, Violation
from omnigraph.write.findings import Findings
from omnigraph.write.merge_basis import MergeBasis
from omnigraph.write.merge_conflicts import Choice, ConflictKind, MergeConflict
from omnigraph.write.merge_tables import Sides, TypeSides
from omnigraph.write.row_rules import row_violations
from omnigraph.write.set_rules import entity_of
from omnigraph.write.three_way import KEEP, PUT, REMOVE, Delta, TableMerge
from omnigraph.write.validate import set_findings

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
    """What the first stage of rules finds that finds anything, and how many findings there are in all."""
    stricter = {
        key for key, item in types.items() if item.changed(basis) and _has_new_rules(catalog, item, basis)
    }
    every = {key: _nothing(types[key], basis) for key in stricter} | dict(merges)
    deltas = {key: _delta(types[key], merge, basis, own=key in stricter) for key, merge in every.items()}
    for found in _stages(catalog, deltas, MergeBasis(types, basis, sides.of(basis))):
        if found:
            conflicts = [_conflict(item, catalog, types, merges, basis) for item in found]
            return conflicts, found.total
    return [], 0


def _stages(catalog: Catalog, deltas: Mapping[str, TableDelta], committed: MergeBasis) -> Iterator[Findings]:
    yield Findings.merge(
        row_violations(delta.table, entity_of(catalog, delta.table), delta.rows) for delta in deltas.values()
    )
    yield from set_findings(catalog, deltas, committed)


def _has_new_rules(catalog: Catalog, item: TypeSides, basis: Choice) -> bool:
    """Whether the merged schema says other things about a type than the basis knew."""
    known = item.known(basis)
    before = item.sides.of(basis).catalog
    if known is None or before.fingerprint == catalog.fingerprint:
        return False
    old, new = entity_of(before, known), entity_of(catalog, item.table)
    return old.properties != new.properties or old.constraints != new.constraints or _card(old) != _card(new)


def _card(entity: NodeType | EdgeType) -> Cardinality | None:
    return entity.cardinality if isinstance(entity, EdgeType) else None


def _nothing(item: TypeSides, basis: Choice) -> TableMerge:
    upper: Choice = "theirs" if basis == "ours" else "ours"
    none = Delta.read(None, item.table)
    return TableMerge(item.table, none, none, upper_is=upper)


def _delta(item: TypeSides, merge: TableMerge, basis: Choice, *, own: bool) -> TableDelta:
    """What is laid over a table; with `own` also what the basis itself changed, under rules it did not know."""
    put = pa.array(np.flatnonzero(merge.actions == PUT))
    rows = merge.rows.take(put)
    touched = merge.ids.filter(pa.array(merge.actions != KEEP))
    removed = merge.ids.filter(pa.array(merge.actions == REMOVE))
    if own:
        changes = Delta.read(item.diff(basis), item.table)
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
    before = merge.upper.before["src"].filter(moved)
    under = merge.under.after["src"]
    return pc.unique(pa.chunked_array([*before.chunks, *under.chunks], pa.string())).drop_null()


# --- conflicts ----------------------------------------------------------------------------------------------


def _conflict(
    found: Violation,
    catalog: Catalog,
    types: Mapping[str, TypeSides],
    merges: Mapping[str, TableMerge],
    basis: Choice,
) -> MergeConflict:
    table = types[found.table_key].table
    kind = _KINDS.get(found.rule, "value_constraint_violation")
    named = kind in ("unique_violation", "orphan_edge")
    ours, theirs = _states(merges.get(found.table_key), found.id, basis)
    return MergeConflict(
        kind,
        table.kind,
        table.name,
        found.id if named else None,
        found.message,
        {"src": "from", "dst": "to"}.get(found.property or "", found.property),
        None,
        ours,
        theirs,
        entities=tuple(_entities(found, kind, catalog, types)),
    )


def _entities(
    found: Violation, kind: ConflictKind, catalog: Catalog, types: Mapping[str, TypeSides]
) -> Iterator[tuple[str, str]]:
    """The entities that taking a side is about."""
    key = found.table_key
    if kind == "cardinality_violation":
        yield from ((key, id_) for id_ in _edges_of(types[key], found.id))
        return
    if found.id is not None:
        yield key, found.id
    if kind == "unique_violation" and found.details.get("held_by") is not None:
        yield key, found.details["held_by"]
    if kind == "orphan_edge":
        edge = catalog.schema.edge(types[key].table.name)
        assert edge is not None
        yield table_key("node", edge.source if found.property == "src" else edge.target), str(found.value)


def _edges_of(item: TypeSides, source: str | None) -> list[str]:
    """The edges of a source that either side changed."""
    found: dict[str, None] = {}
    for side in ("ours", "theirs"):
        diff = item.diff("ours" if side == "ours" else "theirs")
        for batch in () if diff is None else diff.batches(columns=["src"]):
            for image in (batch.before, batch.after):
                mine = pc.equal(image["src"], pa.scalar(source, pa.string())).fill_null(False)
                found |= dict.fromkeys(batch.ids.filter(mine.combine_chunks()).to_pylist())
    return sorted(found)


def _states(merge: TableMerge | None, id_: str | None, basis: Choice) -> tuple[Image | None, Image | None]:
    """How each side left an entity, as far as it changed it: ours, theirs."""
    if merge is None or id_ is None:
        return None, None
    upper, under = _state(merge, merge.upper, id_), _state(merge, merge.under, id_)
    return (under, upper) if basis == "ours" else (upper, under)


def _state(merge: TableMerge, delta: Delta, id_: str) -> Image | None:
    place = pc.index(delta.ids, pa.scalar(id_, pa.string())).as_py()
    if place < 0 or delta.ops[place] == DELETE:
        return None
    return images(merge.table, delta.after.slice(place, 1))[0]
