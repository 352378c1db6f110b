"""A load lists all invalid records of its input with their places, on every engine, and writes nothing."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.protocol.codec import decode_error, encode_error
from omnigraph.sources.invalid_records import MAX_LISTED
from tests.support.places import fresh_memory

SCHEMA = """
node Person { name: String @key  age: I32?  tags: [String]?  bio: String?  v: Vector(2)? }
edge Knows: Person -> Person { since: Date? }
"""


@pytest.fixture
def graph() -> og.LocalGraph:
    return og.init(fresh_memory(), schema=SCHEMA)


def refused(graph: og.LocalGraph, source: Any, **options: Any) -> og.errors.InvalidInput:
    head = graph.commits()[0].id
    with pytest.raises(og.errors.InvalidInput) as caught:
        graph.load(source, **options)
    assert graph.commits()[0].id == head
    return caught.value


LINES = """\
{"type":"Person","data":{"name":"Ann","age":"12"}}
{"type":"Person","data":{"name":"Bob"}}
{"type":"Person","data":{"name":"Cy","agee":3}}

{"type":"Person","data":{"name":"Di","v":[1]}}
{"edge":"Knows","from":"Ann","to":"Bob","data":{"since":"soon"}}
not JSON
"""


def test_load_records_with_several_errors_lists_all_with_places(graph: og.LocalGraph, tmp_path: Path) -> None:
    path = tmp_path / "in.ndjson"
    path.write_text(LINES, encoding="utf-8")
    error = refused(graph, path)
    assert error.message == (
        f"{path}: Person line 1, property 'age': expected I32, got \"12\" (and 4 more lines)"
    )
    assert error.hint is not None
    assert "casts: {age: I32}" in error.hint
    assert (error.details["violations"], error.details["limit"]) == (5, MAX_LISTED)
    found = [(item["line"], item.get("type"), item.get("property")) for item in error.violations]
    assert found == [
        (1, "Person", "age"),
        (3, "Person", "agee"),
        (5, "Person", "v"),
        (6, "Knows", "since"),
        (7, None, None),
    ]
    assert {item["source"] for item in error.violations} == {str(path)}
    assert error.violations[1]["hint"] == "did you mean `age`?"


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ({"Person": pa.table({"name": ["a", "b", "c"], "age": ["x", "1", "12"]})}, "row"),
        (
            {"Person": [{"name": "a", "age": "x"}, {"name": "b", "age": "1"}, {"name": "c", "age": "12"}]},
            "row",
        ),
    ],
)
def test_load_table_with_several_errors_lists_all_rows(graph: og.LocalGraph, source: Any, place: str) -> None:
    error = refused(graph, source)
    assert error.reason == 'expected I32, got "x" (and 2 more rows)'
    assert [(item[place], item["type"]) for item in error.violations] == [
        (1, "Person"),
        (2, "Person"),
        (3, "Person"),
    ]
    assert "hint" not in error.violations[0]
    assert "casts: {age: I32}" in error.violations[1]["hint"]


def test_load_files_with_errors_lists_those_of_all_files(graph: og.LocalGraph, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,age\nAnn,x\nBob,1\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("name,age\nCy,2\nDi,y,\n,3\n", encoding="utf-8")
    error = refused(graph, {"Person": str(tmp_path)})
    found = [(Path(item["source"]).name, item["row"], item["message"]) for item in error.violations]
    assert found == [
        ("a.csv", 1, 'expected I32, got "x"'),
        ("b.csv", 2, "expected 2 cells, got 3"),
        ("b.csv", 3, "node Person is missing a non-null @key value"),
    ]


def test_load_permissive_with_errors_lists_all_records(graph: og.LocalGraph) -> None:
    text = '{"type":"Nobody"} {"type":"Person","data":{"name":"a","tags":"x"}} {"type":"Person","data":{}}'
    error = refused(graph, io.BytesIO(text.encode()), permissive=True)
    assert [item["record"] for item in error.violations] == [1, 2, 3]
    assert error.reason.endswith("(and 2 more records)")


def test_load_with_more_errors_than_are_listed_counts_all(graph: og.LocalGraph) -> None:
    rows = [{"name": f"p{number}", "age": "x"} for number in range(MAX_LISTED + 23)]
    error = refused(graph, {"Person": rows})
    assert (len(error.violations), error.details["violations"]) == (MAX_LISTED, MAX_LISTED + 23)


def test_load_with_one_error_has_it_as_the_only_violation(graph: og.LocalGraph) -> None:
    error = refused(graph, {"Person": [{"name": "Ann", "bio": 7}]})
    assert error.message == "Person row 1, property 'bio': expected String, got 7"
    assert [item["message"] for item in error.violations] == ["expected String, got 7"]
    assert error.details["violations"] == 1


def test_load_with_invalid_records_and_a_broken_rule_lists_the_invalid_records(graph: og.LocalGraph) -> None:
    records = [{"type": "Person", "data": {"name": "a"}}] * 2 + [{"type": "Person", "data": {"name": 1}}]
    assert [item["record"] for item in refused(graph, records).violations] == [3]


def test_violations_of_invalid_input_survive_the_wire(graph: og.LocalGraph) -> None:
    error = refused(graph, {"Person": [{"name": "a", "age": "x"}, {"name": "b", "age": "y"}]})
    again = decode_error(json.loads(json.dumps(encode_error(error))))
    assert isinstance(again, og.errors.InvalidInput)
    assert again.violations == error.violations
    assert str(again) == str(error)
