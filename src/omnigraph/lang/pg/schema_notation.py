"""Literals, annotations and constraints in `.pg` syntax, for printed schemas and for messages."""

from __future__ import annotations

from omnigraph.lang.literal_syntax import float_literal, quote
from omnigraph.lang.schema import Annotation, Check, Constraint, Index, Key, LiteralValue, Range, Unique


def literal_text(value: LiteralValue) -> str:
    """Return a literal in `.pg` syntax.

    >>> literal_text(1e16), literal_text(True), literal_text("a")
    ('10000000000000000.0', 'true', '"a"')
    """
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else float_literal(value)


def bounds_text(low: float | None, high: float | None) -> str:
    """Return ``low..high``; an unbounded side is empty."""
    return "..".join("" if side is None else literal_text(side) for side in (low, high))


def keyword_text(annotation: str, name: str, value: LiteralValue) -> str:
    """Return an argument with a name; the options of an index are words.

    >>> keyword_text("embed", "model", "m"), keyword_text("index", "metric", "dot")
    ('model="m"', 'metric: dot')
    >>> keyword_text("text", "language", "english")
    'language: "english"'
    """
    if annotation == "text":
        return f"{name}: {literal_text(value)}"
    return f"{name}: {value}" if annotation == "index" else f"{name}={literal_text(value)}"


def annotation_text(annotation: Annotation) -> str:
    """Return an annotation in `.pg` syntax.

    >>> annotation_text(Annotation("embed", "title", (("model", "m"),)))
    '@embed("title", model="m")'
    """
    arguments = [] if annotation.value is None else [literal_text(annotation.value)]
    arguments += [keyword_text(annotation.name, name, value) for name, value in annotation.kwargs]
    return f"@{annotation.name}({', '.join(arguments)})" if arguments else f"@{annotation.name}"


def constraint_text(constraint: Constraint) -> str:
    """Return a body constraint in `.pg` syntax.

    >>> constraint_text(Range("age", 0, None)), constraint_text(Index(("a", "b")))
    ('@range(age, 0..)', '@index(a, b)')
    """
    if isinstance(constraint, Range):
        return f"@range({constraint.property}, {bounds_text(constraint.min, constraint.max)})"
    if isinstance(constraint, Check):
        return f"@check({constraint.property}, {literal_text(constraint.pattern)})"
    return f"@{constraint_name(constraint)}({', '.join(constraint.columns)})"


def constraint_name(constraint: Key | Unique | Index) -> str:
    """Return the name after the ``@`` of a constraint over columns."""
    return type(constraint).__name__.lower()
