"""The JSON shapes of the parts of a schema: the ones plans speak in and the accepted schema is stored in.

Encoding loses nothing: `decode_x(encode_x(x)) == x`. The shapes are stored, so they are frozen; a change
needs a new `FORMAT` in `catalog.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from omnigraph.lang.schema import Annotation, Check, Constraint, Index, Key, Range, Unique
from omnigraph.lang.types import PropType, Scalar

Json: TypeAlias = dict[str, Any]

_COLUMN_CONSTRAINTS: Mapping[str, type[Key] | type[Unique] | type[Index]] = {
    "Key": Key,
    "Unique": Unique,
    "Index": Index,
}


def encode_type(prop_type: PropType) -> Json:
    """The wire shape of a property type.

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


def decode_type(found: Mapping[str, Any]) -> PropType:
    """The property type of a wire shape."""
    scalar, values = found["scalar"], found["enum_values"]
    dim = scalar["Vector"] if isinstance(scalar, Mapping) else None
    return PropType(
        Scalar.VECTOR if dim is not None else Scalar(scalar),
        nullable=found["nullable"],
        is_list=found["list"],
        dim=dim,
        enum_values=None if values is None else tuple(values),
    )


def encode_constraint(constraint: Constraint) -> Json:
    """The wire shape of a constraint, tagged by its kind.

    >>> encode_constraint(Range("age", 0, None))
    {'Range': {'property': 'age', 'min': {'Integer': 0}, 'max': None}}
    """
    if isinstance(constraint, Range):
        low, high = _encode_bound(constraint.min), _encode_bound(constraint.max)
        return {"Range": {"property": constraint.property, "min": low, "max": high}}
    if isinstance(constraint, Check):
        return {"Check": {"property": constraint.property, "pattern": constraint.pattern}}
    return {type(constraint).__name__: list(constraint.columns)}


def decode_constraint(found: Mapping[str, Any]) -> Constraint:
    """The constraint of a wire shape."""
    ((tag, body),) = found.items()
    if tag == "Range":
        return Range(body["property"], _decode_bound(body["min"]), _decode_bound(body["max"]))
    if tag == "Check":
        return Check(body["property"], body["pattern"])
    return _COLUMN_CONSTRAINTS[tag](tuple(body))


def _encode_bound(bound: int | float | None) -> Json | None:
    if bound is None:
        return None
    return {"Integer": bound} if isinstance(bound, int) else {"Float": bound}


def _decode_bound(found: Mapping[str, Any] | None) -> int | float | None:
    if found is None:
        return None
    ((tag, value),) = found.items()
    return int(value) if tag == "Integer" else float(value)


def encode_annotation(annotation: Annotation) -> Json:
    """The wire shape of an annotation; `kwargs` is left out when there are none.

    >>> encode_annotation(Annotation("description", "x"))
    {'name': 'description', 'value': 'x'}
    """
    found: Json = {"name": annotation.name, "value": annotation.value}
    if annotation.kwargs:
        found["kwargs"] = dict(annotation.kwargs)
    return found


def decode_annotation(found: Mapping[str, Any]) -> Annotation:
    """The annotation of a wire shape."""
    return Annotation(found["name"], found["value"], tuple(found.get("kwargs", {}).items()))
