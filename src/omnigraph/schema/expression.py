"""Backfill expressions, as callers write them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression of the query language over a row, which is the variable ``$this``."""

    text: str


def expr(text: str) -> Expression:
    """Return a backfill with the value of an expression over the row before the schema change, ``$this``.

    >>> expr("$this.name")
    Expression(text='$this.name')
    """
    return Expression(text)
