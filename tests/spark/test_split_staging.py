"""Loads whose splits are done apart, here in this process: the same graph, counts and refusals as done at once."""

from __future__ import annotations

import json
import pickle
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lance.fragment import write_fragments

from omnigraph.errors import Conflict, ConstraintViolation, InvalidInput
from omnigraph.graph.recovery.scratch_files import PREFIX, ScratchFolder
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.load.distributed import load_job
from omnigraph.load.load import LoadResult
from omnigraph.load.split_staging import SPLIT_SHIFT, IndexTask, LoadJob, SplitReport, stage_split
from omnigraph.maintain.cleanup import cleanup
from omnigraph.rules import set_queries as queries
from omnigraph.rules.load_mode import WriteMode
from omnigraph.rules.violations import MAX_REPORTED
from omnigraph.sources import splits
from omnigraph.sources.rejects import Reject
from omnigraph.sources.splits import Split, plan_splits
from omnigraph.store.tables import fragment_writer
from omnigraph.store.tables.table_indexes import list_indexes
from tests.catalog.test_identity import catalog_of
from tests.load.loads import image, load
from tests.spark.loads import (
    CATALOG,
    MODES,
    SCHEMA,
    Record,
    apart,
    backwards_and_twice,
    begun,
    compared,
    firm,
    knows,
    leads,
    note,
    one_by_one,
    opened,
    person,
    text_of,
)
from tests.support.workers import ROOT


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return begun(tmp_path_factory.mktemp("staging"))


@pytest.fixture
def graph(tmp_path: Path) -> Repository:
    return begun(tmp_path)


# --- the same as at once ------------------------------------------------------------------------------------

names = st.integers(0, 9).map(lambda number: f"p{number}")
ends = st.sampled_from(["p0", "p1", "p2", "p0", "p1", "p2", "p3"])
firms = st.integers(0, 9).map(lambda number: f"f{number}")
records = st.one_of(
    st.builds(
        lambda name, age, mail: person(name, age=age, mail=mail),
        names,
        st.sampled_from([None, 1, 2, 3, 150]),
        st.sampled_from([None, None, None, "m0", "n0", "n1", "n2"]),
    ),
    st.builds(firm, firms),
    st.builds(lambda text: {"type": "Note", "data": {"text": text}}, st.text("a\u00e9\n", max_size=3)),
    st.builds(knows, st.integers(0, 9).map(lambda n: f"k{n}"), ends, ends),
    st.builds(leads, st.integers(0, 9).map(lambda n: f"l{n}"), ends, st.sampled_from(["f0", "f1"])),
)
faults = st.sampled_from(
    ["{", '{"type":"Nobody","data":{}}', json.dumps(person("bad", age=-1)), json.dumps(person("p1", age=900))]
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    given_=st.lists(records, max_size=9),
    wrong=st.lists(st.tuples(st.integers(0, 9), st.one_of(st.just(""), faults)), max_size=2),
    mode=st.sampled_from(MODES),
    rejecting=st.booleans(),
    split_bytes=st.integers(15, 250),
)
def test_load_in_splits_equals_load_at_once(
    shared: Repository,
    tmp_path: Path,
    given_: list[Record],
    wrong: list[tuple[int, str]],
    mode: WriteMode,
    rejecting: bool,
    split_bytes: int,
) -> None:
    lines: list[Record | str] = list(given_)
    for place, line in wrong:
        lines.insert(place, line)
    path = tmp_path / "in.jsonl"
    path.write_text(text_of(lines), encoding="utf-8")
    compared(shared, path, mode, rejecting=rejecting, split_bytes=split_bytes, run=backwards_and_twice)


@pytest.mark.parametrize("split_bytes", [40, 10_000])
def test_load_in_splits_with_rejects_leaves_out_edges_of_rejected_nodes(
    shared: Repository, tmp_path: Path, split_bytes: int
) -> None:
    path = tmp_path / "in.jsonl"
    people = [person("a", age=900), person("b", mail="m"), person("c", mail="m"), person("b"), person("d")]
    edges = [knows("x", "a", "b"), knows("y", "b", "c"), knows("z", "b", "d"), knows("z", "d", "b")]
    path.write_text(text_of([*people, *edges]), encoding="utf-8")
    found = compared(shared, path, "append", rejecting=True, split_bytes=split_bytes)
    assert found.outcome is not None
    assert (found.outcome.nodes, found.outcome.edges) == ({"Person": 2}, {"Knows": 1})
    assert [(item["line"], item["rule"]) for item in found.rejects] == [
        (1, "range"),
        (3, "unique"),
        (4, "unique"),
        (6, "endpoint"),
        (7, "endpoint"),
        (9, "unique"),
    ]


def test_load_in_splits_keeps_the_last_record_of_an_id(shared: Repository, tmp_path: Path) -> None:
    edges = [
        knows("new", "p0", "p1"),
        knows("k0", "p0", "p0"),
        knows("x", "p1", "p2"),
        knows("new", "p0", "p0"),
        knows("new", "p2", "p1"),
    ]
    path = tmp_path / "in.jsonl"
    path.write_text(text_of([*edges, knows("k0", "p2", "p2"), knows("y", "p0", "p2")]), encoding="utf-8")
    for split_bytes in (10, 60, 130, 10_000):
        found = compared(shared, path, "merge", split_bytes=split_bytes).outcome
        assert found is not None
        assert (found.superseded, found.edges) == (3, {"Knows": 4})
        assert found.affected == {"edge:Knows": {"inserted": 3, "updated": 1, "deleted": 0}}


def test_merge_key_repeated_in_other_splits_is_a_violation_of_each_later_line(
    shared: Repository, tmp_path: Path
) -> None:
    path = tmp_path / "in.jsonl"
    people = [person("b"), person("a", mail="m"), person("b"), person("c", mail="m"), person("b")]
    path.write_text(text_of(people), encoding="utf-8")
    for split_bytes in (10, 60, 10_000):
        error = compared(shared, path, "merge", split_bytes=split_bytes).error
        assert error is not None
        assert [(item["line"], item["id"], item["held_by"]) for item in error[5]] == [
            (3, "b", "b"),
            (5, "b", "b"),
            (4, "c", "a"),
        ]


@pytest.mark.parametrize("split_bytes", [130, 10_000])
def test_load_in_splits_removes_superseded_records_of_every_fragment(
    shared: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split_bytes: int
) -> None:
    monkeypatch.setattr(fragment_writer, "write_fragments", partial(write_fragments, max_rows_per_file=2))
    path = tmp_path / "in.jsonl"
    notes = [note(f"q{number % 7}", str(number)) for number in range(15)]
    path.write_text(text_of(notes), encoding="utf-8")
    written: list[int] = []

    def counted(items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
        found = one_by_one(items, work)
        reports = [item for item in found if isinstance(item, SplitReport)]
        written.extend(len(part.fragments) for item in reports for part in item.written.values())
        return found

    done = compared(shared, path, "merge", split_bytes=split_bytes, run=counted).outcome
    assert done is not None
    assert done.superseded == 8
    assert max(written) > 1


def test_load_in_splits_indexes_ids_and_endpoints_in_tasks(graph: Repository, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(text_of([person("a"), person("b"), knows("k", "a", "b")]), encoding="utf-8")
    indexed: list[str] = []

    def noted(items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
        indexed.extend(item.column for item in items if isinstance(item, IndexTask))
        return one_by_one(items, work)

    assert apart(graph, path, "merge", run=noted).error is None
    assert sorted(indexed) == ["dst", "id", "id", "src"]
    snapshot = graph.snapshot()
    for key, rows in (
        ("node:Person", snapshot.pin("node:Person").rows),
        ("edge:Knows", snapshot.pin("edge:Knows").rows),
    ):
        found = list_indexes(snapshot.tables, snapshot.pin(key))
        assert {item.columns[0] for item in found} == (
            {"id"} if key.startswith("node") else {"id", "src", "dst"}
        )
        assert {item.rows for item in found} == {rows}


def test_split_with_only_superseded_records_leaves_no_row(shared: Repository, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(
        text_of([note("a", "1"), note("b", "1"), note("a", "2"), note("b", "2")]), encoding="utf-8"
    )
    found = compared(shared, path, "merge", split_bytes=60).outcome
    assert found is not None
    assert found.superseded == 2


@pytest.mark.parametrize("mode", MODES)
def test_load_in_splits_of_many_files_reports_file_and_line(
    shared: Repository, tmp_path: Path, mode: WriteMode
) -> None:
    (tmp_path / "a.jsonl").write_text(
        text_of([person("x"), "", knows("k8", "x", "nobody")]), encoding="utf-8"
    )
    (tmp_path / "b.jsonl").write_text(
        text_of([person("y"), person("z"), knows("k9", "y", "no one")]), encoding="utf-8"
    )
    found = compared(shared, tmp_path, mode, split_bytes=50)
    assert found.error is not None
    told_of = {item["id"]: item for item in found.error[5] if item["rule"] == "endpoint"}
    for id_, name in {"k8": "a.jsonl", "k9": "b.jsonl"}.items():
        assert (told_of[id_]["line"], Path(told_of[id_]["source"]).name) == (3, name)


def test_load_in_splits_reports_lines_and_counts_all_violations(shared: Repository, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(
        text_of(person(f"q{number:03}", age=-1) for number in range(MAX_REPORTED + 5)), encoding="utf-8"
    )
    found = compared(shared, path, "merge", split_bytes=500)
    assert found.error is not None
    assert found.error[0] is ConstraintViolation
    assert [item["line"] for item in found.error[5]] == list(range(1, MAX_REPORTED + 1))
    assert found.error[4]["violations"] == MAX_REPORTED + 5


@pytest.mark.parametrize("line", ["{", '{"type":"Person","data":{"name":7}}', '{"type":"Nobody","data":{}}'])
def test_unreadable_line_in_a_late_split_is_reported_with_its_number(
    shared: Repository, tmp_path: Path, line: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(text_of([*(person(f"q{number}") for number in range(11)), line, "{"]), encoding="utf-8")
    found = compared(shared, path, "append", split_bytes=70)
    assert found.error is not None
    assert re.search(r"line 12\b", found.error[1])
    rejected = compared(shared, path, "append", rejecting=True, split_bytes=70).rejects
    assert [item["line"] for item in rejected] == [12, 13]
    assert all(re.search(rf"line {item['line']}\b", item["error"]) for item in rejected)


@pytest.mark.parametrize("text", ["", "\n \n\n"])
@pytest.mark.parametrize("mode", MODES)
def test_load_in_splits_of_empty_input_makes_an_empty_commit(
    shared: Repository, tmp_path: Path, mode: WriteMode, text: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(text, encoding="utf-8")
    found = compared(shared, path, mode, split_bytes=2)
    assert found.outcome == LoadResult()


def test_overwrite_in_splits_of_type_without_rows_empties_it(shared: Repository, tmp_path: Path) -> None:
    path = tmp_path / "knows.csv"
    path.write_text("id,from,to\n", encoding="utf-8")
    found = compared(shared, {"Knows": path}, "overwrite").outcome
    assert found is not None
    assert found.affected == {"edge:Knows": {"inserted": 0, "updated": 0, "deleted": 2}}


# --- tables per type ----------------------------------------------------------------------------------------


def people_in_groups(path: Path, ages: Sequence[int | None]) -> None:
    """A Parquet file with two people in each row group."""
    rows = pa.table(
        {"name": [f"q{number}" for number in range(len(ages))], "age": pa.array(ages, pa.int64())}
    )
    pq.write_table(rows, path, row_group_size=2)


@pytest.fixture
def in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row group is a split of its own."""
    monkeypatch.setattr(splits, "_SPLIT_ROWS", 1)


@pytest.mark.usefixtures("in_groups")
@pytest.mark.parametrize("mode", MODES)
def test_load_in_splits_of_parquet_and_csv_tables_loads_the_rows(
    shared: Repository, tmp_path: Path, mode: WriteMode
) -> None:
    people_in_groups(tmp_path / "a.parquet", range(7))
    knows_csv, leads_csv = tmp_path / "knows.csv", tmp_path / "leads.csv"
    knows_csv.write_text("id,from,to\nk8,q0,q6\nk9,q6,q1\n", encoding="utf-8")
    leads_csv.write_text("id,from,to\nl8,q2,f0\n", encoding="utf-8")
    source = {"Knows": knows_csv, "Person": tmp_path / "a.parquet", "edge:Leads": leads_csv}
    assert len(plan_splits(source, CATALOG, {})) == 6
    found = compared(shared, source, mode, run=backwards_and_twice).outcome
    assert found is not None
    assert (found.nodes, found.edges) == ({"Person": 7}, {"Knows": 2, "Leads": 1})


@pytest.mark.usefixtures("in_groups")
def test_violation_in_a_late_row_group_reports_the_row_of_the_file(
    shared: Repository, tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    people_in_groups(path, [1, 2, 3, 4, 5, 900])
    broken = compared(shared, {"Person": path}, "append")
    assert broken.error is not None
    assert [item["line"] for item in broken.error[5]] == [6]
    left = compared(shared, {"Person": path}, "append", rejecting=True)
    assert [item["line"] for item in left.rejects] == [6]


@pytest.mark.usefixtures("in_groups")
@pytest.mark.parametrize("rejecting", [False, True])
def test_invalid_value_in_a_late_row_group_reports_the_row_of_the_file(
    shared: Repository, tmp_path: Path, rejecting: bool
) -> None:
    path = tmp_path / "a.parquet"
    people_in_groups(path, [1, 2, 3, 4, 5, 2**40])
    found = compared(shared, {"Person": path}, "append", rejecting=rejecting)
    message = f"{path}: {found.rejects[0]['error']}" if rejecting else (found.error or ("", ""))[1]
    assert message.startswith(f"{path}: Person row 6, column 'age': ")


@pytest.mark.parametrize(
    "damaged",
    [lambda data: data[:3], lambda data: data[:40], lambda data: data[:4] + bytes(60) + data[64:]],
    ids=["too short", "no footer", "no pages"],
)
def test_damaged_parquet_file_raises_the_same_error_in_splits(
    shared: Repository, tmp_path: Path, damaged: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "a.parquet"
    people_in_groups(path, range(3))
    path.write_bytes(damaged(path.read_bytes()))
    assert compared(shared, {"Person": path}, "append").error is not None


def test_empty_table_with_unknown_column_is_refused(shared: Repository, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"nmae": pa.array([], pa.string())}), path)
    assert compared(shared, {"Person": path}, "append").error is not None


def test_error_quoting_a_value_like_a_line_number_keeps_the_value(shared: Repository, tmp_path: Path) -> None:
    """A value is quoted in what is said about it, and may read like a place."""
    path = tmp_path / "in.jsonl"
    odd = '{"type":"at line 1: at line 2: x","data":{}}'
    path.write_text(text_of([*(person(f"q{number}") for number in range(11)), odd]), encoding="utf-8")
    for split_bytes in (60, 10_000):
        compared(shared, path, "append", split_bytes=split_bytes)
        compared(shared, path, "append", rejecting=True, split_bytes=split_bytes)


# --- a branch that moves ------------------------------------------------------------------------------------


def test_load_in_splits_after_concurrent_commit_is_checked_again_and_not_read_again(
    graph: Repository, tmp_path: Path
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(text_of([person("p0", age=9), person("new", age=8)]), encoding="utf-8")
    runs: list[int] = []

    def counted(items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
        runs.extend([len(items)] if isinstance(items[0], Split) else [])
        return one_by_one(items, work)

    updated: list[int] = []
    with opened(graph, path, "merge", run=counted) as found:

        def prepare(transaction: Transaction) -> Prepared[LoadResult]:
            done = found.prepare(transaction)
            if not updated:
                load(graph, {"node:Person": [{"id": "new", "name": "new"}]}, "append")
            updated.append(done.result.affected["node:Person"]["updated"])
            return done

        graph.write("main", WriteRequest("load", bulk=True), prepare)
    assert (len(runs), updated) == (1, [1, 2])
    people = {row["id"]: row["age"] for row in image(graph)["node:Person"]}
    assert people == {"new": 8, "p0": 9, "p1": 1, "p2": 2}


@pytest.mark.parametrize(
    "attempt",
    [
        1,
        2,
    ],
)
def test_cleanup_before_the_commit_keeps_staged_rows_of_tasks(
    graph: Repository, tmp_path: Path, attempt: int
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(text_of([person("new", age=8)]), encoding="utf-8")
    uri = graph.location.uri
    tries: list[int] = []
    with opened(graph, path, "merge") as found:

        def prepare(transaction: Transaction) -> Prepared[LoadResult]:
            done = found.prepare(transaction)
            tries.append(len(tries) + 1)
            if tries[-1] == attempt:
                # However long a grace is, a load may have begun before it.
                cleanup(Repository.open(uri), keep=100, confirm=True, grace=timedelta(0))
            else:
                load(graph, {"node:Person": [{"id": "rival", "name": "rival"}]}, "append")
            return done

        graph.write("main", WriteRequest("load", bulk=True), prepare)
    assert tries == list(range(1, attempt + 1))
    people = {row["id"]: row["age"] for row in image(Repository.open(uri))["node:Person"]}
    assert people.pop("rival", None) is None
    assert people == {"new": 8, "p0": 0, "p1": 1, "p2": 2}


def test_overwrite_in_splits_after_concurrent_commit_is_refused(graph: Repository, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(text_of([knows("k9", "p0", "p0")]), encoding="utf-8")
    with opened(graph, path, "overwrite") as found:

        def prepare(transaction: Transaction) -> Prepared[LoadResult]:
            done = found.prepare(transaction)
            load(graph, {"edge:Knows": [{"id": "rival", "src": "p0", "dst": "p1"}]}, "append")
            return done

        with pytest.raises(Conflict):
            graph.write("main", WriteRequest("load", bulk=True), prepare)
    assert [row["id"] for row in image(graph)["edge:Knows"]] == ["k0", "k1", "rival"]


def test_schema_change_after_staging_raises_conflict(graph: Repository, tmp_path: Path) -> None:
    other = Repository.init(
        str(tmp_path / "other"), catalog_of(SCHEMA.replace("age: I32?", "age: I64?")), durability="os"
    )
    path = tmp_path / "in.jsonl"
    path.write_text(text_of([person("new")]), encoding="utf-8")
    with opened(graph, path, "append") as found:
        found.prepare(graph.begin())
        with pytest.raises(Conflict, match="the schema changed"):
            found.prepare(other.begin())


KILLED = """
import os, signal, sys
from omnigraph.graph.repository import Repository
from omnigraph.graph.write_request import WriteRequest
from tests.spark.loads import opened

graph = Repository.open(sys.argv[1])
with opened(graph, sys.argv[2], "merge") as found:
    def prepare(transaction):
        found.prepare(transaction)
        os.kill(os.getpid(), signal.SIGKILL)
    graph.write("main", WriteRequest("load", bulk=True), prepare)
"""


def test_load_in_splits_killed_after_staging_leaves_the_graph_unchanged(
    graph: Repository, tmp_path: Path
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(text_of([person("p0", age=9), person("new", age=8)]), encoding="utf-8")
    before, head = image(graph), graph.head().commit.id
    there = set(graph_files(tmp_path))
    uri = graph.location.uri
    done = subprocess.run([sys.executable, "-c", KILLED, uri, str(path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    left = graph_files(tmp_path) - there
    assert left
    assert Repository.open(uri, mode="r").intents.pending()
    again = Repository.open(uri)
    assert (image(again), again.head().commit.id) == (before, head)
    found = apart(again, path, "merge").outcome
    assert found is not None
    assert found.affected == {"node:Person": {"inserted": 1, "updated": 1, "deleted": 0}}
    assert not again.intents.pending()
    after = image(again)
    cleanup(again, keep=100, confirm=True, grace=timedelta(0))
    assert not left & graph_files(tmp_path)
    assert image(Repository.open(uri)) == after


def graph_files(folder: Path) -> set[Path]:
    """The files with rows."""
    return set((folder / "graph").rglob("data/*.lance"))


# --- one split ----------------------------------------------------------------------------------------------


@pytest.fixture
def job(graph: Repository) -> LoadJob:
    return load_job(graph.snapshot(), ScratchFolder(graph.location.uri), "os")


def plan_of(folder: Path, lines: Iterable[Record | str], split_bytes: int = 1 << 20) -> list[Split]:
    path = folder / "in.jsonl"
    path.write_text(text_of(lines), encoding="utf-8")
    return plan_splits(path, CATALOG, {}, split_bytes)


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_staged_split_reports_rows_fragments_and_keys(
    graph: Repository, job: LoadJob, tmp_path: Path
) -> None:
    lines: list[Record | str] = [person("a", age=1, mail="x"), "", knows("k9", "a", "b"), person("b")]
    (only,) = plan_of(tmp_path, lines)
    split = replace(only, number=7)
    report = stage_split(job, split)
    assert (report.lines, report.error, bool(report.violations), report.rejected) == (4, None, False, 0)
    assert {key: written.rows for key, written in report.written.items()} == {
        "node:Person": 2,
        "edge:Knows": 1,
    }
    people = report.written["node:Person"]
    (found,) = people.fragments
    assert found.decode().physical_rows == found.rows == 2
    pin = job.pins["node:Person"]
    staged = graph.tables.stage_fragments(pin, [found])
    assert (staged.rows, staged.inserted, staged.deleted) == (5, 2, 0)
    ids = graph.tables.open(pin.path, staged.version).to_table(columns=["id"])["id"].to_pylist()
    assert ids == ["p0", "p1", "p2", "a", "b"]
    assert people.keys is not None
    keys = pq.read_table(job.scratch.open_read(people.keys))
    assert keys["id"].to_pylist() == ["a", "b"]
    assert keys[queries.PLACE].to_pylist() == [1, 4]
    assert keys[queries.SOURCE].to_pylist() == [7, 7]
    assert keys[queries.POSITION].to_pylist() == [7 << SPLIT_SHIFT, (7 << SPLIT_SHIFT) + 1]
    assert pickle.loads(pickle.dumps(report)) == report


def test_split_with_unreadable_line_writes_nothing(job: LoadJob, tmp_path: Path) -> None:
    (split,) = plan_of(tmp_path, [person("a"), "{", person("b")])
    before = files(tmp_path)
    report = stage_split(job, split)
    (invalid,) = report.invalid.listed
    assert isinstance(invalid.error, InvalidInput)
    assert invalid.error.details["line"] == 2
    assert not report.written
    assert files(tmp_path) == before


def test_split_with_rule_violation_writes_nothing(job: LoadJob, tmp_path: Path) -> None:
    (split,) = plan_of(tmp_path, [person("a"), person("b", age=-1), person("c", age=151)])
    before = files(tmp_path)
    report = stage_split(job, split)
    assert report.error is None
    assert [(item.id, item.details["line"]) for item in report.violations] == [("b", 2), ("c", 3)]
    assert not report.written
    assert files(tmp_path) == before


def test_split_with_rejects_records_them_and_writes_the_rest(job: LoadJob, tmp_path: Path) -> None:
    (split,) = plan_of(tmp_path, [person("a"), "{", person("b", age=-1), person("\u00e9")])
    report = stage_split(replace(job, keep_rejects=True), split)
    assert (report.rejected, report.written["node:Person"].rows, report.error) == (2, 2, None)
    assert report.rejects is not None
    rejects = [Reject.from_state(json.loads(line)) for line in job.scratch.open_read(report.rejects)]
    assert sorted(item.place for item in rejects) == [2, 3]


def test_second_attempt_of_a_split_keeps_the_files_of_the_first(job: LoadJob, tmp_path: Path) -> None:
    (split,) = plan_of(tmp_path, [person("a"), "{", knows("k9", "a", "a")])
    again = replace(job, keep_rejects=True)
    first = stage_split(again, split)
    before = files(tmp_path)
    second = stage_split(again, split)
    after = files(tmp_path)
    assert {path: after.get(path) for path in before} == before
    for key, written in first.written.items():
        assert written.keys != second.written[key].keys
        assert not set(written.fragments) & set(second.written[key].fragments)
    assert first.rejects != second.rejects


def test_load_in_splits_committed_or_refused_leaves_no_temporary_file(
    graph: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = tmp_path / "temporary"
    local.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(local))
    shared = tmp_path / "graph" / PREFIX
    there = graph_files(tmp_path)
    seen: list[bool] = []

    def looked_at(items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
        found = one_by_one(items, work)
        if isinstance(items[0], Split):
            seen.append(any(shared.rglob("*.parquet")) and graph_files(tmp_path) > there)
        return found

    path = tmp_path / "in.jsonl"
    path.write_text(text_of([person("a"), knows("k9", "a", "nobody")]), encoding="utf-8")
    assert apart(graph, path, "append", run=looked_at).error is not None
    assert graph_files(tmp_path) == there
    path.write_text(text_of([person("a")]), encoding="utf-8")
    assert apart(graph, path, "append", run=looked_at).error is None
    assert seen == [True, True]
    assert list(local.iterdir()) == list(shared.iterdir()) == []
    assert not graph.intents.pending()
