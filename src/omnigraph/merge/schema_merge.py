"""The schema of a merge: merged three ways like the rows, with the same kind of conflicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.schema_merge.merge import MergedCatalog, MergedTable, SchemaConflict, merge_catalogs
from omnigraph.lang.schema import TypeKind
from omnigraph.merge.conflicts import Choice, MergeConflict, Resolutions, in_order
from omnigraph.merge.merge_tables import Sides, same_schema

Reserve: TypeAlias = Callable[[int, int], int]


@dataclass(frozen=True)
class MergedSchema:
    """The schema of the merged state, its tables on all sides, and what nobody has decided."""

    catalog: Catalog
    tables: tuple[MergedTable, ...]
    conflicts: tuple[MergeConflict, ...] = ()


def merge_schemas(sides: Sides, resolutions: Resolutions, reserve: Reserve) -> MergedSchema:
    """Merge the schemas of three states. `reserve` gives the first of so many identities, from one on, in a row."""
    base, ours, theirs = (state.catalog for state in (sides.base, sides.ours, sides.theirs))
    if base.fingerprint == ours.fingerprint == theirs.fingerprint:
        return MergedSchema(ours, same_schema(ours))
    chosen: dict[str, Choice] = {}
    highest = max(base.next_id, ours.next_id, theirs.next_id)
    while True:
        merged = merge_catalogs(base, ours, theirs, choose=chosen)
        answered = dict(_answers(merged.conflicts, resolutions))
        if answered.keys() <= chosen.keys():
            break
        # What was decided about one thing can show that there is another to be decided.
        chosen |= answered
    if merged.catalog.next_id > highest:
        first = reserve(merged.catalog.next_id - highest, highest)
        merged = merge_catalogs(base, ours, theirs, choose=chosen, counter=first)
    open_ = [_conflict(item) for item in merged.conflicts if item.id not in chosen]
    open_ += [item for item, drops in _lost_rows(merged, sides) if resolutions.choose(item) != drops]
    return MergedSchema(merged.catalog, merged.tables, tuple(in_order(open_)))


def _answers(conflicts: Iterable[SchemaConflict], resolutions: Resolutions) -> Iterable[tuple[str, Choice]]:
    for item in conflicts:
        choice = resolutions.choose(_conflict(item))
        if choice == "ours" or choice == "theirs":
            yield item.id, choice


def _conflict(found: SchemaConflict) -> MergeConflict:
    kind, _, name = found.entity.partition(":")
    type_name, _, prop = name.partition(".")
    return MergeConflict(
        "schema_conflict",
        _kind(kind),
        type_name,
        None,
        found.message,
        prop or None,
        found.base,
        found.ours,
        found.theirs,
        given_id=found.id,
    )


def _kind(text: str) -> TypeKind:
    return "edge" if text == "edge" else "interface" if text == "interface" else "node"


def _lost_rows(merged: MergedCatalog, sides: Sides) -> Iterable[tuple[MergeConflict, Choice]]:
    """Types that one side dropped while the other changed their rows, and the side that dropped them.

    Dropping them loses that work, so that nothing but a choice of the side that did settles it.
    """
    for item in merged.dropped:
        before = sides.base.commit.tables[str(item.base.id)]
        changed: tuple[tuple[Choice, Choice, Table | None], ...] = (
            ("ours", "theirs", item.ours),
            ("theirs", "ours", item.theirs),
        )
        for side, drops, table in changed:
            if table is not None and sides.of(side).commit.tables[str(table.id)].content != before.content:
                yield _lost(item.base, side), drops


def _lost(table: Table, side: Choice) -> MergeConflict:
    dropped, changed = "dropped", "rows changed"
    return MergeConflict(
        "schema_conflict",
        table.kind,
        table.name,
        None,
        f"{table.kind} type '{table.name}' was dropped on one side and its rows changed on the other",
        None,
        None,
        changed if side == "ours" else dropped,
        changed if side == "theirs" else dropped,
    )
