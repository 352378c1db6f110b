"""A compiled schema as `.pg` text: what is kept as the source of a schema that nobody wrote down."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.catalog.migration.renames import AnyType, all_types
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
from omnigraph.lang.schema import Annotation, Check, Constraint, EdgeType, NodeType, Property, Range, Schema


def schema_text(schema: Schema) -> str:
    """The canonical text of a schema; loading it gives a schema of the same shape.

    Everything is sorted except the interfaces of a node: which of them comes first decides whose
    description an inherited property has. Inherited properties are left to the interfaces, and rename hints,
    which are no part of a schema, are left out.

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
    """The declaration of one type, on as many lines as it has members and two."""
    return print_schema(SchemaFile((_declaration(item),))).rstrip("\n")


def property_text(prop: Property) -> str:
    """The declaration of one property, on one line."""
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
        card = item.cardinality
        shown = None if card.is_default else CardDecl(card.min, card.max)
        return EdgeDecl(item.name, Name(item.source), Name(item.target), shown, annotations, members)
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
