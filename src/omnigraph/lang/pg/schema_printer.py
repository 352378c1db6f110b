"""A parsed schema as `.pg` text: the canonical layout, which `format_schema` adds the comments to."""

from __future__ import annotations

from omnigraph.lang.pg.schema_ast import (
    AnnotationDecl,
    Argument,
    BodyConstraint,
    Bounds,
    Declaration,
    EdgeDecl,
    InterfaceDecl,
    Name,
    NodeDecl,
    PropertyDecl,
    SchemaFile,
)
from omnigraph.lang.pg.schema_source import bounds_text, literal_text

INDENT = "  "


def print_schema(file: SchemaFile) -> str:
    """The text of a parsed schema. Parsing it again gives the same.

    >>> print_schema(SchemaFile((EdgeDecl("Knows", Name("Person"), Name("Person")),)))
    'edge Knows: Person -> Person\\n'
    """
    return "\n".join(_declaration(item) for item in file.declarations)


def members_of(item: Declaration) -> tuple[PropertyDecl | BodyConstraint, ...]:
    """What stands between the braces of a declaration."""
    return item.properties if isinstance(item, InterfaceDecl) else item.members


def header_text(item: Declaration) -> str:
    """A declaration up to its opening brace."""
    if isinstance(item, InterfaceDecl):
        return f"interface {item.name}"
    annotations = [_annotation(note) for note in item.annotations]
    if isinstance(item, NodeDecl):
        implements = ", ".join(name.text for name in item.implements)
        parts = [f"node {item.name}", *annotations, f"implements {implements}" if implements else ""]
    else:
        card = "" if item.card is None else f"@card({bounds_text(item.card.min, item.card.max)})"
        parts = [f"edge {item.name}: {item.source.text} -> {item.target.text}", card, *annotations]
    return " ".join(part for part in parts if part)


def empty_body_text(item: Declaration) -> str:
    """What follows the header when nothing stands between the braces: an edge needs none."""
    return "" if isinstance(item, EdgeDecl) else " {}"


def member_text(item: PropertyDecl | BodyConstraint) -> str:
    """A member of a body on one line."""
    if isinstance(item, PropertyDecl):
        return " ".join([f"{item.name}: {item.type}", *map(_annotation, item.annotations)])
    return f"@{item.name}({', '.join(map(_argument, item.arguments))})"


def _declaration(item: Declaration) -> str:
    members = members_of(item)
    if not members:
        return f"{header_text(item)}{empty_body_text(item)}\n"
    body = "".join(f"{INDENT}{member_text(member)}\n" for member in members)
    return f"{header_text(item)} {{\n{body}}}\n"


def _annotation(item: AnnotationDecl) -> str:
    arguments = [] if item.value is None else [_argument(item.value)]
    arguments.extend(f"{key}={literal_text(value)}" for key, value in item.kwargs)
    return f"@{item.name}({', '.join(arguments)})" if arguments else f"@{item.name}"


def _argument(item: Argument) -> str:
    if isinstance(item, Name):
        return item.text
    return bounds_text(item.low, item.high) if isinstance(item, Bounds) else literal_text(item)
