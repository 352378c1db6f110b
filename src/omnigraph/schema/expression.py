"""An expression over a row, as callers write it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression of the query language over a row, which is called ``$this``."""

    text: str


def expr(text: str) -> Expression:
    """A backfill that is an expression over the row as it was before the change, ``$this``.

    >>> expr("$this.name")
    Expression(text='$this.name')
    """
    return Expression(text)
