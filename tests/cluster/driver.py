"""A process that drives Spark: does what it is told on its input, line by line, and answers on its output.

``python -m tests.cluster.driver MASTER``, where MASTER is what `Graph.load` takes as ``spark``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

import omnigraph as og
import omnigraph.spark
from omnigraph import pipelines
from omnigraph.api.interface.branches import Branches
from omnigraph.errors import OmnigraphError
from omnigraph.pipelines.target_rows import RunFrames
from omnigraph.sources import splits
from omnigraph.sources.splits import Split
from omnigraph.spark.engine import tasks
from omnigraph.spark.session import resolve_session
from tests.cluster import traps
from tests.cluster.traps import Trap


def load(
    master: str,
    uri: str,
    source: Any,
    mode: Any = "append",
    *,
    branch: str = "main",
    options: dict[str, str] | None = None,
    frames: dict[str, tuple[str, list[list[Any]]]] | None = None,
    split_bytes: int = 1200,
    trap: list[Any] | None = None,
    stop_at: str | None = None,
) -> Any:
    """What a load reports or why it is refused. `frames` are DataFrames of a schema and rows, by type.

    Every `split_bytes` of a file are a task of their own. At the stage `stop_at` it stops, says so, and waits to be
    killed.
    """
    spark = resolve_session(master=master)
    made = {name: spark.createDataFrame(rows, schema) for name, (schema, rows) in (frames or {}).items()}

    def progress(stage: str, _: int) -> None:
        if stage == stop_at:
            answer({"stopped": stage})
            threading.Event().wait()

    with small_splits(split_bytes), trapped(None if trap is None else Trap(*trap)):
        try:
            done = og.open(uri, storage_options=options).load(
                {**(source or {}), **made} if made else source,
                mode,
                branch=branch,
                engine="spark",
                spark=master,
                progress=progress,
            )
        except OmnigraphError as error:
            return {"error": error.message}
    return done.report()


def query(master: str, uri: str, text: str, *, branch: str = "main") -> Any:
    """The rows of a read that Spark runs."""
    return og.open(uri).query(text, branch=branch, engine="spark", spark=master).rows()


def read(master: str, uri: str, type_name: str, *, branch: str = "main") -> Any:
    """The rows of a type by the data source."""
    spark = resolve_session(master=master)
    omnigraph.spark.register(spark)
    reader = spark.read.format("omnigraph").option("uri", uri)
    return reader.option("type", type_name).option("branch", branch).load().toArrow().to_pylist()


def follow(master: str, uri: str, folder: str, checkpoint: str, fields: str, options: dict[str, str]) -> int:
    """Apply the files of a folder as changes: by a stream to main, and one by one to the branch `batches`.

    Both begin anew where they were, and what is committed already is not applied again.
    """
    spark = resolve_session(master=master)
    omnigraph.spark.register(spark)
    stream = (
        spark.readStream.schema(fields)
        .option("maxFilesPerTrigger", 1)
        .json(folder)
        .repartition(2)
        .writeStream.format("omnigraph")
        .options(uri=uri, **options)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    files = sorted(Path(folder).iterdir())
    for number, file in enumerate(files):
        rows = spark.read.schema(fields).json(str(file)).repartition(2)
        write = rows.write.format("omnigraph").options(uri=uri, branch="batches", **options)
        write.option("idempotencyKey", f"batch {number}").mode("append").save()
    stream.awaitTermination()
    return len(files)


def pipeline(
    master: str,
    file: str,
    variables: dict[str, str],
    environment: dict[str, str],
    *,
    trap: list[Any] | None = None,
    stop_at: str | None = None,
) -> Any:
    """The report of a run of a pipeline. At the step `stop_at` it stops, says so, and waits to be killed."""
    kept = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        with stopped(stop_at), trapped(None if trap is None else Trap(*trap)):
            return pipelines.run(file, spark=master, variables=variables).to_json()
    except OmnigraphError as error:
        return {"error": error.message}
    finally:
        # PySpark keeps its own variables here, which a second run needs.
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def stopped(step: str | None) -> Iterator[None]:
    """A run stops before it reads rows, before it audits them, or before it merges them."""
    places: dict[str, tuple[Any, str]] = {
        "rows": (RunFrames, "build_views"),
        "audits": (importlib.import_module("omnigraph.pipelines.run"), "run_audits"),
        "merge": (Branches, "merge"),
    }
    if step is None:
        yield
        return

    def stop(*_: Any, **__: Any) -> None:
        answer({"stopped": step})
        threading.Event().wait()

    owner, name = places[step]
    kept = getattr(owner, name)
    setattr(owner, name, stop)
    try:
        yield
    finally:
        setattr(owner, name, kept)


@contextmanager
def small_splits(split_bytes: int) -> Iterator[None]:
    kept = splits.plan_splits, splits._SPLIT_ROWS
    splits.plan_splits, splits._SPLIT_ROWS = partial(splits.plan_splits, split_bytes=split_bytes), 1
    try:
        yield
    finally:
        splits.plan_splits, splits._SPLIT_ROWS = kept


@contextmanager
def trapped(trap: Trap | None) -> Iterator[None]:
    kept = tasks.run_tasks, tasks.run_partitions

    def run_tasks(spark: Any, items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
        assert trap is not None
        kind = "split" if any(isinstance(item, Split) for item in items) else "index"
        return kept[0](spark, items, trap.around(kind, work))

    def run_partitions(frame: Any, work: Callable[..., Any]) -> list[Any]:
        assert trap is not None
        return kept[1](frame, trap.around("frame", work))

    if trap is not None:
        tasks.run_tasks, tasks.run_partitions = run_tasks, run_partitions
    try:
        yield
    finally:
        tasks.run_tasks, tasks.run_partitions = kept


def answer(value: object) -> None:
    sys.stdout.write(json.dumps(value, default=str) + "\n")
    sys.stdout.flush()


def main(master: str) -> None:
    # The Pythons of the cluster have omnigraph installed, and nothing of its tests.
    pickling: Any = cloudpickle
    pickling.register_pickle_by_value(traps)
    calls: dict[str, Callable[..., Any]] = {
        "load": load,
        "query": query,
        "read": read,
        "follow": follow,
        "pipeline": pipeline,
    }
    for line in sys.stdin:
        name, given, named = json.loads(line)
        answer(calls[name](master, *given, **named))


if __name__ == "__main__":
    main(sys.argv[1])
