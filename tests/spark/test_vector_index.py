"""Vector indexes and Spark: tasks build the segments, and queries on Spark give the rows of an exact search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import omnigraph as og
from tests.search.vector_graphs import (
    ROWS,
    SCHEMA,
    documents,
    explain,
    queries,
    recall,
    search,
    text,
    vector_indexes,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_optimize_on_spark_builds_vector_segments_in_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with og.init(tmp_path / "g", schema=SCHEMA, durability="os", upkeep="off") as graph:
        graph.load({"Doc": documents()}, "append")

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("the driver did the work of a task")

        with monkeypatch.context() as patched:
            patched.setattr("omnigraph.maintain.table_maintenance.build_segment", refuse)
            graph.optimize(engine="spark", spark=spark)
        assert vector_indexes(graph) == {"v_7_ivf_rq_l2": ROWS}
        assert "search index" in explain(graph)
        assert recall(graph, count=3) >= 0.95
        assert not graph.verify().damage
        vector = queries(1)[0]
        match = "$d: Doc $d.part < 700"
        found = graph.query(text(match), {"q": vector}, engine="spark", spark=spark)
        assert found.rows() == search(graph, vector, match, ", exact: true")
