"""Merges of edges with a key: the same key is the same edge on both sides, also where one side added the key."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import MergeConflicts
from tests.support.places import fresh_memory

NODES = "node P { name: String @key }\n"
KEYLESS = NODES + "edge Knows: P -> P { note: String?  rank: I32? }\n"
KEYED = NODES + "edge Knows: P -> P { note: String?  rank: I32?  @key(src, dst) }\n"
Edges = dict[tuple[str, str], tuple[str | None, int | None]]


def knows(src: str, dst: str, **data: Any) -> dict[str, Any]:
    return {"edge": "Knows", "from": src, "to": dst, "data": data}


def graph_of(schema: str, *records: dict[str, Any]) -> og.Graph:
    graph = og.init(fresh_memory(), schema)
    people: list[dict[str, Any]] = [{"type": "P", "data": {"name": name}} for name in "abcd"]
    graph.load([*people, *records], "append")
    graph.branches.create("side")
    return graph


def records_of(graph: og.Graph, branch: str = "main") -> list[dict[str, Any]]:
    out = StringIO()
    graph.export(out, types=["Knows"], branch=branch)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def edges(graph: og.Graph, branch: str = "main") -> Edges:
    """Return the edges by their endpoints; every id is the one that the key gives."""
    found: Edges = {}
    for record in records_of(graph, branch):
        pair, data = (record["from"], record["to"]), record["data"]
        assert data["id"] == json.dumps(pair, separators=(",", ":"))
        found[pair] = (data["note"], data["rank"])
    return found


def delete(graph: og.Graph, src: str, dst: str, branch: str) -> None:
    graph.mutate(f'query q() {{ delete Knows where from = "{src}" and to = "{dst}" }}', branch=branch)


def put(graph: og.Graph, pair: tuple[str, str], values: tuple[str | None, int | None], branch: str) -> None:
    """Insert or replace an edge, whether its type has a key or not."""
    records = records_of(graph, branch)
    old = next((item for item in records if (item["from"], item["to"]) == pair), None)
    data: dict[str, Any] = {"note": values[0], "rank": values[1]}
    if old is not None:
        data["id"] = old["data"]["id"]
    graph.load([knows(*pair, **data)], "merge", branch=branch)


class TestKeyedOnBothSides:
    def test_merge_of_the_same_new_edge_keeps_one(self) -> None:
        graph = graph_of(KEYED)
        for branch in ("main", "side"):
            graph.load([knows("a", "b", rank=1)], "merge", branch=branch)

        graph.branches.merge("side")

        assert edges(graph) == {("a", "b"): (None, 1)}

    def test_merge_of_different_new_edges_of_one_key_is_a_conflict(self) -> None:
        graph = graph_of(KEYED)
        graph.load([knows("a", "b", rank=1)], "merge")
        graph.load([knows("a", "b", rank=2)], "merge", branch="side")

        with pytest.raises(MergeConflicts) as caught:
            graph.branches.merge("side")

        conflict = caught.value.conflicts[0]
        assert (conflict["kind"], conflict["entity_id"], conflict["property"]) == (
            "divergent_insert",
            '["a","b"]',
            "rank",
        )

    def test_merge_of_changes_to_different_properties_keeps_both(self) -> None:
        graph = graph_of(KEYED, knows("a", "b"))
        graph.load([knows("a", "b", rank=1)], "merge")
        graph.load([knows("a", "b", note="x")], "merge", branch="side")

        graph.branches.merge("side")

        assert edges(graph) == {("a", "b"): ("x", 1)}

    def test_merge_of_a_deleted_and_a_changed_edge_is_a_conflict(self) -> None:
        graph = graph_of(KEYED, knows("a", "b"))
        delete(graph, "a", "b", "main")
        graph.load([knows("a", "b", note="x")], "merge", branch="side")

        with pytest.raises(MergeConflicts, match="delete_vs_update"):
            graph.branches.merge("side")

    def test_diff_and_change_feed_show_a_merged_pair_as_one_update(self) -> None:
        graph = graph_of(KEYED, knows("a", "b", rank=1))
        graph.load([knows("a", "b", rank=2)], "merge", branch="side")

        changes = list(graph.diff("main", "side"))

        assert [(item.op, item.id) for item in changes] == [("update", '["a","b"]')]


class TestKeyOfOneSide:
    @pytest.mark.parametrize("keyed", ["main", "side"])
    def test_merge_of_changes_without_the_key_finds_their_edges(self, keyed: str) -> None:
        other = "side" if keyed == "main" else "main"
        graph = graph_of(KEYLESS, knows("a", "b", rank=1), knows("b", "c", rank=1), knows("c", "d", rank=1))
        put(graph, ("a", "b"), ("new", 1), other)
        delete(graph, "b", "c", other)
        put(graph, ("d", "a"), (None, 7), other)
        graph.schema.apply(KEYED, branch=keyed)
        put(graph, ("c", "d"), (None, 2), keyed)

        graph.branches.merge("side")

        assert edges(graph) == {("a", "b"): ("new", 1), ("c", "d"): (None, 2), ("d", "a"): (None, 7)}
        assert graph.verify().ok

    def test_merge_of_a_key_that_both_sides_added_keeps_deletes_deleted(self) -> None:
        graph = graph_of(KEYLESS, knows("a", "b", rank=1), knows("b", "c", rank=1))
        graph.schema.apply(KEYED)
        graph.schema.apply(KEYED, branch="side")
        delete(graph, "a", "b", "side")
        put(graph, ("b", "c"), ("x", 1), "main")

        graph.branches.merge("side")

        assert edges(graph) == {("b", "c"): ("x", 1)}

    def test_merge_of_duplicates_into_a_key_names_them(self) -> None:
        graph = graph_of(KEYLESS, knows("b", "c"))
        graph.load([knows("a", "b", id="e1"), knows("a", "b", id="e2")], "append", branch="side")
        graph.schema.apply(KEYED)

        with pytest.raises(MergeConflicts) as caught:
            graph.branches.merge("side")

        assert "value '(a, b)' held by 'e1' and 'e2'" in caught.value.conflicts[0]["message"]
        assert edges(graph) == {("b", "c"): (None, None)}

    def test_merge_of_duplicates_that_both_sides_removed_succeeds(self) -> None:
        graph = graph_of(KEYLESS, knows("a", "b", id="e1"), knows("a", "b", id="e2"))
        for branch in ("main", "side"):
            graph.load({"Knows": [{"id": "e1", "from": "a", "to": "b"}]}, "overwrite", branch=branch)
        put(graph, ("c", "d"), (None, 1), "side")
        graph.schema.apply(KEYED)

        graph.branches.merge("side")

        assert edges(graph) == {("a", "b"): (None, None), ("c", "d"): (None, 1)}

    def test_merge_with_a_key_on_an_empty_type_derives_the_ids_of_new_edges(self) -> None:
        graph = graph_of(KEYLESS)
        graph.schema.apply(KEYED)
        graph.load([knows("a", "b", rank=3)], "append", branch="side")

        graph.branches.merge("side")

        assert edges(graph) == {("a", "b"): (None, 3)}

    def test_merge_of_a_removed_key_keeps_ids(self) -> None:
        graph = graph_of(KEYED, knows("a", "b", rank=1))
        graph.schema.apply(KEYLESS)
        graph.load([knows("a", "b", rank=2)], "merge", branch="side")

        graph.branches.merge("side")

        assert edges(graph) == {("a", "b"): (None, 2)}


pairs = st.sampled_from([("a", "b"), ("b", "c"), ("c", "d")])
values = st.tuples(st.none() | st.just("x"), st.sampled_from([None, 1, 2]))
steps = st.lists(st.tuples(pairs, st.none() | values), max_size=3)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(pairs, values, max_size=3),
    steps,
    steps,
    st.sampled_from([("main",), ("side",), ("main", "side")]),
    st.booleans(),
)
def test_merge_with_a_key_added_on_any_side_equals_the_naive_three_way_merge(
    before: Edges,
    ours: list[tuple[tuple[str, str], tuple[str | None, int | None] | None]],
    theirs: list[tuple[tuple[str, str], tuple[str | None, int | None] | None]],
    keyed: tuple[str, ...],
    early: bool,
) -> None:
    graph = graph_of(KEYLESS, *(knows(*pair, note=item[0], rank=item[1]) for pair, item in before.items()))
    if early:
        for branch in keyed:
            graph.schema.apply(KEYED, branch=branch)
    after = {}
    for branch, changes in (("main", ours), ("side", theirs)):
        state = dict(before)
        for pair, item in changes:
            if item is None:
                state.pop(pair, None)
                delete(graph, *pair, branch)
            else:
                state[pair] = item
                put(graph, pair, item, branch)
        after[branch] = state
    if not early:
        for branch in keyed:
            graph.schema.apply(KEYED, branch=branch)
    expected = naive_merge(before, after["main"], after["side"])
    if expected is None:
        with pytest.raises(MergeConflicts):
            graph.branches.merge("side")
    else:
        graph.branches.merge("side")
        assert edges(graph) == expected


def naive_merge(base: Edges, ours: Edges, theirs: Edges) -> Edges | None:
    """Merge edge by edge and property by property; None for a conflict."""
    merged: Edges = {}
    for pair in base.keys() | ours.keys() | theirs.keys():
        states = base.get(pair), ours.get(pair), theirs.get(pair)
        before, mine, other = states
        if mine == other or other == before:
            chosen = mine
        elif mine == before:
            chosen = other
        elif mine is None or other is None or before is None:
            return None
        else:
            parts = []
            for old, left, right in zip(before, mine, other, strict=True):
                if left != right and old not in (left, right):
                    return None
                parts.append(right if left == old else left)
            chosen = (parts[0], parts[1])  # type: ignore[assignment]
        if chosen is not None:
            merged[pair] = chosen
    return merged
