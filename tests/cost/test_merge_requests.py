"""What branches and merges cost, in requests to an object store: the same in a small graph and in a large one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.graph.snapshot import Snapshot
from omnigraph.store.tables.table_fragments import list_fragments
from tests.support.s3 import Bucket
from tests.support.s3_fixtures import s3, s3_server
from tests.support.s3_graphs import upload_graph
from tests.support.s3_seam import Log

__all__ = ["s3", "s3_server"]

SIZES: Final = [10_000, 1_000_000] if os.environ.get("OMNIGRAPH_CUTS") == "all" else [10_000, 200_000]
SCHEMA: Final = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: I32? }
node City { name: String @key  size: I32? }
"""
TYPES: Final = ("node:Person", "edge:Knows")
FRAGMENTS: Final = 16
# A file's last 64 kB are read to find its columns, then the pages that hold the rows.
BYTES_OF_A_FILE: Final = 160_000


@pytest.fixture(scope="module", params=SIZES)
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of about so many people, in many fragments; its branches have changed a few rows each."""
    folder = tmp_path_factory.mktemp("large") / "graph"
    graph = og.init(str(folder), schema=SCHEMA, durability="os")
    rows = request.param // FRAGMENTS
    numbers = pa.array(np.arange(rows), pa.int32())
    for part in range(FRAGMENTS):
        names = pa.array([f"p-{part}-{number}" for number in range(rows)])
        people = pa.table({"name": names, "age": numbers})
        knows = pa.table({"id": names, "from": names, "to": names, "since": numbers})
        graph.load({"Person": people, "Knows": knows})
    graph.load({"City": [{"name": "bern", "size": 1}]})
    for branch in ("behind", "cities", "left", "right"):
        graph.branches.create(branch)
    graph.load({"City": [{"name": "rome", "size": 2}]}, branch="cities")
    graph.load(_pairs("p-1-1", "left"), "merge", branch="left")
    graph.mutate('query leave() { delete Person where name = "p-3-1" }', branch="left")
    graph.load(_pairs("p-2-1", "right"), "merge", branch="right")
    for branch, source, other, name in (("one", "left", "right", "p-4-1"), ("two", "right", "left", "p-5-1")):
        graph.branches.create(branch, source)
        graph.branches.merge(other, branch)
        graph.load(_pairs(name), "merge", branch=branch)
    graph.close()
    return folder


def _pairs(*names: str) -> dict[str, list[dict[str, Any]]]:
    return {
        "Person": [{"name": name, "age": -1} for name in names],
        "Knows": [{"id": name, "from": name, "to": name, "since": -1} for name in names],
    }


@pytest.fixture
def graph(large: Path, s3: Bucket) -> Iterator[og.Graph]:
    """A handle that has read nothing."""
    found = og.open(upload_graph(large, s3, "g"), storage_options=s3.options)
    yield found
    found.close()


def shape(log: Log) -> dict[str, int]:
    """Requests by what they are for; versions of a table are looked for and then read, which is one here."""

    def purpose(method: str, key: str, query: str) -> str:
        if "list-type" in query:
            return "probe"
        verb = "write" if method in ("PUT", "POST") else "read"
        return f"{verb} manifest" if "/__manifest/" in f"/{key}" else f"{verb} {_folder(key)}"

    wanted = [item for item in log.requests if item.method != "HEAD"]
    return dict(Counter(purpose(item.method, item.key, item.query) for item in wanted))


def _folder(key: str) -> str:
    return key.rsplit("/", 2)[-2] if "/" in key else "many"


def data_files(log: Log) -> set[str]:
    """The files of tables that rows were read from. New files are read back for their digests only."""
    written = {item.key for item in log.requests if item.method == "PUT"}
    read = {item.key for item in log.requests if item.method == "GET" and "/data/" in item.key}
    found = read - written
    return {key.rsplit("/", 1)[-1] for key in found if "/__manifest/" not in f"/{key}"}


def changed_files(*states: Snapshot) -> set[str]:
    """The files of fragments that are not the same in all of the states."""
    times = Counter(
        (part.files, part.deletions)
        for state in states
        for key in TYPES
        for part in list_fragments(state.tables, state.pin(key))
    )
    return {files for (files, _), count in times.items() if count < len(states)}


def test_a_branch_costs_seven_requests_and_no_look_at_a_table(graph: og.Graph, s3: Bucket) -> None:
    with s3.seam.recording() as log:
        graph.branches.create("fresh")
    assert shape(log) == {"probe": 2, "read manifest": 2, "write manifest": 3}, str(log)


def test_a_fast_forward_sees_that_what_it_takes_is_there_and_opens_no_data_file(
    graph: og.Graph, s3: Bucket
) -> None:
    with s3.seam.recording() as log:
        merged = graph.branches.merge("left", "behind")
    assert (merged.outcome, set(merged.taken)) == ("fast_forward", {"Person", "Knows"})
    # The registry is replaced along with the head, so that no cleanup takes what is taken over.
    # The target has not moved since it was created, so the bucket with its entry is read and replaced.
    reads = {"read manifest": 6, "read _versions": 2}
    assert shape(log) == {"probe": 4, **reads, "write manifest": 6}, str(log)


def test_a_merge_of_branches_that_changed_other_types_opens_no_data_file(graph: og.Graph, s3: Bucket) -> None:
    with s3.seam.recording() as log:
        merged = graph.branches.merge("cities", "right")
    assert (merged.outcome, merged.taken) == ("merged", ("City",))
    # Two versions of each type that one of them changed, the one that is taken once more before the swap, and what
    # the newer one of people and edges deleted.
    reads = {"read manifest": 6, "read _versions": 7, "read _deletions": 2}
    assert shape(log) == {"probe": 4, **reads, "write manifest": 5}, str(log)


def test_a_merge_by_rows_reads_the_fragments_that_changed_and_no_others(graph: og.Graph, s3: Bucket) -> None:
    base, ours, theirs = (graph.snapshot(name) for name in ("main", "right", "left"))
    changed = changed_files(base, ours, theirs)
    stored = sum(part.rows for key in TYPES for part in list_fragments(base.tables, base.pin(key)))
    with s3.seam.recording() as log:
        merged = graph.branches.merge("left", "right")
    # Left changed more, so that its versions are the ones that what right changed is laid over.
    assert (merged.outcome, set(merged.taken)) == ("merged", {"Person", "Knows"})
    assert [graph.get("Person", name, branch="right") for name in ("p-1-1", "p-2-1", "p-3-1")] == [
        {"id": "p-1-1", "name": "p-1-1", "age": -1},
        {"id": "p-2-1", "name": "p-2-1", "age": -1},
        None,
    ]
    read = data_files(log)
    assert read, str(log)
    assert read <= changed, sorted(read - changed)
    assert len(read) < len(TYPES) * FRAGMENTS / 2
    bytes_read = sum(item.size for item in log.requests if "/data/" in item.key)
    assert bytes_read < BYTES_OF_A_FILE * len(read), f"{bytes_read} bytes of {stored} rows\n{log}"
    found = shape(log)
    # How many requests a file takes depends on its size; everything else does not.
    del found["read data"]
    assert found == {
        "probe": 4,
        "read manifest": 3,
        # The versions that are built on are read again, and the registry is replaced with the head. Two versions
        # and two deletion files are new and read back for their digests.
        "read _versions": 4,
        "read _deletions": 8,
        "write _deletions": 2,
        "write data": 2,
        "write _transactions": 2,
        "write _versions": 2,
        "write manifest": 5,
    }, str(log)


def test_merge_after_criss_cross_reads_the_fragments_that_changed_and_no_others(
    graph: og.Graph, s3: Bucket
) -> None:
    states = [graph.snapshot(name) for name in ("main", "left", "right", "one", "two")]
    changed = changed_files(*states)
    with s3.seam.recording() as log:
        merged = graph.branches.merge("two", "one")
    assert merged.outcome == "merged"
    assert [graph.get("Person", name, branch="one") for name in ("p-4-1", "p-5-1", "p-3-1")] == [
        {"id": "p-4-1", "name": "p-4-1", "age": -1},
        {"id": "p-5-1", "name": "p-5-1", "age": -1},
        None,
    ]
    read = data_files(log)
    assert read, str(log)
    assert read <= changed, sorted(read - changed)
    # Of each type five fragments and those that the five states added, whatever the size of the graph.
    assert len(read) == 22, str(log)
    found = shape(log)
    del found["read data"]
    assert found == {
        "probe": 4,
        # The commits down to the common ancestor of the merge bases.
        "read manifest": 7,
        "read _versions": 2,
        "read _deletions": 16,
        "write _deletions": 2,
        "write data": 2,
        "write _transactions": 2,
        "write _versions": 2,
        "write manifest": 4,
    }, str(log)
