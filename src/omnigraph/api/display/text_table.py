"""Tables of JSON values as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Literal, TypeAlias

from omnigraph.api.display.terminal_text import display_width, escape_controls, fitting_length

CellLayout: TypeAlias = Literal["truncate", "wrap"]

# Columns of a fitted table are not cut below this width.
_LEAST_WIDTH = 6
# The width of " | ".
_SEPARATOR = 3


def cell(value: Any) -> str:
    """Format a JSON value as a cell: strings unchanged, other values as compact JSON.

    >>> cell("Ann"), cell(None), cell(True), cell([1, "a"])
    ('Ann', 'null', 'true', '[1,"a"]')
    """
    return value if isinstance(value, str) else compact(value)


def compact(value: Any) -> str:
    """Format a value as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def table_lines(
    columns: Sequence[str],
    rows: Iterable[Iterable[Any]],
    *,
    width: int = 80,
    layout: CellLayout = "truncate",
) -> Iterator[str]:
    """Yield the lines of a table of JSON values. No column is wider than `width`.

    >>> print(next(table_lines(["name", "age"], [["Bartholomew", 30]], width=8)))
    name     | age
    """
    fit = _wrapped if layout == "wrap" else _truncated
    lines = [columns, *(list(map(cell, row)) for row in rows)]
    cells = [[fit(escape_controls(text, ""), width) for text in line] for line in lines]
    widths = [
        max(display_width(part) for parts in column for part in parts) for column in zip(*cells, strict=True)
    ]
    head, *body = ("\n".join(_row(line, widths)) for line in cells)
    yield head
    yield "-+-".join("-" * size for size in widths)
    yield from body


def fitted_table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], width: int, *, widest: int | None = None
) -> Iterator[str]:
    """Yield the lines of a table that is at most `width` wide. Columns of numbers are aligned to the right.

    No column is wider than `widest`.
    The widest columns are cut first. If the columns do not fit even then, `…` replaces those in the middle.

    >>> for line in fitted_table_lines(["name", "age"], [["Ann", 30], ["Bartholomew", 7]], width=14):
    ...     print(line)
    name     | age
    ---------+----
    Ann      |  30
    Barthol… |   7
    """
    natural = [_natural_width(name, (row[place] for row in rows)) for place, name in enumerate(columns)]
    if widest is not None:
        natural = [min(size, widest) for size in natural]
    shown = _shown_columns(len(columns), width)
    places = [place for place in shown if place is not None]
    gaps = (len(shown) - len(places)) * (1 + _SEPARATOR)
    room = width - gaps - _SEPARATOR * (len(places) - 1)
    limit = _column_limit([natural[place] for place in places], room)
    right = [place is not None and is_numeric(row[place] for row in rows) for place in shown]
    for number, values in enumerate([columns, *rows]):
        cells = []
        for place, is_number in zip(shown, right, strict=True):
            size = 1 if place is None else min(natural[place], limit)
            text = "…" if place is None else _truncated(escape_controls(cell(values[place]), ""), size)[0]
            cells.append(_padded(text, size, right=is_number))
        yield " | ".join(cells).rstrip()
        if number == 0:
            yield "-+-".join("-" * display_width(text) for text in cells)


def _row(cells: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a row: as many as its tallest cell."""
    for parts in zip_longest(*cells, fillvalue=""):
        yield " | ".join(
            part + " " * (size - display_width(part)) for part, size in zip(parts, widths, strict=True)
        )


def _natural_width(name: str, values: Iterable[Any]) -> int:
    texts = [name, *map(cell, values)]
    return max(1, *(display_width(escape_controls(text, "")) for text in texts))


def _shown_columns(count: int, width: int) -> list[int | None]:
    """Return the columns that fit at their least width. None stands for those left out in the middle."""
    fitting = max(2, (width + _SEPARATOR) // (_LEAST_WIDTH + _SEPARATOR))
    if count <= fitting:
        return list(range(count))
    # The mark takes the place of a column.
    last = (fitting - 1) // 2
    return [*range(fitting - 1 - last), None, *range(count - last, count)]


def _column_limit(widths: Sequence[int], room: int) -> int:
    """Return the largest width to which all wider columns can be cut so that the sum is at most `room`."""
    limit = max(widths)
    while limit > _LEAST_WIDTH and sum(min(size, limit) for size in widths) > room:
        limit -= 1
    return limit


def is_numeric(values: Iterable[Any]) -> bool:
    """Return whether there are values, and all except nulls are numbers."""
    present = [value for value in values if value is not None]
    return bool(present) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in present
    )


def _padded(text: str, width: int, *, right: bool) -> str:
    space = " " * (width - display_width(text))
    return space + text if right else text + space


def _truncated(text: str, width: int) -> list[str]:
    return [text if display_width(text) <= width else text[: fitting_length(text, width - 1)] + "…"]


def _wrapped(text: str, width: int) -> list[str]:
    parts: list[str] = []
    while display_width(text) > width:
        # At least one character for each line, even if it is wider than the column.
        place = max(1, fitting_length(text, width))
        parts.append(text[:place])
        text = text[place:]
    return [*parts, text]
