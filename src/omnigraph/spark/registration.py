"""Registration of the data source with a Spark session."""

from __future__ import annotations

from typing import Any


def register(spark: Any) -> None:
    """Register ``format("omnigraph")`` with a session, classic or Spark Connect. Idempotent.

    The Python interpreters of the cluster need omnigraph installed.
    """
    from omnigraph.spark.datasource.datasource import data_source
    from omnigraph.spark.session import share_python

    share_python(spark)
    spark.dataSource.register(data_source())
