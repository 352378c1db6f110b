"""The output formats of queries."""

from __future__ import annotations

import csv
import io
import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from omnigraph.api.results.result import Result
from omnigraph.cli.render.row_formats import text_lines, write_binary
from omnigraph.cli.settings.config import TextFormat
from omnigraph.lang.types import PropType, Scalar

STRING = PropType(Scalar.STRING)
NUMBER = PropType(Scalar.I64)
COMMIT = "01M7FG916R843F9X243BKR94RR"


def result(*names: str | None, snapshot: str | None = None) -> Result:
    """Names, each with its length; None has none."""
    table = pa.table(
        {
            "p.name": pa.array(names, pa.string()),
            "size": pa.array([None if name is None else len(name) for name in names], pa.int64()),
        }
    )
    branch = "main" if snapshot is None else None
    return Result(table, COMMIT, "q", branch=branch, snapshot=snapshot, types=(STRING, NUMBER))


def lines(found: Result, format_: TextFormat, **options: object) -> list[str]:
    return list(text_lines(found, format_, **options))  # type: ignore[arg-type]


NOTHING = Result(pa.table({}), COMMIT, "q", branch="main")


def test_a_table_is_aligned_below_a_heading() -> None:
    assert lines(result("Ann", None), "table") == [
        "2 rows from branch main via q",
        "p.name | size",
        "-------+-----",
        "Ann    | 3   ",
        "null   | null",
    ]


def test_a_table_of_an_earlier_state_says_so() -> None:
    assert lines(result(snapshot=COMMIT), "table") == [
        f"0 rows from snapshot {COMMIT} via q",
        "p.name | size",
        "-------+-----",
    ]


def test_long_cells_are_truncated_or_wrapped() -> None:
    found = result("abcdefghij")
    assert lines(found, "table", width=7)[3] == "abcdef… | 10  "
    assert lines(found, "table", width=7, layout="wrap")[3] == "abcdefg | 10  \nhij     |     "
    assert lines(found, "table", width=10)[3] == "abcdefghij | 10  "
    assert len(lines(result("x" * 100), "table")[3]) == len("x" * 79 + "… | 100 ")


def test_table_on_a_terminal_is_fitted_to_its_width() -> None:
    found = result("abcdefghijklmno", "b")
    assert lines(found, "table", terminal=16)[1:] == [
        "p.name    | size",
        "----------+-----",
        "abcdefgh… |   15",
        "b         |    1",
    ]
    assert lines(found, "table", terminal=80, width=4)[3] == "abc… |   15"


def test_markdown_table_escapes_what_would_end_a_cell() -> None:
    assert lines(result("a|b\nc\\", None), "markdown") == [
        "| p.name | size |",
        "| --- | --: |",
        "| a\\|b<br>c\\\\ | 6 |",
        "| null | null |",
    ]


def test_wide_letters_count_twice() -> None:
    rows = lines(result("日本語", "abc"), "table", width=5)
    assert rows[3:] == ["日本… | 3   ", "abc   | 3   "]
    assert lines(result("日本語"), "table", width=5, layout="wrap")[3] == "日本  | 3   \n語    |     "


def test_what_moves_the_cursor_is_shown_instead() -> None:
    found = result("a\nb\x1b[2J")
    assert lines(found, "table")[3].startswith("a\\nb\\x1b[2J |")
    assert lines(found, "kv")[2:3] == ["p.name: a\n  b\\x1b[2J"]


def test_what_turns_text_around_or_hides_in_it_is_shown_instead() -> None:
    found = result("ab\u202ecd", "ad\u200bmin", "ad\u200dmin", "\u2028")
    shown = ["ab\\u202ecd", "ad\\u200bmin", "ad\\u200dmin", "\\u2028"]
    assert [line.split(" |")[0].rstrip() for line in lines(found, "table")[3:]] == shown
    assert lines(found, "kv")[2::4] == [f"p.name: {name}" for name in shown]
    assert lines(found, "csv")[1] == "ab\u202ecd,5"


@pytest.mark.parametrize(
    "name", ["می\u200cخواهم", "\U0001f469\u200d\U0001f52c", "全角\u3000空白", "caf\u00e9\u00a0x"]
)
def test_how_a_language_is_written_is_left_alone(name: str) -> None:
    assert lines(result(name), "kv")[2] == f"p.name: {name}"


def test_no_value_looks_like_another_value_or_row() -> None:
    assert lines(result("x\n\nrow 2\np.name: admin"), "kv") == [
        "1 rows from branch main via q",
        "row 1",
        "p.name: x\n  \n  row 2\n  p.name: admin",
        "size: 22",
    ]


def test_rows_by_key_are_numbered_and_apart() -> None:
    assert lines(result("Ann", "Bo"), "kv") == [
        "2 rows from branch main via q",
        "row 1",
        "p.name: Ann",
        "size: 3",
        "",
        "row 2",
        "p.name: Bo",
        "size: 2",
    ]


@pytest.mark.parametrize(("found", "format_"), [(result(), "kv"), (NOTHING, "table"), (NOTHING, "kv")])
def test_no_rows_are_said_to_be_none(found: Result, format_: TextFormat) -> None:
    assert lines(found, format_) == ["0 rows from branch main via q", "(no rows)"]


def test_json_lines_begin_with_what_was_asked() -> None:
    assert lines(result("é", None), "jsonl") == [
        '{"kind":"metadata","query_name":"q","target":{"branch":"main","snapshot":null},"row_count":2}',
        '{"p.name":"é","size":1}',
        '{"p.name":null,"size":null}',
    ]


def test_json_is_the_body_of_a_server() -> None:
    (text,) = lines(result("Ann"), "json")
    assert json.loads(text) == result("Ann").to_json()
    assert text.startswith('{\n  "query_name": "q"')


def test_csv_quotes_only_what_it_must() -> None:
    found = lines(result("plain", "a,b", 'a "b"', "a\nb", None, " ", ""), "csv")
    assert found == [
        *("p.name,size", "plain,5", '"a,b",3', '"a ""b""",5', '"a\nb",3'),
        # Null is an empty cell, and the empty string is quoted, so that a load tells them apart.
        *(",", " ,1", '"",0'),
    ]
    assert lines(result(None, "NULL"), "csv", null="NULL") == ["p.name,size", "NULL,NULL", '"NULL",4']


def test_values_that_are_not_text_are_compact_json() -> None:
    table = pa.table({"v": pa.array([["a", "b,c"], None]), "b": pa.array([True, False])})
    found = Result(
        table,
        COMMIT,
        "q",
        branch="main",
        types=(PropType(Scalar.STRING, is_list=True), PropType(Scalar.BOOL)),
    )
    assert lines(found, "kv")[2:4] == ['v: ["a","b,c"]', "b: true"]


def test_an_arrow_file_keeps_the_types() -> None:
    file = io.BytesIO()
    found = result("Ann", None)
    write_binary(found, "arrow", file)
    assert pa.ipc.open_file(pa.py_buffer(file.getvalue())).read_all() == found.table


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


@given(st.lists(TEXT, max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_text_survives_csv_and_json_lines(names: list[str]) -> None:
    found = result(*names)
    text = "".join(f"{line}\n" for line in lines(found, "csv"))
    # The reader of the standard library takes rows of one empty cell for no row; here each has two.
    assert [row[0] for row in csv.reader(io.StringIO(text, newline=""))] == ["p.name", *names]
    assert [json.loads(line)["p.name"] for line in lines(found, "jsonl")[1:]] == names


@given(st.lists(TEXT, max_size=5), st.integers(2, 8), st.sampled_from(["truncate", "wrap"]))
@settings(max_examples=80, deadline=None)
def test_every_line_of_a_table_is_equally_wide(names: list[str], width: int, layout: str) -> None:
    shown = "\n".join(lines(result(*names), "table", width=width, layout=layout)[1:]).split("\n")
    assert {cell_len(line) for line in shown} == {cell_len(shown[0])}
    assert cell_len(shown[0]) <= 2 * width + 3
