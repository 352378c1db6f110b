"""From the draft of a merge to a schema that can be compiled, and from that back to what was merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.catalog.migration.renames import PropertyName, TypeName, all_types
from omnigraph.catalog.schema_merge.members import Presence
from omnigraph.catalog.schema_merge.merged_types import DraftType
from omnigraph.catalog.schema_merge.three_way import MatchedCatalogs, MatchedProperty, MatchedType, Side
from omnigraph.lang.schema import EdgeType, InterfaceType, NodeType, Schema


@dataclass(frozen=True, slots=True)
class Placed:
    """What each type and property of a schema goes back to; a property that is missing here is new."""

    schema: Schema
    types: Mapping[TypeName, tuple[MatchedType, Presence]]
    properties: Mapping[PropertyName, MatchedProperty]


def build_schema(matched: MatchedCatalogs, drafts: Mapping[str, DraftType]) -> Schema:
    """The drafts with names for keys. Nodes lack what they inherit: compiling the text gives them that."""
    interfaces: list[InterfaceType] = []
    nodes: list[NodeType] = []
    edges: list[EdgeType] = []
    for draft in drafts.values():
        properties, constraints = draft.members.named(_inherited_names(matched, drafts, draft))
        if draft.triple.kind == "interface":
            interfaces.append(InterfaceType(draft.name, properties, constraints, draft.annotations))
        elif draft.triple.kind == "node":
            faces = tuple(drafts[key].name for key in draft.implements)
            nodes.append(NodeType(draft.name, properties, constraints, draft.annotations, implements=faces))
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
    matched: MatchedCatalogs, drafts: Mapping[str, DraftType], draft: DraftType
) -> dict[str, str]:
    """What the properties that a draft does not declare are called, by key: what their interface says."""
    found: dict[str, str] = {}
    for key, triple in draft.triple.properties.items():
        for place, prop in enumerate(triple.properties.parts):
            node = draft.triple.types.parts[place]
            if key in draft.members.properties or prop is None or not prop.inherited:
                continue
            for face in node.implements if isinstance(node, NodeType) else ():
                interface = (matched.keys.parts[place] or {})["interface", face]
                columns = matched.types[interface].columns.parts[place] or {}
                if interface in draft.implements and prop.name in columns:
                    given = drafts[interface].members.properties.get(columns[prop.name])
                    if given is not None:
                        found[key] = given.name
    return found


def place_types(matched: MatchedCatalogs, drafts: Mapping[str, DraftType], schema: Schema) -> Placed:
    """Find what was merged into each type and property of the compiled schema."""
    by_name = {(draft.triple.kind, draft.name): draft for draft in drafts.values()}
    types: dict[TypeName, tuple[MatchedType, Presence]] = {}
    properties: dict[PropertyName, MatchedProperty] = {}
    for item in all_types(schema):
        draft = by_name[item.kind, item.name]
        triple = draft.triple
        types[item.kind, item.name] = (triple, draft.presence)
        keys = {name: key for key, name in _inherited_names(matched, drafts, draft).items()}
        keys |= {prop.name: key for key, prop in draft.members.properties.items()}
        for name in item.by_name.keys() & keys.keys():
            properties[item.kind, item.name, name] = triple.properties[keys[name]]
    return Placed(schema, types, properties)


def place_side(matched: MatchedCatalogs, schema: Schema, side: Side) -> Placed:
    """The same for a schema that is a side's own."""
    found = [(triple, part) for triple in matched.types.values() if (part := triple.types.of(side))]
    types: dict[TypeName, tuple[MatchedType, Presence]] = {
        (part.kind, part.name): (triple, side) for triple, part in found
    }
    properties = {
        (part.kind, part.name, name): triple.properties[key]
        for triple, part in found
        for name, key in (triple.columns.of(side) or {}).items()
    }
    return Placed(schema, types, properties)
