"""Merging and reverting from Python: what is given back, what is refused, what is left behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import omnigraph as og
from omnigraph.errors import (
    Conflict,
    InvalidInput,
    MergeConflicts,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
)
from tests.merge.merges import (
    Record,
    change,
    column,
    edge,
    head,
    kinds,
    make,
    node,
    only,
    person,
    put,
    state,
)


@pytest.fixture
def graph() -> og.Graph:
    """A graph with two people, and a branch that has one more."""
    found = make(records=[person("Ann", age=1), person("Bob", age=1)])
    found.branches.create("work")
    put(found, person("Cid"), branch="work")
    return found


# --- merging ----------------------------------------------------------------------------------------------------


def test_merge_example_of_the_guide_gives_its_results(graph: og.Graph) -> None:
    put(graph, person("Ann", age=2))
    ours, theirs = head(graph), head(graph, "work")
    done = graph.branches.merge("work")
    assert done.outcome == "merged"
    assert done.commit is not None
    assert done.commit.parents == (ours, theirs)
    assert (done.commit.branch, done.commit.operation) == ("main", "merge")
    assert head(graph) == done.commit.id
    again = graph.branches.merge("work")
    assert (again.outcome, again.commit) == ("already_up_to_date", None)
    back = graph.branches.merge("main", "work")
    assert back.outcome == "fast_forward"
    assert back.commit is not None
    assert back.commit.parents == (theirs, done.commit.id)
    assert back.commit.id != done.commit.id
    assert state(graph, "work") == state(graph)


def test_merge_fast_forward_makes_commit_with_two_parents(graph: og.Graph) -> None:
    ours, theirs = head(graph), head(graph, "work")
    done = graph.branches.merge("work")
    assert done.outcome == "fast_forward"
    assert done.commit is not None
    assert done.commit.parents == (ours, theirs)
    assert column(graph, "age") == {"Ann": 1, "Bob": 1, "Cid": None}


def test_merge_of_new_branch_is_up_to_date_in_both_directions(graph: og.Graph) -> None:
    graph.branches.create("fresh")
    for source, into in (("fresh", "main"), ("main", "fresh")):
        done = graph.branches.merge(source, into)
        assert (done.outcome, done.commit, done.affected, done.taken) == ("already_up_to_date", None, {}, ())


def test_merge_records_message_and_actor(graph: og.Graph) -> None:
    done = graph.branches.merge("work", message="weekly", actor="ana")
    assert done.commit is not None
    assert (done.commit.message, done.commit.actor) == ("weekly", "ana")
    assert graph.commit(done.commit.id) == done.commit


def test_merge_without_actor_records_the_actor_of_the_handle(graph: og.Graph) -> None:
    done = og.open(graph.uri, actor="bob").branches.merge("work")
    assert done.commit is not None
    assert done.commit.actor == "bob"


def test_merge_if_commit_with_other_head_is_refused(graph: og.Graph) -> None:
    expected = head(graph)
    put(graph, node("City", "Rom"))
    with pytest.raises(PreconditionFailed) as caught:
        graph.branches.merge("work", if_commit=expected)
    assert caught.value.details == {"expected": expected, "actual": head(graph)}
    assert graph.branches.merge("work", if_commit=head(graph)).outcome == "merged"


def test_merge_if_commit_is_checked_when_up_to_date(graph: og.Graph) -> None:
    graph.branches.create("fresh")
    with pytest.raises(PreconditionFailed):
        graph.branches.merge("fresh", if_commit=head(graph, "work"))


def test_merge_with_unknown_resolution_reports_it_with_the_remaining_conflicts(
    graph: og.Graph,
) -> None:
    put(graph, person("Ann", age=2))
    put(graph, person("Ann", age=3), branch="work")
    with pytest.raises(MergeConflicts) as refused:
        graph.branches.merge("work", resolve={"nope": "ours"})
    assert refused.value.details == {"conflicts": 1, "unknown_conflicts": ["nope"]}
    assert refused.value.hint is not None
    assert refused.value.hint.endswith("; no conflict has the id nope")
    with pytest.raises(MergeConflicts) as refused:
        graph.branches.merge("work")
    assert refused.value.details == {"conflicts": 1}


@pytest.mark.parametrize("names", [("main", "main"), ("work", "work"), (" work ", "work")])
def test_merge_of_branch_into_itself_is_refused(graph: og.Graph, names: tuple[str, str]) -> None:
    with pytest.raises(InvalidInput, match="branch_merge requires distinct source and target branches"):
        graph.branches.merge(*names)


@pytest.mark.parametrize("names", [("gone", "main"), ("work", "gone")])
def test_merge_of_missing_branch_raises_not_found(graph: og.Graph, names: tuple[str, str]) -> None:
    with pytest.raises(NotFound, match="branch 'gone' not found"):
        graph.branches.merge(*names)


def test_merge_strips_spaces_around_branch_names(graph: og.Graph) -> None:
    assert graph.branches.merge(" work ", " main ").outcome == "fast_forward"


def test_merge_and_revert_in_read_mode_are_refused(graph: og.Graph) -> None:
    reader = og.open(graph.uri, mode="r")
    with pytest.raises(PermissionDenied):
        reader.branches.merge("work")
    with pytest.raises(PermissionDenied):
        reader.revert(head(graph))


def test_merge_dry_run_reports_the_result_and_changes_nothing(graph: og.Graph) -> None:
    before = head(graph), state(graph)
    done = graph.branches.merge("work", dry_run=True)
    assert (done.outcome, done.commit, done.dry_run, done.conflicts) == ("fast_forward", None, True, ())
    put(graph, person("Cid", age=1))
    done = graph.branches.merge("work", dry_run=True)
    assert kinds(done.conflicts) == [("divergent_insert", "Person", "Cid", "age")]
    assert graph.branches.merge("work", dry_run=True, resolve="ours").conflicts == ()
    assert before == (graph.commits()[1].id, state(graph, at=graph.commits()[1].id))
    assert graph.branches.list() == ["main", "work"]


def test_merge_delete_source_deletes_the_branch(graph: og.Graph) -> None:
    done = graph.branches.merge("work", delete_source=True)
    assert (done.branch_deleted, done.branch_delete_error) == (True, None)
    assert graph.branches.list() == ["main"]
    assert "Cid" in state(graph)["Person"]


def test_merge_delete_source_when_up_to_date_deletes_the_branch(graph: og.Graph) -> None:
    graph.branches.merge("work")
    done = graph.branches.merge("work", delete_source=True)
    assert (done.outcome, done.branch_deleted) == ("already_up_to_date", True)


def test_merge_without_delete_source_reports_no_deletion(graph: og.Graph) -> None:
    done = graph.branches.merge("work")
    assert (done.branch_deleted, done.branch_delete_error) == (None, None)


def test_merge_delete_source_that_fails_keeps_the_merge(graph: og.Graph) -> None:
    put(graph, person("Dan"))
    done = graph.branches.merge("main", "work", delete_source=True)
    assert (done.outcome, done.branch_deleted) == ("merged", False)
    assert done.branch_delete_error == "cannot delete branch 'main'"
    assert "Dan" in state(graph, "work")["Person"]


def test_merge_delete_source_that_moved_keeps_the_branch(graph: og.Graph) -> None:
    put(graph, person("Dan"))
    rival = og.open(graph.uri)

    def meanwhile(stage: str, _: int) -> None:
        if stage == "check":
            put(rival, person("Eve"), branch="work")

    done = graph.branches.merge("work", delete_source=True, progress=meanwhile)
    assert done.branch_deleted is False
    assert done.branch_delete_error is not None
    assert "Eve" in state(graph, "work")["Person"]
    assert "Eve" not in state(graph)["Person"]


def test_merge_with_conflicts_does_not_delete_the_source(graph: og.Graph) -> None:
    put(graph, person("Cid", age=1))
    with pytest.raises(MergeConflicts):
        graph.branches.merge("work", delete_source=True)
    assert graph.branches.list() == ["main", "work"]


# --- reverting ----------------------------------------------------------------------------------------------------


def base_rows() -> list[Record]:
    return [
        *(person(name, age=1) for name in ("Ann", "Bob", "Cid")),
        edge("Knows", "k", "Ann", "Bob", since=1),
    ]


UNDONE: dict[str, Callable[[og.Graph], og.Commit | None]] = {
    "an insert": lambda g: change(g, 'insert Person { name: "Dan" }'),
    "an update": lambda g: change(g, 'update Person set { age: 2 } where name = "Ann"'),
    "a delete with the edges that went": lambda g: change(g, 'delete Person where name = "Ann"'),
    "a load": lambda g: put(g, person("Ann", age=7), person("Dan"), edge("Knows", "l", "Dan", "Ann")),
    "an overwrite": lambda g: (
        g.load([person("Dan"), person("Ann", age=4), edge("Knows", "m", "Dan", "Ann")], "overwrite").commit
    ),
    "a merge": lambda g: merged(g),
}


def merged(graph: og.Graph) -> og.Commit | None:
    graph.branches.create("work")
    put(graph, person("Ann", age=8), edge("Knows", "k", "Ann", "Cid"), branch="work")
    change(graph, 'delete Person where name = "Bob"', "work")
    return graph.branches.merge("work").commit


@pytest.mark.parametrize("later", [False, True], ids=["at the head", "under a later commit"])
@pytest.mark.parametrize("name", UNDONE)
def test_revert_undoes_one_commit_and_keeps_later_changes(name: str, later: bool) -> None:
    graph = make(records=base_rows())
    before = state(graph)
    done = UNDONE[name](graph)
    assert done is not None
    undone = state(graph)
    assert undone != before
    if later:
        put(graph, person("Zoe"), node("City", "Rom"))
        before["City"] = state(graph)["City"]
        before["Person"]["Zoe"] = undone["Person"]["Zoe"] = state(graph)["Person"]["Zoe"]
        undone["City"] = before["City"]
    taken_back = graph.revert(done.id)
    assert taken_back.commit is not None
    assert taken_back.commit.operation == "revert"
    assert taken_back.commit.message == f"revert {done.id}"
    assert len(taken_back.commit.parents) == 1
    assert state(graph) == before
    again = graph.revert(taken_back.commit.id)
    assert again.commit is not None
    assert state(graph) == undone


def test_revert_of_merge_keeps_it_in_the_history() -> None:
    graph = make(records=base_rows())
    done = merged(graph)
    assert done is not None
    graph.revert(done.id)
    assert graph.branches.merge("work").outcome == "already_up_to_date"
    put(graph, person("New"), branch="work")
    graph.branches.merge("work")
    assert column(graph, "age") == {"Ann": 1, "Bob": 1, "Cid": 1, "New": None}


def test_revert_of_property_changed_later_is_a_conflict_that_can_be_resolved() -> None:
    graph = make(records=base_rows())
    done = change(graph, 'update Person set { age: 2 } where name = "Ann"')
    put(graph, person("Ann", age=3))
    with pytest.raises(MergeConflicts) as caught:
        graph.revert(done.id)
    found = only(caught.value.conflicts)
    assert (found["base"], found["ours"], found["theirs"]) == (2, 3, 1)
    dry = graph.revert(done.id, dry_run=True)
    assert [dict(item) for item in dry.conflicts] == [dict(found)]
    graph.revert(done.id, resolve={found["id"]: {"value": 10}})
    assert column(graph, "age")["Ann"] == 10


def test_revert_without_effect_makes_no_commit() -> None:
    graph = make(records=base_rows())
    done = change(graph, 'update Person set { age: 2 } where name = "Ann"')
    put(graph, person("Ann", age=1))
    before = head(graph)
    found = graph.revert(done.id)
    assert (found.outcome, found.commit) == ("already_up_to_date", None)
    kept = graph.revert(done.id, resolve="ours")
    assert kept.commit is None
    assert head(graph) == before


def test_revert_resolved_with_ours_makes_no_commit() -> None:
    graph = make(records=base_rows())
    done = change(graph, 'update Person set { age: 2 } where name = "Ann"')
    put(graph, person("Ann", age=3))
    assert graph.revert(done.id, resolve="ours").commit is None
    assert column(graph, "age")["Ann"] == 3


def test_revert_of_optimize_makes_no_commit() -> None:
    graph = make(records=base_rows())
    put(graph, person("Dan"))
    optimized = graph.optimize().commit
    assert optimized is not None
    found = graph.revert(optimized.id)
    assert (found.outcome, found.commit) == ("already_up_to_date", None)


def test_revert_of_insert_with_later_edges_reports_orphan_edges() -> None:
    graph = make(records=base_rows())
    done = change(graph, 'insert Person { name: "Dan" }')
    put(graph, edge("Knows", "late", "Ann", "Dan"))
    with pytest.raises(MergeConflicts) as caught:
        graph.revert(done.id)
    assert kinds(caught.value.conflicts) == [("orphan_edge", "Knows", "late", "to")]
    graph.revert(done.id, resolve="theirs")
    assert "Dan" not in state(graph)["Person"]
    assert state(graph)["Knows"].keys() == {"k"}


def test_revert_of_commit_outside_the_branch_is_refused() -> None:
    graph = make(records=base_rows())
    graph.branches.create("work")
    done = put(graph, person("Dan"), branch="work")
    with pytest.raises(InvalidInput, match="is not part of branch 'main'"):
        graph.revert(done.id)
    graph.branches.merge("work")
    graph.revert(done.id)
    assert "Dan" not in state(graph)["Person"]


def test_revert_on_named_branch_commits_there() -> None:
    graph = make(records=base_rows())
    done = change(graph, 'insert Person { name: "Dan" }')
    graph.branches.create("work")
    graph.revert(done.id, branch="work", actor="ana", message="oops")
    assert "Dan" in state(graph)["Person"]
    assert "Dan" not in state(graph, "work")["Person"]
    last = graph.commits("work")[0]
    assert (last.actor, last.message, last.branch) == ("ana", "oops", "work")


def test_revert_of_first_or_unknown_commit_is_refused() -> None:
    graph = make(records=base_rows())
    with pytest.raises(Conflict, match="is the first commit of the graph"):
        graph.revert(graph.commits()[-1].id)
    with pytest.raises(NotFound):
        graph.revert("01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_revert_if_commit_with_other_head_is_refused() -> None:
    graph = make(records=base_rows())
    done = change(graph, 'insert Person { name: "Dan" }')
    put(graph, person("Eve"))
    with pytest.raises(PreconditionFailed):
        graph.revert(done.id, if_commit=done.id)
    assert "Dan" in state(graph)["Person"]
