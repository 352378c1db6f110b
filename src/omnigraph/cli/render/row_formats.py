"""Output formats for the rows of a query."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TextIO, TypeAlias, cast, get_args

from omnigraph.api.display.terminal_text import escape_controls
from omnigraph.api.display.text_table import (
    CellLayout,
    cell,
    compact,
    fitted_table_lines,
    is_numeric,
    table_lines,
)
from omnigraph.cli.settings.config import TextFormat
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.results.result import Result

Format: TypeAlias = Literal["table", "json", "jsonl", "csv", "kv", "markdown", "arrow", "parquet"]
BinaryFormat: TypeAlias = Literal["arrow", "parquet"]
BINARY_FORMATS: tuple[Format, ...] = get_args(BinaryFormat)
_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".md": "markdown",
    ".txt": "table",
    ".parquet": "parquet",
    ".arrow": "arrow",
}

# Indentation of the continuation lines of a value, so that they do not look like another value or row.
_INDENT = "  "
# Characters of a CSV cell that needs quotes.
_SPECIAL = ',"\n\r'


def text_lines(
    result: Result,
    format_: TextFormat,
    *,
    width: int = 80,
    layout: CellLayout = "truncate",
    null: str = "",
    terminal: int | None = None,
) -> Iterator[str]:
    """Yield the lines of a result in a text format.

    `width` and `layout` apply to the columns of a table, `null` is the text of a null in CSV. `terminal` is the
    width of the terminal, to which a table is fitted unless its cells are wrapped.
    """
    match format_:
        case "table":
            yield from _table(result, width, layout, terminal)
        case "kv":
            yield from _key_values(result)
        case "csv":
            yield from _csv(result, null)
        case "jsonl":
            yield from _json_lines(result)
        case "markdown":
            yield from _markdown(result)
        case "json":
            yield json.dumps(result.to_json(), indent=2, ensure_ascii=False)


def write_binary(result: Result, format_: BinaryFormat, file: BinaryIO) -> None:
    """Write the typed rows as an Arrow IPC file or a Parquet file."""
    if format_ == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(result.table, file)
        return
    import pyarrow as pa

    with pa.ipc.new_file(file, result.table.schema) as writer:
        writer.write_table(result.table)


def write_result(
    result: Result,
    format_: Format,
    path: str,
    *,
    width: int = 80,
    layout: CellLayout = "truncate",
    null: str = "",
) -> None:
    """Write a result to a file in any format. The file is complete or not written."""
    from omnigraph.api.files.local_files import atomic_write, readable_write_errors

    with readable_write_errors(path), atomic_write(path) as file:
        if format_ == "arrow" or format_ == "parquet":
            write_binary(result, format_, cast(TextIO, file).buffer)
            return
        lines = text_lines(result, format_, width=width, layout=layout, null=null)
        file.writelines(f"{line}\n" for line in lines)


def format_of_path(path: str) -> Format:
    """Return the format that the suffix of a file name stands for. Raises `InvalidInput` for any other.

    >>> format_of_path("people.parquet"), format_of_path("people.md")
    ('parquet', 'markdown')
    """
    found = next((name for suffix, name in _SUFFIXES.items() if path.lower().endswith(suffix)), None)
    if found is None:
        raise InvalidInput(
            f"the name '{path}' has no known suffix", hint=f"use one of {', '.join(_SUFFIXES)}"
        )
    return found


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


def _markdown(result: Result) -> Iterator[str]:
    """Yield the lines of a Markdown table. Columns of numbers are aligned to the right."""
    rows = [list(row.values()) for row in result.rows()]
    yield _markdown_row(result.columns)
    marks = [
        "--:" if is_numeric(row[place] for row in rows) else "---" for place in range(len(result.columns))
    ]
    yield f"| {' | '.join(marks)} |"
    yield from map(_markdown_row, rows)


def _markdown_row(values: Iterable[Any]) -> str:
    cells = (
        escape_controls(cell(value), "\n").replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")
        for value in values
    )
    return f"| {' | '.join(cells)} |"


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


def _table(result: Result, width: int, layout: CellLayout, terminal: int | None) -> Iterator[str]:
    yield _heading(result)
    if not result.columns:
        yield "(no rows)"
        return
    rows = [list(row.values()) for row in result.rows()]
    if terminal is not None and layout == "truncate":
        yield from fitted_table_lines(result.columns, rows, terminal, widest=width)
    else:
        yield from table_lines(result.columns, rows, width=width, layout=layout)
