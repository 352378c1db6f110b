"""Registration of the data source with a Spark session, and of the types of a graph as SQL tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, overload

from omnigraph.errors import InvalidInput

# Spark compares names without case unless it is configured otherwise.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class GraphTables:
    """The types of a graph as SQL tables of one database, all at one commit.

    `tables` has the full name of the table of each type, such as ``shop.Person``. A node type and an edge type of
    one name are ``shop.node_Knows`` and ``shop.edge_Knows``.
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
        """Move all tables to the newest commit of the branch, with new types and without dropped ones.

        A graph that was registered at a commit stays there.
        """
        if not self.is_pinned:
            self.commit = ""
        _create_tables(self)
        return self

    def drop(self) -> None:
        """Remove the tables and their database from the catalog of the session. The graph is unchanged."""
        self.spark.sql(f"DROP DATABASE IF EXISTS `{self.name}` CASCADE")


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

    With `graph` and `name`, the types of the graph also become tables of the database `name`, so that
    ``SELECT * FROM shop.Person`` reads them. All tables are at one commit: `commit`, or the head of `branch` now.
    `GraphTables.refresh` moves them to a newer commit. A database of this name must not hold other tables.

    The Python interpreters of the cluster need omnigraph installed.
    """
    from omnigraph.spark.datasource.datasource import data_source
    from omnigraph.spark.session import share_python

    share_python(spark)
    spark.dataSource.register(data_source())
    if graph is None and name is None:
        return None
    if graph is None or name is None:
        raise InvalidInput(
            "a graph is registered under a name", hint='register(spark, graph="...", name="shop")'
        )
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"'{name}' is not a name for a database", hint="use letters, digits and _")
    tables = GraphTables(
        spark, name, graph, branch, commit or "", dict(storage_options or {}), is_pinned=commit is not None
    )
    _create_tables(tables)
    return tables


def _create_tables(tables: GraphTables) -> None:
    from omnigraph.graph.repository import Repository
    from omnigraph.store.storage_options import resolve_options

    storage = resolve_options(tables.storage)
    repository = Repository.open(tables.graph, mode="r", options=storage)
    try:
        snapshot = repository.snapshot(tables.branch, tables.commit or None)
        uri = repository.location.uri
    finally:
        repository.close()
    names: dict[str, str] = {}
    for table in snapshot.catalog.tables.values():
        names.setdefault(table.name.lower(), table.key)
        if names[table.name.lower()] != table.key:
            names[table.name.lower()] = ""
    spark = tables.spark
    _check_database(spark, tables.name)
    spark.sql(f"CREATE DATABASE IF NOT EXISTS `{tables.name}`")
    for row in spark.catalog.listTables(tables.name):
        spark.sql(f"DROP TABLE IF EXISTS `{tables.name}`.`{row.name}`")
    created: dict[str, str] = {}
    for key, table in snapshot.catalog.tables.items():
        short = table.name if names[table.name.lower()] else key.replace(":", "_")
        options = {"uri": uri, "type": key, "commit": snapshot.commit_id}
        options |= {f"storage.{name}": value for name, value in tables.storage.items()}
        listed = ", ".join(f"'{_text(name)}' '{_text(value)}'" for name, value in options.items())
        spark.sql(f"CREATE TABLE `{tables.name}`.`{short}` USING omnigraph OPTIONS ({listed})")
        created[key] = f"{tables.name}.{short}"
    tables.commit = snapshot.commit_id
    tables.tables = created


def _check_database(spark: Any, name: str) -> None:
    """Raise `InvalidInput` if a database has tables that are not those of a graph."""
    if not spark.catalog.databaseExists(name):
        return
    for table in spark.catalog.listTables(name):
        if table.isTemporary:
            continue
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED `{name}`.`{table.name}`").collect()
        providers = [row["data_type"] for row in rows if row["col_name"] == "Provider"]
        if providers != ["omnigraph"]:
            raise InvalidInput(f"the database '{name}' has the table '{table.name}', which is not a graph's")


def _text(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")
