"""What operations cost, in requests to an object store: exact counts, the same however long the history is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.store.manifest import manifest
from omnigraph.store.tables import tables
from tests.support.s3 import Bucket
from tests.support.s3_fixtures import s3, s3_server
from tests.support.s3_graphs import upload_graph
from tests.support.s3_seam import Log
from tests.support.workload import PERSON, catalog, rows_of, write

__all__ = ["s3", "s3_server"]

pytestmark = pytest.mark.timeout(1_800)

# Long enough that requests sent side by side overlap in the server's eyes.
LATENCY: Final = 0.15
HISTORIES: Final = [10, 1_000, 10_000] if os.environ.get("OMNIGRAPH_CUTS") == "all" else [10, 150]


@pytest.fixture(scope="module", params=HISTORIES)
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with about so many commits, made on disk, whose next few writes find nothing to fold."""
    folder = tmp_path_factory.mktemp("history") / "graph"
    graph = Repository.init(str(folder), catalog(), durability="os")
    number = 0
    while number < request.param or _is_nearly_full(graph):
        write(graph, _insert(f"row-{number}"))
        number += 1
    graph.close()
    return folder


def _is_nearly_full(graph: Repository) -> bool:
    """Whether one of the next writes folds: that is paid by every 32nd, and not what is counted here."""
    log = [item for item in graph.manifest.view.of_kind("commit") if item.level == 0]
    pin = graph.snapshot().pin(PERSON)
    fragments = graph.tables.open(pin.path, pin.version).get_fragments()
    small = sum(item.physical_rows < tables.COMPACTION_TIERS[0] for item in fragments)
    return len(log) > manifest.LOG_COMPACT_AT - 6 or small > tables.COMPACT_AT - 6


def _insert(name: str) -> Callable[[Transaction], Prepared[None]]:
    def prepare(transaction: Transaction) -> Prepared[None]:
        transaction.stage(PERSON, insert=rows_of(transaction, PERSON, {name: 1}))
        return Prepared("insert", None)

    return prepare


def _open(history: Path, bucket: Bucket) -> Repository:
    return Repository.open(upload_graph(history, bucket, "g"), options=bucket.options)


def _shape(log: Log) -> dict[str, int]:
    """Requests by what they are for."""
    kinds = {"LIST": 0, "GET": 0, "HEAD": 0, "PUT": 0, "POST": 0, "DELETE": 0}
    for item in log.requests:
        kinds["LIST" if "list-type" in item.query else item.method] += 1
    return {name: count for name, count in kinds.items() if count}


def _read_keys(log: Log) -> list[str]:
    """The objects that were read, without those that were written before."""
    written = {item.key for item in log.requests if item.method == "PUT"}
    read = [item.key for item in log.requests if item.method in ("GET", "HEAD") and not item.query]
    return [key for key in read if key not in written]


def test_write_of_one_row_on_a_warm_handle_takes_twelve_requests_nine_serial(
    history: Path, s3: Bucket
) -> None:
    graph = _open(history, s3)
    write(graph, _insert("warm-up"))
    with s3.seam.recording(LATENCY) as log:
        write(graph, _insert("counted"))
    assert _shape(log) == {"LIST": 3, "GET": 2, "PUT": 7}, str(log)
    assert log.serial == 9, str(log)
    assert _read_keys(log) == [], "only new files are read, for their digests"
    assert log.count(key="__manifest/_versions") == 1, "one conditional put makes it visible"
    graph.close()


def test_a_table_is_opened_once_for_a_write_and_not_again(history: Path, s3: Bucket) -> None:
    graph = _open(history, s3)
    with s3.seam.recording() as log:
        write(graph, _insert("first"))
    assert len({key for key in _read_keys(log) if "/_versions/d" in key}) == 1, str(log)
    with s3.seam.recording() as log:
        write(graph, _insert("second"))
    assert _read_keys(log) == [], str(log)
    graph.close()


def test_opening_a_graph_cold_takes_four_requests_and_its_first_snapshot_three_more(
    history: Path, s3: Bucket
) -> None:
    uri = upload_graph(history, s3, "g")
    with s3.seam.recording() as log:
        graph = Repository.open(uri, options=s3.options)
    assert _shape(log) == {"LIST": 2, "GET": 2}, str(log)
    with s3.seam.recording() as log:
        assert graph.snapshot().catalog.schema.nodes
    assert _shape(log) == {"LIST": 1, "GET": 2}, str(log)
    graph.close()


def test_opening_for_reading_writes_nothing_and_looks_at_no_intent(history: Path, s3: Bucket) -> None:
    uri = upload_graph(history, s3, "g")
    with s3.seam.recording() as log:
        Repository.open(uri, mode="r", options=s3.options).close()
    assert _shape(log) == {"LIST": 1, "GET": 2}, str(log)


def test_a_repeated_snapshot_is_one_probe(history: Path, s3: Bucket) -> None:
    graph = _open(history, s3)
    graph.snapshot()
    with s3.seam.recording() as log:
        graph.snapshot()
    assert _shape(log) == {"LIST": 1}, str(log)
    graph.close()


def test_after_another_process_committed_only_what_is_new_is_read(history: Path, s3: Bucket) -> None:
    graph = _open(history, s3)
    graph.snapshot()
    other = Repository.open(f"{s3.uri}/g", options=s3.options)
    write(other, _insert("elsewhere"))
    with s3.seam.recording() as log:
        snapshot = graph.snapshot()
    assert snapshot.commit.id == other.head().commit.id
    read = [item for item in log.requests if "/data/" in item.key]
    assert [item.key.split("/data/")[1].split("-")[0] for item in read] == ["head"], str(log)
    graph.close()
    other.close()


def test_a_branch_costs_six_requests_and_touches_no_table(history: Path, s3: Bucket) -> None:
    graph = _open(history, s3)
    graph.snapshot()
    with s3.seam.recording() as log:
        graph.create_branch("review/x")
    assert _shape(log) == {"LIST": 2, "GET": 1, "PUT": 3}, str(log)
    assert not [item for item in log.requests if "nodes/" in item.key or "edges/" in item.key]
    graph.close()


def test_finding_an_old_commit_reads_only_files_that_may_hold_it(history: Path, s3: Bucket) -> None:
    graph = _open(history, s3)
    genesis = list(graph.commits())[-1]
    graph.close()
    fresh = Repository.open(f"{s3.uri}/g", options=s3.options)
    with s3.seam.recording() as log:
        assert fresh.commit(genesis.id) == genesis
    assert len({item.key for item in log.requests if "/data/commit-" in item.key}) == 1, str(log)
    fresh.close()
