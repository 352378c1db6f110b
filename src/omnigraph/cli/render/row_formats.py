"""Output formats for the rows of a query."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias

from omnigraph.api.display.terminal_text import escape_controls
from omnigraph.api.display.text_table import CellLayout, cell, compact, table_lines
from omnigraph.cli.settings.config import TextFormat
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


def key_value_lines(row: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each value of a row. Continuation lines of a text are indented.

    >>> list(key_value_lines({"name": "Ann", "note": "one\\nrow 2"}))
    ['name: Ann', 'note: one\\n  row 2']
    """
    for name, value in row.items():
        yield f"{escape_controls(name, '')}: {escape_controls(cell(value))}".replace("\n", f"\n{_INDENT}")


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
