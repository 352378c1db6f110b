"""Graphs in Spark: ``spark.read.format("omnigraph")`` on any session that they are registered with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph.catalog.catalog import Table
    from omnigraph.lang import ir

__all__ = ["register"]


def register(spark: Any) -> None:
    """Make ``format("omnigraph")`` known to a session, a classic one or one of Spark Connect.

    Turns on filter push-down for Python data sources in that session. The cluster's Pythons need omnigraph
    installed. Registering twice is harmless.
    """
    from omnigraph.pipeline.datasource import data_source

    # Without this Spark refuses a source that can push filters, instead of not asking it to.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(data_source(exact_filter))


def exact_filter(predicate: ir.Predicate, table: Table) -> str | None:
    """The filter of a scan that selects just the rows a predicate is true of, or None when there is none."""
    from omnigraph.engine.bindings import Bindings
    from omnigraph.engine.pushdown import push_down

    pushed = push_down(predicate, lambda ref: _physical(ref, table), Bindings())
    if not pushed.exact:
        return None
    return "true" if pushed.sql is None else pushed.sql


def _physical(ref: ir.PropertyRef | ir.ColumnRef, table: Table) -> str:
    from omnigraph.lang import ir

    return table.physical(ref.name if isinstance(ref, ir.ColumnRef) else ref.property)
