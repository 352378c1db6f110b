"""Rows that a writer pushes to a worker: they replace reads of storage, and never commits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.server.hosted_graphs import HostedGraph, open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from omnigraph.server.workers.pushed_rows import MAX_BYTES, RowChannel, RowReceiver, RowSender
from omnigraph.store.tables import tables
from omnigraph.store.tables.table_fragments import TableFragment
from tests.server.running import ADD, SCHEMA

NAMES = "query names() { match { $p: Person } return { $p.name as name } order { name asc } }"
ONE = "query one($n: String) { match { $p: Person { name: $n } } return { $p.name as name } }"


@dataclass(frozen=True)
class Processes:
    """The graph of a writer and that of a worker, and the channel between them."""

    writer: HostedGraph
    worker: HostedGraph
    channel: RowChannel
    receiver: RowReceiver

    def add(self, *people: str) -> None:
        for name in people:
            self.writer.graph.mutate(ADD, {"n": name})

    def names(self) -> list[str]:
        return [row["name"] for row in self.worker.graph.query(NAMES)]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    uri = str(tmp_path / "team.omni")
    og.init(uri, SCHEMA).close()
    channel = RowChannel.create()
    hosting = Hosting((GraphSource("team", uri),))
    writing, reading = open_graphs(hosting, TokenRegistry()), open_graphs(hosting, TokenRegistry())
    try:
        writing.observe(RowSender([channel]).follow)
        receiver = RowReceiver(channel, reading.graphs)
        found = Processes(writing.graphs["team"], reading.graphs["team"], channel, receiver)
        found.add("Ann")
        receiver.receive()
        assert found.names() == ["Ann"]
        yield found
    finally:
        writing.close()
        reading.close()
        channel.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the tables of which a version is opened in Lance."""
    found: list[str] = []
    original = tables.Tables.open

    def open_(self: tables.Tables, path: str, version: int) -> object:
        found.append(path)
        return original(self, path, version)

    monkeypatch.setattr(tables.Tables, "open", open_)
    return found


def test_read_after_pushed_commits_opens_no_table(processes: Processes, opened: list[str]) -> None:
    # The first changes of a table read its schema.
    page = processes.worker.graph.feed(start="beginning")
    # More commits than versions of other values in the cache.
    people = ["Bob", "Cid", "Dee", *(f"p{number:02}" for number in range(12))]
    processes.add(*people)
    processes.receiver.receive()
    opened.clear()
    assert processes.worker.graph.query(ONE, {"n": "Cid"}).to_dicts() == [{"name": "Cid"}]
    assert processes.names() == ["Ann", *people]
    page = processes.worker.graph.feed(cursor=page.cursor)
    assert [change.id for block in page.blocks for change in block.changes] == people
    assert opened == []


def test_read_before_rows_arrive_reads_storage(processes: Processes, opened: list[str]) -> None:
    processes.add("Bob")
    opened.clear()
    assert processes.names() == ["Ann", "Bob"]
    assert opened
    processes.receiver.receive()
    assert processes.names() == ["Ann", "Bob"]


def test_rows_that_arrive_before_their_commit_are_not_read(processes: Processes) -> None:
    ids = processes.writer.reader.ids
    push = ids.on_written
    assert push is not None
    seen: list[list[str]] = []

    def push_and_read(path: str, fragment: TableFragment, rows: pa.Table) -> None:
        push(path, fragment, rows)
        processes.receiver.receive()
        seen.append(processes.names())

    ids.on_written = push_and_read
    processes.add("Bob")
    assert seen == [["Ann"]]
    assert processes.names() == ["Ann", "Bob"]


def test_full_queue_loses_rows_and_no_commit(processes: Processes, opened: list[str]) -> None:
    sender = RowSender([processes.channel])
    for _ in range(200):
        sender.send("team", "unknown", "unknown.lance", pa.table({"name": ["x" * (MAX_BYTES // 2)]}))
    processes.add("Bob")
    opened.clear()
    processes.receiver.receive()
    assert processes.names() == ["Ann", "Bob"]
    assert opened
