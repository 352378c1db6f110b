"""A complete text form of compiled schemas, for the golden corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from omnigraph.lang.pg.schema_notation import annotation_text, bounds_text, constraint_text
from omnigraph.lang.schema import EdgeType, InterfaceType, NodeType, Property, Schema

_Entity: TypeAlias = InterfaceType | NodeType | EdgeType


def render_schema(schema: Schema) -> str:
    """Render interfaces, nodes and edges with every property and constraint, declared or inherited.

    Equal schemas have equal texts and different schemas different texts. The text is not `.pg`.
    """
    entities: list[_Entity] = [*schema.interfaces, *schema.nodes, *schema.edges]
    blocks = ["\n".join(_block(item)) for item in entities]
    return "\n\n".join(blocks) + "\n" if blocks else "(empty schema)\n"


def _block(item: _Entity) -> list[str]:
    lines = [_header(item)]
    lines.extend(f"  {annotation_text(note)}" for note in item.annotations)
    lines.extend(f"  {_property(prop)}" for prop in item.properties)
    lines.extend(f"  {constraint_text(constraint)}" for constraint in item.constraints)
    lines.extend(_derived(item))
    return lines


def _header(item: _Entity) -> str:
    if isinstance(item, EdgeType):
        cardinality = bounds_text(item.cardinality.min, item.cardinality.max)
        return f"edge {item.name}: {item.source} -> {item.target} card {cardinality}"
    implements = ", ".join(item.implements) if isinstance(item, NodeType) else ""
    return f"{item.kind} {item.name}{f' implements {implements}' if implements else ''}"


def _property(prop: Property) -> str:
    parts = [f"{prop.name}: {prop.type}", *(annotation_text(note) for note in prop.annotations)]
    return " ".join([*parts, "(inherited)"] if prop.inherited else parts)


def _derived(item: _Entity) -> Iterator[str]:
    if not isinstance(item, InterfaceType) and item.key is not None:
        yield f"  = key ({', '.join(item.key)})"
    yield from _tuples("unique", item.uniques)
    yield from _tuples("index", item.indexes)


def _tuples(word: str, tuples: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for columns in tuples:
        yield f"  = {word} ({', '.join(columns)})"
