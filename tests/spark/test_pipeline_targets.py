"""Targets of pipelines: modes in one run, deduplication, expectations, orphans, limits and audits of changes."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omnigraph as og
from omnigraph import pipelines
from omnigraph.errors import ConstraintViolation, InvalidInput
from tests.pipelines.test_python_file import blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { code: String @key  name: String?  age: I32?  note: String? }
node City { city: String @key  size: I32?  note: String? }
node Tag { tag: String @key }
edge Knows: Person -> Person { @key(src, dst)  since: I32? }
"""
FILE = """
graph: g.omni
sources:
  people:
    format: ndjson
    path: in/people/
    incremental: files
    columns: code string, name string, age int, at int, op string
  cities: {format: ndjson, path: in/cities/, incremental: files, columns: "city string, size int"}
  gone: {format: ndjson, path: in/gone/, incremental: files, columns: tag string}
  knows:
    format: ndjson
    path: in/knows/
    incremental: files
    columns: a string, b string, since int, seq int, op string
nodes:
  Person:
    from: people
    mode: patch
    dedup: {keys: [code], latest_by: at}
    expect: {age: age is null or age between 0 and 150, named: name is not null or op = 'D'}
    on_fail: quarantine
    delete_when: op = 'D'
    ignore: [at, op]
  City: {from: cities}
  Tag: {from: gone, mode: delete}
edges:
  Knows:
    from: knows
    src: a
    dst: b
    mode: patch
    order_by: seq
    delete_when: op = 'D'
    on_orphan: quarantine
    ignore: true
quarantine: {path: quarantine/, max: 30%}
audits:
  - {name: few deletes, diff: main, expect: deleted('Person') < 2 and changed() < 100}
"""


def rows(graph: og.LocalGraph, name: str) -> dict[str, Any]:
    """The rows of a node type by id."""
    written = StringIO()
    graph.export(written, types=[name])
    found = [json.loads(line)["data"] for line in written.getvalue().splitlines()]
    return {row["id"]: row for row in found}


class Case:
    """A folder with a pipeline file, its input and its graph."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder, self.spark = folder, spark
        self.file = folder / "p.yaml"
        self.file.write_text(FILE, encoding="utf-8")
        self.graph = og.init(folder / "g.omni", schema=SCHEMA)

    def put(self, name: str, **rows: list[dict[str, Any]]) -> None:
        for source, records in rows.items():
            path = self.folder / "in" / source / f"{name}.ndjson"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")

    def run(self) -> pipelines.RunReport:
        return pipelines.run(self.file, spark=self.spark, variables={})

    def rows(self, name: str) -> dict[str, Any]:
        return rows(self.graph, name)

    def edges(self) -> dict[tuple[str, str], int | None]:
        names = "$a.code as a, $b.code as b, $k.since as since"
        text = f"query all() {{ match {{ $a: Person  $a $k:knows $b }} return {{ {names} }} }}"
        return {(row["a"], row["b"]): row["since"] for row in self.graph.query(text).rows()}


@pytest.fixture
def case(tmp_path: Path, spark: SparkSession) -> Case:
    made = Case(tmp_path, spark)
    people = [{"code": code, "name": code.upper(), "age": 30, "note": "kept"} for code in "abcdef"]
    cities = [{"city": "Bern", "size": 1, "note": "lost"}, {"city": "Oslo", "size": 2, "note": "kept"}]
    knows = [{"src": "a", "dst": "b", "since": 1}, {"src": "b", "dst": "c", "since": 1}]
    made.graph.load({"Person": people, "City": cities, "Tag": [{"tag": "x"}, {"tag": "y"}], "Knows": knows})
    return made


def test_one_run_patches_merges_and_deletes_and_sets_failed_rows_aside(case: Case) -> None:
    case.put(
        "1",
        people=[
            {"code": "a", "name": "older", "at": 1},
            {"code": "a", "name": "newer", "at": 3},
            # Fails its expectation, so the row before it is the newest.
            {"code": "a", "name": "newest", "age": 200, "at": 4},
            {"code": "f", "op": "D", "at": 2},
            {"code": "g", "name": "G", "age": 1, "at": 1},
            {"code": "h", "at": 1},
        ],
        cities=[{"city": "Bern", "size": 5}],
        gone=[{"tag": "x"}],
        knows=[
            {"a": "a", "b": "b", "since": 7, "seq": 2},
            {"a": "a", "b": "b", "op": "D", "seq": 1},
            {"a": "b", "b": "c", "op": "D", "seq": 1},
            {"a": "a", "b": "g", "since": 9, "seq": 1},
        ],
    )
    before = len(case.graph.commits())

    report = case.run()

    assert report.outcome == "published"
    assert dict(report.quarantined) == {"Person": 2}
    assert len(case.graph.commits()) == before + 1
    people = case.rows("Person")
    assert people["a"] == {"id": "a", "code": "a", "name": "newer", "age": None, "note": "kept"}
    assert set(people) == {"a", "b", "c", "d", "e", "g"}
    # A merge replaces the row, also in a run whose other targets patch.
    assert case.rows("City")["Bern"] == {"id": "Bern", "city": "Bern", "size": 5, "note": None}
    assert set(case.rows("Tag")) == {"y"}
    assert case.edges() == {("a", "b"): 7, ("a", "g"): 9}
    lines = [
        json.loads(line)
        for path in Path(report.quarantine or "").glob("*.ndjson")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert sorted(line["rule"] for line in lines) == ["age", "named"]


def test_limits_of_quarantine_and_audit_leave_the_graph_unchanged(case: Case) -> None:
    head = case.graph.commits(limit=1)[0].id
    case.put("1", cities=[], gone=[], knows=[], people=[{"code": code, "age": -1} for code in "abcd"])
    case.put("2", people=[{"code": code, "name": code} for code in "abcdef"])
    with pytest.raises(ConstraintViolation, match=r"4 of 10 rows failed, more than 30%") as raised:
        case.run()
    assert "quarantine" in str(raised.value)
    assert case.graph.branches.list() == ["main"]
    assert case.graph.commits(limit=1)[0].id == head

    text = FILE.replace("max: 30%", "max: 40%").replace("< 2", "< 1")
    case.file.write_text(text, encoding="utf-8")
    case.put("2", people=[{"code": code, "op": "D"} for code in "abcdef"])
    report = case.run()
    assert report.outcome == "left"
    assert report.reason == "1 of 1 audits failed"
    assert report.audits[0].values["Person"]["delete"] == 6
    assert case.graph.commits(limit=1)[0].id == head


def test_python_file_of_the_guide_runs_and_a_failing_view_names_its_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    (text,) = blocks("python", "# shop.py")
    file = tmp_path / "shop.py"
    file.write_text(text, encoding="utf-8")
    graph = og.init(tmp_path / "shop.omni", schema="node Customer { customer_id: String @key  name: String }")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("id,name\n1, Ana \n2,Bo\n2,Bo\n3,\n", encoding="utf-8")
    variables = {"STORE": str(tmp_path)}
    assert pipelines.run(file, spark=spark, variables=variables).outcome == "published"
    assert {key: row["name"] for key, row in rows(graph, "Customer").items()} == {"1": "Ana", "2": "Bo"}
    assert pipelines.run(file, spark=spark, variables=variables).outcome == "unchanged"

    file.write_text(text.replace("return customers", "return customer"), encoding="utf-8")
    place = r"shop\.py: line 9: views\.known: line 3 failed with NameError: name 'customer' is not defined"
    with pytest.raises(InvalidInput, match=place):
        pipelines.run(file, spark=spark, variables=variables, full_refresh=True)
    assert graph.branches.list() == ["main"]
