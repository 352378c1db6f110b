"""JSON forms of types, constraints and annotations, as plans use them and the catalog stores them.

Encoding is lossless: `decode_x(encode_x(x)) == x`. The forms are stored, so that a change requires a new `FORMAT`
in `catalog.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from omnigraph.lang.schema import Annotation, Check, Constraint, Index, Key, Range, Unique
from omnigraph.lang.types import ColumnType, ObjectType, PropType, Scalar

Json: TypeAlias = dict[str, Any]

_COLUMN_CONSTRAINTS: Mapping[str, type[Key] | type[Unique] | type[Index]] = {
    "Key": Key,
    "Unique": Unique,
    "Index": Index,
}


def encode_type(prop_type: PropType) -> Json:
    """Return the JSON form of a property type.

    >>> encode_type(PropType(Scalar.VECTOR, dim=3))
    {'scalar': {'Vector': 3}, 'nullable': False, 'list': False, 'enum_values': None}
    """
    is_vector = prop_type.scalar is Scalar.VECTOR
    return {
        "scalar": {"Vector": prop_type.dim} if is_vector else prop_type.scalar.value,
        "nullable": prop_type.nullable,
        "list": prop_type.is_list,
        "enum_values": None if prop_type.enum_values is None else list(prop_type.enum_values),
    }


def decode_type(encoded: Mapping[str, Any]) -> PropType:
    """Return the property type of a JSON form."""
    scalar, values = encoded["scalar"], encoded["enum_values"]
    dim = scalar["Vector"] if isinstance(scalar, Mapping) else None
    return PropType(
        Scalar.VECTOR if dim is not None else Scalar(scalar),
        nullable=encoded["nullable"],
        is_list=encoded["list"],
        dim=dim,
        enum_values=None if values is None else tuple(values),
    )


def encode_column_type(type_: ColumnType) -> Json:
    """Return the JSON form of the type of a result column."""
    if not isinstance(type_, ObjectType):
        return encode_type(type_)
    fields = [[name, encode_type(field)] for name, field in type_.fields]
    return {
        "entity": {
            "kind": type_.kind,
            "type": type_.type_name,
            "fields": fields,
            "nullable": type_.nullable,
            "endpoints": None if type_.endpoints is None else list(type_.endpoints),
        }
    }


def decode_column_type(encoded: Mapping[str, Any]) -> ColumnType:
    """Return the type of a result column of a JSON form."""
    if "entity" not in encoded:
        return decode_type(encoded)
    entity = encoded["entity"]
    fields = tuple((name, decode_type(field)) for name, field in entity["fields"])
    ends = entity["endpoints"]
    endpoints = None if ends is None else (ends[0], ends[1])
    return ObjectType(entity["kind"], entity["type"], fields, entity["nullable"], endpoints)


def encode_constraint(constraint: Constraint) -> Json:
    """Return the JSON form of a constraint, tagged by its kind.

    >>> encode_constraint(Range("age", 0, None))
    {'Range': {'property': 'age', 'min': {'Integer': 0}, 'max': None}}
    """
    if isinstance(constraint, Range):
        low, high = _encode_bound(constraint.min), _encode_bound(constraint.max)
        return {"Range": {"property": constraint.property, "min": low, "max": high}}
    if isinstance(constraint, Check):
        return {"Check": {"property": constraint.property, "pattern": constraint.pattern}}
    return {type(constraint).__name__: list(constraint.columns)}


def decode_constraint(encoded: Mapping[str, Any]) -> Constraint:
    """Return the constraint of a JSON form."""
    ((tag, body),) = encoded.items()
    if tag == "Range":
        return Range(body["property"], _decode_bound(body["min"]), _decode_bound(body["max"]))
    if tag == "Check":
        return Check(body["property"], body["pattern"])
    return _COLUMN_CONSTRAINTS[tag](tuple(body))


def _encode_bound(bound: int | float | None) -> Json | None:
    if bound is None:
        return None
    return {"Integer": bound} if isinstance(bound, int) else {"Float": bound}


def _decode_bound(encoded: Mapping[str, Any] | None) -> int | float | None:
    if encoded is None:
        return None
    ((tag, value),) = encoded.items()
    return int(value) if tag == "Integer" else float(value)


def encode_annotation(annotation: Annotation) -> Json:
    """Return the JSON form of an annotation; `kwargs` is omitted when empty.

    >>> encode_annotation(Annotation("description", "x"))
    {'name': 'description', 'value': 'x'}
    """
    encoded: Json = {"name": annotation.name, "value": annotation.value}
    if annotation.kwargs:
        encoded["kwargs"] = dict(annotation.kwargs)
    return encoded


def decode_annotation(encoded: Mapping[str, Any]) -> Annotation:
    """Return the annotation of a JSON form."""
    return Annotation(encoded["name"], encoded["value"], tuple(encoded.get("kwargs", {}).items()))
