"""The schema of a merge draft, and the origins of the types and properties of the compiled schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.catalog.migration.renames import PropertyName, TypeName
from omnigraph.catalog.schema_merge.members import Presence
from omnigraph.catalog.schema_merge.merged_types import DraftType
from omnigraph.catalog.schema_merge.three_way import MatchedCatalogs, MatchedProperty, MatchedType, Side
from omnigraph.lang.schema import (
    AnyType,
    EdgeType,
    InterfaceType,
    NodeType,
    Schema,
    all_types,
    embedding_record_name,
)


@dataclass(frozen=True, slots=True)
class SchemaOrigins:
    """A schema and the matched elements that its types and properties come from; other properties are new."""

    schema: Schema
    types: Mapping[TypeName, tuple[MatchedType, Presence]]
    properties: Mapping[PropertyName, MatchedProperty]


def build_schema(catalogs: MatchedCatalogs, drafts: Mapping[str, DraftType]) -> Schema:
    """Build a schema from drafts, with names instead of keys. Compiling its text adds inherited properties."""
    interfaces: list[InterfaceType] = []
    nodes: list[NodeType] = []
    edges: list[EdgeType] = []
    for draft in drafts.values():
        properties, constraints = draft.members.named(_inherited_names(catalogs, drafts, draft))
        if draft.matched.kind == "interface":
            interfaces.append(InterfaceType(draft.name, properties, constraints, draft.annotations))
        elif draft.matched.kind == "node":
            implements = tuple(drafts[key].name for key in draft.implements)
            nodes.append(
                NodeType(draft.name, properties, constraints, draft.annotations, implements=implements)
            )
        else:
            source, target = (drafts[key].name for key in draft.ends)
            edges.append(
                EdgeType(
                    draft.name,
                    properties,
                    constraints,
                    draft.annotations,
                    source=source,
                    target=target,
                    cardinality=draft.cardinality,
                )
            )
    return Schema(tuple(interfaces), tuple(nodes), tuple(edges))


def _inherited_names(
    catalogs: MatchedCatalogs, drafts: Mapping[str, DraftType], draft: DraftType
) -> dict[str, str]:
    """Return the names of the inherited properties of a draft by key.

    They come from its interfaces, or are the records of its embeddings, which are named after their vectors.
    """
    names: dict[str, str] = {}
    vectors: dict[str, str] = {}
    for key, matched in draft.matched.properties.items():
        for index, prop in enumerate(matched.properties.parts):
            node = draft.matched.types.parts[index]
            if key in draft.members.properties or prop is None or not prop.inherited:
                continue
            vector = _recorded_vector(node, prop.name)
            if vector is not None:
                vectors[key] = (draft.matched.columns.parts[index] or {})[vector]
            for implemented in node.implements if isinstance(node, NodeType) else ():
                interface = (catalogs.keys.parts[index] or {})["interface", implemented]
                columns = catalogs.types[interface].columns.parts[index] or {}
                if interface in draft.implements and prop.name in columns:
                    declared = drafts[interface].members.properties.get(columns[prop.name])
                    if declared is not None:
                        names[key] = declared.name
    for key, vector_key in vectors.items():
        own = draft.members.properties.get(vector_key)
        name = names.get(vector_key) if own is None else own.name
        if name is not None:
            names[key] = embedding_record_name(name)
    return names


def _recorded_vector(node: AnyType | None, name: str) -> str | None:
    """Return the vector property whose record has a name, or None."""
    embedded = node.embedded if isinstance(node, NodeType) else ()
    return next((item.name for item in embedded if item.record == name), None)


def trace_types(catalogs: MatchedCatalogs, drafts: Mapping[str, DraftType], schema: Schema) -> SchemaOrigins:
    """Return the origins of the types and properties of the compiled schema."""
    by_name = {(draft.matched.kind, draft.name): draft for draft in drafts.values()}
    types: dict[TypeName, tuple[MatchedType, Presence]] = {}
    properties: dict[PropertyName, MatchedProperty] = {}
    for item in all_types(schema):
        draft = by_name[item.kind, item.name]
        matched = draft.matched
        types[item.kind, item.name] = (matched, draft.presence)
        keys = {name: key for key, name in _inherited_names(catalogs, drafts, draft).items()}
        keys |= {prop.name: key for key, prop in draft.members.properties.items()}
        for name in item.by_name.keys() & keys.keys():
            properties[item.kind, item.name, name] = matched.properties[keys[name]]
    return SchemaOrigins(schema, types, properties)


def trace_side(catalogs: MatchedCatalogs, schema: Schema, side: Side) -> SchemaOrigins:
    """Return the origins of the types and properties of the schema of one side."""
    own = [(matched, part) for matched in catalogs.types.values() if (part := matched.types.of(side))]
    types: dict[TypeName, tuple[MatchedType, Presence]] = {
        (part.kind, part.name): (matched, side) for matched, part in own
    }
    properties = {
        (part.kind, part.name, name): matched.properties[key]
        for matched, part in own
        for name, key in (matched.columns.of(side) or {}).items()
    }
    return SchemaOrigins(schema, types, properties)
