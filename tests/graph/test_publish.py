"""Publishing: writes on a branch that has moved, and the content of commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

import pytest

from omnigraph.errors import Conflict, InvalidInput, NotFound, PreconditionFailed
from omnigraph.graph import publish as publish_module
from omnigraph.graph import repository as repository_module
from omnigraph.graph.publish import PublishReceipt, publish
from omnigraph.graph.repository import MAX_PREPARATIONS, Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import OperationClass, Prepared, WritePlan
from omnigraph.graph.write_request import WriteRequest
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import TablePin
from tests.graph.interrupted import Interrupted
from tests.support.places import fresh_memory, together
from tests.support.repositories import (
    CITY,
    KNOWS,
    PERSON,
    TEXT,
    apply_schema,
    chain,
    contents,
    handle,
    make_graph,
    people,
    put,
    rewriting,
    stage,
    staging,
    wear,
    write,
)

CLASSES: tuple[OperationClass, ...] = get_args(OperationClass)


@pytest.fixture
def graph() -> Repository:
    return make_graph(fresh_memory())


@pytest.fixture
def other(graph: Repository) -> Repository:
    """Return a second handle."""
    return handle(graph)


# --- the head has not moved ------------------------------------------------------------------------------


def test_write_makes_one_commit_on_the_head(uri: str) -> None:
    graph = make_graph(uri)
    genesis = graph.head().commit
    receipt = write(graph, staging({"a": "1"}), message="hello", operation="load")
    commit = graph.head().commit
    assert receipt == PublishReceipt(commit)
    assert (commit.parent, commit.merged_parent, commit.sequence) == (genesis.id, None, 2)
    assert (commit.branch, commit.actor, commit.operation, commit.message) == ("main", "ana", "load", "hello")
    assert commit.touched == (str(graph.snapshot().table(PERSON).id),)
    assert commit.created_at > genesis.created_at
    assert people(handle(graph)) == {"a": "1"}


def test_commit_changes_all_its_tables_together(uri: str) -> None:
    graph = make_graph(uri)

    def prepare(transaction: Transaction) -> Prepared[None]:
        stage(transaction, {"a": "1"})
        stage(transaction, {"b": "1"}, key=CITY)
        return Prepared("insert", None)

    before = graph.snapshot()
    write(graph, prepare)
    after = graph.snapshot()
    assert (contents(before), contents(before, CITY)) == ({}, {})
    assert (contents(after), contents(after, CITY)) == ({"a": "1"}, {"b": "1"})
    assert after.pin(KNOWS) == before.pin(KNOWS)


def test_stage_twice_builds_on_the_first_version(graph: Repository) -> None:
    def prepare(transaction: Transaction) -> Prepared[None]:
        stage(transaction, {"a": "1", "b": "1"})
        stage(transaction, {"b": "2"}, delete=["b"])
        stage(transaction, delete=["a"])
        return Prepared("strict", None)

    base = graph.snapshot().pin(PERSON).version
    transaction = graph.begin()
    prepare(transaction)
    assert [item.expected for item in transaction.plan("load", "strict").writes.values()] == [base]
    write(graph, prepare)
    assert people(graph) == {"b": "2"}


def test_write_of_version_staged_on_another_base_is_refused(graph: Repository) -> None:
    transaction = graph.begin()
    stale = transaction.base.tables.stage(transaction.pin(PERSON), delete_ids=["x"])
    stage(transaction, {"a": "1"})
    with pytest.raises(Conflict) as caught:
        transaction.write(PERSON, stale)
    assert caught.value.details == {
        "table_key": PERSON,
        "expected": str(transaction.pin(PERSON).version),
        "actual": str(stale.base_version),
    }


def test_write_that_is_prepared_twice_returns_the_result_of_the_commit(
    graph: Repository, other: Repository
) -> None:
    attempts = 0

    def prepare(transaction: Transaction) -> Prepared[int]:
        nonlocal attempts
        attempts += 1
        stage(transaction, {"a": "1"})
        if attempts == 1:
            put(other, {"b": "2"})
        return Prepared("insert", attempts)

    receipt, result = graph.write("main", WriteRequest("load"), prepare)
    assert receipt is not None
    assert (receipt.commit.id, result) == (graph.head().commit.id, 2)


def test_write_that_is_replayed_by_its_key_has_no_result(graph: Repository) -> None:
    request = WriteRequest("load", idempotency_key="k", request="r")
    first = graph.write("main", request, lambda _: Prepared("insert", 1))
    again = graph.write("main", request, lambda _: Prepared("insert", 2))
    assert first.receipt is not None
    assert again.receipt is not None
    assert (first.receipt.commit, first.result) == (again.receipt.commit, 1)
    assert (again.receipt.replayed, again.result) == (True, None)


def test_write_without_changes_makes_no_commit(graph: Repository) -> None:
    before = graph.head()
    assert graph.write("main", WriteRequest("mutate"), lambda _: Prepared(None, 3)) == (None, 3)
    assert graph.head() == before


def test_write_without_changes_may_request_a_commit(graph: Repository) -> None:
    before = graph.snapshot()
    commit = write(graph, lambda _: Prepared("insert", None)).commit
    assert (commit.parent, commit.touched, commit.tables) == (before.commit_id, (), before.commit.tables)


# --- the class table: what a moved head means -----------------------------------------------------------


@pytest.mark.parametrize("ours", CLASSES)
@pytest.mark.parametrize("theirs", CLASSES)
def test_write_is_rebased_over_changes_of_other_tables(
    graph: Repository, other: Repository, ours: OperationClass, theirs: OperationClass
) -> None:
    put(graph, {"a": "1"})
    wear(graph, key=CITY)
    disturb = rewriting(CITY) if theirs == "maintenance" else staging({"c": "1"}, key=CITY, as_class=theirs)
    work = Interrupted(staging({"b": "2"}, as_class=ours), lambda: write(other, disturb))
    receipt = write(graph, work)
    assert (work.times, receipt.attempts) == (1, 2)
    assert receipt.commit.parent == other.commit(receipt.commit.id).parent != work.bases[0]
    assert people(graph) == {"a": "1", "b": "2"}
    assert len(contents(graph.snapshot(), CITY)) == (2 if theirs == "maintenance" else 3)
    chain(graph)


def test_rebased_write_keeps_its_version_and_commit_id(graph: Repository, other: Repository) -> None:
    transaction = graph.begin()
    stage(transaction, {"a": "1"})
    plan = transaction.plan("load", "strict")
    theirs = put(other, {"c": "1"}, key=CITY)
    receipt = publish(graph.manifest, plan)
    (written,) = plan.writes.values()
    assert receipt.commit.id == transaction.commit_id
    assert receipt.commit.parent == theirs.id
    assert graph.snapshot().pin(PERSON).version == written.version
    assert contents(graph.snapshot(), CITY) == {"c": "1"}


@pytest.mark.parametrize("ours", CLASSES)
def test_write_of_every_class_is_rebased_over_maintenance(
    graph: Repository, other: Repository, ours: OperationClass
) -> None:
    wear(graph)
    theirs: list[PublishReceipt] = []
    prepare = rewriting() if ours == "maintenance" else staging({"b": "2"}, ["worn-a"], as_class=ours)
    work = Interrupted(prepare, lambda: theirs.append(write(other, rewriting())))
    receipt = write(graph, work)
    assert work.times == 2
    assert work.bases[1] == theirs[0].commit.id == receipt.commit.parent
    expected = {"worn-a": "x"} if ours == "maintenance" else {"b": "2"}
    assert people(graph) == {"worn-b": "x", **expected}


@pytest.mark.parametrize("theirs", ["insert", "strict"])
def test_insert_after_concurrent_change_is_prepared_again(
    graph: Repository, other: Repository, theirs: OperationClass
) -> None:
    put(graph, {"a": "1"})
    disturb = partial(write, other, staging({"a": "9", "o": "1"}, ["a"], as_class=theirs))
    work = Interrupted(staging({"b": "2"}), disturb)
    write(graph, work)
    assert work.times == 2
    assert people(graph) == {"a": "9", "o": "1", "b": "2"}


@pytest.mark.parametrize("theirs", ["insert", "strict"])
def test_strict_write_after_concurrent_change_raises_conflict(
    graph: Repository, other: Repository, theirs: OperationClass
) -> None:
    put(graph, {"a": "1"})
    expected = graph.snapshot().pin(PERSON).number
    disturb = partial(write, other, staging({"a": "9"}, ["a"], as_class=theirs))
    work = Interrupted(staging({"a": "2"}, ["a"], as_class="strict"), disturb)
    with pytest.raises(Conflict) as caught:
        write(graph, work, operation="update")
    actual = graph.snapshot().pin(PERSON).number
    assert work.times == 1
    assert actual == expected + 1
    assert caught.value.details == {
        "table_key": PERSON,
        "expected": str(expected),
        "actual": str(actual),
        "branch": "main",
    }
    assert people(graph) == {"a": "9"}
    assert chain(graph)[-1].operation == "load"


def test_maintenance_after_concurrent_change_is_prepared_again(graph: Repository, other: Repository) -> None:
    wear(graph)
    work = Interrupted(rewriting(), lambda: put(other, {"worn-a": "new"}))
    receipt = write(graph, work)
    assert work.times == 2
    assert people(graph) == {"worn-a": "new", "worn-b": "x"}
    assert receipt.commit.operation == "load"


def test_strict_write_detects_a_change_followed_by_maintenance(graph: Repository, other: Repository) -> None:
    wear(graph)

    def disturb() -> None:
        put(other, {"worn-a": "new"})
        write(other, rewriting())

    with pytest.raises(Conflict):
        write(graph, Interrupted(staging(delete=["worn-a"], as_class="strict"), disturb))
    assert people(graph) == {"worn-a": "new", "worn-b": "x"}


def test_maintenance_keeps_the_content_commit_of_a_pin(graph: Repository) -> None:
    wear(graph)
    before = graph.snapshot().pin(PERSON)
    write(graph, rewriting())
    swept = graph.snapshot().pin(PERSON)
    assert (swept.content, swept.rows) == (before.content, before.rows)
    assert swept.version != before.version
    commit = put(graph, {"a": "1"})
    assert graph.snapshot().pin(PERSON).content == commit.id


def test_strict_write_with_changed_read_set_raises_conflict(graph: Repository, other: Repository) -> None:
    work = staging({"a": "1"}, as_class="strict", reads=[CITY])
    with pytest.raises(Conflict) as caught:
        write(graph, Interrupted(work, lambda: put(other, {"c": "1"}, key=CITY)))
    assert caught.value.details["table_key"] == CITY
    assert people(graph) == {}


def test_insert_with_changed_read_set_is_prepared_again(graph: Repository, other: Repository) -> None:
    """Two writers cannot together violate a rule that each one alone satisfies."""
    put(graph, {"c": "1"}, key=CITY)

    def prepare(transaction: Transaction) -> Prepared[None]:
        transaction.read(CITY)
        if "c" not in contents(transaction.base, CITY):
            raise InvalidInput("the city is gone")
        stage(transaction, {"a": "lives in c"})
        return Prepared("insert", None)

    def raze() -> None:
        write(other, staging(delete=["c"], key=CITY, as_class="strict"))

    with pytest.raises(InvalidInput, match="the city is gone"):
        write(graph, Interrupted(prepare, raze))
    assert people(graph) == {}


@pytest.mark.parametrize("ours", ["insert", "maintenance"])
def test_insert_after_schema_change_is_prepared_again(
    graph: Repository, other: Repository, ours: OperationClass
) -> None:
    wear(graph)
    text = TEXT.replace("node City { name: String? }", 'node City { title: String? @rename_from("name") }')
    prepare = rewriting() if ours == "maintenance" else staging({"a": "1"})
    work = Interrupted(prepare, lambda: apply_schema(other, text))
    commit = write(graph, work).commit
    assert work.times == 2
    assert commit.schema == other.head().commit.schema
    assert [column.name for column in graph.snapshot().table(CITY).columns] == ["id", "title"]


def test_strict_write_after_schema_change_raises_conflict(graph: Repository, other: Repository) -> None:
    text = TEXT.replace("node City { name: String? }", 'node City { title: String? @rename_from("name") }')
    before = graph.head().commit.schema
    with pytest.raises(Conflict) as caught:
        write(graph, Interrupted(staging({"a": "1"}, as_class="strict"), lambda: apply_schema(other, text)))
    found = caught.value.details
    assert (found["table_key"], found["expected"]) == ("schema", before)
    assert found["actual"] == other.head().commit.schema != before


def test_read_at_old_commit_uses_its_schema(graph: Repository, other: Repository) -> None:
    text = TEXT.replace("node City { name: String? }", 'node City { title: String? @rename_from("name") }')
    apply_schema(graph, text)
    old = other.snapshot(at=next(iter(chain(other))).id)
    assert [column.name for column in old.table(CITY).columns] == ["id", "name"]


def test_write_that_keeps_losing_stops_after_a_bounded_number_of_attempts(
    graph: Repository, other: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository_module, "MAX_PREPARATIONS", 4)
    monkeypatch.setattr(publish_module, "_MAX_BACKOFF", 0.0)
    assert MAX_PREPARATIONS == 32
    disturbances = [partial(put, other, {"o": str(number)}) for number in range(4)]
    work = Interrupted(staging({"a": "1"}), *disturbances)
    with pytest.raises(Conflict, match="changed 4 times"):
        write(graph, work)
    assert work.times == 4
    assert people(graph) == {"o": "3"}


def test_write_that_loses_several_times_succeeds_at_last(graph: Repository, other: Repository) -> None:
    disturbances = [partial(put, other, {"o": str(number)}) for number in range(3)]
    work = Interrupted(staging({"a": "1"}), *disturbances)
    write(graph, work)
    assert work.times == 4
    assert people(graph) == {"o": "2", "a": "1"}


# --- preconditions --------------------------------------------------------------------------------------


def test_if_commit_with_current_head_publishes(graph: Repository) -> None:
    head = graph.head().commit.id
    assert write(graph, staging({"a": "1"}), expected_head=head).commit.parent == head


def test_if_commit_with_other_head_is_refused_before_preparing(graph: Repository) -> None:
    old = graph.head().commit.id
    new = put(graph, {"a": "1"}).id
    work = Interrupted(staging({"b": "1"}))
    with pytest.raises(PreconditionFailed) as caught:
        write(graph, work, expected_head=old)
    assert str(caught.value) == (
        f"precondition failed on branch 'main': expected head '{old}' but current is {new}"
    )
    assert caught.value.details == {"expected": old, "actual": new}
    assert work.times == 0


def test_if_commit_with_other_head_refuses_a_write_without_changes(graph: Repository) -> None:
    with pytest.raises(PreconditionFailed):
        graph.write("main", WriteRequest("mutate", expected_head="other"), lambda _: Prepared(None, None))


@pytest.mark.parametrize("key", [PERSON, CITY])
def test_if_commit_lost_during_the_write_is_not_retried(
    graph: Repository, other: Repository, key: str
) -> None:
    head = graph.head().commit.id
    work = Interrupted(staging({"a": "1"}), lambda: put(other, {"o": "1"}, key=key))
    with pytest.raises(PreconditionFailed):
        write(graph, work, expected_head=head)
    assert work.times == 1
    assert "a" not in people(graph)


def test_if_commit_on_new_branch_accepts_the_inherited_commit(graph: Repository) -> None:
    commit = put(graph, {"a": "1"})
    graph.create_branch("b")
    assert write(graph, staging({"b": "1"}), "b", expected_head=commit.id).commit.parent == commit.id


# --- idempotency keys -----------------------------------------------------------------------------------


def test_idempotency_key_used_twice_makes_one_commit(uri: str) -> None:
    graph = make_graph(uri)
    first = write(graph, staging({"a": "1"}), key="k", request="r")
    work = Interrupted(staging({"a": "1"}))
    again = write(handle(graph), work, key="k", request="r")
    assert not first.replayed
    assert again.replayed
    assert again.commit == first.commit
    assert work.times == 0
    assert len(chain(graph)) == 2


def test_idempotency_key_of_another_request_raises_conflict(graph: Repository) -> None:
    first = write(graph, staging({"a": "1"}), key="k", request="one")
    with pytest.raises(Conflict, match="was used for a different request") as caught:
        write(graph, staging({"b": "1"}), key="k", request="two")
    assert caught.value.details == {"idempotency_key": "k", "commit_id": first.commit.id}
    assert people(graph) == {"a": "1"}


def test_idempotency_key_is_separate_on_each_branch(graph: Repository) -> None:
    graph.create_branch("b")
    one = write(graph, staging({"a": "1"}), key="k")
    two = write(graph, staging({"a": "2"}), "b", key="k", request="another")
    assert one.commit.id != two.commit.id
    assert (people(graph), people(graph, "b")) == ({"a": "1"}, {"a": "2"})


def test_idempotency_key_of_deleted_branch_is_not_inherited_by_its_name(graph: Repository) -> None:
    graph.create_branch("b")
    write(graph, staging({"a": "1"}), "b", key="k")
    graph.delete_branch("b")
    graph.create_branch("b")
    assert not write(graph, staging({"a": "1"}), "b", key="k").replayed
    assert people(graph, "b") == {"a": "1"}


def test_idempotency_key_ignores_spaces_around_the_branch_name(graph: Repository) -> None:
    first = write(graph, staging({"a": "1"}), " main ", key="k")
    assert first.commit.branch == "main"
    assert write(graph, staging({"a": "1"}), "main", key="k") == PublishReceipt(first.commit, replayed=True)


@pytest.mark.parametrize("bulk", [False, True])
def test_idempotency_key_in_threads_makes_one_commit_and_equal_receipts(bulk: bool) -> None:
    graph = make_graph(fresh_memory())

    def prepare(transaction: Transaction) -> Prepared[None]:
        if "a" in contents(transaction.base):
            raise InvalidInput("the row is there already")
        stage(transaction, {"a": "1"})
        return Prepared("insert", None)

    handles = [handle(graph) for _ in range(6)]
    outcomes = together([partial(write, item, prepare, key="k", request="r", bulk=bulk) for item in handles])
    receipts = [outcome for outcome in outcomes if isinstance(outcome, PublishReceipt)]
    assert len(receipts) == 6, outcomes
    assert len({receipt.commit.id for receipt in receipts}) == 1
    assert all(receipt.commit == graph.head().commit for receipt in receipts)
    assert len(chain(graph)) == 2


def test_idempotency_key_of_interrupted_write_is_reused(graph: Repository) -> None:
    class Died(BaseException):
        pass

    ids: list[str] = []

    def dies(transaction: Transaction) -> Prepared[None]:
        ids.append(transaction.commit_id)
        stage(transaction, {"a": "lost"})
        raise Died

    with pytest.raises(Died):
        write(graph, dies, key="k", request="r")
    receipt = write(handle(graph), staging({"a": "1"}), key="k", request="r")
    assert [receipt.commit.id] == ids
    assert not receipt.replayed
    assert people(graph) == {"a": "1"}


def test_publish_of_one_plan_twice_makes_one_commit(uri: str) -> None:
    graph = make_graph(uri)
    transaction = graph.begin()
    stage(transaction, {"a": "1"})
    plan = transaction.plan("load", "strict")
    first = publish(graph.manifest, plan)
    put(graph, {"b": "1"})
    second = publish(handle(graph).manifest, plan)
    assert (first.replayed, second.replayed) == (False, True)
    assert second.commit == first.commit
    assert len(chain(graph)) == 3


def test_write_plan_round_trips_through_json(graph: Repository) -> None:
    transaction = graph.begin()
    transaction.read(KNOWS)
    stage(transaction, {"a": "1"})
    plan = transaction.plan("load", "strict", actor="ana", message="it's", expected_head="x")
    assert WritePlan.from_body(plan.to_body()) == plan


# --- lineage --------------------------------------------------------------------------------------------


def test_commit_times_increase_when_the_clock_steps_back(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time_ns
    steps = iter([0, -3_600_000_000_000, 5, -86_400_000_000_000, -1])
    for _ in range(5):
        shift = next(steps)
        monkeypatch.setattr(time, "time_ns", lambda shift=shift: real() + shift)
        put(graph, {"a": "1"})
    assert len(chain(graph)) == 6


def test_write_that_fails_while_preparing_leaves_nothing_visible(uri: str) -> None:
    graph = make_graph(uri)
    before = graph.head()

    def breaks(transaction: Transaction) -> Prepared[None]:
        stage(transaction, {"a": "1"})
        raise ZeroDivisionError

    for bulk in (False, True):
        with pytest.raises(ZeroDivisionError):
            write(graph, breaks, bulk=bulk)
        assert handle(graph).head() == before
        assert not graph.intents.pending()
    assert put(graph, {"b": "1"}).parent == before.commit.id
    assert people(graph) == {"b": "1"}
    assert graph.recoveries() == []


def test_dropped_transaction_leaves_nothing_visible(uri: str) -> None:
    graph = make_graph(uri)
    transaction = graph.begin()
    stage(transaction, {"a": "1"})
    assert not transaction.is_empty
    del transaction
    assert people(handle(graph)) == {}
    put(graph, {"b": "1"})
    assert people(graph) == {"b": "1"}


def test_bulk_write_removes_its_intent(uri: str) -> None:
    graph = make_graph(uri)
    receipt = write(graph, staging({"a": "1"}), bulk=True)
    assert not graph.intents.pending()
    assert list(graph.objects.list("__recovery")) == []
    assert not receipt.commit.recovered
    assert people(graph) == {"a": "1"}


# --- branches that go meanwhile -------------------------------------------------------------------------


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_write_to_branch_deleted_and_created_again_raises_not_found(
    graph: Repository, other: Repository, bulk: bool, again: bool
) -> None:
    graph.create_branch("b")

    def disturb() -> None:
        other.delete_branch("b")
        if again:
            other.create_branch("b")

    with pytest.raises(NotFound, match="branch 'b' not found"):
        write(graph, Interrupted(staging({"a": "1"}), disturb), "b", bulk=bulk)
    assert not graph.intents.pending()
    if again:
        assert people(graph, "b") == {}
        put(graph, {"a": "2"}, "b")
        assert people(graph, "b") == {"a": "2"}


def test_write_to_missing_branch_raises_not_found(graph: Repository) -> None:
    with pytest.raises(NotFound, match="branch 'nope' not found"):
        put(graph, {"a": "1"}, "nope")


# --- many at once ---------------------------------------------------------------------------------------


def test_writes_in_threads_form_one_chain_of_all_acknowledged_commits(uri: str) -> None:
    graph = make_graph(uri)

    def work(number: int) -> list[str]:
        mine = handle(graph)
        return [put(mine, {f"{number}-{step}": "x"}).id for step in range(5)]

    outcomes = together([partial(work, number) for number in range(6)])
    acknowledged = [id_ for outcome in outcomes if isinstance(outcome, list) for id_ in outcome]
    assert len(acknowledged) == 30, outcomes
    found = [commit.id for commit in chain(graph)]
    assert sorted(found[1:]) == sorted(acknowledged)
    assert len(people(graph)) == 30


def test_strict_writers_on_one_base_have_one_winner(uri: str) -> None:
    graph = make_graph(uri)
    put(graph, {"a": "0"})
    plans = []
    handles = [handle(graph) for _ in range(5)]
    for number, item in enumerate(handles):
        transaction = item.begin()
        stage(transaction, {"a": str(number)}, delete=["a"])
        plans.append(transaction.plan("update", "strict"))
    works = [partial(publish, item.manifest, plan) for item, plan in zip(handles, plans, strict=True)]
    outcomes = together(works)
    assert sum(isinstance(outcome, PublishReceipt) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 4
    assert len(chain(graph)) == 3


# --- versions that others made -----------------------------------------------------------------------------


def taking(pin: TablePin) -> Callable[[Transaction], Prepared[None]]:
    def prepare(transaction: Transaction) -> Prepared[None]:
        transaction.adopt(transaction.base.table(PERSON), pin)
        return Prepared("strict", None)

    return prepare


def test_adopted_version_keeps_its_content_commit(uri: str) -> None:
    graph = make_graph(uri)
    graph.create_branch("side")
    made = write(graph, staging({"a": "1"}), branch="side")

    pin = graph.snapshot("side").pin(PERSON)
    done = write(graph, taking(pin))
    assert done.commit.id != made.commit.id
    assert graph.snapshot().pin(PERSON) == pin
    assert pin.content == made.commit.id
    assert people(handle(graph)) == {"a": "1"}


def test_commit_that_adopts_a_removed_version_is_refused(tmp_path: Path) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    graph.create_branch("side")
    write(graph, staging({"a": "1"}), branch="side")
    pin = graph.snapshot("side").pin(PERSON)
    before = graph.head()
    (tmp_path / "graph" / pin.path / "_versions" / f"d{pin.version}.manifest").unlink()
    with pytest.raises(Conflict, match="was removed while this mutate was being published"):
        write(graph, taking(pin), operation="mutate")
    assert graph.head() == before


def test_commit_on_removed_version_of_another_branch_is_refused(tmp_path: Path) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    graph.create_branch("side")
    write(graph, staging({"a": "1"}), branch="side")
    pin, before = graph.snapshot("side").pin(PERSON), graph.head()

    def building(transaction: Transaction) -> Prepared[None]:
        staged = graph.tables.stage(pin, delete_ids=["a"])
        transaction.adopt_staged(transaction.base.table(PERSON), staged, pin.version)
        (tmp_path / "graph" / pin.path / "_versions" / f"d{pin.version}.manifest").unlink()
        return Prepared("strict", None)

    with pytest.raises(Conflict, match=f"version {pin.version} .* was removed while"):
        write(graph, building)
    assert graph.head() == before


def test_removal_and_adoption_of_a_version_detect_each_other(
    graph: Repository, other: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.create_branch("side")
    write(graph, staging({"a": "1"}), branch="side")
    pin = graph.snapshot("side").pin(PERSON)
    looked: list[int] = []
    usual = publish_module.check_adopted_versions

    def looking(
        manifest: Manifest, view: ManifestView, plan: WritePlan, versions: Sequence[tuple[str, int]]
    ) -> None:
        usual(manifest, view, plan, versions)
        looked.append(len(looked))
        if len(looked) == 1:
            # A purge between the removal of versions and the second read of the heads.
            other.reserve_identities(0, 0)

    monkeypatch.setattr(publish_module, "check_adopted_versions", looking)
    done = write(graph, taking(pin))
    assert done.attempts == 2
    assert looked == [0, 1]
