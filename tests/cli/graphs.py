"""Test graphs, written with the library: people with names."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.catalog.catalog import accept
from omnigraph.catalog.columns import arrow_schema
from omnigraph.graph.publish import now_micros
from omnigraph.graph.recovery.intents import Intent, OwnedIntent, this_process
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.store.manifest.manifest_files import new_id
from tests.cli.running import PEOPLE

PERSON = "node:Person"


def make_graph(uri: str, *, actor: str | None = None) -> str:
    """Create a graph with the schema of the tests. Return its first commit."""
    catalog = accept(load_schema(PEOPLE), PEOPLE)
    with closing(Repository.init(uri, catalog, durability="os", actor=actor)) as graph:
        return graph.head().commit.id


def add_people(uri: str, *names: str, branch: str = "main", actor: str | None = None) -> str:
    """Insert people in one commit. Return its id."""

    def prepare(transaction: Transaction) -> Prepared[None]:
        transaction.stage(PERSON, insert=_rows(transaction, names))
        return Prepared("insert", None)

    with closing(Repository.open(uri, durability="os")) as graph:
        receipt, _ = graph.write(branch, WriteRequest("mutate", actor=actor), prepare)
    assert receipt is not None
    return receipt.commit.id


def remove_people(uri: str, *names: str) -> str:
    """Delete people in one commit. Return its id."""

    def prepare(transaction: Transaction) -> Prepared[None]:
        transaction.stage(PERSON, delete_ids=names)
        return Prepared("strict", None)

    with closing(Repository.open(uri, durability="os")) as graph:
        receipt, _ = graph.write("main", WriteRequest("mutate"), prepare)
    assert receipt is not None
    return receipt.commit.id


def abandon_load(
    uri: str, *names: str, complete: bool, branch: str = "main", actor: str | None = None
) -> str:
    """Leave the files of a bulk write that was killed before it published. Return the id of the operation."""
    with closing(Repository.open(uri, durability="os")) as graph:
        transaction = graph.begin(branch)
        head = transaction.head
        intent = Intent(
            new_id(), "load", actor, branch, head.incarnation, head.commit.id, this_process(), now_micros()
        )
        owned = OwnedIntent.begin(graph.intents, intent)
        if complete:
            transaction.stage(PERSON, insert=_rows(transaction, names))
            owned.confirm(transaction.plan("load", "insert", actor=actor))
        owned.end(keep=True)
        return owned.intent.id


def heal(uri: str) -> None:
    """Open a graph as a writer does, which settles what dead writers left."""
    Repository.open(uri, durability="os").close()


@contextmanager
def some_days_ago(folder: Path, monkeypatch: pytest.MonkeyPatch, days: int = 2) -> Iterator[None]:
    """Give all commits and files written in the block a date some days ago."""
    shift = days * 86_400
    clock = time.time_ns
    with monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: clock() - shift * 1_000_000_000)
        yield
    then = time.time() - shift
    for path in folder.rglob("*"):
        os.utime(path, (then, then))


def _rows(transaction: Transaction, names: tuple[str, ...]) -> pa.Table:
    schema = arrow_schema(transaction.base.table(PERSON), physical=True)
    columns = [
        pa.array(list(names) if pa.types.is_string(item.type) else [None] * len(names), item.type)
        for item in schema
    ]
    return pa.table(columns, schema=schema)
