"""`Graph.export` on Spark writes what it writes in this process, and leaves nothing behind that looks complete."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput, OmnigraphError, StorageError
from omnigraph.read.export import export_parts
from omnigraph.read.export.export_parts import ExportFormat
from omnigraph.store.objects.object_store import ObjectStore
from tests.read.exports import EXTERNAL, SCHEMA, files_of, fill, rows_in, source_of, text_of
from tests.support.places import fresh_memory
from tests.support.s3 import Bucket
from tests.support.workers import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.support.s3_fixtures"]
pytestmark = pytest.mark.spark

FORMS: list[ExportFormat] = ["ndjson", "parquet"]
# Parts of which some are written and then done again, because the process ends before it can say so.
DYING = """
import functools, os, sys
import omnigraph as og
from omnigraph.spark.engine import tasks
from omnigraph.spark.session import resolve_session
from omnigraph.read.export import export_parts

folder, = sys.argv[1:]
session = resolve_session(master="local[2,3]")
export_parts.plan_parts = functools.partial(export_parts.plan_parts, rows_per_part=30)
run = tasks.run_tasks


def run_tasks(spark, items, work):
    def dying(item):
        done = work(item)
        mark = os.path.join(folder, f"died-{item.name}")
        if item.table.name == "Thing" and not os.path.exists(mark):
            open(mark, "w").close()
            os._exit(7)
        return done

    return run(spark, items, dying)


tasks.run_tasks = run_tasks
og.open(os.path.join(folder, "g"), "r").export(os.path.join(folder, "out"), engine="spark", spark=session)
"""


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_parts, "plan_parts", partial(export_parts.plan_parts, rows_per_part=30))


@pytest.fixture(scope="module")
def first() -> list[str]:
    """The commit of the first load, once there is a graph."""
    return []


@pytest.fixture(scope="module")
def graph(first: list[str], tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    made = og.init(
        str(tmp_path_factory.mktemp("exports") / "g"), schema=SCHEMA, external_blobs=EXTERNAL, durability="os"
    )
    first.append(fill(made))
    return made


@pytest.mark.parametrize(
    ("form", "state"), [("ndjson", "main"), ("parquet", "main"), ("ndjson", "more"), ("parquet", "commit")]
)
def test_export_by_both_engines_writes_the_same_rows_which_load_back(
    graph: og.Graph, first: list[str], spark: SparkSession, tmp_path: Path, form: ExportFormat, state: str
) -> None:
    chosen: dict[str, Any] = {"at": first[0]} if state == "commit" else {"branch": state}
    told: list[tuple[str, int]] = []
    count = graph.export(f"{tmp_path}/local/", format=form, engine="local", **chosen)
    assert count == graph.export(
        tmp_path / "spark",
        format=form,
        engine="spark",
        spark=spark,
        progress=lambda *item: told.append(item),
        **chosen,
    )
    assert sum(rows for _, rows in told) == count
    assert files_of(tmp_path / "spark") == files_of(tmp_path / "local")
    assert rows_in(tmp_path / "spark", form) == rows_in(tmp_path / "local", form)
    copy = og.init(fresh_memory(), schema=SCHEMA, external_blobs=EXTERNAL)
    copy.load(source_of(tmp_path / "spark", form), engine="local")
    assert text_of(copy) == text_of(graph, **chosen)


def test_spark_export_to_relative_path_uses_the_working_directory(
    graph: og.Graph, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph.export("out", types=["Note"], engine="spark", spark=spark)
    assert files_of(tmp_path / "out") == ["_SUCCESS", "node-Note-00000.ndjson"]


def test_spark_export_from_or_to_memory_is_refused(
    graph: og.Graph, spark: SparkSession, tmp_path: Path
) -> None:
    for source, target in (
        (og.init(fresh_memory(), schema=SCHEMA, external_blobs=EXTERNAL), f"{tmp_path}/out/"),
        (graph, fresh_memory()),
    ):
        with pytest.raises(InvalidInput, match="out of reach for Spark"):
            source.export(target, engine="spark", spark=spark)


def test_spark_export_that_fails_keeps_the_previous_export(spark: SparkSession, tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "g"), schema=SCHEMA, external_blobs=EXTERNAL)
    fill(graph)
    graph.export(f"{tmp_path}/out/", types=["Note"])
    snapshot = graph.snapshot()
    pin = snapshot.pin("node:Thing")
    fragment = snapshot.tables.open(pin.path, pin.version).get_fragments()[0]
    file = f"{pin.path}/data/{fragment.metadata.files[0].path}"
    (tmp_path / "g" / file).unlink()
    with pytest.raises(StorageError, match=r"^node type Thing is damaged") as caught:
        graph.export(f"{tmp_path}/out/", engine="spark", spark=spark, overwrite=True)
    assert (caught.value.details["reason"], caught.value.details["file"]) == ("damaged", file)
    assert files_of(tmp_path / "out") == ["_SUCCESS", "node-Note-00000.ndjson"]


def test_spark_export_from_bucket_to_bucket_writes_the_rows(s3: Bucket, spark: SparkSession) -> None:
    graph = og.init(f"{s3.uri}/graph", schema=SCHEMA, external_blobs=EXTERNAL, storage_options=s3.options)
    fill(graph)
    for form in FORMS:
        target = f"{s3.uri}/{form}/"
        graph.export(target, format=form, engine="spark", spark=spark)
        copy = og.init(fresh_memory(), schema=SCHEMA, external_blobs=EXTERNAL, storage_options=s3.options)
        copy.load(source_of(target, form), engine="local")
        assert text_of(copy) == text_of(graph)
    with (
        s3.seam.fail(403, method="PUT", key="failed/node-Thing-00000.ndjson", times=None),
        pytest.raises(OmnigraphError),
    ):
        graph.export(f"{s3.uri}/failed/", engine="spark", spark=spark)
    assert list(ObjectStore.open(s3.uri, s3.options).list("failed")) == []


@pytest.mark.long
def test_spark_export_with_killed_task_writes_every_row_once(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "g"), schema=SCHEMA, external_blobs=EXTERNAL, durability="os")
    fill(graph)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DYING, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("died-*"))) > 1
    found = [line for rows in rows_in(tmp_path / "out", "ndjson").values() for line in rows.elements()]
    assert sorted(found) == sorted(text_of(graph).split("\n")[:-1])
    assert json.loads((tmp_path / "out" / "_SUCCESS").read_text())["rows"]["node:Thing"] == 67
