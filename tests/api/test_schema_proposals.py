"""Schemas proposed for data: they compile, and the data loads into a graph that has them."""

from __future__ import annotations

import gzip
from datetime import date
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from tests.cli.running import run
from tests.support.places import fresh_memory

TYPES = pa.table(
    {
        "code": pa.array(["a", "b"]),
        "i8": pa.array([1, 1], pa.int8()),
        "i64": pa.array([1, None], pa.int64()),
        "u32": pa.array([1, 1], pa.uint32()),
        "u64": pa.array([1, 1], pa.uint64()),
        "f32": pa.array([1.5, 2.5], pa.float32()),
        "price": pa.array([1, 2], pa.decimal128(12, 2)),
        "number": pa.array([7, 2**63 - 1], pa.decimal128(38, 0)),
        "huge": pa.array([None, 2**63], pa.decimal128(38, 0)),
        "ok": pa.array([True, None]),
        "day": pa.array([date(2024, 1, 31)] * 2),
        "at": pa.array([0, 1_000], pa.timestamp("us", "UTC")),
        "tags": pa.array([["x"], None], pa.list_(pa.string())),
        "vec": pa.array([[1.0, 2.0], [0.0, 1.0]], pa.list_(pa.float32(), 2)),
        "kind": pa.array(["x", "y"]).dictionary_encode(),
        "nothing": pa.nulls(2),
        "nested": pa.array([{"a": 1}, None]),
    }
)


def test_schema_from_arrow_table_has_a_property_for_each_type() -> None:
    lines = og.schema_from(TYPES, "Thing").splitlines()
    assert [line.strip() for line in lines[1:-1]] == [
        "code: String @key",
        "i8: I32",
        "i64: I64?",
        "u32: U32",
        "u64: U64",
        "f32: F32",
        "price: F64",
        "number: I64",
        "huge: F64?",
        "ok: Bool?",
        "day: Date",
        "at: DateTime",
        "tags: [String]?",
        "vec: Vector(2)",
        "kind: String",
        "nothing: String?",
        '// column "nested" has type struct<a: int64>, which no property holds',
    ]
    graph = og.init(fresh_memory(), schema=og.schema_from(TYPES, "Thing"))
    assert graph.load({"Thing": TYPES.drop_columns(["nested"])}).nodes == {"Thing": 2}


def test_schema_from_csv_types_texts_and_keeps_codes_with_leading_zeros(tmp_path: Path) -> None:
    (tmp_path / "customers.csv").write_text(
        "zip,Full Name,joined,score,vip,note\n00123,Ana,2024-01-31,1,true,\n04567,Bo,2024-02-01,2.5,false,x\n",
        encoding="utf-8",
    )
    assert og.schema_from(tmp_path / "customers.csv") == (
        "node Customer {\n"
        "  zip: String @key\n"
        '  full_Name: String  // column "Full Name"\n'
        "  joined: Date\n"
        "  score: F64\n"
        "  vip: Bool\n"
        "  note: String?\n"
        "}\n"
    )


@pytest.mark.parametrize("names", [("from", "to"), ("src", "dst"), ("Source", "Target")])
def test_schema_from_files_finds_edges_and_their_node_types(tmp_path: Path, names: tuple[str, str]) -> None:
    pq.write_table(pa.table({"isbn": [1, 2], "title": ["x", "x"]}), tmp_path / "books.parquet")
    (tmp_path / "authors.ndjson").write_text(
        '{"name":"Ana","born":"1990-01-01"}\n{"name":"Bo"}\n', encoding="utf-8"
    )
    with gzip.open(tmp_path / "wrote.csv.gz", "wt", encoding="utf-8") as file:
        file.write(f"{names[0]},{names[1]},year\nAna,1,2001\nBo,2,\n")
    text = og.schema_from(tmp_path)
    assert "edge Wrote: Author -> Book {\n  year: I64?\n}" in text
    assert "node Author {\n  name: String @key\n  born: Date?\n}" in text
    assert "node Book {\n  isbn: I64 @key\n  title: String\n}" in text
    og.init(fresh_memory(), schema=text)


def test_schema_from_graph_records_loads_them_back() -> None:
    source = "examples/team/people.ndjson"
    graph = og.init(fresh_memory(), schema=og.schema_from(source))
    assert graph.load(source).total == 15


def test_schema_from_rows_with_ids_has_no_key() -> None:
    people = [{"id": "p1", "name": "Ana"}, {"id": "p2", "name": "Ana"}]
    text = og.schema_from({"Person": people, "Knows": [{"from": "p1", "to": "p2"}]})
    assert text == "node Person {\n  name: String\n}\n\nedge Knows: Person -> Person\n"
    graph = og.init(fresh_memory(), schema=text)
    assert graph.load({"Person": people, "Knows": [{"from": "p1", "to": "p2"}]}).total == 3


def test_schema_from_pandas_frame_reads_a_sample_only() -> None:
    frame = pandas.DataFrame({"n": [1, 2, 2], "label": ["a", "b", None]})
    assert "n: I64 @key" in og.schema_from(frame, "Row", sample=2)
    assert "label: String?" in og.schema_from(frame, "Row")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ([{"a": 1}], {}, "pass `type_name`"),
        ([{"a": 1}, {"a": "x"}], {"type_name": "T"}, "the values of 'a' have different types"),
        ({"Knows": [{"from": "x", "to": "y"}]}, {}, "no values that are keys of a node type"),
        (3, {"type_name": "T"}, "got int"),
        ([{"a": 1}], {"type_name": "T", "sample": 0}, "at least 1"),
    ],
)
def test_schema_from_invalid_input_says_what_to_do(
    source: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(og.errors.InvalidInput, match=message):
        og.schema_from(source, **options)


def test_schema_infer_prints_the_schema_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name\nAna\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("from,to\nAna,Ana\n", encoding="utf-8")
    done = run("schema", "infer", f"Person={tmp_path / 'a.csv'}", f"Knows={tmp_path / 'b.csv'}")
    assert done.stdout == "node Person {\n  name: String @key\n}\n\nedge Knows: Person -> Person\n"
    twice = run("schema", "infer", str(tmp_path / "a.csv"), str(tmp_path / "a.csv"))
    assert twice.code == 1
    assert "name one as TYPE=FILE" in twice.stderr
