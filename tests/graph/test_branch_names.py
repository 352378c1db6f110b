"""Branches: valid names, creation from any commit, incarnations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from omnigraph.errors import Conflict, InvalidInput, NotFound
from omnigraph.graph.repository import Repository
from omnigraph.store.manifest.branch_swaps import create_branch_if_absent
from omnigraph.store.manifest.records import BranchEntry, HeadRecord
from tests.support.places import fresh_memory, together
from tests.support.repositories import chain, handle, make_graph, people, put

ODD_NAMES = [
    "a",
    "a/b",
    "a/b/c",
    "ab",
    "main/x",
    "日本語",
    "é",
    "it's",
    "with space",
    "x.y_z-1",
    "🙂",
    "-",
    "x" * 1024,
]


@pytest.fixture
def graph() -> Repository:
    return make_graph(fresh_memory())


def test_new_graph_has_branch_main(uri: str) -> None:
    graph = make_graph(uri)
    assert list(graph.branches()) == ["main"]
    assert graph.branches()["main"].created_by == "ana"


def test_create_branch_with_prefix_and_special_names(uri: str) -> None:
    graph = make_graph(uri)
    for name in ODD_NAMES:
        graph.create_branch(name)
    for name in ODD_NAMES:
        put(graph, {"who": name}, name)
    cold = handle(graph)
    assert list(cold.branches()) == sorted(["main", *ODD_NAMES])
    assert {name: people(cold, name) for name in ODD_NAMES} == {name: {"who": name} for name in ODD_NAMES}
    assert people(cold) == {}


def test_branch_name_is_stripped_in_every_call(graph: Repository) -> None:
    assert graph.create_branch("  review/x\n").branch == "review/x"
    put(graph, {"a": "1"}, " review/x ")
    assert people(graph, "\treview/x") == {"a": "1"}
    assert graph.create_branch("copy", " review/x ").commit == graph.head(" copy").commit
    assert [commit.sequence for commit in graph.commits(" review/x")] == [2, 1]
    graph.delete_branch(" review/x ")
    assert list(graph.branches()) == ["copy", "main"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "branch name cannot be empty"),
        (" \t\n", "branch name cannot be empty"),
        ("main", "cannot {0} branch 'main'"),
        (" main ", "cannot {0} branch 'main'"),
        ("__schema_apply_lock__", "{0} does not allow internal system ref '__schema_apply_lock__'"),
        ("a//b", "branch name 'a//b' has an empty segment between slashes"),
        ("/a", "branch name '/a' has an empty segment between slashes"),
        ("a/", "branch name 'a/' has an empty segment between slashes"),
        ("a/ /b", "branch name 'a/ /b' has an empty segment between slashes"),
        ("a\u0000b", "branch name 'a\\x00b' has unprintable characters"),
        ("a\u202eb", "branch name 'a\\u202eb' has unprintable characters"),
        ("x" * 1025, "branch name is longer than 1024 bytes"),
        ("é" * 513, "branch name is longer than 1024 bytes"),
    ],
)
@pytest.mark.parametrize("operation", ["create", "delete"])
def test_create_branch_with_invalid_name_is_refused(
    graph: Repository, name: str, message: str, operation: str
) -> None:
    act = graph.create_branch if operation == "create" else graph.delete_branch
    with pytest.raises(InvalidInput) as caught:
        act(name)
    assert caught.value.message == message.format(operation)


def test_create_branch_with_lone_surrogate_is_refused(graph: Repository) -> None:
    with pytest.raises(InvalidInput):
        graph.create_branch("\ud800")


def test_write_with_invalid_branch_name_is_refused(graph: Repository) -> None:
    with pytest.raises(InvalidInput, match="branch name cannot be empty"):
        put(graph, {"a": "1"}, "  ")
    with pytest.raises(InvalidInput, match="does not allow internal system ref"):
        put(graph, {"a": "1"}, "__schema_apply_lock__")


def test_create_branch_with_existing_name_raises_conflict(graph: Repository) -> None:
    first = graph.create_branch("x")
    with pytest.raises(Conflict, match=r"^branch 'x' already exists$"):
        graph.create_branch("x")
    assert graph.head("x") == first


def test_create_branch_starts_at_the_source_head_without_commit(uri: str) -> None:
    graph = make_graph(uri)
    commit = put(graph, {"a": "1"})
    head = graph.create_branch("x", actor="bob")
    assert (head.commit, graph.head("x")) == (commit, head)
    assert graph.branches()["x"].created_by == "bob"
    assert len(list(graph.manifest.all_commits(graph.manifest.view))) == 2
    assert people(graph, "x") == {"a": "1"}


def test_branch_inherits_history_and_diverges(uri: str) -> None:
    graph = make_graph(uri)
    put(graph, {"a": "1"})
    graph.create_branch("x")
    mine = put(graph, {"x": "1"}, "x")
    put(graph, {"m": "1"})
    assert mine.branch == "x"
    assert people(graph, "x") == {"a": "1", "x": "1"}
    assert people(graph) == {"a": "1", "m": "1"}
    assert [commit.branch for commit in chain(graph, "x")] == ["main", "main", "x"]


def test_create_branch_from_another_branch(graph: Repository) -> None:
    graph.create_branch("x")
    commit = put(graph, {"x": "1"}, "x")
    assert graph.create_branch("y", "x").commit == commit


def test_create_branch_at_old_commit(graph: Repository) -> None:
    old = put(graph, {"a": "1"})
    put(graph, {"a": "2"})
    assert graph.create_branch("x", at=old.id).commit == old
    assert people(graph, "x") == {"a": "1"}
    assert put(graph, {"b": "1"}, "x").sequence == old.sequence + 1


def test_create_branch_at_snapshot(graph: Repository) -> None:
    put(graph, {"a": "1"})
    snapshot = graph.snapshot()
    put(graph, {"a": "2"})
    graph.create_branch("x", at=snapshot)
    assert people(graph, "x") == {"a": "1"}


def test_create_branch_at_snapshot_of_another_graph_is_refused(graph: Repository) -> None:
    stranger = make_graph(fresh_memory())
    with pytest.raises(NotFound, match=r"^commit '.*' not found$"):
        graph.create_branch("x", at=stranger.snapshot())
    assert list(graph.branches()) == ["main"]


def test_create_branch_named_like_a_commit_is_refused(graph: Repository) -> None:
    commit = put(graph, {"a": "1"}).id
    for name in (commit, f" {commit} ", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"):
        with pytest.raises(InvalidInput, match="has the form of a commit id") as refused:
            graph.create_branch(name)
        assert refused.value.hint == f"add a prefix, such as at/{name.strip()}"
    for name in (f"at/{commit}", commit.lower(), commit[1:], "8" + commit[1:], "U" * 26):
        graph.create_branch(name)
    view = graph.manifest.refresh()
    entry = BranchEntry("older", 1, commit=graph.head().commit.id)
    create_branch_if_absent(graph.manifest, view, commit, entry)
    assert people(graph, commit) == {"a": "1"}
    graph.delete_branch(commit)


@pytest.mark.parametrize("name", [".", "..", "./a", "a/..", "a/../b", " .. "])
def test_create_branch_with_dot_path_segment_is_refused(graph: Repository, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"has a segment `\.` or `\.\.`"):
        graph.create_branch(name)
    graph.create_branch("v1.0/...")


def test_create_branch_at_time(graph: Repository) -> None:
    first = put(graph, {"a": "1"})
    moment = datetime.fromtimestamp(first.created_at / 1e6, UTC)
    while graph.head().commit.created_at // 1000 == first.created_at // 1000:
        put(graph, {"a": "2"})
    graph.create_branch("x", at=moment)
    assert people(graph, "x")["a"] in ("1", "2")
    assert graph.head("x").commit.created_at // 1000 == first.created_at // 1000
    with pytest.raises(NotFound, match="did not exist yet"):
        graph.create_branch("y", at=moment - timedelta(days=1))


@pytest.mark.parametrize("at", [None, "01ARZ3NDEKTSV4RRFFQ69G5FAV"])
def test_create_branch_from_missing_source_raises_not_found(graph: Repository, at: str | None) -> None:
    with pytest.raises(NotFound):
        graph.create_branch("x", "nowhere", at=at)
    assert list(graph.branches()) == ["main"]


def test_delete_branch_keeps_its_commits(uri: str) -> None:
    graph = make_graph(uri)
    graph.create_branch("x")
    commit = put(graph, {"x": "1"}, "x")
    graph.delete_branch("x")
    cold = handle(graph)
    assert list(cold.branches()) == ["main"]
    with pytest.raises(NotFound, match="branch 'x' not found"):
        cold.head("x")
    assert cold.commit(commit.id) == commit


def test_delete_of_missing_branch_raises_not_found(graph: Repository) -> None:
    with pytest.raises(NotFound, match="branch 'x' not found"):
        graph.delete_branch("x")


def test_delete_branch_keeps_its_descendants(graph: Repository) -> None:
    graph.create_branch("a")
    put(graph, {"a": "1"}, "a")
    graph.create_branch("b", "a")
    graph.delete_branch("a")
    put(graph, {"b": "1"}, "b")
    assert people(graph, "b") == {"a": "1", "b": "1"}
    assert len(chain(graph, "b")) == 3


def test_create_branch_with_deleted_name_is_a_new_incarnation(uri: str) -> None:
    graph = make_graph(uri)
    first = graph.create_branch("x")
    put(graph, {"old": "1"}, "x")
    graph.delete_branch("x")
    second = graph.create_branch("x")
    assert first.incarnation != second.incarnation
    assert people(graph, "x") == {}
    assert graph.manifest.head(graph.manifest.view, "x", first.incarnation) is None


def test_create_branch_in_threads_has_one_winner(uri: str) -> None:
    graph = make_graph(uri)
    handles = [handle(graph) for _ in range(6)]
    outcomes = together([partial(item.create_branch, "x") for item in handles])
    won = [outcome for outcome in outcomes if isinstance(outcome, HeadRecord)]
    assert len(won) == 1
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 5
    assert graph.head("x") == won[0]
    assert list(graph.branches()) == ["main", "x"]


def test_create_branches_of_different_names_in_threads_all_succeed(uri: str) -> None:
    graph = make_graph(uri)
    names = [f"b{number}" for number in range(6)]
    handles = [handle(graph) for _ in names]
    outcomes = together(
        [partial(item.create_branch, name) for item, name in zip(handles, names, strict=True)]
    )
    assert all(isinstance(outcome, HeadRecord) for outcome in outcomes), outcomes
    assert list(graph.branches()) == [*names, "main"]


def test_delete_branch_in_threads_has_one_winner(uri: str) -> None:
    graph = make_graph(uri)
    graph.create_branch("x")
    handles = [handle(graph) for _ in range(5)]
    outcomes = together([partial(item.delete_branch, "x") for item in handles])
    # A delete that lost its swap cannot distinguish this from a lost reply. In both cases the branch is deleted.
    assert all(outcome is None or isinstance(outcome, NotFound) for outcome in outcomes), outcomes
    assert None in outcomes
    assert list(graph.branches()) == ["main"]
    assert len(graph.manifest.view.of_kind("head")) == 1


def test_create_branch_beside_writers_causes_no_conflict(graph: Repository) -> None:
    writer = handle(graph)

    def branch() -> int:
        for number in range(10):
            graph.create_branch(f"b{number}")
            graph.delete_branch(f"b{number}")
        return 10

    def work() -> int:
        return len([put(writer, {str(number): "x"}) for number in range(10)])

    assert together([branch, work]) == [10, 10]
    assert len(chain(graph)) == 11
    assert list(graph.branches()) == ["main"]
