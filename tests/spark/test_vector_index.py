"""Search indexes and Spark: tasks build the segments, and queries on Spark give the rows of an exact search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import omnigraph as og
from tests.search.text_graphs import text_indexes_of
from tests.search.vector_graphs import (
    DIMENSION,
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


HYBRID = f"""
query hybrid($q: Vector({DIMENSION})) {{
  match {{ $d: Doc  $d.part < 700 }}
  return {{ $d.name as name, fuse(nearest($d.v, $q, exact: true), bm25($d.note, "red wine"), depth: 90) as s }}
  order {{ fuse(nearest($d.v, $q, exact: true), bm25($d.note, "red wine"), depth: 90) }}
  limit 120
}}
"""


def test_optimize_on_spark_builds_vector_and_text_segments_in_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = SCHEMA.replace("v: Vector", "note: String? @text\n    v: Vector")
    with og.init(tmp_path / "g", schema=schema, durability="os", upkeep="off") as graph:
        notes = [f"{'red ' * (number % 5)}{'wine ' * (number % 7)}{number % 40}" for number in range(ROWS)]
        graph.load({"Doc": documents().append_column("note", [notes])}, "append")

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("the driver did the work of a task")

        with monkeypatch.context() as patched:
            patched.setattr("omnigraph.maintain.table_maintenance.build_segment", refuse)
            graph.optimize(engine="spark", spark=spark)
        assert list(vector_indexes(graph).values()) == [ROWS]
        assert text_indexes_of(graph) == {"note": ROWS}
        assert "search index" in explain(graph)
        assert recall(graph, count=3) >= 0.95
        assert not graph.verify().damage
        vector = queries(1)[0]
        match = "$d: Doc $d.part < 700"
        found = graph.query(text(match), {"q": vector}, engine="spark", spark=spark)
        assert found.rows() == search(graph, vector, match, ", exact: true")
        fused = graph.query(HYBRID, {"q": vector}, engine="spark", spark=spark)
        assert len(fused) == 120
        assert fused.rows() == graph.query(HYBRID, {"q": vector}).rows()
