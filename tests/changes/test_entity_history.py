"""The versions of an entity and the origins of its values, over merges, deletions and compaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.api.results.history import EntityVersion
from omnigraph.errors import MergeConflicts, NotFound
from tests.support.places import fresh_memory

SCHEMA = """
node City { name: String @key  mayor: String?  size: I64? }
edge Road: City -> City { lanes: I64? }
"""
REMOVE = "query remove($n: String) { delete City where name = $n }"


@pytest.fixture
def graph() -> Iterator[LocalGraph]:
    with og.init(fresh_memory(), SCHEMA, durability="os") as g:
        assert isinstance(g, LocalGraph)
        g.load({"City": [{"name": "Bern", "mayor": "m0", "size": 1}, {"name": "Rome"}]}, message="first")
        yield g


def put(graph: og.Graph, message: str, branch: str = "main", **values: object) -> None:
    graph.load({"City": [{"name": "Bern", **values}]}, "patch", branch=branch, message=message)


def remove(graph: og.Graph, message: str, branch: str = "main") -> None:
    graph.mutate(REMOVE, {"n": "Bern"}, branch=branch, message=message)


def versions(graph: og.Graph, branch: str = "main") -> list[tuple[str | None, str, tuple[str, ...]]]:
    found = graph.history("City", "Bern", branch=branch)
    return [(version.commit.message, version.op, version.changed) for version in found]


def blamed(graph: og.Graph, branch: str = "main") -> dict[str, str | None]:
    return {item.property: item.commit.message for item in graph.blame("City", "Bern", branch=branch)}


def test_history_lists_updates_deletions_and_the_insertion_again(graph: LocalGraph) -> None:
    put(graph, "mayor", mayor="m1")
    graph.load({"City": [{"name": "Oslo"}]}, message="another")
    remove(graph, "gone")
    graph.load({"City": [{"name": "Lyon"}]}, message="meanwhile")
    graph.mutate(REMOVE, {"n": "Lyon"}, message="meanwhile too")
    graph.load({"City": [{"name": "Bern", "mayor": "m2"}]}, message="back")
    put(graph, "same", mayor="m2")
    assert versions(graph) == [
        ("back", "insert", ()),
        ("gone", "delete", ()),
        ("mayor", "update", ("mayor",)),
        ("first", "insert", ()),
    ]
    gone = graph.history("City", "Bern")[1]
    assert gone.after is None
    assert gone.before == {"properties": {"name": "Bern", "mayor": "m1", "size": 1}}
    assert blamed(graph) == {"mayor": "back", "name": "back", "size": "back"}
    assert [item.op for item in graph.history("City", "Bern", at="HEAD~4")] == ["update", "insert"]
    assert [item.op for item in graph.history("City", "Bern", limit=2)] == ["insert", "delete"]
    assert graph.history("City", "Nowhere") == []


def test_history_of_a_deleted_entity_begins_with_the_deletion(graph: LocalGraph) -> None:
    remove(graph, "gone")
    graph.load({"City": [{"name": "Lyon"}]}, message="later")
    assert [op for _, op, _ in versions(graph)] == ["delete", "insert"]
    with pytest.raises(NotFound, match="no City has the id 'Bern'"):
        graph.blame("City", "Bern")


def test_change_of_a_merged_branch_is_that_of_its_commit(graph: LocalGraph) -> None:
    graph.branches.create("work")
    put(graph, "on work", "work", mayor="m1")
    graph.load({"City": [{"name": "Oslo"}]}, message="beside")
    assert graph.branches.merge("work", message="merge").outcome == "merged"
    assert versions(graph) == [("on work", "update", ("mayor",)), ("first", "insert", ())]
    assert blamed(graph) == {"mayor": "on work", "name": "first", "size": "first"}
    graph.branches.delete("work")
    assert blamed(graph)["mayor"] == "on work"


def test_deletion_on_a_merged_branch_is_listed(graph: LocalGraph) -> None:
    graph.branches.create("work")
    remove(graph, "gone on work", "work")
    graph.load({"City": [{"name": "Oslo"}]}, message="beside")
    graph.branches.merge("work")
    assert versions(graph) == [("gone on work", "delete", ()), ("first", "insert", ())]


def test_merge_of_two_properties_keeps_the_commit_of_each(graph: LocalGraph) -> None:
    graph.branches.create("work")
    put(graph, "on work", "work", mayor="m1")
    put(graph, "on main", size=2)
    graph.branches.merge("work", message="merge")
    assert versions(graph) == [
        ("merge", "update", ("mayor",)),
        ("on main", "update", ("size",)),
        ("on work", "update", ("mayor",)),
        ("first", "insert", ()),
    ]
    assert blamed(graph) == {"mayor": "on work", "name": "first", "size": "on main"}


def test_value_that_a_merge_resolved_is_that_of_the_merge(graph: LocalGraph) -> None:
    graph.branches.create("work")
    put(graph, "on work", "work", mayor="m1")
    put(graph, "on main", mayor="m2")
    with pytest.raises(MergeConflicts) as caught:
        graph.branches.merge("work")
    (conflict,) = caught.value.conflicts
    graph.branches.merge("work", resolve={conflict["id"]: {"value": "m3"}}, message="merge")
    assert blamed(graph) == {"mayor": "merge", "name": "first", "size": "first"}
    assert versions(graph)[0] == ("merge", "update", ("mayor",))


def test_reverted_change_and_the_revert_are_both_listed(graph: LocalGraph) -> None:
    put(graph, "wrong", mayor="m1")
    graph.revert("HEAD", message="revert")
    assert versions(graph) == [
        ("revert", "update", ("mayor",)),
        ("wrong", "update", ("mayor",)),
        ("first", "insert", ()),
    ]
    assert blamed(graph)["mayor"] == "revert"


def test_compaction_changes_no_version(graph: LocalGraph) -> None:
    for number in range(12):
        put(graph, f"m{number}", mayor=f"n{number}")
        graph.load({"City": [{"name": f"c{number}"}]})
    before = versions(graph)
    assert graph.optimize().commit is not None
    assert versions(graph) == before
    put(graph, "after", size=9)
    assert versions(graph) == [("after", "update", ("size",)), *before]
    assert blamed(graph) == {"mayor": "m11", "name": "first", "size": "after"}


def test_history_of_an_edge_has_its_endpoints(graph: LocalGraph) -> None:
    graph.load({"Road": [{"from": "Bern", "to": "Rome", "lanes": 1}]}, message="road")
    (id_,) = [change.id for change in graph.changes("HEAD")]
    graph.mutate(REMOVE, {"n": "Rome"}, message="rome gone")
    deleted, inserted = graph.history("Road", id_)
    assert (deleted.op, deleted.commit.message) == ("delete", "rome gone")
    assert inserted.after == {"properties": {"lanes": 1}, "endpoints": {"from": "Bern", "to": "Rome"}}
    found = {item.property: item.value for item in graph.blame("edge:Road", id_, at="HEAD~1")}
    assert found == {"from": "Bern", "to": "Rome", "lanes": 1}


def test_renamed_type_and_property_keep_their_history(graph: LocalGraph) -> None:
    graph.schema.apply(
        """
        node Town @rename_from("City") { name: String @key  head: String? @rename_from("mayor")  size: I64?
          note: String? }
        edge Road: Town -> Town { lanes: I64? }
        """
    )
    graph.load({"Town": [{"name": "Bern", "note": "new"}]}, "patch", message="noted")
    found = graph.history("Town", "Bern")
    assert [(item.op, item.changed) for item in found] == [("update", ("note",)), ("insert", ())]
    assert {item.property: item.commit.message for item in graph.blame("Town", "Bern")} == {
        "head": "first",
        "name": "first",
        "note": "noted",
        "size": "first",
    }


def test_history_after_garbage_collection_ends_with_an_unknown_version(tmp_path: Path) -> None:
    with og.init(tmp_path / "g", SCHEMA, durability="os") as graph:
        for number in range(3):
            graph.load({"City": [{"name": "Bern", "mayor": f"m{number}"}]}, "merge")
        graph.cleanup(keep=1, grace="0s", confirm=True)
    with og.open(tmp_path / "g") as again:
        found = again.history("City", "Bern")
        assert [(item.op, item.gap) for item in found] == [("unknown", True)]
        assert {item.exact for item in again.blame("City", "Bern")} == {False}


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "merge", "other", "optimize"]), st.integers(0, 2)), max_size=9
)


def _replay(found: list[EntityVersion]) -> list[dict[str, object] | None]:
    return [None if item.after is None else item.after["properties"] for item in found]


@settings(max_examples=20, deadline=None)
@given(steps=STEPS)
def test_history_of_generated_linear_changes_equals_a_scan_of_every_state(
    steps: list[tuple[str, int]],
) -> None:
    with og.init(fresh_memory(), SCHEMA, durability="os") as graph:
        for name, number in steps:
            if name == "put":
                graph.load({"City": [{"name": "Bern", "size": number}]}, "merge")
            elif name == "remove":
                remove(graph, "gone")
            elif name == "optimize":
                graph.optimize()
            else:
                graph.load({"City": [{"name": "Rome", "size": number}]}, "merge")
        states = [graph.get("City", "Bern", at=commit.id) for commit in graph.commits(limit=None)]
        expected = [
            None if newer is None else {key: newer[key] for key in ("name", "mayor", "size")}
            for newer, older in zip(states, [*states[1:], None], strict=True)
            if newer != older
        ]
        assert _replay(graph.history("City", "Bern")) == expected
