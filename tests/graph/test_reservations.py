"""Reservations: a write that loses every race for its branch is committed, because other writers wait for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from omnigraph.graph.recovery.intents import IntentOwner, this_process
from omnigraph.graph.repository import Repository
from omnigraph.graph.reservations import (
    LOSSES_BEFORE_RESERVATION,
    BranchReservation,
    wait_for_reservations,
)
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.store.manifest.records import encode_body
from tests.support.repositories import dead_owner, handle, leftovers, make_graph, people, put, staging
from tests.support.waiting import HANG


@pytest.fixture
def graph(uri: str) -> Iterator[Repository]:
    found = make_graph(uri)
    yield found
    found.close()


@pytest.fixture
def other(graph: Repository) -> Iterator[Repository]:
    found = handle(graph)
    yield found
    found.close()


class Writer:
    """A thread that writes to `main` through its own handle until it is stopped."""

    def __init__(self, graph: Repository) -> None:
        self._graph = graph
        self._stopped = threading.Event()
        self._written = threading.Condition()
        self._thread = threading.Thread(target=self._write)
        self.commits = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def wait_for_commit(self, seconds: float) -> bool:
        """Wait for a commit that begins after this call; return False if there is none in this time."""
        with self._written:
            # The commit that is counted next may be in the manifest already.
            expected = self.commits + 2
            return self._written.wait_for(lambda: self.commits >= expected, seconds)

    def _write(self) -> None:
        while not self._stopped.is_set():
            put(self._graph, {"fast": str(self.commits)})
            with self._written:
                self.commits += 1
                self._written.notify_all()


@pytest.mark.parametrize("bulk", [True, False], ids=["bulk", "grouped"])
def test_slow_write_beside_fast_writer_is_committed(graph: Repository, other: Repository, bulk: bool) -> None:
    preparations = 0
    with Writer(other) as writer:

        def prepare(transaction: Transaction) -> Prepared[None]:
            nonlocal preparations
            preparations += 1
            # As long as the other handle writes, this preparation is stale when it ends. The reservation begins
            # after the last loss. Then there is no commit, unless the other handle ignores it.
            is_reserved = preparations > LOSSES_BEFORE_RESERVATION
            writer.wait_for_commit(seconds=0.4 if is_reserved else HANG)
            return staging({"slow": "1"})(transaction)

        graph.write("main", WriteRequest("insert", bulk=bulk), prepare)
        # The reservation is gone, and the other handle writes on.
        assert writer.wait_for_commit(seconds=HANG)
    assert people(graph)["slow"] == "1"
    assert preparations > LOSSES_BEFORE_RESERVATION
    assert not leftovers(graph)


def reserve(graph: Repository, branch: str, owner: IntentOwner, millis: int = 200) -> None:
    """Reserve a branch on behalf of a process."""
    BranchReservation(graph.objects, branch).begin_preparation(LOSSES_BEFORE_RESERVATION)
    (key,) = graph.intents.pending().reservations
    graph.objects.delete(key)
    graph.objects.put(f"{key.rsplit('-', 1)[0]}-{millis}", encode_body(owner.to_body()).encode())


def test_write_of_another_branch_does_not_wait(graph: Repository, other: Repository) -> None:
    graph.create_branch("work")
    with BranchReservation(graph.objects, "work") as reservation:
        reservation.begin_preparation(LOSSES_BEFORE_RESERVATION)
        put(other, {"ann": "1"})
        assert graph.intents.pending().reservations


@pytest.mark.parametrize("millis", [200, 10**9], ids=["short", "without end"])
def test_reservation_of_an_ended_process_is_removed(graph: Repository, millis: int) -> None:
    reserve(graph, "main", dead_owner(), millis)
    put(graph, {"ann": "1"})
    assert not leftovers(graph)


def test_reservation_past_its_time_is_removed(graph: Repository) -> None:
    reserve(graph, "main", this_process())
    put(graph, {"ann": "1"})
    assert not leftovers(graph)


def test_reservation_with_unreadable_contents_ends_after_its_time(graph: Repository) -> None:
    reserve(graph, "main", this_process())
    (key,) = graph.intents.pending().reservations
    graph.objects.put(key, b"{")
    put(graph, {"ann": "1"})
    assert not leftovers(graph)


def test_newer_reservation_waits_for_the_older_one_only(graph: Repository) -> None:
    with BranchReservation(graph.objects, "main") as one, BranchReservation(graph.objects, "main") as two:
        one.begin_preparation(LOSSES_BEFORE_RESERVATION)
        two.begin_preparation(LOSSES_BEFORE_RESERVATION)
        older, newer = sorted((one, two), key=lambda reservation: reservation.id or "")
        listed = graph.intents.pending().reservations
        listings = 0

        def list_keys() -> tuple[str, ...]:
            nonlocal listings
            listings += 1
            if listings == 2:
                graph.objects.delete(listed[0])
            return graph.intents.pending().reservations

        assert not wait_for_reservations(graph.objects, "main", listed, older.id, list_keys)
        assert listings == 0
        assert wait_for_reservations(graph.objects, "main", listed, newer.id, list_keys)
        assert listings == 2
        assert graph.intents.pending().reservations == listed[1:]
