"""The canonical shape of a schema: two texts are the same schema exactly when their shapes agree.

Declarations, properties, constraints, constraint columns, annotations and enum values are sorted and
repeats are dropped; comments, layout, order and ``@rename_from`` leave no trace. What the planner compares
comes from here too, so an empty plan and an equal hash are the same statement.
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

# A hint for one migration, no part of what the schema is.
RENAME_HINT = "rename_from"


def compact_json(value: object) -> str:
    """JSON with sorted members and no spaces: the form that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sha256_name(value: object) -> str:
    """``sha256:<hex>`` over the compact JSON of a value."""
    # Lone surrogates cannot be written as UTF-8, and an annotation could smuggle one in from a JSON request.
    return f"sha256:{hashlib.sha256(compact_json(value).encode('utf-8', 'surrogatepass')).hexdigest()}"


def schema_hash(schema: Schema) -> str:
    """The name of a schema's canonical shape."""
    return sha256_name(canonical_shape(schema))


def canonical_shape(schema: Schema) -> Json:
    """Everything that makes a schema what it is, as plain JSON."""
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
    """The type with its enum values sorted."""
    if prop_type.enum_values is None:
        return prop_type
    return replace(prop_type, enum_values=tuple(sorted(prop_type.enum_values)))


def canonical_constraint(constraint: Constraint, renamed: Mapping[str, str] | None = None) -> Constraint:
    """The constraint with sorted columns, its properties under their new names.

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
    """The properties, and the ends of an edge, that a constraint is about."""
    return frozenset({constraint.property} if isinstance(constraint, Range | Check) else constraint.columns)


def constraint_keys(
    constraints: Iterable[Constraint], renamed: Mapping[str, str] | None = None
) -> dict[str, Constraint]:
    """Canonical constraints by a text that tells them apart, sorted by it.

    The text, not the object, is compared: in Python a bound of 0 equals one of 0.0, in the shape it does not.
    """
    canonical = (canonical_constraint(item, renamed) for item in constraints)
    found = {compact_json(encode_constraint(item)): item for item in canonical}
    return {key: found[key] for key in sorted(found)}


def annotation_keys(annotations: Iterable[Annotation]) -> dict[str, Annotation]:
    """Annotations by a text that tells them apart, sorted by it; rename hints do not count."""
    counted = (item for item in annotations if item.name != RENAME_HINT)
    found = {compact_json(encode_annotation(item)): item for item in counted}
    return {key: found[key] for key in sorted(found)}


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
