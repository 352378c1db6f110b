"""Changes that were told before are told again from memory: the same ones, and nobody's to change."""

from __future__ import annotations

from typing import Any

import pytest

import omnigraph as og
from omnigraph.changes.change_cache import MAX_CACHED_BYTES, MAX_CACHED_CHANGES
from omnigraph.engine.diff.table_diff import TableDiff
from tests.support.places import fresh_memory

SCHEMA = """
node City { name: String @key  mayor: String? }
edge Twin: City -> City
"""


@pytest.fixture
def g() -> og.Graph:
    graph = og.init(fresh_memory(), schema=SCHEMA)
    graph.load({"City": [{"name": "Bern"}, {"name": "Rome"}], "Twin": [{"from": "Bern", "to": "Rome"}]})
    return graph


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each table whose rows were compared."""
    seen: list[int] = []
    compare = TableDiff.batches

    def batches(self: TableDiff, *arguments: Any, **named: Any) -> Any:
        seen.append(1)
        return compare(self, *arguments, **named)

    monkeypatch.setattr(TableDiff, "batches", batches)
    return seen


def test_what_one_reader_was_told_is_not_compared_for_the_next(g: og.Graph, compared: list[int]) -> None:
    first = g.feed(start="beginning")
    assert len(compared) == 2
    assert g.acting_as("bo").feed(start="beginning") == first
    (block,) = first.blocks
    assert g.changes(block.cause.graph_commit_id).changes == block.changes
    assert len(compared) == 2


def test_a_new_commit_is_all_that_is_compared(g: og.Graph, compared: list[int]) -> None:
    g.feed(start="beginning")
    compared.clear()
    g.load({"City": [{"name": "Oslo"}]})
    assert [len(block.changes) for block in g.feed(start="beginning")] == [3, 1]
    assert len(compared) == 1


def test_feed_over_many_commits_read_twice_compares_each_commit_once(
    g: og.Graph, compared: list[int]
) -> None:
    for number in range(12):
        g.load({"City": [{"name": f"City {number}"}]})
    first = g.feed(start="beginning")
    compared.clear()
    assert g.feed(start="beginning") == first
    assert len(first.blocks) == 13
    assert not compared


def test_what_is_wanted_is_told_and_nothing_else(g: og.Graph) -> None:
    def told(**wanted: Any) -> list[tuple[str, str]]:
        return [
            (change.type_name, change.op)
            for block in g.feed(start="beginning", **wanted)
            for change in block.changes
        ]

    for _ in range(2):
        assert told() == [("City", "insert"), ("City", "insert"), ("Twin", "insert")]
        assert told(kinds=["edge"]) == [("Twin", "insert")]
        assert told(ops=["delete"]) == []
        assert told(types=["City"]) == [("City", "insert"), ("City", "insert")]


def test_whoever_changes_what_they_were_told_changes_it_for_themselves(g: og.Graph) -> None:
    mine = g.feed(start="beginning").blocks[0].changes[0]
    assert mine.after is not None
    mine.after["properties"]["name"] = "Paris"
    again = g.feed(start="beginning").blocks[0].changes[0]
    assert again.after is not None
    again.after["properties"].clear()
    third = g.feed(start="beginning").blocks[0].changes[0]
    assert third.after == {"properties": {"mayor": None, "name": "Bern"}}


def test_pages_go_on_behind_their_place_whether_the_rest_is_in_memory_or_not(g: og.Graph) -> None:
    commit = g.feed(start="beginning").blocks[0].cause.graph_commit_id
    fresh = og.open(g.uri)
    for graph in (g, fresh):
        token, ids = None, []
        for _ in range(3):
            page = graph.changes(commit, limit=1, page_token=token)
            ids += [change.id for change in page]
            token = page.next_page_token
        assert token is None
        assert ids[:2] == ["Bern", "Rome"]
        assert len(ids) == 3
        assert len(graph.changes(commit)) == 3


@pytest.mark.parametrize(
    "rows",
    [
        [{"name": f"city {number}"} for number in range(MAX_CACHED_CHANGES + 1)],
        [{"name": "large", "mayor": "x" * (MAX_CACHED_BYTES + 1)}],
    ],
    ids=["many", "large"],
)
def test_commits_that_would_push_out_others_are_compared_each_time(
    g: og.Graph, compared: list[int], rows: list[dict[str, Any]]
) -> None:
    cursor = g.feed().cursor
    g.load({"City": rows})
    pages = [g.feed(cursor=cursor, limit=1_000) for _ in range(2)]
    assert pages[0] == pages[1]
    assert [len(block.changes) for block in pages[0]] == [len(rows)]
    assert len(compared) == 2


def test_a_reader_who_leaves_early_leaves_nothing_half_told(g: og.Graph) -> None:
    commit = g.feed().cursor
    g.load({"City": [{"name": "Oslo"}, {"name": "Kyiv"}]})
    assert len(g.feed(cursor=commit, limit=1).blocks[0].changes) == 1
    assert len(g.feed(cursor=commit).blocks[0].changes) == 2
