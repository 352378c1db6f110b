"""Small graphs with a history, and their observable state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, accept
from omnigraph.catalog.columns import arrow_schema
from omnigraph.errors import NotFound
from omnigraph.graph.publish import PublishReceipt, publish
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.store.manifest.records import CommitRecord
from tests.support.rows import compact

TEXT = """
node Person { age: I32? }
node City { zip: String? }
edge Knows: Person -> Person
"""
PERSON, CITY, KNOWS = "node:Person", "node:City", "edge:Knows"
NO_GRACE = timedelta(0)
RECLAIMED = "reclaimed"
Rows = dict[str, list[tuple[object, ...]]]


def catalog_of(text: str) -> Catalog:
    return accept(load_schema(text), text)


def new_graph(uri: str, options: dict[str, str] | None = None) -> Repository:
    return Repository.init(uri, catalog_of(TEXT), options=options, durability="os")


def reopened(graph: Repository, options: dict[str, str] | None = None) -> Repository:
    """Return a new handle without cached state."""
    return Repository.open(graph.location.uri, mode="r", options=options, durability="os")


def rows_of(catalog: Catalog, key: str, ids: Iterable[str]) -> pa.Table:
    schema = arrow_schema(catalog.tables[key], physical=True)
    found = list(ids)
    values = {"id": found, "src": found, "dst": found}
    return pa.table(
        {field.name: pa.array(values.get(field.name, [None] * len(found)), field.type) for field in schema},
        schema=schema,
    )


def change(
    graph: Repository,
    *insert: str,
    key: str = PERSON,
    delete: Iterable[str] = (),
    branch: str = "main",
    bulk: bool = False,
) -> CommitRecord:
    """Make a commit that deletes and inserts rows of one type."""

    def prepare(transaction: Transaction) -> Prepared[None]:
        rows = rows_of(transaction.base.catalog, key, insert) if insert else None
        transaction.stage(key, delete_ids=list(delete), insert=rows)
        return Prepared("insert", None)

    receipt, _ = graph.write(branch, WriteRequest("change", bulk=bulk), prepare)
    assert receipt is not None
    return receipt.commit


def overwrite(graph: Repository, *ids: str, key: str = PERSON, branch: str = "main") -> CommitRecord:
    """Make a commit that replaces all rows of one type, so that it shares no files with earlier versions."""

    def prepare(transaction: Transaction) -> Prepared[None]:
        rows = rows_of(transaction.base.catalog, key, ids)
        staged = graph.tables.stage_overwrite(transaction.pin(key), rows.to_batches(), rows.schema)
        transaction.write(key, staged)
        return Prepared("insert", None)

    receipt, _ = graph.write(branch, WriteRequest("overwrite"), prepare)
    assert receipt is not None
    return receipt.commit


def maintain(
    graph: Repository, key: str = PERSON, branch: str = "main", *, index: bool
) -> PublishReceipt | None:
    """Make a commit that compacts fragments or builds an index."""

    def prepare(transaction: Transaction) -> Prepared[None]:
        pin = transaction.pin(key)
        staged = graph.tables.stage_index(pin, "id", "BTREE") if index else compact(graph.tables, pin)
        if staged.version == pin.version:
            return Prepared(None, None)
        transaction.write(key, staged)
        return Prepared("maintenance", None)

    return graph.write(branch, WriteRequest("optimize"), prepare).receipt


def merge(graph: Repository, source: str, target: str = "main") -> CommitRecord:
    """Make a commit with two parents. Its content does not matter."""
    transaction = graph.begin(target)
    head = graph.head(source).commit
    transaction.stage(CITY, insert=rows_of(transaction.base.catalog, CITY, [f"merge-{head.id}"]))
    plan = replace(transaction.plan("merge", "strict"), merged_parent=head.id)
    return publish(graph.manifest, plan).commit


def rows_at(graph: Repository, commit: CommitRecord) -> Rows | str:
    """Return every row of every type at a commit, or `RECLAIMED`; any other error fails the test."""
    snapshot = graph.snapshot(at=commit.id)
    try:
        return {
            key: sorted((tuple(row.values()) for row in snapshot.scan(key).to_pylist()), key=repr)
            for key in snapshot.catalog.tables
        }
    except NotFound as error:
        if error.details.get("reason") != RECLAIMED:
            raise
        return RECLAIMED


def history(graph: Repository) -> dict[str, CommitRecord]:
    """Return every commit of the graph by id."""
    return {commit.id: commit for commit in graph.manifest.all_commits(graph.manifest.refresh())}


def table_files(graph: Repository) -> dict[str, int]:
    """Return the size of every table file of a graph on a local disk."""
    root = Path(graph.location.path)
    folders = [root / "nodes", root / "edges"]
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): path.stat().st_size for path in found}
