"""Recovery of interrupted bulk writes: complete ones are published, others discarded, each with one record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from omnigraph.errors import Conflict, RecoveryRequired, StorageError
from omnigraph.graph.publish import publish
from omnigraph.graph.recovery import intents as intents_module
from omnigraph.graph.recovery.intents import Intent, IntentOwner, Intents
from omnigraph.graph.recovery.interrupted_writes import _recover, recover_all
from omnigraph.graph.recovery.process_identity import process_start, this_machine
from omnigraph.graph.recovery.write_intents import hold_intent
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import OperationClass, Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.store.manifest.records import RecoveryRecord
from tests.support.places import fresh_memory, together
from tests.support.repositories import (
    CITY,
    DEAD,
    PERSON,
    chain,
    far_owner,
    handle,
    leave_intent,
    leftovers,
    make_graph,
    people,
    put,
    stage,
    staging,
    write,
)

UNREADABLE = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"id": "x"}',
    json.dumps(
        {
            **dict.fromkeys(("id", "operation", "actor", "branch", "incarnation", "base"), "x"),
            "created_at": 1,
            "owner": {"machine": "m", "pid": 1, "started": "s"},
            "plan": {"base_tables": [], "writes": {}, "reads": [], "drops": []},
        }
    ).encode(),
]


@pytest.fixture
def graph() -> Repository:
    return make_graph(fresh_memory())


def audit(graph: Repository) -> list[tuple[str, str, str | None]]:
    return [(row.id, row.outcome, row.actor) for row in graph.recoveries()]


# --- complete work is published -------------------------------------------------------------------------


def test_open_publishes_confirmed_intent_of_a_dead_owner(uri: str) -> None:
    graph = make_graph(uri)
    intent = leave_intent(graph, staging({"a": "1"}, as_class="strict"))
    assert people(graph) == {}
    opened = handle(graph)
    assert people(opened) == {"a": "1"}
    commit = opened.head().commit
    assert intent.plan is not None
    assert (commit.id, commit.actor, commit.recovered) == (intent.plan.commit_id, "bulk-actor", True)
    (row,) = opened.recoveries()
    assert (row.id, row.outcome, row.actor) == (intent.id, "rolled_forward", "bulk-actor")
    assert (row.branch, row.operation, row.commit_id) == ("main", "bulk load", commit.id)
    assert row.tables == {str(opened.snapshot().table(PERSON).id): "rolled_forward"}
    assert leftovers(opened) == []


def test_intent_with_a_flipped_bit_is_never_read_as_another_one(graph: Repository) -> None:
    intact = leave_intent(graph, staging({"a": "1"}, as_class="strict"))
    data = graph.objects.get(f"__recovery/{intact.id}.json").data
    refused = 0
    for bit in range(0, len(data) * 8, 3):
        altered = bytearray(data)
        altered[bit // 8] ^= 1 << bit % 8
        try:
            assert Intent.from_bytes(bytes(altered), intact.id) == intact
        except RecoveryRequired:
            refused += 1
    # An altered name of the checksum leaves an intent as earlier releases wrote it.
    assert refused > len(data) * 8 / 3 - len("checksum") * 8


def test_recovery_run_repeatedly_publishes_once(uri: str) -> None:
    graph = make_graph(uri)
    leave_intent(graph, staging({"a": "1"}))
    assert [len(graph.recover()) for _ in range(3)] == [1, 0, 0]
    handle(graph)
    assert len(chain(graph)) == 2
    assert len(graph.recoveries()) == 1


def test_write_on_open_handle_recovers_first_and_builds_on_the_result(uri: str) -> None:
    graph = make_graph(uri)
    intent = leave_intent(handle(graph), staging({"a": "1"}))
    assert intent.plan is not None
    commit = put(graph, {"b": "1"})
    assert commit.parent == intent.plan.commit_id
    assert people(graph) == {"a": "1", "b": "1"}
    assert leftovers(graph) == []


def test_recovery_rebases_over_unrelated_changes(graph: Repository) -> None:
    intent = leave_intent(graph, staging({"a": "1"}, as_class="strict"), owner=far_owner())
    theirs = put(graph, {"c": "1"}, key=CITY)
    graph.intents.lease_seconds = -1
    (row,) = graph.recover()
    assert (row.id, row.outcome) == (intent.id, "rolled_forward")
    assert graph.head().commit.parent == theirs.id


def test_recovery_publishes_several_intents_in_their_order(graph: Repository) -> None:
    first = leave_intent(graph, staging({"a": "1"}), owner=far_owner())
    second = leave_intent(graph, staging({"c": "1"}, key=CITY), owner=far_owner())
    graph.intents.lease_seconds = -1
    assert [row.id for row in graph.recover()] == [first.id, second.id]
    assert len(chain(graph)) == 3


# --- incomplete and overtaken work is discarded ---------------------------------------------------------


def test_recovery_discards_unconfirmed_intent_with_a_record(uri: str) -> None:
    graph = make_graph(uri)
    head = graph.head()
    intent = leave_intent(graph, None)
    (row,) = graph.recover()
    assert (row.id, row.outcome, row.actor, row.commit_id) == (intent.id, "discarded", "bulk-actor", None)
    assert "interrupted before it was complete" in row.reason
    assert graph.head() == head
    assert graph.recoveries() == [row]
    assert leftovers(graph) == []


@pytest.mark.parametrize("operation_class", ["strict", "insert", "maintenance"])
def test_recovery_of_conflicting_intent_discards_it_with_a_record(
    graph: Repository, operation_class: OperationClass
) -> None:
    intent = leave_intent(graph, staging({"a": "1"}, as_class=operation_class), owner=far_owner())
    put(graph, {"b": "1"})
    graph.intents.lease_seconds = -1
    (row,) = graph.recover()
    assert (row.id, row.outcome, row.commit_id) == (intent.id, "discarded", None)
    assert row.reason.startswith("the branch has moved: ")
    assert people(graph) == {"b": "1"}
    assert leftovers(graph) == []


def test_recovery_of_intent_with_lost_precondition_discards_it_with_a_record(graph: Repository) -> None:
    head = graph.head().commit.id
    leave_intent(graph, staging({"a": "1"}), owner=far_owner(), expected_head=head)
    put(graph, {"c": "1"}, key=CITY)
    graph.intents.lease_seconds = -1
    assert [row.outcome for row in graph.recover()] == ["discarded"]
    assert people(graph) == {}


@pytest.mark.parametrize("confirmed", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_recovery_of_intent_on_deleted_branch_discards_it_as_orphaned(
    uri: str, confirmed: bool, again: bool
) -> None:
    graph = make_graph(uri)
    graph.create_branch("x")
    intent = leave_intent(graph, staging({"a": "1"}) if confirmed else None, "x")
    graph.delete_branch("x")
    if again:
        graph.create_branch("x")
    (row,) = handle(graph).recoveries()
    assert (row.id, row.outcome, row.branch, row.actor) == (intent.id, "orphaned", "x", "bulk-actor")
    # A crash before the intent was removed. The next recovery only removes it.
    graph.intents.write(intent)
    put(graph, {"m": "1"})
    assert graph.recoveries() == [row]
    assert leftovers(graph) == []
    assert people(graph) == {"m": "1"}


# --- crashes inside recovery ----------------------------------------------------------------------------


def test_recovery_interrupted_after_claiming_to_discard_is_completed_by_the_next(graph: Repository) -> None:
    intent = leave_intent(graph, None)
    assert graph.intents.claim_outcome(intent.id, "discarded") == "discarded"
    assert [row.outcome for row in graph.recover()] == ["discarded"]
    assert leftovers(graph) == []


def test_recovery_interrupted_after_claiming_to_publish_is_completed_by_the_next(graph: Repository) -> None:
    intent = leave_intent(graph, staging({"a": "1"}))
    assert graph.intents.claim_outcome(intent.id, "publishing") == "publishing"
    assert [row.outcome for row in graph.recover()] == ["rolled_forward"]
    assert people(graph) == {"a": "1"}


def test_intent_claimed_for_discard_is_never_published_even_if_confirmed(
    graph: Repository,
) -> None:
    intent = leave_intent(graph, staging({"a": "1"}))
    graph.intents.claim_outcome(intent.id, "discarded")
    assert [row.outcome for row in graph.recover()] == ["discarded"]
    assert people(graph) == {}


@pytest.mark.parametrize("confirmed", [True, False])
def test_recovery_interrupted_before_removal_writes_no_second_record(
    graph: Repository, confirmed: bool
) -> None:
    intent = leave_intent(graph, staging({"a": "1"}) if confirmed else None)
    (row,) = graph.recover()
    graph.intents.write(intent)
    assert graph.recover() == []
    assert graph.recoveries() == [row]
    assert leftovers(graph) == []


def test_recovery_of_published_intent_only_removes_it(graph: Repository) -> None:
    intent = leave_intent(graph, staging({"a": "1"}))
    assert intent.plan is not None
    publish(graph.manifest, intent.plan)
    put(graph, {"b": "1"})
    assert people(graph) == {"a": "1", "b": "1"}
    assert graph.recoveries() == []
    assert not any(commit.recovered for commit in chain(graph))
    assert leftovers(graph) == []


@pytest.mark.parametrize("kind", ["confirmed", "unconfirmed", "overtaken", "orphaned"])
def test_concurrent_recoveries_write_one_record(uri: str, kind: str) -> None:
    graph = make_graph(uri)
    graph.create_branch("x")
    prepare = None if kind == "unconfirmed" else staging({"a": "1"}, as_class="strict")
    intent = leave_intent(graph, prepare, "x", owner=far_owner())
    handles = [handle(graph) for _ in range(6)]
    if kind == "overtaken":
        put(graph, {"b": "1"}, "x")
    if kind == "orphaned":
        graph.delete_branch("x")
    for item in handles:
        item.intents.lease_seconds = -1
    outcomes = together([item.recover for item in handles])
    rows = [row for outcome in outcomes if isinstance(outcome, list) for row in outcome]
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert [row.id for row in graph.recoveries()] == [intent.id]
    assert rows == graph.recoveries()
    assert leftovers(graph) == []
    if kind == "confirmed":
        assert [commit.recovered for commit in chain(graph, "x")] == [False, True]


def test_recovery_with_stale_view_of_an_intent_changes_nothing(graph: Repository) -> None:
    """One recovery reads the intent before another recovers and removes it."""
    for prepare, claim in ((None, "discarded"), (staging({"a": "1"}), "publishing")):
        intent = leave_intent(graph, prepare)
        graph.recover()
        wanted: Literal["discarded", "publishing"] = "discarded" if claim == "discarded" else "publishing"
        assert graph.intents.claim_outcome(intent.id, wanted) is None
        assert leftovers(graph) == []


# --- owners that live, or seem dead ---------------------------------------------------------------------


def test_recovery_keeps_the_intent_of_a_writer_in_this_process(uri: str) -> None:
    graph = make_graph(uri)
    other = handle(graph)

    def prepare(transaction: Transaction) -> Prepared[None]:
        stage(transaction, {"a": "1"})
        assert len(leftovers(other)) == 2
        assert other.recover() == []
        put(other, {"c": "1"}, key=CITY)
        handle(graph)
        assert len(leftovers(other)) == 2
        return Prepared("strict", None)

    write(graph, prepare, bulk=True)
    assert people(graph) == {"a": "1"}
    assert graph.recoveries() == []


def test_recovery_keeps_the_intent_of_a_live_process_and_detects_a_reused_pid(graph: Repository) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        alive = IntentOwner(this_machine(), process.pid, process_start(process.pid))
        intent = leave_intent(graph, staging({"a": "1"}), owner=alive)
        assert graph.recover() == []
        graph.intents.write(replace(intent, owner=replace(alive, started="long ago")))
        assert [row.id for row in graph.recover()] == [intent.id]
    finally:
        process.communicate(b"\n")


def test_recovery_discards_the_intent_of_an_ended_process(graph: Repository) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = IntentOwner(this_machine(), process.pid, process_start(process.pid))
    leave_intent(graph, staging({"a": "1"}), owner=owner)
    assert graph.recover() == []
    process.communicate(b"\n")
    assert [row.outcome for row in graph.recover()] == ["rolled_forward"]
    assert process_start(DEAD) == ""


def test_recovery_keeps_the_intent_of_another_machine_until_its_lease_expires(graph: Repository) -> None:
    intent = leave_intent(graph, staging({"a": "1"}), owner=far_owner())
    graph.intents.renew_lease(intent.id)
    assert graph.recover() == []
    put(graph, {"c": "1"}, key=CITY)
    assert people(graph) == {}
    graph.intents.lease_seconds = -1
    assert [row.outcome for row in graph.recover()] == ["rolled_forward"]


def test_recovery_without_lease_counts_from_the_creation_of_the_intent(tmp_path: Path) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    intent = leave_intent(graph, None, owner=far_owner())
    assert graph.recover() == []
    silent_for(tmp_path / "graph", seconds=3_600)
    graph.objects.put(
        f"__recovery/{intent.id}.json",
        replace(intent, created_at=intent.created_at - 3_600_000_000).to_bytes(),
    )
    assert graph.recover() == [], (
        "one that was written this moment is alive, whatever it says of its beginning"
    )
    silent_for(tmp_path / "graph", seconds=3_600)
    assert [row.id for row in graph.recover()] == [intent.id]


def silent_for(root: Path, seconds: float) -> None:
    """Set the modification times of the intents to the past."""
    then = time.time() - seconds
    for file in (root / "__recovery").iterdir():
        os.utime(file, (then, then))


def say(graph: Repository, id_: str, seconds: float) -> None:
    """Write a heartbeat with a clock that is ahead of the local one."""
    graph.objects.put(f"__recovery/{id_}.lease", str(time.time() + seconds).encode())


@pytest.mark.parametrize("seconds", [-86_400, -120, 120, 86_400])
def test_recovery_ignores_the_clock_of_another_machine(tmp_path: Path, seconds: float) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    intent = leave_intent(graph, staging({"a": "1"}), owner=far_owner())
    say(graph, intent.id, seconds)
    assert graph.recover() == []
    put(graph, {"c": "1"}, key=CITY)
    silent_for(tmp_path / "graph", 20)
    assert graph.recover() == []
    silent_for(tmp_path / "graph", 40)
    assert [row.id for row in graph.recover()] == [intent.id]
    assert leftovers(graph) == []


@pytest.mark.parametrize("seconds", [-7_200, 0, 7_200])
def test_recovery_keeps_a_held_intent_for_its_duration_with_any_clock(tmp_path: Path, seconds: float) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    id_ = graph.lease_intent("main", WriteRequest("load", bulk=True), 3_600)
    say(graph, id_, seconds + 3_600)
    silent_for(tmp_path / "graph", 1_800)
    assert graph.recover() == []
    silent_for(tmp_path / "graph", 3_500)
    assert graph.recover() == []
    say(graph, id_, seconds + 3_600 - 3_640)
    silent_for(tmp_path / "graph", 3_640)
    assert [row.id for row in graph.recover()] == [id_]


def test_recovery_keeps_an_intent_that_was_just_taken_over(tmp_path: Path) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    id_ = graph.lease_intent("main", WriteRequest("load", bulk=True), 3_600)
    silent_for(tmp_path / "graph", 3_000)
    assert graph.intents.claim(id_, far_owner()) is not None
    assert graph.recover() == []
    silent_for(tmp_path / "graph", 40)
    assert [row.id for row in graph.recover()] == [id_]


def test_open_in_read_mode_with_dead_intent_writes_nothing(tmp_path: Path) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    intent = leave_intent(graph, staging({"a": "1"}), owner=far_owner())
    say(graph, intent.id, -120)
    reader = handle(graph, "r")
    assert not reader.intents.is_abandoned(intent)
    silent_for(tmp_path / "graph", 40)
    assert reader.intents.is_abandoned(intent)
    assert len(leftovers(graph)) == 2


def presume_dead(id_: str) -> None:
    """Make an operation look abandoned to recovery in this process."""
    intents_module._RUNNING.discard(id_)


def test_owner_discarded_while_staging_gets_conflict_and_publishes_nothing(uri: str) -> None:
    graph = make_graph(uri)
    other = handle(graph)

    def prepare(transaction: Transaction) -> Prepared[None]:
        stage(transaction, {"a": "1"})
        (id_,) = other.intents.pending().ids
        presume_dead(id_)
        assert [row.outcome for row in other.recover()] == ["discarded"]
        return Prepared("insert", None)

    with pytest.raises(Conflict, match="was discarded by recovery while its process was paused"):
        write(graph, prepare, bulk=True)
    assert people(graph) == {}
    assert len(graph.recoveries()) == 1
    assert leftovers(graph) == []
    put(graph, {"b": "1"})
    assert people(graph) == {"b": "1"}


@pytest.mark.parametrize("fate", ["rolled forward", "discarded"])
def test_owner_paused_before_the_swap_gets_the_outcome_of_recovery(uri: str, fate: str) -> None:
    graph = make_graph(uri)
    other = handle(graph)
    transaction = graph.begin()
    with hold_intent(graph.intents, transaction, WriteRequest("load", "ana"), []) as owned:
        stage(transaction, {"a": "1"})
        plan = transaction.plan("load", "strict", actor="ana")
        unconfirmed = owned.intent
        owned.confirm(plan)
        presume_dead(owned.intent.id)
        if fate == "discarded":
            # A recovery that read the intent before it was confirmed.
            assert other.intents.claim_outcome(unconfirmed.id, "discarded") == "discarded"
        assert [row.actor for row in other.recover()] == ["ana"]
        if fate == "discarded":
            with pytest.raises(Conflict, match="was discarded by recovery"):
                graph._publish(plan, before_swap=owned.claim_publish)
        else:
            receipt = graph._publish(plan, before_swap=owned.claim_publish)
            assert receipt.replayed
            assert receipt.commit == other.head().commit
    assert people(graph) == ({} if fate == "discarded" else {"a": "1"})
    assert len(graph.recoveries()) == 1
    assert leftovers(graph) == []


def test_owner_that_confirms_before_the_claim_of_recovery_publishes(graph: Repository) -> None:
    other = handle(graph)
    transaction = graph.begin()
    with hold_intent(graph.intents, transaction, WriteRequest("load", "ana"), []) as owned:
        stale = owned.intent
        stage(transaction, {"a": "1"})
        owned.confirm(transaction.plan("load", "strict", actor="ana"))
        owned.claim_publish()
        presume_dead(stale.id)
        assert _recover(other.manifest, other.intents, stale) is None
        assert other.intents.read(stale.id) is not None
        graph._publish(transaction.plan("load", "strict", actor="ana"), before_swap=owned.claim_publish)
    assert people(graph) == {"a": "1"}
    assert graph.recoveries() == []


def test_owner_and_recovery_that_both_publish_make_one_commit(uri: str) -> None:
    graph = make_graph(uri)
    intent = leave_intent(graph, staging({"a": "1"}, as_class="strict"), owner=far_owner())
    plan = intent.plan
    assert plan is not None
    other = handle(graph)
    other.intents.lease_seconds = -1
    works: list[Callable[[], object]] = [partial(publish, graph.manifest, plan), other.recover]
    assert not [outcome for outcome in together(works) if isinstance(outcome, Exception)]
    assert [commit.id for commit in chain(graph)[1:]] == [plan.commit_id]
    assert len(graph.recoveries()) == int(graph.head().commit.recovered)
    graph.recover()
    assert leftovers(graph) == []


# --- storage that misbehaves ----------------------------------------------------------------------------


@pytest.mark.parametrize("data", UNREADABLE)
def test_unreadable_intent_stops_writers_and_not_readers(uri: str, data: bytes) -> None:
    graph = make_graph(uri)
    put(graph, {"a": "1"})
    graph.objects.put("__recovery/x.json", data)
    with pytest.raises(RecoveryRequired, match="the intent of operation x cannot be read"):
        handle(graph)
    with pytest.raises(RecoveryRequired) as caught:
        put(graph, {"b": "1"})
    assert caught.value.details["operation_id"] == "x"
    assert people(handle(graph, "r")) == {"a": "1"}
    assert graph.objects.get("__recovery/x.json").data == data
    graph.objects.delete("__recovery/x.json")
    put(graph, {"b": "1"})


@pytest.mark.parametrize("data", UNREADABLE)
def test_unreadable_intent_is_discarded_by_force_once_with_a_record(uri: str, data: bytes) -> None:
    graph = make_graph(uri)
    graph.objects.put("__recovery/x.json", data)
    with pytest.raises(RecoveryRequired):
        graph.recover_operation("x")
    first = graph.recover_operation("x", force=True)
    assert first is not None
    assert graph.recover_operation("x", force=True) is None
    assert audit(graph) == [("x", "discarded", None)]
    assert leftovers(graph) == []
    put(graph, {"b": "1"})


def test_owner_whose_unreadable_intent_was_discarded_publishes_nothing(uri: str) -> None:
    graph = make_graph(uri)
    other = handle(graph)
    transaction = graph.begin()
    with hold_intent(graph.intents, transaction, WriteRequest("load", "ana"), []) as owned:
        stage(transaction, {"a": "1"})
        plan = transaction.plan("load", "strict", actor="ana")
        owned.confirm(plan)
        graph.objects.put(f"__recovery/{owned.intent.id}.json", b"{")
        assert other.recover_operation(owned.intent.id, force=True) is None
        other.intents.lease_seconds = -1
        assert other.recover_operation(owned.intent.id, force=True) is not None
        with pytest.raises(Conflict, match="was discarded by recovery"):
            graph._publish(plan, before_swap=owned.claim_publish)
    assert people(graph) == {}
    assert leftovers(graph) == []


def test_intent_that_cannot_be_removed_is_a_warning(tmp_path: Path) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    folder = tmp_path / "graph" / "__recovery"

    def prepare(transaction: Transaction) -> Prepared[None]:
        stage(transaction, {"a": "1"})
        (lease,) = folder.glob("*.lease")
        lease.unlink()
        lease.mkdir()
        return Prepared("insert", None)

    receipt = write(graph, prepare, bulk=True)
    assert receipt.commit == graph.head().commit
    assert len(graph.warnings) == 1
    assert "cannot remove the intent" in graph.warnings[0]
    for lease in folder.glob("*.lease"):
        lease.rmdir()
    put(graph, {"b": "1"})
    assert people(graph) == {"a": "1", "b": "1"}
    assert graph.recoveries() == []
    assert leftovers(graph) == []


def test_bulk_write_whose_intent_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    (tmp_path / "graph" / "__recovery").write_text("not a folder")
    called: list[Transaction] = []

    def prepare(transaction: Transaction) -> Prepared[None]:
        called.append(transaction)
        return Prepared("insert", None)

    with pytest.raises(Exception, match="__recovery") as caught:
        write(graph, prepare, bulk=True)
    assert type(caught.value).__name__ == "StorageError"
    assert called == []
    assert people(graph) == {}


def test_recovery_with_missing_manifest_file_does_not_orphan_the_intent(tmp_path: Path) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    leave_intent(graph, staging({"a": "1"}))
    reader = handle(graph, "r")
    for file in (tmp_path / "graph" / "__manifest" / "data").glob("head-*"):
        file.unlink()
    with pytest.raises(StorageError, match=r"^__manifest/data/head-.* is damaged: it is missing") as caught:
        recover_all(reader.manifest, graph.intents)
    assert caught.value.details["reason"] == "damaged"
    assert len(leftovers(graph)) == 1


def test_intent_round_trips_through_json(graph: Repository) -> None:
    for prepare in (None, staging({"a": "1"})):
        intent = leave_intent(graph, prepare, owner=far_owner(), actor=None)
        assert Intent.from_bytes(intent.to_bytes(), intent.id) == intent
        assert graph.intents.read(intent.id) == intent
    assert graph.intents.read("nobody") is None


def test_recovery_removes_the_remains_of_an_interrupted_removal(graph: Repository) -> None:
    graph.objects.put("__recovery/gone.lease", b"1")
    graph.objects.put("__recovery/gone.outcome", b"discarded")
    put(graph, {"a": "1"})
    assert leftovers(graph) == []
    assert graph.recoveries() == []


def test_concurrent_claims_of_an_outcome_agree_on_the_first(graph: Repository) -> None:
    intent = leave_intent(graph, None, owner=far_owner())
    intents = [Intents(graph.objects) for _ in range(6)]
    claims: list[Literal["publishing", "discarded"]] = ["publishing", "discarded"] * 3
    outcomes = together(
        [partial(item.claim_outcome, intent.id, claim) for item, claim in zip(intents, claims, strict=True)]
    )
    assert len(set(map(str, outcomes))) == 1
    assert outcomes[0] in ("publishing", "discarded")


def test_recovery_record_has_actor_and_reason(graph: Repository) -> None:
    leave_intent(graph, None, actor="eve", operation="merge")
    leave_intent(graph, staging({"a": "1"}), actor=None)
    graph.recover()
    rows: list[RecoveryRecord] = graph.recoveries()
    assert [(row.actor, row.operation, row.outcome) for row in rows] == [
        ("eve", "merge", "discarded"),
        (None, "bulk load", "rolled_forward"),
    ]
    assert audit(graph)[0][2] == "eve"
