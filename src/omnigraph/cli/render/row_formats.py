"""Output formats for the rows of a query."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias

from omnigraph.cli.render.output import escape_controls
from omnigraph.cli.settings.config import CellLayout, TextFormat
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.results.result import Result

Format: TypeAlias = Literal["table", "json", "jsonl", "csv", "kv", "arrow"]

# Indentation of the continuation lines of a value, so that they do not look like another value or row.
_INDENT = "  "
# Characters of a CSV cell that needs quotes.
_SPECIAL = ',"\n\r'


def text_lines(
    result: Result, format_: TextFormat, *, width: int = 80, layout: CellLayout = "truncate", null: str = ""
) -> Iterator[str]:
    """Yield the lines of a result in a text format.

    `width` and `layout` apply to the columns of a table, `null` is the text of a null in CSV.
    """
    match format_:
        case "table":
            yield from _table(result, width, layout)
        case "kv":
            yield from _key_values(result)
        case "csv":
            yield from _csv(result, null)
        case "jsonl":
            yield from _json_lines(result)
        case "json":
            yield json.dumps(result.to_json(), indent=2, ensure_ascii=False)


def write_arrow(result: Result, file: BinaryIO) -> None:
    """Write the typed rows as an Arrow IPC file."""
    import pyarrow as pa

    with pa.ipc.new_file(file, result.table.schema) as writer:
        writer.write_table(result.table)


def cell(value: Any) -> str:
    """Format a JSON value as a cell: strings unchanged, other values as compact JSON.

    >>> cell("Ann"), cell(None), cell(True), cell([1, "a"])
    ('Ann', 'null', 'true', '[1,"a"]')
    """
    return value if isinstance(value, str) else compact(value)


def compact(value: Any) -> str:
    """Format a value as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def key_value_lines(row: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each value of a row. Continuation lines of a text are indented.

    >>> list(key_value_lines({"name": "Ann", "note": "one\\nrow 2"}))
    ['name: Ann', 'note: one\\n  row 2']
    """
    for name, value in row.items():
        yield f"{escape_controls(name, '')}: {escape_controls(cell(value))}".replace("\n", f"\n{_INDENT}")


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
    widths = [max(_width(part) for parts in column for part in parts) for column in zip(*cells, strict=True)]
    head, *body = ("\n".join(_row(line, widths)) for line in cells)
    yield head
    yield "-+-".join("-" * size for size in widths)
    yield from body


def _heading(result: Result) -> str:
    place = f"snapshot {result.snapshot}" if result.branch is None else f"branch {result.branch}"
    return f"{len(result)} rows from {place} via {result.query_name}"


def _json_lines(result: Result) -> Iterator[str]:
    body = result.to_json()
    yield compact({"kind": "metadata", **{key: body[key] for key in ("query_name", "target", "row_count")}})
    yield from map(compact, body["rows"])


def _csv(result: Result, null: str) -> Iterator[str]:
    """Yield the lines of a CSV file that loads back: null is the unquoted text `null`, by default an empty cell.

    A value with that text, such as the empty string, is quoted.
    """
    if null and any(mark in null for mark in _SPECIAL):
        raise InvalidInput(f"the text for null must not need quotes in CSV, got {compact(null)}")
    yield ",".join(_quoted(name, null) for name in result.columns)
    for row in result.rows():
        line = ",".join(null if value is None else _quoted(cell(value), null) for value in row.values())
        if not line:
            raise InvalidInput(
                "a null in the only column of a CSV file would be an empty line, which readers skip",
                hint="pass --null TEXT, or return another column",
            )
        yield line


def _quoted(text: str, null: str) -> str:
    quote = text == null or not text or any(mark in text for mark in _SPECIAL)
    return '"' + text.replace('"', '""') + '"' if quote else text


def _key_values(result: Result) -> Iterator[str]:
    yield _heading(result)
    if not len(result):
        yield "(no rows)"
    for number, row in enumerate(result.rows(), start=1):
        if number > 1:
            yield ""
        yield f"row {number}"
        yield from key_value_lines(row)


def _table(result: Result, width: int, layout: CellLayout) -> Iterator[str]:
    yield _heading(result)
    if not result.columns:
        yield "(no rows)"
        return
    rows = (row.values() for row in result.rows())
    yield from table_lines(result.columns, rows, width=width, layout=layout)


def _row(cells: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a row: as many as its tallest cell."""
    for parts in zip_longest(*cells, fillvalue=""):
        yield " | ".join(part + " " * (size - _width(part)) for part, size in zip(parts, widths, strict=True))


def _width(text: str) -> int:
    """Return the number of terminal columns of a text. Wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _truncated(text: str, width: int) -> list[str]:
    return [text if _width(text) <= width else text[: _fitting_length(text, width - 1)] + "…"]


def _wrapped(text: str, width: int) -> list[str]:
    parts: list[str] = []
    while _width(text) > width:
        # At least one character for each line, even if it is wider than the column.
        place = max(1, _fitting_length(text, width))
        parts.append(text[:place])
        text = text[place:]
    return [*parts, text]


def _fitting_length(text: str, width: int) -> int:
    """Return how many characters of the text fit into `width` terminal columns."""
    if text.isascii():
        return width
    used = 0
    for place, letter in enumerate(text):
        used += _width(letter)
        if used > width:
            return place
    return len(text)
