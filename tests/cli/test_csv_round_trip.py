"""CSV that `query --format csv` writes loads back unchanged, with nulls and empty strings told apart."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.api.results.result import Result
from omnigraph.cli.render.row_formats import text_lines
from omnigraph.lang.types import STRING
from omnigraph.sources.csv_files import read_csv
from omnigraph.sources.table_reader import TableInput
from tests.catalog.test_identity import catalog_of
from tests.cli.running import run

SCHEMA = """
node Thing {
  name: String @key
  text: String?  flag: Bool?  i32: I32?  i64: I64?  u32: U32?  u64: U64?  f32: F32?  f64: F64?
  day: Date?  at: DateTime?  mood: enum(good, null)?  vec: Vector(2)?
  texts: [String]?  numbers: [F64]?  days: [Date]?  times: [DateTime]?  flags: [Bool]?
}
edge Near: Thing -> Thing { note: String? }
"""
NAMES = (
    *("name", "text", "flag", "i32", "i64", "u32", "u64", "f32", "f64", "day", "at", "mood", "vec"),
    *("texts", "numbers", "days", "times", "flags"),
)
THINGS: list[dict[str, Any]] = [
    {"name": "all null"},
    {"name": "", "text": "", "texts": [], "numbers": [], "days": [], "times": [], "flags": []},
    {"name": "null", "text": "null", "mood": "null", "texts": ["", "null"]},
    {"name": "a,b", "text": 'quotes "x", and\r\nlines\rmore\n', "texts": ['"', ",", "\n", "\\"]},
    {"name": " space ", "text": "\t=1+1 \u00e9\U0001f600\u2028\ufeff", "texts": ["\u00e9\U0001f600"]},
    {
        "name": "largest",
        "flag": True,
        "i32": 2**31 - 1,
        "i64": 2**63 - 1,
        "u32": 2**32 - 1,
        "u64": 2**64 - 1,
        "f32": 3.4028234663852886e38,
        "f64": 1.7976931348623157e308,
        "day": "9999-12-31",
        "at": "9999-12-31T23:59:59.999Z",
        "mood": "good",
        "vec": [0.1, -1e-30],
        "numbers": [0.1, -0.0, 5e-324],
        "days": ["0001-01-01"],
        "times": ["1969-12-31T23:59:59.999Z"],
        "flags": [True, False],
    },
    {
        "name": "smallest",
        "flag": False,
        "i32": -(2**31),
        "i64": -(2**63),
        "u32": 0,
        "f32": "NaN",
        "f64": "-Infinity",
        "day": "0001-01-01",
        "at": "0001-01-01T00:00:00.000Z",
        "numbers": ["NaN", "Infinity"],
    },
    {"name": "zero", "f32": 0.1, "f64": -0.0, "i32": 0, "u64": 0},
]
QUERY = f"query q() {{ match {{ $t: Thing }} return {{ {' '.join(f'$t.{n} as {n}' for n in NAMES)} }} }}"
EDGES = "query q() { match { $a $n:near $b } return { $a as src  $b as dst  $n.note as note } }"


def exported(graph: og.Graph) -> list[Any]:
    """Return the records of a graph without the ids of edges, which a load generates."""
    file = io.StringIO()
    graph.export(file)
    records = [json.loads(line) for line in io.StringIO(file.getvalue(), newline="\n")]
    for record in records:
        if "edge" in record:
            del record["data"]["id"]
    return sorted(records, key=json.dumps)


@pytest.mark.parametrize("null", ["", "NULL", "null"])
def test_query_csv_of_every_type_loads_back(
    null: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.pg").write_text(SCHEMA, encoding="utf-8")
    near = [{"from": "", "to": "a,b", "note": ""}, {"from": "null", "to": "", "note": None}]
    with og.init("g.omni", schema=SCHEMA) as graph:
        graph.load({"Thing": THINGS, "Near": near})
        wanted = exported(graph)
    option = ["--null", null] if null else []
    for query, path in ((QUERY, "things.csv"), (EDGES, "near.csv")):
        made = run("query", "-e", query, "--store", "g.omni", "--format", "csv", "--out", path, *option)
        assert made.code == 0, made.stderr
    assert run("init", "--schema", "s.pg", "copy.omni").code == 0
    files = ["--data", "Thing=things.csv", "--data", "Near=near.csv"]
    loaded = run("load", *files, "--mode", "append", "copy.omni", *option)
    assert loaded.code == 0, loaded.stderr
    with og.open("copy.omni", mode="r") as copy:
        assert exported(copy) == wanted


def test_query_csv_null_option_is_refused_where_it_does_not_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    og.init("g.omni", schema=SCHEMA).load({"Thing": THINGS[:1]})
    asked = ["query", "--store", "g.omni"]
    other = run(*asked, "-e", QUERY, "--null", "NULL", "--format", "kv")
    assert (other.code, other.stderr) == (1, "error: --null applies to CSV only\nhint: pass --format csv\n")
    comma = run(*asked, "-e", QUERY, "--null", "a,b", "--format", "csv")
    assert comma.stderr == 'error: the text for null must not need quotes in CSV, got "a,b"\n'
    only = "query q() { match { $t: Thing } return { $t.text as text } }"
    assert "would be an empty line" in run(*asked, "-e", only, "--format", "csv").stderr
    assert run(*asked, "-e", only, "--format", "csv", "--null", "NULL").stdout == "text\nNULL\n"


CATALOG = catalog_of("node Pair { a: String?  b: String? }")
CELL = st.none() | st.sampled_from(["", "null", '"', '""', "\r", "\n", " "]) | st.text(max_size=6)


@settings(max_examples=80, deadline=None)
@given(rows=st.lists(st.tuples(CELL, CELL), max_size=5), null=st.sampled_from(["", "null", "\\N"]))
def test_csv_of_any_texts_is_read_back(rows: list[tuple[str | None, str | None]], null: str) -> None:
    table = pa.table({name: pa.array([row[at] for row in rows], pa.string()) for at, name in enumerate("ab")})
    found = Result(table, "01J", "q", branch="main", types=(STRING, STRING))
    data = "".join(f"{line}\n" for line in text_lines(found, "csv", null=null)).encode()
    batches = list(read_csv(io.BytesIO(data), TableInput("node:Pair", CATALOG, "in.csv", csv_null=null)))
    read = [tuple(row[name] for name in "ab") for batch in batches for row in batch.rows.to_pylist()]
    assert read == rows
