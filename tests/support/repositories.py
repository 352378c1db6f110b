"""Small graphs of people, cities and who knows whom, written and read as plain dictionaries."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, accept
from omnigraph.catalog.columns import arrow_schema
from omnigraph.catalog.migration.evolve import evolve
from omnigraph.catalog.migration.planner import plan_migration
from omnigraph.graph.publish import PublishReceipt, now_micros, publish
from omnigraph.graph.recovery.intents import Intent, IntentOwner
from omnigraph.graph.recovery.process_identity import this_machine
from omnigraph.graph.repository import Mode, Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import OperationClass, Prepared, WritePlan
from omnigraph.graph.write_request import WriteRequest
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.store.manifest.manifest_files import new_id
from omnigraph.store.manifest.records import CommitRecord
from tests.support.rows import compact

TEXT = """
node Person { name: String? }
node City { name: String? }
edge Knows: Person -> Person
"""
PERSON, CITY, KNOWS = "node:Person", "node:City", "edge:Knows"

Rows = Mapping[str, str | None]
Prepare = Callable[[Transaction], Prepared[None]]

# No process has this number, on any system.
DEAD = 2**22 + 7


def catalog_of(text: str = TEXT) -> Catalog:
    return accept(load_schema(text), text)


def make_graph(uri: str) -> Repository:
    """A new graph; it does not sync, so that tests are quick."""
    return Repository.init(uri, catalog_of(), durability="os", actor="ana")


def handle(graph: Repository, mode: Mode = "rw") -> Repository:
    """Another handle on the same graph, which remembers nothing."""
    return Repository.open(graph.location.uri, mode=mode, durability="os")


def arrow(catalog: Catalog, key: str, rows: Rows) -> pa.Table:
    """Rows of a node type: ids and names."""
    schema = arrow_schema(catalog.tables[key], physical=True)
    return pa.Table.from_arrays(
        [pa.array(list(rows)), pa.array(list(rows.values()), pa.string())], schema=schema
    )


def stage(
    transaction: Transaction, insert: Rows | None = None, delete: Iterable[str] = (), key: str = PERSON
) -> None:
    """Stage rows of a node type."""
    rows = None if insert is None else arrow(transaction.base.catalog, key, insert)
    transaction.stage(key, delete_ids=delete, insert=rows)


def staging(
    insert: Rows | None = None,
    delete: Iterable[str] = (),
    *,
    key: str = PERSON,
    as_class: OperationClass = "insert",
    reads: Iterable[str] = (),
) -> Prepare:
    """Work that deletes and inserts rows, having looked at other tables."""
    doomed = list(delete)

    def prepare(transaction: Transaction) -> Prepared[None]:
        for table in reads:
            transaction.read(table)
        stage(transaction, insert, doomed, key)
        return Prepared(as_class, None)

    return prepare


def rewriting(key: str = PERSON) -> Prepare:
    """Maintenance that rearranges a table's files."""

    def prepare(transaction: Transaction) -> Prepared[None]:
        transaction.write(key, compact(transaction.base.tables, transaction.pin(key)))
        return Prepared("maintenance", None)

    return prepare


def write(
    graph: Repository,
    prepare: Prepare,
    branch: str = "main",
    *,
    operation: str = "load",
    actor: str | None = "ana",
    message: str | None = None,
    expected_head: str | None = None,
    key: str | None = None,
    request: str = "",
    bulk: bool = False,
) -> PublishReceipt:
    """Write something that makes a commit."""
    said = WriteRequest(operation, actor, message, expected_head, key, request, bulk)
    receipt, _ = graph.write(branch, said, prepare)
    assert receipt is not None
    return receipt


def put(graph: Repository, rows: Rows, branch: str = "main", *, key: str = PERSON) -> CommitRecord:
    """Insert or replace rows."""
    return write(graph, staging(rows, list(rows), key=key), branch).commit


def wear(graph: Repository, branch: str = "main", key: str = PERSON) -> None:
    """Leave two small fragments, so that maintenance finds something to do."""
    put(graph, {"worn-a": "x"}, branch, key=key)
    put(graph, {"worn-b": "x"}, branch, key=key)


def contents(snapshot: Snapshot, key: str = PERSON) -> dict[str, str | None]:
    """The rows of a node type, each id once."""
    table = snapshot.scan(key)
    ids, names = (table.column(number).to_pylist() for number in (0, 1))
    assert len(set(ids)) == len(ids), "an id occurs twice"
    assert len(ids) == snapshot.pin(key).rows, "the pin counts its rows wrongly"
    return dict(zip(ids, names, strict=True))


def people(graph: Repository, branch: str = "main") -> dict[str, str | None]:
    return contents(graph.snapshot(branch))


def chain(graph: Repository, branch: str = "main") -> list[CommitRecord]:
    """A branch's history, oldest first, after checking that it is one unbroken chain."""
    found = list(graph.commits(branch))[::-1]
    assert found[0].parent is None
    for older, newer in pairwise(found):
        assert newer.parent == older.id
        assert newer.sequence == older.sequence + 1
        assert newer.created_at > older.created_at
    return found


# --- what other writers leave behind --------------------------------------------------------------------


def dead_owner() -> IntentOwner:
    """A process of this machine that is gone."""
    return IntentOwner(this_machine(), DEAD, "0")


def far_owner() -> IntentOwner:
    """A process of another machine, of which only the lease can tell."""
    return IntentOwner(f"another than {socket.gethostname()}", 1, "1")


def leave_intent(
    graph: Repository,
    prepare: Prepare | None,
    branch: str = "main",
    *,
    owner: IntentOwner | None = None,
    actor: str | None = "bulk-actor",
    operation: str = "bulk load",
    expected_head: str | None = None,
) -> Intent:
    """The intent of a bulk writer that stopped: confirmed when it had prepared something, else still staging."""
    transaction = graph.begin(branch)
    # The intent of a bulk write is older than its files, and protects them.
    transaction.fence = None
    plan: WritePlan | None = None
    if prepare is not None:
        operation_class = prepare(transaction).operation_class
        assert operation_class is not None
        plan = transaction.plan(operation, operation_class, actor=actor, expected_head=expected_head)
    intent = Intent(
        id=new_id(),
        operation=operation,
        actor=actor,
        branch=branch,
        incarnation=transaction.head.incarnation,
        base=transaction.head.commit.id,
        owner=owner or dead_owner(),
        created_at=now_micros(),
        plan=plan,
    )
    graph.intents.write(intent)
    return intent


def leftovers(graph: Repository) -> list[str]:
    """Every object that recovery keeps."""
    return sorted(item.key for item in graph.objects.list("__recovery"))


def apply_schema(graph: Repository, text: str, branch: str = "main") -> PublishReceipt:
    """Change the schema of a branch in a way that touches no table."""
    transaction = graph.begin(branch)
    old = transaction.base.catalog
    desired = load_schema(text)
    new = evolve(old, desired, text, plan_migration(old, desired), counter=1)
    plan = replace(
        transaction.plan("schema apply", "strict"),
        schema=new.fingerprint.removeprefix("sha256:"),
        schema_payload=json.dumps(new.to_json()),
    )
    return publish(graph.manifest, plan)
