"""What reads cost, in requests to an object store: exact counts, the same however long the history is."""

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
from tests.support.rows import compact
from tests.support.s3 import Bucket
from tests.support.s3_fixtures import s3, s3_server
from tests.support.s3_graphs import upload_graph
from tests.support.s3_seam import Log
from tests.support.workload import BOTH, catalog, change, write

__all__ = ["s3", "s3_server"]

HISTORIES: Final = [10, 1_000] if os.environ.get("OMNIGRAPH_CUTS") == "all" else [10, 150]
POINT: Final = (
    "query point($n: String) { match { $p: Person { name: $n } } return { $p.name as name, $p.age as age } }"
)
WALK: Final = (
    "query walk($n: String) { match { $p: Person { name: $n }  $p knows $q } return { $q.name as name } }"
)
LARGE: Final = "query large($a: I32) { match { $p: Person  $p.age > $a } return { count($p) as n } }"


@pytest.fixture(scope="module", params=HISTORIES)
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with so many commits of one row in each table, whose tables were rewritten at the end."""
    folder = tmp_path_factory.mktemp("history") / "graph"
    graph = Repository.init(str(folder), catalog(), durability="os")
    for number in range(request.param):
        write(graph, change(insert={f"row-{number}": number}))

    def rewrite(transaction: Transaction) -> Prepared[None]:
        for key in BOTH:
            transaction.write(key, compact(graph.tables, transaction.pin(key)))
        return Prepared("maintenance", None)

    write(graph, rewrite)
    graph.close()
    return folder


@pytest.fixture
def graph(history: Path, s3: Bucket) -> Iterator[og.Graph]:
    """A handle that has read nothing."""
    found = og.open(upload_graph(history, s3, "g"), mode="r", storage_options=s3.options)
    yield found
    found.close()


def shape(log: Log) -> dict[str, int]:
    """Requests by what they are for: probes of the manifest, and what is read of it and of tables."""

    def purpose(key: str, query: str) -> str:
        if "list-type" in query:
            return "probe"
        return "manifest" if "/__manifest/" in f"/{key}" else "version" if "/_versions/" in key else "data"

    return dict(Counter(purpose(item.key, item.query) for item in log.requests))


def test_a_repeated_point_query_costs_the_probe_for_what_is_new_and_nothing_else(
    graph: og.Graph, s3: Bucket
) -> None:
    assert graph.query(POINT, {"n": "row-3"}).rows() == [{"name": "row-3", "age": 3}]
    with s3.seam.recording() as log:
        assert graph.query(POINT, {"n": "row-3"}).rows() == [{"name": "row-3", "age": 3}]
        assert graph.query(POINT, {"n": "row-4"}).rows() == [{"name": "row-4", "age": 4}]
        assert graph.query(POINT, {"n": "nobody"}).rows() == []
    assert shape(log) == {"probe": 3}, str(log)


@pytest.mark.parametrize(
    ("text", "params"), [(WALK, {"n": "row-3"}), (LARGE, {"a": 5})], ids=["walk", "scan"]
)
def test_whatever_has_been_read_once_costs_the_probe(
    graph: og.Graph, s3: Bucket, text: str, params: dict[str, object]
) -> None:
    expected = graph.query(text, params).rows()
    with s3.seam.recording() as log:
        assert graph.query(text, params).rows() == expected
    assert shape(log) == {"probe": 1}, str(log)


def test_a_read_of_a_commit_by_its_id_that_is_in_memory_costs_no_data(graph: og.Graph, s3: Bucket) -> None:
    at = graph.query(POINT, {"n": "row-3"}).commit_id
    graph.query(POINT, {"n": "row-3"}, at=at)
    with s3.seam.recording() as log:
        assert graph.query(POINT, {"n": "row-3"}, at=at).rows() == [{"name": "row-3", "age": 3}]
    assert not {"version", "data"} & shape(log).keys(), str(log)


def test_the_first_query_of_a_handle_costs_the_same_however_long_the_history_is(
    graph: og.Graph, s3: Bucket
) -> None:
    with s3.seam.recording() as log:
        graph.query(POINT, {"n": "row-3"})
    assert shape(log) == {"probe": 1, "manifest": 2, "version": 2, "data": 1}, str(log)
    assert not [item for item in log.requests if "edges/" in item.key], str(log)


def test_a_point_query_after_a_commit_elsewhere_reads_only_what_is_new(graph: og.Graph, s3: Bucket) -> None:
    graph.query(POINT, {"n": "row-3"})
    other = Repository.open(f"{s3.uri}/g", options=s3.options)
    write(other, change(["row-5"], {"new": 7}))
    with s3.seam.recording() as log:
        assert graph.query(POINT, {"n": "new"}).rows() == [{"name": "new", "age": 7}]
    files = {item.key for item in log.requests if "/data/" in item.key and "__manifest" not in item.key}
    assert len(files) == 1, str(log)
    assert not [item for item in log.requests if "edges/" in item.key], str(log)
    with s3.seam.recording() as log:
        assert graph.query(POINT, {"n": "row-5"}).rows() == []
    assert (shape(log), log.count("GET", "/_deletions/")) == ({"probe": 1, "data": 1}, 1), str(log)
    with s3.seam.recording() as log:
        assert graph.query(POINT, {"n": "row-5"}).rows() == []
        assert graph.query(POINT, {"n": "row-6"}).rows() == [{"name": "row-6", "age": 6}]
    assert shape(log) == {"probe": 2}, str(log)
    other.close()


def test_blob_range_reads_the_range_and_metadata_only(s3: Bucket) -> None:
    data = bytes(range(256)) * (1 << 14)
    with og.init(
        f"{s3.uri}/blobs", "node Doc { name: String @key  body: Blob? }", storage_options=s3.options
    ) as made:
        made.load({"Doc": [{"name": "a", "body": data}, {"name": "b", "body": data[::-1]}]})
    with og.open(f"{s3.uri}/blobs", mode="r", storage_options=s3.options) as graph:
        graph.get("Doc", "zed")
        with s3.seam.recording() as log:
            blob = graph.blob("Doc", "b", "body")
        # The end of the file, the position of the value and its length; the URI column is read by Lance.
        assert log.count() <= 7, str(log)
        with s3.seam.recording() as log:
            assert blob.read_range(1_000, 1_010) == data[::-1][1_000:1_010]
        assert log.count() == 1, str(log)
        with s3.seam.recording() as log:
            assert graph.blob("Doc", "a", "body").size == len(data)
        assert log.count() <= 5, str(log)
