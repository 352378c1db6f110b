"""Three-way merge of the catalogs of two branches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from omnigraph.catalog.catalog import Catalog, Column, Table, table_key
from omnigraph.catalog.embedding_models import earlier_models
from omnigraph.catalog.identity import FIRST_ID
from omnigraph.catalog.schema_merge.declarations import SchemaOrigins, build_schema, trace_side, trace_types
from omnigraph.catalog.schema_merge.identities import merge_identities
from omnigraph.catalog.schema_merge.merged_types import merge_types
from omnigraph.catalog.schema_merge.schema_conflicts import (
    WHOLE_SCHEMA,
    ConflictResolver,
    SchemaConflict,
    UndecidedAspect,
)
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

_NO_CHOICE: Mapping[str, Side] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MergedColumn:
    """A column of a merged table and its counterparts in the merge base, ours and theirs."""

    column: Column
    base: Column | None
    ours: Column | None
    theirs: Column | None


@dataclass(frozen=True, slots=True)
class MergedTable:
    """A table of the merged catalog and its counterparts in the merge base, ours and theirs."""

    table: Table
    base: Table | None
    ours: Table | None
    theirs: Table | None
    columns: tuple[MergedColumn, ...]


@dataclass(frozen=True, slots=True)
class MergedDrop:
    """A table of the merge base that the merged catalog drops, and its counterparts in ours and theirs."""

    base: Table
    ours: Table | None
    theirs: Table | None


@dataclass(frozen=True, slots=True)
class MergedCatalog:
    """The result of a merge. When there are conflicts, `catalog` resolves each of them to ours.

    `undecided` are the aspects of the conflicts, for a merge that takes this catalog as its merge base.
    """

    catalog: Catalog
    conflicts: tuple[SchemaConflict, ...]
    tables: tuple[MergedTable, ...]
    dropped: tuple[MergedDrop, ...]
    undecided: frozenset[UndecidedAspect] = frozenset()


def merge_catalogs(
    base: Catalog,
    ours: Catalog,
    theirs: Catalog,
    *,
    choose: Mapping[str, Side] = _NO_CHOICE,
    counter: int = FIRST_ID,
    undecided: Collection[UndecidedAspect] = frozenset(),
) -> MergedCatalog:
    """Merge the catalogs of two branches that share a merge base.

    Changes of one side, and equal changes of both sides, are applied. Different changes of the same aspect are a
    conflict. So is any difference in an `undecided` aspect of the merge base. `choose` resolves conflicts by id;
    ids that are not a conflict of this merge are ignored. Elements keep their identity; an element that both sides
    added independently has the identity of ours. The result always compiles. When it equals ours or theirs, that
    catalog itself is returned.

    A new identity is needed only when a node of one side inherits a property that the other side added to its
    interface. It is the higher of `counter` and the highest counter of the three catalogs.
    """
    catalogs = match_catalogs(base, ours, theirs)
    sides = ThreeWay(base, ours, theirs)
    resolver = ConflictResolver(choose, undecided)
    drafts = merge_types(resolver, catalogs)
    text = schema_text(build_schema(catalogs, drafts))
    try:
        schema = load_schema(text)
    except LanguageError as error:
        texts = sides.map(lambda side: schema_text(side.schema))
        side = resolver.resolve(WHOLE_SCHEMA, "schema", str(error), texts)
        catalog = sides.require(side)
        origins = trace_side(catalogs, catalog.schema, side)
    else:
        origins = trace_types(catalogs, drafts, schema)
        catalog = _merged_catalog(origins, text, sides, counter)
    return MergedCatalog(
        catalog,
        resolver.conflicts,
        tuple(_merged_table(table, origins, sides) for table in catalog.tables.values()),
        tuple(_dropped(catalogs, origins, sides)),
        frozenset(_undecided_aspects(resolver.conflicts, catalogs, origins)),
    )


def _undecided_aspects(
    conflicts: Iterable[SchemaConflict], catalogs: MatchedCatalogs, origins: SchemaOrigins
) -> Iterator[UndecidedAspect]:
    """Yield the aspects of the conflicts, under every name that their entity has in the merged catalogs."""
    merged = {matched.key: name for (_, name), (matched, _) in origins.types.items()}
    merged_properties = {
        (kind, name, item.key): property_name
        for (kind, name, property_name), item in origins.properties.items()
    }
    names: dict[str, set[str]] = {}
    for matched in catalogs.types.values():
        kind = matched.kind
        owners = {part.name for part in matched.types.parts if part} | {
            merged.get(matched.key, matched.label)
        }
        names[matched.entity] = {f"{kind}:{owner}" for owner in owners}
        for item in matched.properties.values():
            own = {part.name for part in item.properties.parts if part}
            name = merged_properties.get((kind, merged.get(matched.key, ""), item.key))
            own |= set() if name is None else {name}
            names[f"{matched.entity}.{item.label}"] = {
                f"{kind}:{owner}.{part}" for owner in owners for part in own
            }
    for conflict in conflicts:
        for entity in names.get(conflict.entity, set()) | {conflict.entity}:
            yield entity, conflict.aspect


def _merged_catalog(origins: SchemaOrigins, text: str, sides: ThreeWay[Catalog], counter: int) -> Catalog:
    numbers = [catalog.next_id for catalog in sides.parts if catalog is not None]
    identities = merge_identities(origins, max(numbers), counter)
    merged = Catalog(text, origins.schema, identities)
    merged_sides = [side for side in (sides.ours, sides.theirs) if side is not None]
    models = earlier_models(merged_sides, merged)
    equal = [side for side in merged_sides if side.hash == merged.hash]
    for side in equal:
        if side.identities == identities and side.earlier_models == models:
            return side
    # The original source text has comments, which the generated text has not.
    if equal:
        return Catalog(equal[0].source, equal[0].schema, identities, models)
    return replace(merged, earlier_models=models)


def _merged_table(table: Table, origins: SchemaOrigins, sides: ThreeWay[Catalog]) -> MergedTable:
    matched, _ = origins.types[table.kind, table.name]
    tables = _tables(matched, sides)
    columns = tuple(
        MergedColumn(column, *map(_column, tables.parts, _names(column, table, origins).parts))
        for column in table.columns
    )
    return MergedTable(table, *tables.parts, columns)


def _names(column: Column, table: Table, origins: SchemaOrigins) -> ThreeWay[str]:
    """Return the names of a column of a merged table in the merge base, ours and theirs."""
    if column.property_id is None:
        return ThreeWay(column.name, column.name, column.name)
    known = origins.properties.get((table.kind, table.name, column.name))
    return ThreeWay(None, None, None) if known is None else known.properties.map(lambda item: item.name)


def _column(table: Table | None, name: str | None) -> Column | None:
    return None if table is None else next((item for item in table.columns if item.name == name), None)


def _tables(matched: MatchedType, sides: ThreeWay[Catalog]) -> ThreeWay[Table]:
    pairs = zip(sides.parts, matched.types.parts, strict=True)
    return ThreeWay(
        *(
            catalog.tables[table_key(item.kind, item.name)] if catalog and item else None
            for catalog, item in pairs
        )
    )


def _dropped(
    catalogs: MatchedCatalogs, origins: SchemaOrigins, sides: ThreeWay[Catalog]
) -> Iterator[MergedDrop]:
    kept = {matched.key for matched, _ in origins.types.values()}
    for key, matched in catalogs.types.items():
        if key not in kept and matched.kind != "interface":
            tables = _tables(matched, sides)
            if tables.base is not None:
                yield MergedDrop(tables.base, tables.ours, tables.theirs)
