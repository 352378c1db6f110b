"""Three-way merge of accepted schemas: what two branches made of a common one, in one catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from omnigraph.catalog.catalog import Catalog, Column, Table, table_key
from omnigraph.catalog.identity import FIRST_ID
from omnigraph.catalog.schema_merge.declarations import Placed, build_schema, place_side, place_types
from omnigraph.catalog.schema_merge.identities import merge_identities
from omnigraph.catalog.schema_merge.merged_types import merge_types
from omnigraph.catalog.schema_merge.schema_conflicts import Decisions, SchemaConflict
from omnigraph.catalog.schema_merge.three_way import (
    MatchedCatalogs,
    MatchedType,
    Side,
    ThreeWay,
    match_catalogs,
)
from omnigraph.catalog.schema_text import schema_text
from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.pg.schema_compiler import load_schema

__all__ = ["MergedCatalog", "MergedColumn", "MergedDrop", "MergedTable", "SchemaConflict", "merge_catalogs"]

_UNDECIDED: Mapping[str, Side] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MergedColumn:
    """A column of a merged table, and what it was where it existed."""

    column: Column
    base: Column | None
    ours: Column | None
    theirs: Column | None


@dataclass(frozen=True, slots=True)
class MergedTable:
    """A table of the merged catalog, and the tables of the same type in the three others."""

    table: Table
    base: Table | None
    ours: Table | None
    theirs: Table | None
    columns: tuple[MergedColumn, ...]


@dataclass(frozen=True, slots=True)
class MergedDrop:
    """A table of the merge base that the merged catalog no longer has, and what the sides made of it."""

    base: Table
    ours: Table | None
    theirs: Table | None


@dataclass(frozen=True, slots=True)
class MergedCatalog:
    """The outcome of a merge. While there are conflicts, `catalog` is what would be if ours won each."""

    catalog: Catalog
    conflicts: tuple[SchemaConflict, ...]
    tables: tuple[MergedTable, ...]
    dropped: tuple[MergedDrop, ...]


def merge_catalogs(
    base: Catalog,
    ours: Catalog,
    theirs: Catalog,
    *,
    choose: Mapping[str, Side] = _UNDECIDED,
    counter: int = FIRST_ID,
) -> MergedCatalog:
    """Merge what two branches made of one schema.

    What one side changed is taken, what both changed alike too. What they changed differently is a conflict,
    which `choose` decides by its id; ids that are no conflict of this merge are ignored. A thing keeps its
    identity, and one that both sides added on their own has ours. The result always compiles, and it is
    one of the two catalogs themselves when it says the same.

    A number is new only where a node of one side inherits a property that the other side gave to its
    interface; it comes from `counter` or the highest counter of the three, whichever is more.
    """
    matched = match_catalogs(base, ours, theirs)
    sides = ThreeWay(base, ours, theirs)
    decisions = Decisions(choose)
    drafts = merge_types(decisions, matched)
    text = schema_text(build_schema(matched, drafts))
    try:
        schema = load_schema(text)
    except LanguageError as error:
        texts = sides.map(lambda side: schema_text(side.schema))
        side = decisions.pick("schema", "schema", str(error), texts)
        catalog = sides.require(side)
        placed = place_side(matched, catalog.schema, side)
    else:
        placed = place_types(matched, drafts, schema)
        catalog = _merged_catalog(placed, text, sides, counter)
    return MergedCatalog(
        catalog,
        decisions.conflicts,
        tuple(_merged_table(table, placed, sides) for table in catalog.tables.values()),
        tuple(_dropped(matched, placed, sides)),
    )


def _merged_catalog(placed: Placed, text: str, sides: ThreeWay[Catalog], counter: int) -> Catalog:
    numbers = [catalog.next_id for catalog in sides.parts if catalog is not None]
    identities = merge_identities(placed, max(numbers), counter)
    merged = Catalog(text, placed.schema, identities)
    alike = [side for side in (sides.ours, sides.theirs) if side is not None and side.hash == merged.hash]
    for side in alike:
        if side.identities == identities:
            return side
    # The text that a person wrote, with its comments, is worth more than one that was printed.
    return Catalog(alike[0].source, alike[0].schema, identities) if alike else merged


def _merged_table(table: Table, placed: Placed, sides: ThreeWay[Catalog]) -> MergedTable:
    triple, _ = placed.types[table.kind, table.name]
    tables = _tables(triple, sides)
    columns = tuple(
        MergedColumn(column, *map(_column, tables.parts, _names(column, table, placed).parts))
        for column in table.columns
    )
    return MergedTable(table, *tables.parts, columns)


def _names(column: Column, table: Table, placed: Placed) -> ThreeWay[str]:
    """What a column of a merged table is called in each catalog."""
    if column.property_id is None:
        return ThreeWay(column.name, column.name, column.name)
    known = placed.properties.get((table.kind, table.name, column.name))
    return ThreeWay(None, None, None) if known is None else known.properties.map(lambda item: item.name)


def _column(table: Table | None, name: str | None) -> Column | None:
    return None if table is None else next((item for item in table.columns if item.name == name), None)


def _tables(triple: MatchedType, sides: ThreeWay[Catalog]) -> ThreeWay[Table]:
    pairs = zip(sides.parts, triple.types.parts, strict=True)
    return ThreeWay(
        *(
            catalog.tables[table_key(item.kind, item.name)] if catalog and item else None
            for catalog, item in pairs
        )
    )


def _dropped(matched: MatchedCatalogs, placed: Placed, sides: ThreeWay[Catalog]) -> Iterator[MergedDrop]:
    kept = {triple.key for triple, _ in placed.types.values()}
    for key, triple in matched.types.items():
        if key not in kept and triple.kind != "interface":
            tables = _tables(triple, sides)
            if tables.base is not None:
                yield MergedDrop(tables.base, tables.ours, tables.theirs)
