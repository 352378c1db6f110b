"""Expressions of the filter language of Lance."""

from __future__ import annotations

from collections.abc import Iterable


def quote_string(text: str) -> str:
    """Return a string literal.

    >>> quote_string("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def string_in(column: str, values: Iterable[str]) -> str:
    """Return a filter for the rows whose column has one of some strings, of which there must be at least one.

    >>> string_in("id", ["a", "it's"])
    "id IN ('a', 'it''s')"
    """
    return f"{column} IN (" + ", ".join(quote_string(item) for item in values) + ")"
