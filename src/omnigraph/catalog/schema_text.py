"""Canonical `.pg` text of a compiled schema, the source text of a merged schema."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.catalog.shape import annotation_keys, canonical_type, constraint_keys
from omnigraph.lang.pg.schema_ast import (
    AnnotationDecl,
    BodyConstraint,
    Bounds,
    CardDecl,
    Declaration,
    EdgeDecl,
    InterfaceDecl,
    Name,
    NodeDecl,
    PropertyDecl,
    SchemaFile,
)
from omnigraph.lang.pg.schema_notation import constraint_name
from omnigraph.lang.pg.schema_printer import member_text, print_schema
from omnigraph.lang.schema import (
    Annotation,
    AnyType,
    Check,
    Constraint,
    EdgeType,
    NodeType,
    Property,
    Range,
    Schema,
    all_types,
)


def schema_text(schema: Schema) -> str:
    """Return the canonical text of a schema; compiling it gives a schema of the same shape.

    Everything is sorted except the interfaces of a node, because the first interface with a property determines
    its description. Inherited properties are declared in the interfaces only. Rename hints are omitted.

    >>> from omnigraph.lang.pg.schema_compiler import load_schema
    >>> print(schema_text(load_schema("edge E: A -> A  node A { b: I32? @index a: enum(y, x) }")), end="")
    node A {
      a: enum(x, y)
      b: I32? @index
    }
    <BLANKLINE>
    edge E: A -> A
    """
    return print_schema(SchemaFile(tuple(_declaration(item) for item in all_types(schema))))


def type_text(item: AnyType) -> str:
    """Return the declaration of a type, one member per line."""
    return print_schema(SchemaFile((_declaration(item),))).rstrip("\n")


def property_text(prop: Property) -> str:
    """Return the declaration of a property, on one line."""
    return member_text(_property(prop))


def _declaration(item: AnyType) -> Declaration:
    properties = tuple(
        _property(prop) for prop in sorted(item.properties, key=lambda prop: prop.name) if not prop.inherited
    )
    annotations = _annotations(item.annotations)
    members: tuple[PropertyDecl | BodyConstraint, ...] = (*properties, *_constraints(item.constraints))
    if isinstance(item, NodeType):
        return NodeDecl(item.name, annotations, tuple(map(Name, item.implements)), members)
    if isinstance(item, EdgeType):
        bounds = item.cardinality
        card = None if bounds.is_default else CardDecl(bounds.min, bounds.max)
        return EdgeDecl(item.name, Name(item.source), Name(item.target), card, annotations, members)
    return InterfaceDecl(item.name, properties)


def _property(prop: Property) -> PropertyDecl:
    return PropertyDecl(prop.name, canonical_type(prop.type), _annotations(prop.annotations))


def _annotations(annotations: Iterable[Annotation]) -> tuple[AnnotationDecl, ...]:
    return tuple(
        AnnotationDecl(item.name, item.value, tuple(sorted(dict(item.kwargs).items())))
        for item in annotation_keys(annotations).values()
    )


def _constraints(constraints: Iterable[Constraint]) -> Iterable[BodyConstraint]:
    return (_constraint(item) for item in constraint_keys(constraints).values())


def _constraint(item: Constraint) -> BodyConstraint:
    if isinstance(item, Range):
        return BodyConstraint("range", (Name(item.property), Bounds(item.min, item.max)))
    if isinstance(item, Check):
        return BodyConstraint("check", (Name(item.property), item.pattern))
    return BodyConstraint(constraint_name(item), tuple(map(Name, item.columns)))
