"""Strategies for schemas built without the compiler, because the planner must handle more than valid texts."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TypeVar

from hypothesis import strategies as st

from omnigraph.lang.schema import (
    Annotation,
    Cardinality,
    Check,
    Constraint,
    EdgeType,
    Index,
    InterfaceType,
    Key,
    LiteralValue,
    NodeType,
    Property,
    Range,
    Schema,
    Unique,
)
from omnigraph.lang.types import PropType, Scalar

_Item = TypeVar("_Item")
_Entity = TypeVar("_Entity", InterfaceType, NodeType, EdgeType)

NODE_NAMES = ("Ant", "Bee", "Cat", "Dog", "Elk")
EDGE_NAMES = ("Eats", "Knows", "Likes", "Sees")
PROPERTY_NAMES = ("age", "body", "city", "dose", "each", "fee")
VALUES = ("high", "low", "mid", "none")

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@st.composite
def prop_types(draw: st.DrawFn) -> PropType:
    """Draw a property type."""
    nullable = draw(st.booleans())
    scalar = draw(st.sampled_from(list(Scalar)))
    if scalar is Scalar.VECTOR:
        return PropType(scalar, nullable, dim=draw(st.integers(1, 4)))
    if scalar is Scalar.BLOB:
        return PropType(scalar, nullable)
    if scalar is Scalar.STRING and draw(st.booleans()):
        values = draw(st.lists(st.sampled_from(VALUES), min_size=1, unique=True))
        return PropType(scalar, nullable, enum_values=tuple(sorted(values)))
    return PropType(scalar, nullable, is_list=draw(st.booleans()))


@st.composite
def properties(draw: st.DrawFn, name: str, *, inherited: bool = False) -> Property:
    """Draw a property with annotations of every kind."""
    notes = [Annotation(each) for each in ("unique", "index") if draw(st.integers(0, 3)) == 0]
    if draw(st.booleans()):
        notes.append(Annotation("description", draw(TEXTS)))
    if draw(st.integers(0, 3)) == 0:
        weights: list[LiteralValue] = [1, 1.0, True, "1"]
        notes.append(Annotation("weight", draw(st.sampled_from(weights))))
    prop_type = draw(prop_types())
    if prop_type.scalar is Scalar.VECTOR:
        model = draw(st.sampled_from([(), (("model", "m"),)]))
        notes.append(Annotation("embed", draw(st.sampled_from(PROPERTY_NAMES)), model))
    return Property(name, prop_type, tuple(draw(st.permutations(notes))), inherited)


@st.composite
def _properties(draw: st.DrawFn) -> tuple[Property, ...]:
    names = draw(st.lists(st.sampled_from(PROPERTY_NAMES), unique=True, max_size=4))
    return tuple(draw(properties(name, inherited=draw(st.integers(0, 4)) == 0)) for name in sorted(names))


def _constraints(names: list[str]) -> st.SearchStrategy[tuple[Constraint, ...]]:
    if not names:
        return st.just(())
    columns = st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True).map(tuple)
    bounds = st.sampled_from([None, 0, 0.0, -3, 0.5])
    one = st.one_of(
        st.builds(Key, columns),
        st.builds(Unique, columns),
        st.builds(Index, columns),
        st.builds(Range, st.sampled_from(names), bounds, bounds),
        st.builds(Check, st.sampled_from(names), TEXTS),
    )
    return st.lists(one, max_size=3).map(tuple)


_TYPE_NOTES = st.lists(
    st.builds(Annotation, st.sampled_from(["description", "instruction", "owner"]), TEXTS),
    max_size=2,
    unique_by=lambda note: note.name,
).map(tuple)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """Draw a small schema with interfaces, nodes and edges."""
    faces = tuple(
        InterfaceType(name, draw(_properties()))
        for name in draw(st.sampled_from([(), ("Face",), ("Face", "Grip")]))
    )
    nodes = []
    for name in sorted(draw(st.lists(st.sampled_from(NODE_NAMES), unique=True, min_size=1, max_size=3))):
        props = draw(_properties())
        taken = draw(st.lists(st.sampled_from([face.name for face in faces]), unique=True)) if faces else []
        constraints = draw(_constraints([prop.name for prop in props]))
        nodes.append(NodeType(name, props, constraints, draw(_TYPE_NOTES), implements=tuple(taken)))
    ends = st.sampled_from([node.name for node in nodes])
    edges = []
    for name in sorted(draw(st.lists(st.sampled_from(EDGE_NAMES), unique=True, max_size=2))):
        props = draw(_properties())
        columns = ["src", "dst", *(prop.name for prop in props)]
        card = Cardinality(draw(st.integers(0, 1)), draw(st.sampled_from([None, 1, 5])))
        constraints = draw(_constraints(columns))
        notes = draw(_TYPE_NOTES)
        edges.append(
            EdgeType(name, props, constraints, notes, source=draw(ends), target=draw(ends), cardinality=card)
        )
    return Schema(faces, tuple(nodes), tuple(edges))


def shuffled(schema: Schema, seed: int) -> Schema:
    """Draw an equivalent schema: another order, and rename hints without effect."""
    rng = random.Random(seed)

    def mixed(items: tuple[_Item, ...]) -> tuple[_Item, ...]:
        return tuple(rng.sample(items, len(items)))

    def constraint(item: Constraint) -> Constraint:
        return item if isinstance(item, Range | Check) else type(item)(mixed(item.columns))

    def prop(item: Property) -> Property:
        notes = (*item.annotations, Annotation("rename_from", "gone"))
        values = item.type.enum_values
        kind = item.type if values is None else replace(item.type, enum_values=mixed(values))
        return replace(item, annotations=mixed(notes), type=kind)

    def entity(item: _Entity) -> _Entity:
        found: _Entity = replace(
            item,
            properties=mixed(tuple(prop(each) for each in item.properties)),
            constraints=mixed(tuple(constraint(each) for each in item.constraints)),
            annotations=mixed((*item.annotations, Annotation("rename_from", "Gone"))),
        )
        return found

    return Schema(
        mixed(tuple(entity(item) for item in schema.interfaces)),
        mixed(tuple(replace(entity(item), implements=mixed(item.implements)) for item in schema.nodes)),
        mixed(tuple(entity(item) for item in schema.edges)),
    )
