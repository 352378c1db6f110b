"""The canonical shape of a schema: two texts define the same schema if and only if their shapes are equal.

Declarations, properties, constraints, constraint columns, annotations and enum values are sorted and without
duplicates. Comments, layout, order and ``@rename_from`` are not part of the shape. The migration planner compares
the same forms, so that a plan is empty if and only if the hashes are equal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from omnigraph.catalog.serialization import Json, encode_annotation, encode_constraint, encode_type
from omnigraph.lang.schema import (
    Annotation,
    Check,
    Constraint,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    Range,
    Schema,
)
from omnigraph.lang.types import PropType

# A hint for one migration; it is not part of the schema.
RENAME_HINT = "rename_from"


def compact_json(value: object) -> str:
    """Return JSON with sorted members and no spaces, the form that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sha256_name(value: object) -> str:
    """Return ``sha256:<hex>`` of the compact JSON of a value."""
    # An annotation from a JSON request may contain an unpaired surrogate, which strict UTF-8 cannot encode.
    return f"sha256:{hashlib.sha256(compact_json(value).encode('utf-8', 'surrogatepass')).hexdigest()}"


def schema_hash(schema: Schema) -> str:
    """Return the hash of the canonical shape of a schema."""
    return sha256_name(canonical_shape(schema))


def canonical_shape(schema: Schema) -> Json:
    """Return the canonical shape of a schema as JSON."""
    return {
        "interfaces": [_type_shape(item) for item in sorted(schema.interfaces, key=_name)],
        "nodes": [
            {**_type_shape(item), "implements": sorted(set(item.implements))}
            for item in sorted(schema.nodes, key=_name)
        ],
        "edges": [
            {
                **_type_shape(item),
                "source": item.source,
                "target": item.target,
                "cardinality": [item.cardinality.min, item.cardinality.max],
            }
            for item in sorted(schema.edges, key=_name)
        ],
    }


def canonical_type(prop_type: PropType) -> PropType:
    """Return the type with sorted enum values."""
    if prop_type.enum_values is None:
        return prop_type
    return replace(prop_type, enum_values=tuple(sorted(prop_type.enum_values)))


def canonical_constraint(constraint: Constraint, renamed: Mapping[str, str] | None = None) -> Constraint:
    """Return the constraint with sorted columns; `renamed` has new property names by old name.

    >>> from omnigraph.lang.schema import Unique
    >>> canonical_constraint(Unique(("src", "age")), {"age": "years"})
    Unique(columns=('src', 'years'))
    """
    names = renamed or {}
    if isinstance(constraint, Range | Check):
        return replace(constraint, property=names.get(constraint.property, constraint.property))
    columns = {names.get(column, column) for column in constraint.columns}
    return type(constraint)(tuple(sorted(columns)))


def constrained_columns(constraint: Constraint) -> frozenset[str]:
    """Return the properties and endpoint columns of a constraint."""
    return frozenset({constraint.property} if isinstance(constraint, Range | Check) else constraint.columns)


def constraint_keys(
    constraints: Iterable[Constraint], renamed: Mapping[str, str] | None = None
) -> dict[str, Constraint]:
    """Return canonical constraints by their compact JSON, sorted by it.

    Constraints are compared by JSON, because in Python a bound of 0 equals 0.0, and in the shape it does not.
    """
    canonical = (canonical_constraint(item, renamed) for item in constraints)
    by_json = {compact_json(encode_constraint(item)): item for item in canonical}
    return {key: by_json[key] for key in sorted(by_json)}


def annotation_keys(annotations: Iterable[Annotation]) -> dict[str, Annotation]:
    """Return annotations by their compact JSON, sorted by it, without rename hints."""
    compared = (item for item in annotations if item.name != RENAME_HINT)
    by_json = {compact_json(encode_annotation(item)): item for item in compared}
    return {key: by_json[key] for key in sorted(by_json)}


def _type_shape(entity: InterfaceType | NodeType | EdgeType) -> Json:
    return {
        "name": entity.name,
        "annotations": list(annotation_keys(entity.annotations)),
        "constraints": list(constraint_keys(entity.constraints)),
        "properties": [_property_shape(item) for item in sorted(entity.properties, key=_name)],
    }


def _property_shape(prop: Property) -> Json:
    return {
        "name": prop.name,
        "type": encode_type(canonical_type(prop.type)),
        "annotations": list(annotation_keys(prop.annotations)),
        "inherited": prop.inherited,
    }


def _name(item: Property | InterfaceType | NodeType | EdgeType) -> str:
    return item.name
