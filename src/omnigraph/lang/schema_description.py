"""A compiled schema as JSON: types with their properties, keys, constraints and indexes."""

from __future__ import annotations

from typing import Any

from omnigraph.lang.schema import (
    Annotation,
    AnyType,
    Cardinality,
    Check,
    EdgeType,
    NodeType,
    Property,
    Range,
    Schema,
)


def describe_schema(schema: Schema) -> dict[str, Any]:
    """Return all interfaces, nodes and edges, each group sorted by name.

    >>> from omnigraph.lang.pg.schema_compiler import load_schema
    >>> described = describe_schema(load_schema("node City { name: String @key }"))
    >>> described["nodes"][0]["name"], described["nodes"][0]["key"], described["edges"]
    ('City', ['name'], [])
    """
    return {
        "interfaces": [_describe_type(item) for item in schema.interfaces],
        "nodes": [_describe_node(item) for item in schema.nodes],
        "edges": [_describe_edge(item) for item in schema.edges],
    }


def _describe_type(item: AnyType) -> dict[str, Any]:
    constraints = item.effective_constraints
    return {
        "name": item.name,
        "description": _text(item.annotation("description")),
        "properties": [_describe_property(prop) for prop in item.properties],
        "key": None if item.key is None else list(item.key),
        "uniques": [list(columns) for columns in item.uniques],
        "indexes": [list(columns) for columns in item.indexes],
        "ranges": [
            {"property": rule.property, "min": rule.min, "max": rule.max}
            for rule in constraints
            if isinstance(rule, Range)
        ],
        "checks": [
            {"property": rule.property, "pattern": rule.pattern}
            for rule in constraints
            if isinstance(rule, Check)
        ],
    }


def _describe_node(item: NodeType) -> dict[str, Any]:
    return {**_describe_type(item), "implements": list(item.implements)}


def _describe_edge(item: EdgeType) -> dict[str, Any]:
    return {
        **_describe_type(item),
        "source": item.source,
        "target": item.target,
        "cardinality": _cardinality(item.cardinality),
    }


def _describe_property(prop: Property) -> dict[str, Any]:
    values = prop.type.enum_values
    return {
        "name": prop.name,
        "type": str(prop.type),
        "kind": prop.type.kind,
        "nullable": prop.type.nullable,
        "enum_values": None if values is None else list(values),
        "description": _text(prop.annotation("description")),
        "embedded_from": None if prop.embed is None else prop.embed.source,
        "full_text": prop.annotation("text") is not None,
    }


def _cardinality(item: Cardinality) -> dict[str, int | None]:
    return {"min": item.min, "max": item.max}


def _text(annotation: Annotation | None) -> str | None:
    return None if annotation is None else str(annotation.value)
