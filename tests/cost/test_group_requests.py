"""Requests of a group of writes on an object store: those of each table version, and one swap of the manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import omnigraph as og
from omnigraph.errors import StorageError
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.store.tables import tables
from tests.support.groups import GroupWrite, receipts, write_group
from tests.support.repositories import PERSON, chain, make_graph, people, put, staging
from tests.support.s3 import Bucket
from tests.support.s3_fixtures import s3, s3_server
from tests.support.s3_graphs import upload_graph

__all__ = ["s3", "s3_server"]

# Long enough that requests sent side by side overlap in the server's eyes.
LATENCY: Final = 0.15
WRITES: Final = 6


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("group") / "graph"
    graph = make_graph(str(folder))
    put(graph, {"first": "1"})
    graph.close()
    return folder


@pytest.fixture
def graph(template: Path, s3: Bucket) -> Iterator[Repository]:
    """A handle that has written a row."""
    found = Repository.open(upload_graph(template, s3, "g"), options=s3.options)
    put(found, {"warm": "1"})
    yield found
    found.close()


def inserts(*names: str) -> list[GroupWrite]:
    return [GroupWrite(staging({name: name})) for name in names]


def test_group_of_inserts_takes_one_swap_and_few_round_trips(graph: Repository, s3: Bucket) -> None:
    names = [f"p{number}" for number in range(WRITES)]
    with s3.seam.recording(LATENCY) as log:
        done = receipts(write_group(graph, inserts(*names)))
    written = {item.key for item in log.requests if item.method == "PUT"}
    read_back = [item for item in log.requests if item.method == "GET" and item.key in written]
    in_manifest = sum("/__manifest/" in item.key and item.method == "PUT" for item in log.requests)
    # The data file, the transaction and the version of each write. Two of the three are read back, and so is the
    # version that the second write is built on.
    assert log.count("PUT") - in_manifest == 3 * WRITES, str(log)
    assert len(read_back) == 2 * WRITES + 1, str(log)
    assert in_manifest == 4, str(log)
    assert log.count("PUT", "/__manifest/_versions/") == 1, str(log)
    # A single write takes nine. The others are built on it: its version is read, then all of them are uploaded.
    assert log.serial <= 13, f"{log.serial} serial\n{log}"
    found = handle_on(graph)
    assert [item.id for item in chain(found)][-WRITES:] == [receipt.commit.id for receipt in done]
    with og.open(graph.location.uri, storage_options=s3.options) as opened:
        assert opened.verify(all_commits=True).ok
    for number, receipt in enumerate(done, start=1):
        rows = found.snapshot(at=receipt.commit.id).scan(PERSON)["id"].to_pylist()
        assert sorted(rows) == sorted(["first", "warm", *names[:number]])


def test_group_of_waiting_inserts_takes_fewer_round_trips_than_a_single_write(
    graph: Repository, s3: Bucket
) -> None:
    receipts(write_group(graph, inserts("a", "b"), behind_another=True))
    with s3.seam.recording(LATENCY) as log:
        receipts(write_group(graph, inserts("c", "d", "e"), behind_another=True))
    # The base version is on the local disk since the last group, and all files are uploaded at once.
    assert log.count("GET", "nodes/") == 6, str(log)
    assert log.serial <= 8, f"{log.serial} serial\n{log}"
    assert len(people(handle_on(graph))) == 7


def test_group_on_an_object_store_reads_updates_and_deletes_rows_of_earlier_writes(graph: Repository) -> None:
    writes = [
        *inserts("a", "b"),
        GroupWrite(staging({"b": "second"}, ["b"], as_class="strict")),
        GroupWrite(staging(None, ["a"], as_class="strict")),
        *inserts("c"),
    ]
    receipts(write_group(graph, writes))
    expected = {"first": "1", "warm": "1", "b": "second", "c": "c"}
    assert people(graph) == people(handle_on(graph)) == expected
    put(graph, {"d": "d"})
    assert people(graph) == {**expected, "d": "d"}


def test_group_on_an_object_store_compacts_fragments_and_keeps_indexes(
    graph: Repository, s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "COMPACT_AT", 4)

    def index(transaction: Transaction) -> Prepared[None]:
        stored = transaction.base.tables
        transaction.write(PERSON, stored.stage_index(transaction.pin(PERSON), "id", "BTREE"))
        return Prepared("maintenance", None)

    graph.write("main", WriteRequest("optimize", alone=True), index)
    names = [f"p{number}" for number in range(9)]
    done = receipts(write_group(graph, inserts(*names), behind_another=True))
    found = handle_on(graph)
    pin = found.snapshot().pin(PERSON)
    opened = found.tables.open(pin.path, pin.version)
    assert len(opened.get_fragments()) < 5
    assert opened.has_index
    for number, receipt in enumerate(done, start=1):
        snapshot = found.snapshot(at=receipt.commit.id)
        assert snapshot.pin(PERSON).rows == 2 + number == snapshot.scan(PERSON).num_rows
        assert snapshot.scan(PERSON, where=f"id = 'p{number - 1}'").num_rows == 1
        assert snapshot.scan(PERSON, where=f"id = 'p{number}'").num_rows == 0
    with og.open(graph.location.uri, storage_options=s3.options) as checked:
        assert checked.verify(all_commits=True).ok


def test_group_whose_upload_fails_publishes_nothing(graph: Repository, s3: Bucket) -> None:
    before = graph.head().commit.id
    writes = [*inserts("a"), GroupWrite(staging({"b": "b"})), *inserts("c")]
    # The first write is staged in storage with three requests. The others are uploaded.
    with s3.seam.fail(403, nth=4, times=None, method="PUT", key="nodes/"):
        done = write_group(graph, writes)
    assert all(isinstance(item, StorageError) for item in done), done
    assert handle_on(graph).head().commit.id == before
    receipts(write_group(graph, inserts("d", "e")))
    assert people(graph) == {"first": "1", "warm": "1", "d": "d", "e": "e"}


@pytest.mark.parametrize("how", ["drop", "applied_500"])
def test_group_whose_swap_has_no_reply_is_found_by_the_commit_ids(
    graph: Repository, s3: Bucket, how: str
) -> None:
    with s3.seam.fail(how, method="PUT", key="/__manifest/_versions/") as fault:  # type: ignore[arg-type]
        done = receipts(write_group(graph, inserts("a", "b", "c")))
    assert fault.hits == 1
    found = handle_on(graph)
    assert [item.id for item in chain(found)][-3:] == [receipt.commit.id for receipt in done]
    assert people(found) == {"first": "1", "warm": "1", "a": "a", "b": "b", "c": "c"}


def handle_on(graph: Repository) -> Repository:
    """Another handle, which has no file of the graph on its local disk."""
    return Repository.open(graph.location.uri, options=graph.objects.options)


def test_group_of_writes_with_idempotency_keys_commits_each_key_once(graph: Repository, s3: Bucket) -> None:
    def keyed(name: str) -> GroupWrite:
        request = WriteRequest("load", idempotency_key=name, request=name)
        return GroupWrite(staging({name: name}), request)

    claimed = len(list(graph.objects.list("__idempotency")))
    done = receipts(write_group(graph, [keyed("a"), keyed("b"), keyed("b"), keyed("c")]))
    assert [receipt.replayed for receipt in done] == [False, False, True, False]
    assert len(list(graph.objects.list("__idempotency"))) == claimed + 3
    with s3.seam.recording(LATENCY) as log:
        again = receipts(write_group(graph, [keyed("x"), keyed("a"), keyed("c")]))
    assert [receipt.replayed for receipt in again] == [False, True, True]
    assert [receipt.commit.id for receipt in again[1:]] == [done[0].commit.id, done[3].commit.id]
    assert log.count("PUT", "/__manifest/_versions/") == 1, str(log)
