"""Registration of the data source with a Spark session, and of the types of a graph as SQL views."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, overload

from omnigraph.errors import InvalidInput

# Spark compares names without case unless it is configured otherwise.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class GraphTables:
    """The types of a graph as temporary views of a session, all at one commit.

    `tables` has the view of each type, such as ``shop_Person``. A node type and an edge type of one name are
    ``shop_node_Knows`` and ``shop_edge_Knows``.
    """

    spark: Any = field(repr=False)
    name: str
    graph: str
    branch: str
    commit: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    tables: Mapping[str, str] = field(default_factory=dict)
    is_pinned: bool = False

    def refresh(self) -> GraphTables:
        """Move all views to the newest commit of the branch, with new types and without dropped ones.

        A graph that was registered at a commit stays there.
        """
        if not self.is_pinned:
            self.commit = ""
        _create_views(self)
        return self

    def drop(self) -> None:
        """Remove the views from the session. The graph is unchanged."""
        for view in self.tables.values():
            self.spark.catalog.dropTempView(view)
        self.tables = {}


@overload
def register(spark: Any) -> None: ...


@overload
def register(
    spark: Any,
    graph: str,
    name: str,
    *,
    branch: str = "main",
    commit: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> GraphTables: ...


def register(
    spark: Any,
    graph: str | None = None,
    name: str | None = None,
    *,
    branch: str = "main",
    commit: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> GraphTables | None:
    """Register ``format("omnigraph")`` with a session, classic or Spark Connect. Idempotent.

    With `graph` and `name`, the types of the graph also become temporary views, so that
    ``SELECT * FROM shop_Person`` reads them. All views are at one commit: `commit`, or the head of `branch` now.
    `GraphTables.refresh` moves them to a newer commit.

    The Python interpreters of the cluster need omnigraph installed.
    """
    from omnigraph.spark.datasource.datasource import data_source
    from omnigraph.spark.declarative_pipelines import ignore_accumulators
    from omnigraph.spark.session import share_python

    share_python(spark)
    ignore_accumulators(spark)
    spark.dataSource.register(data_source())
    if graph is None and name is None:
        return None
    if graph is None or name is None:
        raise InvalidInput(
            "a graph is registered under a name", hint='register(spark, graph="...", name="shop")'
        )
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"'{name}' is not a name for views", hint="use letters, digits and _")
    tables = GraphTables(
        spark, name, graph, branch, commit or "", dict(storage_options or {}), is_pinned=commit is not None
    )
    _create_views(tables)
    return tables


def _create_views(tables: GraphTables) -> None:
    from omnigraph.graph.repository import Repository
    from omnigraph.store.storage_options import resolve_options

    repository = Repository.open(tables.graph, mode="r", options=resolve_options(tables.storage))
    try:
        snapshot = repository.snapshot(tables.branch, tables.commit or None)
        uri = repository.location.uri
    finally:
        repository.close()
    counts = Counter(table.name.lower() for table in snapshot.catalog.tables.values())
    tables.drop()
    created: dict[str, str] = {}
    for key, table in snapshot.catalog.tables.items():
        short = table.name if counts[table.name.lower()] == 1 else key.replace(":", "_")
        options = {"uri": uri, "type": key, "commit": snapshot.commit_id}
        options |= {f"storage.{name}": value for name, value in tables.storage.items()}
        frame = tables.spark.read.format("omnigraph").options(**options).load()
        frame.createOrReplaceTempView(f"{tables.name}_{short}")
        created[key] = f"{tables.name}_{short}"
    tables.commit = snapshot.commit_id
    tables.tables = created
