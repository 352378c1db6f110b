"""A compiled schema as text that a person can read: every fact, one a line, nothing left to defaults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import TypeAlias

from omnigraph.lang.parsing import quote
from omnigraph.lang.schema import (
    Annotation,
    Check,
    Constraint,
    EdgeType,
    InterfaceType,
    LiteralValue,
    NodeType,
    Property,
    Range,
    Schema,
)

_Entity: TypeAlias = InterfaceType | NodeType | EdgeType


def render_schema(schema: Schema) -> str:
    """Show a compiled schema: interfaces, nodes, edges, each with all that it has, inherited or declared.

    Equal schemas give equal texts and different ones different texts. It is not `.pg`: `format_schema` gives
    that.
    """
    entities: list[_Entity] = [*schema.interfaces, *schema.nodes, *schema.edges]
    blocks = ["\n".join(_block(item)) for item in entities]
    return "\n\n".join(blocks) + "\n" if blocks else "(empty schema)\n"


def literal_text(value: LiteralValue) -> str:
    """A literal as `.pg` writes it.

    >>> literal_text(1e16), literal_text(True), literal_text("a")
    ('10000000000000000.0', 'true', '"a"')
    """
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    # The language has no exponents.
    text = format(Decimal(repr(value)), "f")
    return text if "." in text else f"{text}.0"


def bounds_text(low: float | None, high: float | None) -> str:
    """``low..high`` with a missing side left out."""
    return "..".join("" if side is None else literal_text(side) for side in (low, high))


def _block(item: _Entity) -> list[str]:
    lines = [_header(item)]
    lines.extend(f"  {_annotation(note)}" for note in item.annotations)
    lines.extend(f"  {_property(prop)}" for prop in item.properties)
    lines.extend(f"  {_constraint(constraint)}" for constraint in item.constraints)
    lines.extend(_derived(item))
    return lines


def _header(item: _Entity) -> str:
    if isinstance(item, EdgeType):
        cardinality = bounds_text(item.cardinality.min, item.cardinality.max)
        return f"edge {item.name}: {item.source} -> {item.target} card {cardinality}"
    implements = ", ".join(item.implements) if isinstance(item, NodeType) else ""
    return f"{item.kind} {item.name}{f' implements {implements}' if implements else ''}"


def _property(prop: Property) -> str:
    parts = [f"{prop.name}: {prop.type}", *(_annotation(note) for note in prop.annotations)]
    return " ".join([*parts, "(inherited)"] if prop.inherited else parts)


def _annotation(note: Annotation) -> str:
    arguments = [] if note.value is None else [literal_text(note.value)]
    arguments.extend(f"{key}={literal_text(value)}" for key, value in note.kwargs)
    return f"@{note.name}({', '.join(arguments)})" if arguments else f"@{note.name}"


def _constraint(constraint: Constraint) -> str:
    if isinstance(constraint, Range):
        return f"@range({constraint.property}, {bounds_text(constraint.min, constraint.max)})"
    if isinstance(constraint, Check):
        return f"@check({constraint.property}, {quote(constraint.pattern)})"
    return f"@{type(constraint).__name__.lower()}({', '.join(constraint.columns)})"


def _derived(item: _Entity) -> Iterator[str]:
    if isinstance(item, NodeType) and item.key is not None:
        yield f"  = key ({', '.join(item.key)})"
    yield from _tuples("unique", item.uniques)
    yield from _tuples("index", item.indexes)


def _tuples(word: str, tuples: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for columns in tuples:
        yield f"  = {word} ({', '.join(columns)})"
