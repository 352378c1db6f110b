"""The contract of `Graph.load` and `Graph.export`: every form of input, every mode, and the way back."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from tests.support.places import fresh_memory

SCHEMA = """\
node Person {
  name: String @key
  age: I32?
  born: Date?
  seen: DateTime?
  tags: [String]?
  weight: F64?
  place: Vector(2)?
  @range(age, 0..150)
}

node Firm {
  slug: String @key
}

edge Knows: Person -> Person {
  since: Date?
}

edge WorksAt: Person -> Firm
"""
ALL = "query all() { match { $p: Person } return { $p.name as name, $p.age as age } order { name } }"
KNOWN = (
    "query known() { match { $p: Person  $p knows $q } return { $p.name as a, $q.name as b } order { a, b } }"
)

RECORDS: list[dict[str, Any]] = [
    {"type": "Person", "data": {"name": "Ana", "age": 30}},
    {"type": "Person", "data": {"name": "Bo"}},
    {"edge": "Knows", "from": "Ana", "to": "Bo", "data": {"since": "2020-01-01"}},
]
LINES = "".join(json.dumps(record) + "\n" for record in RECORDS)
PEOPLE = pa.table({"name": ["Ana", "Bo"], "age": pa.array([30, None], pa.int64())})
KNOWS = pa.table({"from": ["Ana"], "to": ["Bo"], "since": ["2020-01-01"]})


@pytest.fixture
def graph() -> og.Graph:
    return og.init(fresh_memory(), schema=SCHEMA)


def people(graph: og.Graph, **state: Any) -> list[tuple[str, int | None]]:
    return [(row["name"], row["age"]) for row in graph.query(ALL, **state)]


def exported(graph: og.Graph, **options: Any) -> str:
    written = StringIO()
    count = graph.export(written, **options)
    assert count == written.getvalue().count("\n")
    return written.getvalue()


def as_path(folder: Path) -> Any:
    path = folder / "graph.ndjson"
    path.write_text(LINES, encoding="utf-8")
    return path


def as_packed_file(folder: Path) -> Any:
    path = folder / "graph.jsonl.gz"
    path.write_bytes(gzip.compress(LINES.encode()))
    return str(path)


def as_folder(folder: Path) -> Any:
    for number, line in enumerate(LINES.splitlines()):
        (folder / f"{number}.ndjson").write_text(line, encoding="utf-8")
    return folder


def as_pattern(folder: Path) -> Any:
    as_folder(folder)
    (folder / "other.txt").write_text("nothing", encoding="utf-8")
    return str(folder / "*.ndjson")


def as_stream(_folder: Path) -> Any:
    return BytesIO(LINES.encode())


def as_dicts(_folder: Path) -> Any:
    return (record for record in RECORDS)


def as_files_of_types(folder: Path) -> Any:
    (folder / "people.csv").write_text("name,age\nAna,30\nBo,\n", encoding="utf-8")
    pq.write_table(KNOWS, folder / "knows.parquet")
    return {"Person": folder / "people.csv", "Knows": str(folder / "knows.parquet")}


def as_tables(_folder: Path) -> Any:
    return {"Person": PEOPLE, "Knows": KNOWS}


def as_data_frames(_folder: Path) -> Any:
    return {
        "Person": pandas.DataFrame({"name": ["Ana", "Bo"], "age": [30, None]}),
        "Knows": polars.from_arrow(KNOWS),
    }


def as_rows_of_types(_folder: Path) -> Any:
    return {"Person": PEOPLE.to_batches(), "Knows": KNOWS.to_pylist()}


FORMS: tuple[Callable[[Path], Any], ...] = (
    as_path, as_packed_file, as_folder, as_pattern, as_stream, as_dicts, as_files_of_types, as_tables,
    as_data_frames, as_rows_of_types,
)  # fmt: skip


class TestForms:
    @pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__[3:])
    def test_load_of_every_input_form_gives_the_same_graph(
        self, graph: og.Graph, tmp_path: Path, form: Callable[[Path], Any]
    ) -> None:
        receipt = graph.load(form(tmp_path))
        assert (receipt.nodes, receipt.edges, receipt.total) == ({"Person": 2}, {"Knows": 1}, 3)
        assert receipt.commit is not None
        assert receipt.commit.operation == "load"
        assert people(graph) == [("Ana", 30), ("Bo", None)]
        assert graph.query(KNOWN).rows() == [{"a": "Ana", "b": "Bo"}]
        assert len(graph.commits()) == 2

    @pytest.mark.parametrize(
        ("source", "error"),
        [
            ("no-such-file.ndjson", og.errors.NotFound),
            ({"Persn": PEOPLE}, og.errors.NotFound),
            (PEOPLE, og.errors.InvalidInput),
            (RECORDS[0], og.errors.InvalidInput),
            (7, og.errors.InvalidInput),
        ],
    )
    def test_load_of_unsupported_source_is_refused(
        self, graph: og.Graph, source: Any, error: type[og.OmnigraphError]
    ) -> None:
        with pytest.raises(error):
            graph.load(source)
        assert len(graph.commits()) == 1

    def test_load_with_unknown_mode_or_engine_is_refused(self, graph: og.Graph) -> None:
        with pytest.raises(og.errors.InvalidInput) as caught:
            graph.load(RECORDS, mode="replace")  # type: ignore[arg-type]
        assert caught.value.hint == "one of append, merge, patch, delete, overwrite"
        with pytest.raises(og.errors.InvalidInput):
            graph.load(RECORDS, engine="abacus")  # type: ignore[arg-type]


class TestModes:
    def test_load_append_of_existing_id_is_refused(self, graph: og.Graph) -> None:
        graph.load({"Person": [{"name": "Ana"}]})
        with pytest.raises(og.errors.ConstraintViolation) as caught:
            graph.load({"Person": [{"name": "Bo"}, {"name": "Ana"}]})
        assert len(caught.value.violations) == 1
        assert people(graph) == [("Ana", None)]

    def test_load_merge_replaces_whole_rows(self, graph: og.Graph) -> None:
        graph.load({"Person": [{"name": "Ana", "age": 30}, {"name": "Bo", "age": 40}]})
        receipt = graph.load({"Person": [{"name": "Cid"}, {"name": "Ana"}]}, mode="merge")
        assert receipt.affected == {"Person": {"inserted": 1, "updated": 1, "deleted": 0}}
        assert (receipt.mode, receipt.superseded) == ("merge", 0)
        assert people(graph) == [("Ana", None), ("Bo", 40), ("Cid", None)]

    def test_merge_two_records_of_one_key_is_a_violation_and_nothing_is_written(
        self, graph: og.Graph
    ) -> None:
        with pytest.raises(og.errors.ConstraintViolation) as caught:
            graph.load(
                {"Person": [{"name": "Ana", "age": 31}, {"name": "Cid"}, {"name": "Ana"}]}, mode="merge"
            )
        assert str(caught.value) == (
            "line 3: @unique violation on Person.name: value 'Ana' held by 'Ana' and 'Ana'"
        )
        assert people(graph) == []

    def test_load_overwrite_replaces_only_types_in_the_input(self, graph: og.Graph) -> None:
        graph.load({"Person": [{"name": "Ana"}], "Firm": [{"slug": "acme"}]})
        receipt = graph.load({"Person": [{"name": "Bo"}]}, mode="overwrite")
        assert receipt.affected["Person"]["deleted"] == 1
        assert people(graph) == [("Bo", None)]
        assert graph.get("Firm", "acme") is not None

    def test_load_create_from_creates_the_missing_branch(self, graph: og.Graph) -> None:
        graph.load({"Person": [{"name": "Ana"}]})
        with pytest.raises(og.errors.NotFound) as caught:
            graph.load({"Person": [{"name": "Bo"}]}, branch="drop/1")
        assert caught.value.details == {"branch": "drop/1"}
        first = graph.load({"Person": [{"name": "Bo"}]}, branch="drop/1", create_from="main")
        second = graph.load({"Person": [{"name": "Cid"}]}, branch="drop/1", create_from="main")
        assert (first.branch, first.branch_created, second.branch_created) == ("drop/1", True, False)
        assert [name for name, _ in people(graph)] == ["Ana"]
        assert [name for name, _ in people(graph, branch="drop/1")] == ["Ana", "Bo", "Cid"]


class TestChecks:
    BAD: tuple[dict[str, Any], ...] = (
        {"type": "Person", "data": {"name": "Ana", "age": 200}},
        {"type": "Person", "data": {"name": "Bo", "age": 20}},
        {"type": "Person", "data": {"age": 20}},
    )

    def test_load_with_rejects_callback_skips_and_passes_invalid_records(self, graph: og.Graph) -> None:
        told: list[Any] = []
        receipt = graph.load(self.BAD, rejects=told.append)
        assert (receipt.rejected, receipt.nodes) == (2, {"Person": 1})
        errors = {item["line"]: item["error"] for item in told}
        assert errors.keys() == {1, 3}
        assert "200 > max 150" in errors[1]
        assert people(graph) == [("Bo", 20)]

    def test_load_with_rejects_file_writes_it_only_if_needed(self, graph: og.Graph, tmp_path: Path) -> None:
        graph.load(RECORDS, rejects=tmp_path / "none.ndjson")
        assert not (tmp_path / "none.ndjson").exists()
        graph.load(self.BAD, mode="merge", rejects=tmp_path / "some.ndjson")
        lines = (tmp_path / "some.ndjson").read_text(encoding="utf-8").splitlines()
        assert sorted(json.loads(line)["record"]["data"]["age"] for line in lines) == [20, 200]

    def test_load_with_rejects_folder_writes_a_file_there(self, graph: og.Graph, tmp_path: Path) -> None:
        receipt = graph.load(self.BAD, rejects=tmp_path)
        assert receipt.commit is not None
        path = tmp_path / f"rejects-{receipt.commit.id}.ndjson"
        assert (receipt.rejects, list(tmp_path.iterdir())) == (str(path), [path])
        found = path.read_text(encoding="utf-8").splitlines()
        assert sorted(json.loads(line)["line"] for line in found) == [1, 3]
        assert receipt.rejected_by_rule == {"Person": {"range": 1, "record": 1}}

    def test_load_with_unwritable_rejects_target_is_refused_before_reading(
        self, graph: og.Graph, tmp_path: Path
    ) -> None:
        def source() -> Any:
            yield pytest.fail("the input was read")

        with pytest.raises(og.errors.NotFound, match=r"no such folder: .*missing"):
            graph.load(source(), rejects=tmp_path / "missing" / "r.ndjson")
        with pytest.raises(
            og.errors.InvalidInput, match="rejected records cannot be written to a value of list"
        ) as caught:
            graph.load(source(), rejects=[])  # type: ignore[arg-type]
        assert "`append` of a list" in str(caught.value.hint)

    def test_load_with_rejects_writes_record_with_lone_surrogate(
        self, graph: og.Graph, tmp_path: Path
    ) -> None:
        target = tmp_path / "rejects.ndjson"
        graph.load({"Person": pandas.DataFrame({"name": ["Ana", "\ud800"]})}, rejects=target)
        (line,) = target.read_text(encoding="utf-8").splitlines()
        assert json.loads(line)["record"] == {"name": "\ud800"}

    def test_load_error_names_its_file_once(self, graph: og.Graph, tmp_path: Path) -> None:
        (tmp_path / "a.ndjson").write_text(LINES)
        (tmp_path / "b.ndjson").write_text("oops\n")
        with pytest.raises(og.errors.InvalidInput) as caught:
            graph.load(tmp_path)
        path = str(tmp_path / "b.ndjson")
        assert caught.value.message.startswith(f"{path}: invalid strict JSON at line 1: ")
        assert str(caught.value).count(path) == 1
        (tmp_path / "p.csv").write_text("name,agee\nAna,1\n")
        with pytest.raises(og.errors.InvalidInput, match=r"p\.csv: unknown column 'agee'"):
            graph.load({"Person": tmp_path / "p.csv"})

    def test_load_with_invalid_record_and_no_rejects_writes_nothing(self, graph: og.Graph) -> None:
        with pytest.raises(og.OmnigraphError):
            graph.load(self.BAD)
        assert people(graph) == []

    def test_load_of_edges_without_endpoints_is_refused(self, graph: og.Graph) -> None:
        with pytest.raises(og.errors.ConstraintViolation, match="'Zed' not found in Person"):
            graph.load([{"edge": "Knows", "from": "Zed", "to": "Zed", "data": {}}])

    def test_load_if_commit_with_other_head_is_refused(self, graph: og.Graph) -> None:
        before = graph.snapshot().commit_id
        done = graph.load(RECORDS, if_commit=before, message="first", actor="ana").commit
        assert done is not None
        assert (done.message, done.actor) == ("first", "ana")
        with pytest.raises(og.errors.PreconditionFailed) as caught:
            graph.load({"Person": [{"name": "Cid"}]}, if_commit=before)
        assert caught.value.details == {"expected": before, "actual": done.id}

    def test_load_with_repeated_idempotency_key_commits_once(self, graph: og.Graph) -> None:
        first = graph.load(RECORDS, idempotency_key="k")
        again = graph.load(RECORDS, idempotency_key="k")
        assert (again.replayed, again.commit) == (True, first.commit)
        with pytest.raises(og.errors.Conflict):
            graph.load({"Firm": [{"slug": "acme"}]}, idempotency_key="k")
        assert len(graph.commits()) == 2

    def test_load_calls_progress(self, graph: og.Graph) -> None:
        told: list[tuple[str, int]] = []
        graph.load(RECORDS, progress=lambda stage, rows: told.append((stage, rows)))
        assert max(rows for _, rows in told) == 3


class TestExport:
    def test_export_to_file_equals_export_to_stream(self, graph: og.Graph, tmp_path: Path) -> None:
        graph.load(RECORDS)
        told: list[tuple[str, int]] = []
        assert graph.export(tmp_path / "g.ndjson", progress=lambda *item: told.append(item)) == 3
        assert (tmp_path / "g.ndjson").read_text(encoding="utf-8") == exported(graph)
        assert sum(rows for _, rows in told) == 3

    def test_export_that_fails_keeps_the_previous_file(self, graph: og.Graph, tmp_path: Path) -> None:
        (tmp_path / "g.ndjson").write_text("precious", encoding="utf-8")
        with pytest.raises(og.errors.InvalidInput):
            graph.export(tmp_path / "g.ndjson", types=["Persn"])
        assert (tmp_path / "g.ndjson").read_text(encoding="utf-8") == "precious"
        assert [path.name for path in tmp_path.iterdir()] == ["g.ndjson"]

    def test_export_of_types_branch_and_earlier_state(self, graph: og.Graph) -> None:
        before = graph.snapshot()
        graph.load(RECORDS, branch="x", create_from="main")
        assert exported(graph) == exported(graph, at=before) == ""
        assert exported(graph, branch="x", types=["Knows"]).startswith(
            '{"edge":"Knows","from":"Ana","to":"Bo"'
        )
        assert exported(graph, branch="x", types=["Person"]).count('"type":"Person"') == 2

    @settings(max_examples=15, deadline=None)
    @given(data=st.data())
    def test_export_loads_back_to_the_same_graph(self, data: st.DataObject) -> None:
        text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
        person: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
            {"name": text},
            optional={
                "age": st.none() | st.integers(0, 150),
                "born": st.dates().map(str),
                "seen": st.integers(0, 4_000_000_000_000),
                "tags": st.lists(text, max_size=3),
                "weight": st.floats(allow_nan=False, allow_infinity=False),
                "place": st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=2),
            },
        )
        rows = data.draw(st.lists(person, min_size=1, max_size=6, unique_by=lambda row: str(row["name"])))
        ids = st.sampled_from([row["name"] for row in rows])
        ends = data.draw(st.lists(st.tuples(ids, ids), max_size=6))
        graph = og.init(fresh_memory(), schema=SCHEMA)
        graph.load({"Person": rows, "Knows": [{"from": source, "to": target} for source, target in ends]})
        first = exported(graph)
        copy = og.init(fresh_memory(), schema=SCHEMA)
        copy.load(BytesIO(first.encode()))
        assert exported(copy) == first
        assert copy.query(ALL).table == graph.query(ALL).table


@pytest.mark.parametrize("rows", [[], pa.table({"name": pa.array([], pa.string())})], ids=["list", "table"])
def test_load_overwrite_with_no_rows_empties_the_type(rows: Any) -> None:
    g = og.init(fresh_memory(), schema="node Person { name: String @key }")
    g.load({"Person": [{"name": "Ana"}]})
    done = g.load({"Person": rows}, mode="overwrite")
    assert done.affected == {"Person": {"inserted": 0, "updated": 0, "deleted": 1}}
    assert g.query("query all() { match { $p: Person } return { $p.name } }").rows() == []


def test_load_with_idempotency_key_of_other_records_is_refused() -> None:
    g = og.init(fresh_memory(), schema="node Note { text: String }")
    first = g.load({"Note": [{"text": "a"}]}, idempotency_key="k")
    again = g.load({"Note": [{"text": "a"}]}, idempotency_key="k")
    assert (again.replayed, again.commit) == (True, first.commit)
    with pytest.raises(og.OmnigraphError, match="idempotency"):
        g.load({"Note": [{"text": "b"}]}, idempotency_key="k")


def test_load_with_a_key_does_not_compare_the_order_of_types_and_properties() -> None:
    g = og.init(fresh_memory(), schema="node A { x: String  y: I32? }\nnode B { z: String }")
    rows = {"A": [{"x": "a", "y": 1}], "B": [{"z": "b"}]}
    first = g.load(rows, idempotency_key="k")
    again = g.load({"B": [{"z": "b"}], "A": [{"y": 1, "x": "a"}]}, idempotency_key="k")
    assert (again.replayed, again.commit) == (True, first.commit)


@pytest.mark.parametrize("rows", [2, 3_000])
def test_merge_of_equal_rows_makes_no_commit(rows: int) -> None:
    schema = (
        "node T { name: String @key  x: F64?  tags: [String]?  v: Vector(2)? }\nedge E: T -> T { w: I32? }"
    )
    g = og.init(fresh_memory(), schema=schema)
    nodes = pa.table(
        {
            "name": [str(number) for number in range(rows)],
            "x": [float("nan") if number % 2 else None for number in range(rows)],
            "tags": [["a"] * (number % 3) for number in range(rows)],
            "v": pa.array([[number, 1.0] for number in range(rows)], pa.list_(pa.float32(), 2)),
        }
    )
    edges = [{"id": "e", "from": "0", "to": "1", "w": 1}]
    first = g.load({"T": nodes, "E": edges}, mode="merge")
    reverse = nodes.take(list(reversed(range(rows))))
    again = g.load({"T": reverse, "E": edges}, mode="merge")
    assert (again.commit, again.nodes, again.edges) == (None, {"T": rows}, {"E": 1})
    assert again.affected == {key: {"inserted": 0, "updated": 0, "deleted": 0} for key in ("T", "E")}
    assert g.commits()[0] == first.commit
    # One row differs.
    changed = nodes.set_column(1, "x", pa.array([*nodes["x"].to_pylist()[:-1], 7.0], pa.float64()))
    assert g.load({"T": changed}, mode="merge").commit is not None
    assert g.load({"E": [{**edges[0], "to": "0"}]}, mode="merge").commit is not None
    # A load without rows makes a commit, and so do the other modes.
    assert g.load({"T": []}, mode="merge").commit is not None
    assert g.load({"T": changed}, mode="overwrite").commit is not None


def test_load_with_repeated_key_that_is_also_unique_reports_one_violation() -> None:
    g = og.init(fresh_memory(), schema="node T { v: String @key @unique }")
    with pytest.raises(og.errors.ConstraintViolation) as caught:
        g.load({"T": [{"v": "a"}, {"v": "a"}]})
    assert len(caught.value.violations) == 1
