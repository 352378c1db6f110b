"""History before the creation of a branch is readable only with permission on the branch it was made on."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from _pytest.mark import ParameterSet

import omnigraph as og
from omnigraph.api.graph import Graph
from omnigraph.changes.cursors import Token
from omnigraph.errors import InvalidInput, MergeConflicts, NotFound, PermissionDenied
from tests.support.history_entry_points import (
    ALL,
    DELETE,
    ENTRY_POINTS,
    POLICY,
    SECRET,
    EntryPoint,
    History,
    fresh_name,
    make_history,
    state_parameters,
)
from tests.support.places import fresh_memory

CASES = {
    f"{name}-{form}": entry_point
    for name, entry_points in ENTRY_POINTS.items()
    for form, entry_point in entry_points.items()
}


def cases(*decisions: str) -> list[ParameterSet]:
    """Return the cases with one of some decisions, all cases by default."""
    return [
        pytest.param(entry_point, id=id_)
        for id_, entry_point in CASES.items()
        if not decisions or entry_point.decision in decisions
    ]


@pytest.fixture(scope="module")
def history() -> History:
    return make_history(fresh_memory())


@pytest.fixture(scope="module")
def handle(history: History) -> Iterator[Graph]:
    with og.open(history.uri, policy=POLICY, durability="os") as graph:
        yield graph


@pytest.fixture
def new() -> History:
    return make_history(fresh_memory())


def names(graph: Graph, **state: Any) -> list[str]:
    return [row["name"] for row in graph.query(ALL, **state).rows()]


def test_every_parameter_that_names_a_state_is_in_the_table() -> None:
    # A new parameter needs a decision: add it to ENTRY_POINTS, or to the names that are no state.
    assert sorted(state_parameters()) == sorted(ENTRY_POINTS)


@pytest.mark.parametrize("entry_point", cases())
def test_deleted_state_of_another_branch_is_denied(
    entry_point: EntryPoint, handle: Graph, history: History
) -> None:
    with pytest.raises(PermissionDenied):
        entry_point.call(handle.acting_as("dev"), history.deleted)


@pytest.mark.parametrize("entry_point", cases())
def test_deleted_state_is_open_to_an_actor_of_both_branches(
    entry_point: EntryPoint, handle: Graph, history: History
) -> None:
    entry_point.call(handle.acting_as("all"), history.deleted)


@pytest.mark.parametrize("entry_point", cases("both", "made"))
def test_state_of_the_own_branch_is_open(entry_point: EntryPoint, handle: Graph, history: History) -> None:
    entry_point.call(handle.acting_as("dev"), history.own)


@pytest.mark.parametrize("entry_point", cases("both"))
def test_permission_on_the_branch_of_the_commit_alone_is_not_enough(
    entry_point: EntryPoint, handle: Graph, history: History
) -> None:
    with pytest.raises(PermissionDenied):
        entry_point.call(handle.acting_as("main"), history.deleted)


def test_state_named_by_a_branch_needs_permission_on_the_branch(handle: Graph) -> None:
    graph = handle.acting_as("all")
    # The head of the new branch is a commit of main, which the actor may read.
    branch = graph.branches.create(fresh_name(), "main").name
    allowed, denied = handle.acting_as("main"), handle.acting_as("dev")
    assert allowed.snapshot(at="main~1").commit_id == graph.commits()[1].id
    calls: list[Callable[[Graph, str], object]] = [
        lambda g, at: g.snapshot(at=at),
        lambda g, at: g.diff(at, "main"),
        lambda g, at: g.tags.create(fresh_name(), at),
    ]
    for name in (f"{branch}~1", branch):
        assert graph.snapshot(at=name).branch == "main"
        for call in calls:
            with pytest.raises(PermissionDenied):
                call(allowed, name)
    for name in ("main~1", "HEAD~1", "main@{2}", "01K"):
        with pytest.raises(PermissionDenied):
            denied.snapshot(at=name)


def test_history_ends_at_commits_that_the_actor_may_not_read(handle: Graph) -> None:
    allowed, dev = handle.acting_as("all"), handle.acting_as("dev")
    assert [item.op for item in allowed.history("Person", "Ann", branch="dev")] == ["insert"]
    (version,) = dev.history("Person", "Ann", branch="dev")
    assert (version.op, version.commit.branch, version.gap) == ("unknown", "dev", True)
    assert [item.op for item in allowed.history("Person", SECRET, branch="dev")] == ["delete", "insert"]
    assert dev.history("Person", SECRET, branch="dev") == []
    assert {item.exact for item in dev.blame("Person", "Ann", branch="dev")} == {False}


def test_coroutines_deny_the_deleted_state(history: History) -> None:
    async def main() -> list[str]:
        allowed = []
        async with og.aio.open(history.uri, policy=POLICY, actor="dev", durability="os") as graph:
            for name, entry_points in ENTRY_POINTS.items():
                if name == "Graph.batch(create_from)":
                    # A batch commits when its context ends.
                    with suppress(PermissionDenied):
                        async with graph.batch(
                            branch=fresh_name(), create_from=history.deleted.branch
                        ) as batch:
                            batch.load({"Person": []})
                        allowed.append(name)
                    continue
                for form, entry_point in entry_points.items():
                    with suppress(PermissionDenied):
                        found = entry_point.call(graph, history.deleted)
                        if inspect.isawaitable(found):
                            await found
                        allowed.append(f"{name}-{form}")
        return allowed

    assert asyncio.run(main()) == []


def test_snapshot_object_of_another_branch_is_denied(handle: Graph, history: History) -> None:
    snapshot = handle.acting_as("all").snapshot("dev", history.deleted.commit)
    dev = handle.acting_as("dev")
    for read in (dev.query, dev.explain):
        with pytest.raises(PermissionDenied):
            read(ALL, branch="dev", at=snapshot)
    with pytest.raises(PermissionDenied):
        dev.diff("dev", snapshot)


def test_diff_from_a_moment_on_main_is_denied(handle: Graph, history: History) -> None:
    dev = handle.acting_as("dev")
    for states in ((history.deleted.moment, "dev"), ("dev", history.deleted.moment)):
        with pytest.raises(PermissionDenied):
            dev.diff(*states)
    assert handle.acting_as("all").diff(history.deleted.moment, "dev").stats()["Person"]["delete"] == 2


def test_blob_of_another_branch_is_denied(handle: Graph, history: History) -> None:
    at = history.deleted.commit
    with pytest.raises(PermissionDenied):
        handle.acting_as("dev").blob("Person", SECRET, "photo", at=at)
    assert handle.acting_as("all").blob("Person", SECRET, "photo", at=at).size == 2


def test_head_of_a_new_branch_is_readable_although_its_commit_was_made_on_main(new: History) -> None:
    graph = og.open(new.uri, policy=POLICY, durability="os")
    graph.acting_as("all").branches.create("fork", "main")
    dev = graph.acting_as("dev")
    now = datetime.now(UTC) + timedelta(seconds=1)
    assert names(dev, branch="fork") == names(dev, branch="fork", at=now) == ["Ann"]
    assert dev.feed(branch="fork").caught_up
    with pytest.raises(PermissionDenied):
        dev.feed(branch="fork", start="beginning")
    dev.load({"Person": [{"name": "Fay"}]}, branch="fork")
    assert names(dev, branch="fork", at=now + timedelta(seconds=1)) == ["Ann", "Fay"]


def test_feed_from_the_beginning_is_denied_before_the_fork_and_open_after_it(
    handle: Graph, history: History
) -> None:
    dev = handle.acting_as("dev")
    for start in ("beginning", f"after:{history.deleted.previous}"):
        with pytest.raises(PermissionDenied):
            dev.feed(branch="dev", start=start)
    page = dev.feed(branch="dev", start=f"after:{history.own.previous}")
    assert [change.id for block in page for change in block.changes] == ["Dan", "Don", "Eve"]


def test_page_token_with_another_cut_does_not_reach_another_branch(handle: Graph, history: History) -> None:
    everyone = handle.acting_as("all")
    head = everyone.commits("main")[0].id
    scope = Token._parse(history.own.feed_page).scope
    forged = Token("feed page", scope, history.deleted.commit, head).encode()
    with pytest.raises(PermissionDenied):
        handle.acting_as("dev").feed(branch="dev", page_token=forged)
    outside = Token("feed page", scope, history.own.commit, head).encode()
    with pytest.raises(InvalidInput, match="not in the history"):
        everyone.feed(branch="dev", page_token=outside)


def test_feed_after_a_commit_that_may_not_be_read_is_as_if_it_did_not_exist(new: History) -> None:
    graph = og.open(new.uri, policy=POLICY, durability="os")
    later = graph.acting_as("all").load({"Person": [{"name": "Gil"}]}).commit
    assert later is not None
    for start in (later.id, "01M7A2RB7M7QCRQ2SCXTK0S625"):
        with pytest.raises(NotFound, match=f"commit '{start}' not found"):
            graph.acting_as("dev").feed(branch="dev", start=f"after:{start}")
    with pytest.raises(InvalidInput, match="is not in the history of branch 'dev'"):
        graph.acting_as("all").feed(branch="dev", start=f"after:{later.id}")


def test_commit_of_a_deleted_branch_requires_permission_on_every_branch(new: History) -> None:
    graph = og.open(new.uri, policy=POLICY, durability="os")
    everyone, dev = graph.acting_as("all"), graph.acting_as("dev")
    everyone.branches.create("child", "dev")
    everyone.mutate(DELETE, {"n": "Dan"}, branch="child")
    assert dev.changes(new.own.commit).changes
    everyone.branches.delete("dev")
    for again in (False, True):
        if again:
            # A branch of the same name is another branch.
            everyone.branches.create("dev", "main")
        for read in (
            lambda: dev.query(ALL, at=new.own.commit),
            lambda: dev.changes(new.own.commit),
            lambda: dev.query(ALL, branch="child", at=new.own.moment),
            lambda: dev.feed(branch="child", start=f"after:{new.own.previous}"),
            lambda: dev.revert(new.own.commit, branch="child"),
        ):
            with pytest.raises(PermissionDenied):
                read()
        assert names(everyone, branch="child", at=new.own.moment) == ["Ann", "Dan", "Don"]
    assert names(dev, branch="child") == ["Ann", "Don", "Eve"]


def test_revert_of_a_deletion_on_another_branch_is_denied_and_changes_nothing(new: History) -> None:
    graph = og.open(new.uri, policy=POLICY, durability="os")
    deletion = graph.acting_as("all").commits("dev")[3]
    assert [change.op for change in graph.acting_as("all").changes(deletion)] == ["delete"]
    with pytest.raises(PermissionDenied):
        graph.acting_as("dev").revert(deletion.id, branch="dev")
    assert names(graph.acting_as("dev"), branch="dev") == ["Ann", "Dan", "Don", "Eve"]
    graph.acting_as("all").revert(deletion.id, branch="dev")
    assert len(names(graph.acting_as("dev"), branch="dev")) == 5


def test_merge_of_an_unreadable_branch_is_denied_and_changes_nothing(new: History) -> None:
    graph = og.open(new.uri, policy=POLICY, durability="os")
    graph.acting_as("all").load({"Person": [{"name": SECRET}]})
    for dry_run in (True, False):
        with pytest.raises(PermissionDenied, match="action 'read' on branch 'main'"):
            graph.acting_as("dev").branches.merge("main", "dev", dry_run=dry_run)
    assert SECRET not in names(graph.acting_as("dev"), branch="dev")


def test_merge_conflicts_hide_values_of_a_target_that_may_not_be_read() -> None:
    uri = fresh_memory()
    plain = og.init(uri, "node Person { name: String @key  age: I32? }")
    plain.load({"Person": [{"name": "Ann", "age": 1}]})
    plain.branches.create("dev")
    plain.load({"Person": [{"name": "Ann", "age": 2}]}, mode="merge")
    last = plain.load({"Person": [{"name": "Ann", "age": 3}]}, mode="merge", branch="dev").commit
    plain.load({"Person": [{"name": "Ann", "age": 4}]}, mode="merge", branch="dev")
    assert last is not None
    rules = [
        {"id": "r", "allow": {"actors": {"group": "g"}, "actions": ["read"], "branch_scope": "unprotected"}},
        {"id": "m", "allow": {"actors": {"group": "g"}, "actions": ["branch_merge"]}},
    ]
    policy = {
        "version": 1,
        "groups": {"g": ["dev"]},
        "protected_branches": ["main"],
        "rules": rules,
    }
    graph = og.open(uri, policy=policy, actor="dev")
    with pytest.raises(MergeConflicts) as raised:
        graph.branches.merge("dev")
    shown = graph.branches.merge("dev", dry_run=True).conflicts
    for conflict in (*raised.value.conflicts, *shown):
        assert (conflict["base"], conflict["ours"], conflict["theirs"]) == (None, None, 4)
    with pytest.raises(MergeConflicts) as raised:
        plain.branches.merge("dev")
    conflict = raised.value.conflicts[0]
    assert (conflict["base"], conflict["ours"], conflict["theirs"]) == (1, 2, 4)
