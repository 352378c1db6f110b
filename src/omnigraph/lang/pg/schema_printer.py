"""Canonical `.pg` text of a parsed schema, without comments; `format_schema` adds those."""

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
from omnigraph.lang.pg.schema_notation import bounds_text, keyword_text, literal_text

INDENT = "  "


def print_schema(file: SchemaFile) -> str:
    """Return the text of a parsed schema; parsing it gives an equal schema.

    >>> print_schema(SchemaFile((EdgeDecl("Knows", Name("Person"), Name("Person")),)))
    'edge Knows: Person -> Person\\n'
    """
    return "\n".join(_declaration(item) for item in file.declarations)


def members_of(item: Declaration) -> tuple[PropertyDecl | BodyConstraint, ...]:
    """Return the members in the body of a declaration."""
    return item.properties if isinstance(item, InterfaceDecl) else item.members


def header_text(item: Declaration) -> str:
    """Return the text of a declaration up to its opening brace."""
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
    """Return the text after the header of a declaration with an empty body; an edge needs no braces."""
    return "" if isinstance(item, EdgeDecl) else " {}"


def member_text(item: PropertyDecl | BodyConstraint) -> str:
    """Return the text of a member, on one line."""
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
    arguments.extend(keyword_text(item.name, key, value) for key, value in item.kwargs)
    return f"@{item.name}({', '.join(arguments)})" if arguments else f"@{item.name}"


def _argument(item: Argument) -> str:
    if isinstance(item, Name):
        return item.text
    return bounds_text(item.low, item.high) if isinstance(item, Bounds) else literal_text(item)
