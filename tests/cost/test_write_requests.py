"""What one-row writes through `Graph.mutate` cost, in requests to an object store, however long the history is.

A bare commit of staged rows is twelve requests, nine of them serial (`test_requests.py`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import omnigraph as og
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.store.manifest import manifest
from tests.support.rows import compact
from tests.support.s3 import Bucket
from tests.support.s3_fixtures import s3, s3_server
from tests.support.s3_graphs import upload_graph
from tests.support.s3_seam import Log
from tests.support.workload import BOTH, catalog, change, write

__all__ = ["s3", "s3_server"]

# Long enough that requests sent side by side overlap in the server's eyes.
LATENCY: Final = 0.15
HISTORIES: Final = [10, 1_000] if os.environ.get("OMNIGRAPH_CUTS") == "all" else [10, 150]
# One listing of intents and two of the versions of the manifest; then files, transaction and version of each. The
# new data file and the new version of the table are read back, at the same time, for their digests.
BARE: Final = {"probe": 3, "write table": 3, "read back": 2, "write manifest": 4}
PUT: Final = "query put($n: String, $a: I32) { insert Person { name: $n, age: $a } }"
LINK: Final = "query link($a: String, $b: String) { insert Knows { from: $a, to: $b } }"


@pytest.fixture(scope="module", params=HISTORIES)
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with about so many commits of one row in each table, whose tables were rewritten at the end."""
    folder = tmp_path_factory.mktemp("history") / "graph"
    graph = Repository.init(str(folder), catalog(), durability="os")
    number = 0
    while number < request.param or _is_nearly_full(graph):
        write(graph, change(insert={f"row-{number}": number}))
        number += 1

    def rewrite(transaction: Transaction) -> Prepared[None]:
        for key in BOTH:
            transaction.write(key, compact(graph.tables, transaction.pin(key)))
        return Prepared("maintenance", None)

    write(graph, rewrite)
    graph.close()
    return folder


def _is_nearly_full(graph: Repository) -> bool:
    """Whether one of the next commits folds the log: every 32nd pays for that, and it is not counted here."""
    return (
        sum(item.level == 0 for item in graph.manifest.view.of_kind("commit")) > manifest.LOG_COMPACT_AT - 8
    )


@pytest.fixture
def graph(history: Path, s3: Bucket) -> Iterator[og.Graph]:
    """A handle that has written a person and an edge."""
    found = og.open(upload_graph(history, s3, "g"), storage_options=s3.options)
    found.mutate(PUT, {"n": "warm", "a": 1})
    found.mutate(LINK, {"a": "warm", "b": "row-1"})
    yield found
    found.close()


def shape(log: Log) -> dict[str, int]:
    """Requests by what they are for."""

    written = {item.key for item in log.requests if item.method == "PUT"}

    def purpose(method: str, key: str, query: str) -> str:
        if "list-type" in query:
            return "probe"
        if method == "GET" and key in written:
            return "read back"
        place = "manifest" if "/__manifest/" in f"/{key}" else "table"
        return f"{'write' if method in ('PUT', 'POST') else 'read'} {place}"

    return dict(Counter(purpose(item.method, item.key, item.query) for item in log.requests))


def test_an_insert_of_a_new_key_costs_the_bare_commit(graph: og.Graph, s3: Bucket) -> None:
    with s3.seam.recording(LATENCY) as log:
        done = graph.mutate(PUT, {"n": "new", "a": 2})
    assert done.affected == {"Person": {"inserted": 1, "updated": 0, "deleted": 0}}
    assert (shape(log), log.serial) == (BARE, 9), str(log)


def test_an_upsert_costs_one_put_more_which_says_that_the_old_row_is_gone(
    graph: og.Graph, s3: Bucket
) -> None:
    with s3.seam.recording(LATENCY) as log:
        done = graph.mutate(PUT, {"n": "row-3", "a": 20})
    assert done.affected == {"Person": {"inserted": 0, "updated": 1, "deleted": 0}}
    # The old row is in memory since the handle has read the ids of its small file.
    expected = BARE | {"write table": 4, "read back": 3}
    assert (shape(log), log.serial) == (expected, 9), str(log)
    assert log.count("PUT", "/_deletions/") == 1, str(log)


def test_an_upsert_of_the_only_row_of_a_file_costs_the_bare_commit(graph: og.Graph, s3: Bucket) -> None:
    graph.mutate(PUT, {"n": "row-3", "a": 20})
    with s3.seam.recording(LATENCY) as log:
        done = graph.mutate(PUT, {"n": "row-3", "a": 21})
    assert done.affected == {"Person": {"inserted": 0, "updated": 1, "deleted": 0}}
    assert (shape(log), log.serial) == (BARE, 9), str(log)


def test_an_upsert_that_changes_nothing_writes_no_commit(graph: og.Graph, s3: Bucket) -> None:
    graph.mutate(PUT, {"n": "row-3", "a": 20})
    with s3.seam.recording(LATENCY) as log:
        assert graph.mutate(PUT, {"n": "row-3", "a": 20}).commit is None
    assert log.count("PUT", "/__manifest/") == 0, str(log)


def test_an_upsert_where_others_were_deleted_before_reads_which_ones_they_were(
    graph: og.Graph, s3: Bucket
) -> None:
    graph.mutate(PUT, {"n": "row-3", "a": 20})
    graph.mutate(PUT, {"n": "row-4", "a": 20})
    with s3.seam.recording(LATENCY) as log:
        done = graph.mutate(PUT, {"n": "row-5", "a": 20})
    assert done.affected == {"Person": {"inserted": 0, "updated": 1, "deleted": 0}}
    assert (shape(log), log.serial) == (BARE | {"read table": 1, "write table": 4, "read back": 3}, 10), str(
        log
    )
    assert [log.count(method, "/_deletions/") for method in ("GET", "PUT")] == [2, 1], str(log)


def test_an_insert_of_an_edge_finds_both_ends_in_memory(graph: og.Graph, s3: Bucket) -> None:
    with s3.seam.recording(LATENCY) as log:
        done = graph.mutate(LINK, {"a": "row-2", "b": "warm"})
    assert done.affected == {"Knows": {"inserted": 1, "updated": 0, "deleted": 0}}
    assert (shape(log), log.serial) == (BARE, 9), str(log)


def test_a_write_after_a_commit_elsewhere_reads_that_commit_and_its_new_rows(
    graph: og.Graph, s3: Bucket
) -> None:
    other = og.open(f"{s3.uri}/g", storage_options=s3.options)
    other.mutate(PUT, {"n": "theirs", "a": 1})
    with s3.seam.recording(LATENCY) as log:
        done = graph.mutate(PUT, {"n": "theirs", "a": 2})
    assert done.affected == {"Person": {"inserted": 0, "updated": 1, "deleted": 0}}
    written = {item.key for item in log.requests if item.method == "PUT"}
    read = {item.key for item in log.requests if item.method == "GET" and "/nodes/" in f"/{item.key}"}
    files = read - written
    assert sum("/data/" in key for key in files) == 1, str(log)
    assert {name: count for name, count in shape(log).items() if name in BARE} == BARE, str(log)
    other.close()
