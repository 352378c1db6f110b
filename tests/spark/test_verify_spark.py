"""`Graph.verify` on Spark finds the same damage as in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import omnigraph as og
from tests.maintain.damage import build_graph, flip_bit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_verify_on_spark_reports_the_same_as_local_verify(spark: SparkSession, tmp_path: Path) -> None:
    build_graph(tmp_path / "g")
    with og.open(tmp_path / "g", "r") as graph:
        assert graph.verify(engine="spark", spark=spark) == graph.verify(engine="local")
        (file,) = (tmp_path / "g").glob("edges/*/data/*")
        flip_bit(file)
        report = graph.verify(engine="spark", spark=spark)
        assert not report.ok
        assert report == graph.verify(engine="local")
