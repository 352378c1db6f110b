"""Leases of long reads: garbage collection keeps what they read, and short reads make no request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from omnigraph.errors import NotFound
from omnigraph.graph import read_leases
from omnigraph.graph.recovery.leases import find_leases
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.maintain.cleanup import cleanup
from omnigraph.store.manifest import manifest, version_trim
from tests.support.repositories import PERSON, contents, handle, make_graph, put
from tests.support.waiting import wait_until


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    monkeypatch.setattr(read_leases, "LEASE_AFTER", 0.02)
    found = make_graph(str(tmp_path / "graph"))
    put(found, {"ann": "1"})
    yield found
    found.close()


@pytest.fixture
def collector(graph: Repository) -> Iterator[Repository]:
    found = handle(graph)
    yield found
    found.close()


def wait_for_lease(graph: Repository, commits: tuple[str, ...]) -> None:
    wait_until(
        lambda: any(lease.commits == commits for lease in find_leases(graph.objects).live) or None,
        "the lease of a read",
    )


def collect(collector: Repository) -> None:
    """Replace the newest commit, and collect all others that nothing keeps."""
    put(collector, {"ann": "2"})
    put(collector, {"ann": "3"})
    cleanup(collector, keep=1, confirm=True, grace=timedelta(0))


def is_retained(collector: Repository, snapshot: Snapshot) -> bool:
    """Whether the rows of a snapshot are in storage, without regard to what its handle has in memory."""
    with closing(handle(collector)) as fresh:
        try:
            contents(fresh.snapshot(at=snapshot.commit_id))
        except NotFound:
            return False
    return True


def test_commit_of_a_long_read_is_kept_until_the_read_ends(graph: Repository, collector: Repository) -> None:
    snapshot = graph.snapshot()
    rows = snapshot.scan_batches(PERSON)
    first = next(rows)
    assert first.num_rows == 1
    wait_for_lease(graph, (snapshot.commit_id,))
    collect(collector)
    assert is_retained(collector, snapshot)
    assert list(rows) == []
    wait_until(lambda: not find_leases(graph.objects).live or None, "the end of the lease")
    collect(collector)
    assert not is_retained(collector, snapshot)


def test_held_commit_is_kept_until_the_handle_is_closed(graph: Repository, collector: Repository) -> None:
    snapshot = graph.snapshot()
    assert graph.read_leases is not None
    graph.read_leases.hold(snapshot.commit_id)
    wait_for_lease(graph, (snapshot.commit_id,))
    collect(collector)
    assert is_retained(collector, snapshot)
    graph.close()
    assert not find_leases(collector.objects).live
    collect(collector)
    assert not is_retained(collector, snapshot)


def test_oldest_held_commit_is_released(graph: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_leases, "_MAX_HELD", 2)
    assert graph.read_leases is not None
    for commit in ("1", "2", "3"):
        graph.read_leases.hold(commit)
    wait_for_lease(graph, ("2", "3"))


def test_close_ends_the_thread_and_removes_the_lease(graph: Repository) -> None:
    snapshot = graph.snapshot()
    assert graph.read_leases is not None
    with snapshot.held():
        wait_for_lease(graph, (snapshot.commit_id,))
        thread = graph.read_leases._thread
        assert thread is not None
        graph.close()
    assert not find_leases(graph.objects).live
    assert not thread.is_alive()


def test_lease_of_a_read_does_not_stop_the_trim_of_the_manifest(
    graph: Repository, collector: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "TRIM_EVERY", 1)
    monkeypatch.setattr(version_trim, "KEEP_ALWAYS", 2)
    monkeypatch.setattr(version_trim, "YOUNG", timedelta(0))
    snapshot = graph.snapshot()
    with snapshot.held():
        wait_for_lease(graph, (snapshot.commit_id,))
        for number in range(6):
            put(collector, {"ann": str(number)})
    versions = [item for item in graph.objects.list("__manifest/_versions") if item.key.endswith(".manifest")]
    assert len(versions) <= 4


def test_handle_for_reading_only_and_graph_in_memory_write_no_lease(graph: Repository) -> None:
    assert make_graph("memory://no-leases").read_leases is None
    with closing(handle(graph, "r")) as reader:
        assert reader.read_leases is None
        assert contents(reader.snapshot()) == {"ann": "1"}
