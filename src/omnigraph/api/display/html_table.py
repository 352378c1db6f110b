"""Tables of JSON values as HTML, for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any

from omnigraph.api.display.text_table import cell, is_numeric

# Longer texts are cut in a cell, and are whole in its tooltip up to the second length.
_MAX_TEXT = 200
_MAX_TOOLTIP = 2_000


def html_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str) -> str:
    """Return a table with a caption below it. Nulls are empty, and numbers are aligned to the right.

    >>> html_table(["age"], [[30], [None]], "2 rows")
    '<table><thead><tr><th>age</th></tr></thead><tbody><tr><td style="text-align:right">30</td></tr><tr>\
<td style="text-align:right"></td></tr></tbody></table><p>2 rows</p>'
    """
    numeric = [is_numeric(row[place] for row in rows) for place in range(len(columns))]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(_cells(row, numeric))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{html.escape(caption)}</p>"


def _cells(row: Sequence[Any], numeric: Sequence[bool]) -> Iterator[str]:
    for value, is_number in zip(row, numeric, strict=True):
        text = "" if value is None else cell(value)
        attributes = ' style="text-align:right"' if is_number else ""
        if len(text) > _MAX_TEXT:
            attributes += f' title="{html.escape(text[:_MAX_TOOLTIP])}"'
            text = text[: _MAX_TEXT - 1] + "…"
        yield f"<td{attributes}>{html.escape(text)}</td>"
