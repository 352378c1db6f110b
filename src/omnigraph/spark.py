"""Graphs in Spark: ``format("omnigraph")`` to read, write and stream, on any session they are registered with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph.catalog.catalog import Table
    from omnigraph.lang import ir
    from omnigraph.pipeline.change_options import DiffOptions, FeedOptions
    from omnigraph.pipeline.change_readers import Diff, Feed
    from omnigraph.pipeline.datasource import Sink, Stream
    from omnigraph.pipeline.options import WriteOptions

__all__ = ["register"]

# Queries call the ends of an edge by other names than tables do.
_ENDS = {"from": "src", "to": "dst"}


def register(spark: Any) -> None:
    """Make ``format("omnigraph")`` known to a session, a classic one or one of Spark Connect.

    The Pythons of the cluster need omnigraph installed. Registering twice is harmless.
    """
    from omnigraph.pipeline.datasource import data_source
    from omnigraph.pipeline.session import share_python

    share_python(spark)
    spark.dataSource.register(data_source(exact_filter, open_sink, open_stream, open_diff, open_feed))


def open_sink(options: WriteOptions, names: Sequence[str]) -> Sink:
    """Begin a write of rows with columns of these names."""
    from omnigraph.write import sink

    return sink.open_sink(options, names)


def open_stream(options: WriteOptions, names: Sequence[str]) -> Stream:
    """What a batch of a stream of rows with columns of these names needs."""
    from omnigraph.write import sink

    return sink.open_stream(options, names)


def open_diff(options: DiffOptions) -> Diff:
    """The difference of the two states that are meant now."""
    from omnigraph.api.changes import find_diff
    from omnigraph.graph.repository import Repository
    from omnigraph.read.change_sources import DiffSource, wanted_changes

    wanted = wanted_changes(options.choice)
    with closing(Repository.open(options.uri, mode="r", options=options.storage)) as repository:
        before, after = find_diff(repository, options.before, options.after, wanted).commits
    return DiffSource(options.uri, options.storage, before, after, wanted, options.rows_per_partition)


def open_feed(options: FeedOptions) -> Feed:
    """The changes of a branch; it is not looked at yet."""
    from omnigraph.read.change_sources import FeedSource

    return FeedSource(options)


def exact_filter(predicate: ir.Predicate, table: Table) -> str | None:
    """The filter of a scan that selects just the rows a predicate is true of, or None when there is none."""
    from omnigraph.engine.bindings import Bindings
    from omnigraph.engine.pushdown import push_down

    now = time.time_ns() // 1_000_000
    pushed = push_down(predicate, lambda ref: _physical(ref, table), Bindings(now=now))
    if not pushed.exact:
        return None
    return "true" if pushed.sql is None else pushed.sql


def _physical(ref: ir.PropertyRef | ir.ColumnRef, table: Table) -> str:
    from omnigraph.lang import ir

    name = ref.name if isinstance(ref, ir.ColumnRef) else ref.property
    return table.physical(_ENDS.get(name, name) if table.kind == "edge" else name)
