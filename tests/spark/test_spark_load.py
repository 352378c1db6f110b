"""`Graph.load` on Spark gives what it gives in this process: the graph, the counts, and what is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation, InvalidInput, OmnigraphError
from omnigraph.maintain.cleanup import cleanup
from omnigraph.rules.load_mode import LoadMode
from omnigraph.sources import splits
from tests.spark.loads import BEFORE, MODES, SCHEMA, Record, firm, knows, leads, note, person, text_of
from tests.support.places import fresh_memory
from tests.support.s3 import Bucket
from tests.support.workers import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.support.s3_fixtures"]
pytestmark = pytest.mark.spark

PEOPLE = 60
# A driver that is killed when its tasks are done, before anything of theirs is in a table.
KILLED = """
import os, signal, sys
import omnigraph as og

graph, source = sys.argv[1:]
def progress(stage, rows):
    if stage == "check":
        os.kill(os.getpid(), signal.SIGKILL)
og.open(graph).load(source, "merge", engine="spark", spark="local[2]", progress=progress)
"""


@pytest.fixture(autouse=True)
def _small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "plan_splits", partial(splits.plan_splits, split_bytes=900))
    monkeypatch.setattr(splits, "_SPLIT_ROWS", 1)


@pytest.fixture
def graph(tmp_path: Path) -> og.LocalGraph:
    made = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    made.load(BEFORE)
    for name in ("local", "spark"):
        made.branches.create(name)
    return made


def saved(folder: Path, records: list[Record | str], name: str = "in.jsonl") -> Path:
    path = folder / name
    path.write_text(text_of(records), encoding="utf-8")
    return path


def lines(graph: og.LocalGraph, branch: str = "main") -> list[Any]:
    """What a branch exports, without the ids that a load made up."""
    written = StringIO()
    graph.export(written, branch=branch)
    found = [json.loads(line) for line in written.getvalue().splitlines()]
    for item in found:
        if item.get("type") == "Note":
            del item["data"]["id"]
    return sorted(found, key=str)


def said(graph: og.LocalGraph, source: Any, mode: LoadMode, engine: Any, **options: Any) -> Any:
    """What a load on the branch of its engine reports."""
    try:
        done = graph.load(source, mode, branch=engine, engine=engine, **options)
    except OmnigraphError as error:
        return type(error), error.message, error.details, error.hint, getattr(error, "violations", None)
    assert set(done.seconds) >= {"read", "check", "stage"}
    if not done.dry_run:
        assert done.commit is not None
        assert done.commit.operation == "load"
        assert "publish" in done.seconds
    assert done.engine == engine
    # Whether bytes are asked for depends on who needs to know.
    return replace(done, commit=None, seconds={}, branch="", engine="local", bytes=None)


def compared(graph: og.LocalGraph, source: Any, mode: LoadMode, spark: SparkSession, **options: Any) -> Any:
    """What both engines say, having left the same graph."""
    wanted = said(graph, source, mode, "local", **options)
    found = said(graph, source, mode, "spark", spark=spark, **options)
    assert found == wanted
    assert lines(graph, "spark") == lines(graph, "local")
    return found


@pytest.mark.parametrize("mode", MODES)
def test_load_by_both_engines_makes_the_same_graph(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path, mode: LoadMode
) -> None:
    records: list[Record | str] = [knows(f"k{n + 9}", f"q{n}", f"q{(n * 7) % PEOPLE}") for n in range(PEOPLE)]
    records += [person(f"q{n}", age=n, mail=f"q{n}") for n in range(PEOPLE)]
    records += [{"type": "Note", "data": {"text": f"\u00e9 {n}", "vec": [n, 0.5]}} for n in range(20)]
    records += ["", leads("l9", "q0", "f0"), leads("l8", "q0", "new"), firm("new")]
    if mode == "merge":
        # Each is replaced from another split, the last by a row that was there before.
        records = [*(knows(f"k{n + 9}", "p0", "p1") for n in range(PEOPLE)), *records]
        records += [knows("k10", "q3", "q3"), knows("k0", "p0", "p0"), knows("k0", "p1", "p1")]
        records += [person("p0", age=4)]
    if mode == "overwrite":
        records += [firm("f0")]
    found = compared(graph, saved(tmp_path, records), mode, spark)
    assert found.superseded == (PEOPLE + 2 if mode == "merge" else 0)
    assert found.edges == {"Knows": PEOPLE + (mode == "merge"), "Leads": 2}
    assert found.nodes["Person"] == (PEOPLE + 1 if mode == "merge" else PEOPLE)


def test_invalid_load_by_both_engines_raises_the_same_error(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    people = [person(f"q{n}", mail=f"q{n}") for n in range(30)]
    late: dict[str, tuple[LoadMode, list[Record | str]]] = {
        "endpoint": ("append", [knows("k9", "q0", "nobody"), knows("k8", "q29", "q0")]),
        "unique": ("merge", [person("r", mail="q3"), person("s", mail="m0")]),
        "key": ("append", [person("p0"), person("p1")]),
        "cardinality": ("append", [leads("l7", "p0", "f0"), leads("l8", "q1", "f0")]),
        "range": ("merge", [person("r", age=-1), person("s", age=151)]),
        "orphan": ("overwrite", [person("p0")]),
    }
    for rule, (mode, records) in late.items():
        path = saved(tmp_path, [*people, *records], f"{rule}.jsonl")
        kind, _, _, _, violations = compared(graph, path, mode, spark)
        assert kind is ConstraintViolation
        assert rule in {item["rule"] for item in violations} or rule == "cardinality"
    kind, message, *_ = compared(graph, saved(tmp_path, [*people, "{", "["]), "append", spark)
    assert kind is InvalidInput
    assert "at line 31:" in message
    assert lines(graph, "spark") == lines(graph)


def test_load_with_rejects_by_both_engines_rejects_the_same_records(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    records: list[Record | str] = [person(f"q{n}", age=n * 4 - 3) for n in range(50)]
    records.insert(33, "{")
    path = saved(tmp_path, records)
    found: dict[str, list[Any]] = {"local": [], "spark": []}
    for engine, rejects in found.items():
        options = {"spark": spark} if engine == "spark" else {}
        done = said(graph, path, "append", engine, rejects=rejects.append, **options)
        assert (done.rejected, done.nodes) == (len(rejects), {"Person": 51 - len(rejects)})
    assert [item["line"] for item in found["spark"]] == sorted(item["line"] for item in found["local"])
    assert sorted(found["spark"], key=str) == sorted(found["local"], key=str)
    assert lines(graph, "spark") == lines(graph, "local")


def test_spark_load_of_tables_per_type_creates_a_branch(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    pq.write_table(
        pa.table({"name": [f"q{n}" for n in range(9)]}), tmp_path / "people.parquet", row_group_size=2
    )
    (tmp_path / "knows.csv").write_text("id,from,to\nk7,q8,q0\n", encoding="utf-8")
    (tmp_path / "leads.csv").write_text("id,from,to\n", encoding="utf-8")
    source = {
        "Knows": tmp_path / "knows.csv",
        "Person": str(tmp_path / "*.parquet"),
        "Leads": tmp_path / "leads.csv",
    }
    compared(graph, source, "overwrite", spark)
    done = graph.load(
        source, "overwrite", branch="etl", create_from="main", engine="spark", spark=spark, actor="etl"
    )
    assert (done.branch_created, done.branch, done.nodes) == (True, "etl", {"Person": 9})
    assert done.affected["Leads"] == {"inserted": 0, "updated": 0, "deleted": 3}
    assert graph.commits("etl")[0].actor == "etl"
    assert lines(graph, "etl") == lines(graph, "local")


def test_spark_load_of_empty_file_makes_an_empty_commit(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    found = compared(graph, saved(tmp_path, []), "merge", spark)
    assert found.total == 0
    assert graph.commits("spark")[0].operation == "load"


def test_spark_load_from_relative_path_uses_the_working_directory(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, [person("new")])
    monkeypatch.chdir(tmp_path)
    assert compared(graph, "in.jsonl", "append", spark).nodes == {"Person": 1}


def test_spark_load_into_memory_graph_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    graph = og.init(fresh_memory(), schema=SCHEMA)
    with pytest.raises(InvalidInput, match="memory"):
        graph.load(saved(tmp_path, [person("new")]), engine="spark", spark=spark)


def test_spark_load_of_source_that_is_not_a_file_is_refused(
    graph: og.LocalGraph, spark: SparkSession
) -> None:
    with pytest.raises(InvalidInput, match="Spark loads files"):
        graph.load([person("new")], engine="spark", spark=spark)
    assert graph.load([person("new")], engine="auto", spark=spark).nodes == {"Person": 1}


def test_spark_load_from_bucket_into_bucket_commits_the_rows(s3: Bucket, spark: SparkSession) -> None:
    graph = og.init(f"{s3.uri}/graph", schema=SCHEMA, storage_options=s3.options)
    for name in ("local", "spark"):
        graph.branches.create(name)
    records: list[Record | str] = [note(f"n{n % 25}", str(n)) for n in range(40)]
    records += [person("q0"), person("q24")]
    s3.server.objects.put(s3.name, "in/a.jsonl", text_of(records).encode())
    s3.server.objects.put(s3.name, "in/b.jsonl", text_of([knows("k0", "q0", "q24")]).encode())
    found = compared(graph, f"{s3.uri}/in/", "merge", spark)
    assert (found.superseded, found.total) == (15, 28)


@pytest.mark.long
def test_spark_load_with_killed_driver_leaves_the_graph_unchanged(
    graph: og.LocalGraph, tmp_path: Path
) -> None:
    path = saved(tmp_path, [person("new"), person("p0", age=99)])
    before, head = lines(graph), graph.commits()[0].id
    files = set((tmp_path / "graph").rglob("*.lance"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path / "graph"), str(path)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = set((tmp_path / "graph").rglob("*.lance")) - files
    assert left
    again = og.open(str(tmp_path / "graph"))
    repository = again._repository
    assert (lines(again), again.commits()[0].id) == (before, head)
    assert again.load(path, "merge").affected == {"Person": {"inserted": 1, "updated": 1, "deleted": 0}}
    assert not repository.intents.pending()
    after = lines(again)
    cleanup(repository, keep=100, confirm=True, grace=timedelta(0))
    assert not any(file.exists() for file in left)
    assert lines(og.open(str(tmp_path / "graph"))) == after


# --- DataFrames ---------------------------------------------------------------------------------------------


def frames_of(spark: SparkSession) -> dict[str, Any]:
    people = [(f"q{n}", n, f"q{n}") for n in range(PEOPLE)]
    edges = [(f"q{n}", f"q{(n * 7) % PEOPLE}", f"k{n + 9}") for n in range(PEOPLE)]
    return {
        "Person": spark.createDataFrame(people, "name string, age int, mail string").repartition(3),
        "Knows": spark.createDataFrame(edges, "`from` string, `to` string, id string"),
    }


@pytest.mark.parametrize("mode", MODES)
def test_load_of_dataframes_equals_load_of_the_same_rows(
    graph: og.LocalGraph, spark: SparkSession, mode: LoadMode
) -> None:
    frames = frames_of(spark)
    if mode == "overwrite":
        frames["Leads"] = spark.createDataFrame([("q0", "f0", "l9")], "`from` string, `to` string, id string")
    tables = {name: frame.toArrow() for name, frame in frames.items()}
    wanted = said(graph, tables, mode, "local")
    found = said(graph, frames, mode, "spark")
    assert found == wanted
    assert lines(graph, "spark") == lines(graph, "local")


def test_load_of_dataframe_file_and_spark_table_is_one_commit(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    frames = frames_of(spark)
    firms = tmp_path / "firms.csv"
    firms.write_text("name\nnew\n", encoding="utf-8")
    frames["Knows"].createOrReplaceTempView("knows_of_a_test")
    done = graph.load({"Person": frames["Person"], "Firm": str(firms), "Knows": "table:knows_of_a_test"})
    assert (done.engine, done.nodes, done.edges) == (
        "spark",
        {"Firm": 1, "Person": PEOPLE},
        {"Knows": PEOPLE},
    )
    assert graph.get("Firm", "new") is not None
    assert len(graph.commits()) == 3


def test_load_with_two_sources_of_one_type_loads_both(graph: og.LocalGraph, spark: SparkSession) -> None:
    def frame(*names: str) -> Any:
        return spark.createDataFrame([(name, None) for name in names], "name string, age int").coalesce(1)

    done = graph.load(
        {"Person": frame("x", "y"), "node:Person": frame("w", "z"), "Firm": frame("f").drop("age")}, "merge"
    )
    assert done.nodes == {"Firm": 1, "Person": 4}


def test_load_of_invalid_dataframe_row_raises_the_error_of_a_table(
    graph: og.LocalGraph, spark: SparkSession
) -> None:
    frame = spark.createDataFrame([("a", 5), ("b", 500), ("c", -1)], "name string, age int").coalesce(1)
    wanted = said(graph, {"Person": frame.toArrow()}, "append", "local")
    kind, message, _, _, violations = said(graph, {"Person": frame}, "append", "spark")
    assert (kind, message) == (ConstraintViolation, wanted[1])
    assert [item["id"] for item in violations] == [item["id"] for item in wanted[4]] == ["b", "c"]
    found: list[Any] = []
    done = graph.load({"Person": frame}, rejects=found.append)
    assert (done.rejected, done.nodes, sorted(item["line"] for item in found)) == (2, {"Person": 1}, [2, 3])


def test_local_load_of_spark_only_source_is_refused(graph: og.LocalGraph, spark: SparkSession) -> None:
    frames = frames_of(spark)
    with pytest.raises(InvalidInput, match="only Spark loads"):
        graph.load(frames, engine="local")
    with pytest.raises(InvalidInput, match="cannot load from Table"):
        graph.load({**frames, "Firm": pa.table({"name": ["x"]})})


# --- dry runs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_dry_run_on_spark_reports_the_load_and_commits_nothing(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path, mode: LoadMode
) -> None:
    records: list[Record | str] = [person("p0", age=8), person("new"), firm("f0"), firm("f1")]
    path = saved(tmp_path, records if mode != "append" else [person("new")])
    if mode == "overwrite":
        path = saved(tmp_path, [knows("k5", "p0", "p2"), knows("k0", "p1", "p1")])
    files = {item for item in (tmp_path / "graph").rglob("*") if item.is_file()}
    dry = compared(graph, path, mode, spark, dry_run=True)
    assert (dry.commit, dry.dry_run) == (None, True)
    assert {item for item in (tmp_path / "graph").rglob("*") if item.is_file()} == files
    done = compared(graph, path, mode, spark)
    assert replace(dry, dry_run=False) == done


def test_dry_run_on_spark_of_invalid_load_is_refused(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    path = saved(tmp_path, [knows("k9", "p0", "nobody")])
    kind, message, *_ = compared(graph, path, "append", spark, dry_run=True)
    assert kind is ConstraintViolation
    assert "nobody" in message


def test_cleanup_during_dry_run_on_spark_keeps_its_keys(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    def clean(stage: str, _: int) -> None:
        if stage == "check":
            cleanup(graph._repository, keep=100, confirm=True, grace=timedelta(0))

    path = saved(tmp_path, [person("new"), knows("k9", "new", "p0")])
    done = graph.load(path, engine="spark", spark=spark, dry_run=True, progress=clean)
    assert (done.nodes, done.edges, done.commit) == ({"Person": 1}, {"Knows": 1}, None)
    assert not graph._repository.intents.pending()


def test_dry_run_on_spark_into_missing_branch_creates_none(graph: og.LocalGraph, tmp_path: Path) -> None:
    path = saved(tmp_path, [person("p0", age=8)])
    done = graph.load(path, "merge", branch="later", create_from="main", dry_run=True)
    assert (done.branch, done.branch_created, done.affected["Person"]["updated"]) == ("later", False, 1)
    assert "later" not in graph.branches.list()


# --- reports ------------------------------------------------------------------------------------------------


def test_spark_load_report_has_the_counts_of_the_load(
    graph: og.LocalGraph, spark: SparkSession, tmp_path: Path
) -> None:
    path = saved(tmp_path, [person("new"), person("old", age=-1), firm("new")])
    seen: list[tuple[str, int]] = []
    done = graph.load(
        path,
        engine="spark",
        spark=spark,
        rejects=str(tmp_path / "bad"),
        progress=lambda *item: seen.append(item),
    )
    report = done.report()
    assert report["rows"] == {"nodes": {"Firm": 1, "Person": 1}, "edges": {}, "total": 2}
    assert (report["rejected"], report["bytes"], report["engine"]) == (1, path.stat().st_size, "spark")
    assert {"read", "check", "stage", "index", "publish", "total"} == set(report["seconds"])
    assert json.loads(json.dumps(report)) == report
    assert [stage for stage, _ in seen if stage != "read"] == ["check", "stage", "index"]
