"""A handle that lived through writes of its own and of others reads what a handle opened afterwards reads."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.engine import layered_adjacency
from omnigraph.engine.memory import column_chunks, id_index, row_numbers
from omnigraph.read import endpoints, topology
from omnigraph.store.tables import tables
from tests.support.places import fresh_memory

SCHEMA = """
node Person { name: String @key  age: I32?  bio: String?  @index(bio) }
node Team { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge In: Person -> Team
"""
WIDER = SCHEMA.replace("age: I32?", "age: I32?  mood: String?")
NAMES = tuple("abcdefgh")
WORDS = ("red fox", "red wine", "blue fox fox", "green", "")

# Every shape of a read: scans, lookups, one hop in all directions, edge variables, paths, negation, optional
# matches, aggregates, text search and ranking.
SHAPES = (
    "query q() { match { $p: Person } return { $p.name $p.age $p.bio } }",
    'query q() { match { $p: Person { name: "a" } } return { $p.age } }',
    "query q() { match { $p: Person $p.age > 3 } return { $p.name } }",
    "query q() { match { $p: Person $p knows $q } return { $p.name $q.name $q.age } }",
    "query q() { match { $p: Person $q knows $p } return { $p.name $q.name } }",
    'query q() { match { $p: Person { name: "b" } $p <knows> $q } return { $q.name } }',
    "query q() { match { $p: Person $p $e:knows $q } return { $p.name $q.name $e.since } }",
    "query q() { match { $p: Person $p knows{1,3} $q } return { $p.name $q.name } order { $p.name } }",
    "query q() { match { $p: Person $p in $t } return { $t.name count($p) as n } }",
    "query q() { match { $p: Person not { $p knows $q } } return { $p.name } }",
    "query q() { match { $p: Person optional { $p in $t } } return { $p.name $t.name } }",
    "query q() { match { $p: Person $p knows $q $q knows $p } return { count($p) as n } }",
    "query q() { match { $p: Person } return { $p.age count($p) as n sum($p.age) as s } }",
    'query q() { match { $p: Person search($p.bio, "fox") } return { $p.name } }',
    'query q() { match { $p: Person } return { bm25($p.bio, "red") as s } order { s desc, $p.name } limit 4 }',
)
NAMED = "query q() { match { $p: Person } return { $p.name as n } }"
PUT = "query w($n: String, $a: I32, $b: String) { insert Person { name: $n age: $a bio: $b } }"
LINK = "query w($a: String, $b: String, $s: I32) { insert Knows { from: $a to: $b since: $s } }"
JOIN = 'query w($a: String) { insert In { from: $a to: "t" } }'
AGE = "query w($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
LEAVE = "query w($n: String) { delete Person where name = $n }"
PART = "query w($s: I32) { delete Knows where since = $s }"


def new_graph(uri: str) -> og.LocalGraph:
    graph: og.LocalGraph = og.init(uri, schema=SCHEMA, durability="os")
    graph.load(
        {
            "Person": [
                {"name": name, "age": place, "bio": WORDS[place % 5]} for place, name in enumerate(NAMES)
            ],
            "Team": [{"name": "t"}, {"name": "u"}],
            "Knows": [{"from": a, "to": b, "since": ord(b)} for a in "abc" for b in "bcd"],
            "In": [{"from": name, "to": "t"} for name in "ace"],
        }
    )
    return graph


def answers(graph: og.LocalGraph, at: str | None = None) -> list[Any]:
    """Return the rows of every shape, in the order in which they come."""
    return [graph.query(shape, at=at).rows() for shape in SHAPES]


def check_fresh(graph: og.LocalGraph, at: str | None = None) -> None:
    with og.open(graph.uri, mode="r") as fresh:
        expected = answers(fresh, at)
    for shape, found, wanted in zip(SHAPES, answers(graph, at), expected, strict=True):
        if "{1,3}" in shape:
            # Paths of several hops come in no particular order.
            found, wanted = sorted(found, key=str), sorted(wanted, key=str)
        assert found == wanted, shape


def write(graph: og.LocalGraph, chance: random.Random) -> None:
    """Make one random change; some change nothing."""
    name, other = chance.choice(NAMES), chance.choice(NAMES)
    number = chance.randrange(90, 110)
    existing = {
        row["n"] for row in graph.query("query q() { match { $p: Person } return { $p.name as n } }").rows()
    }
    match chance.randrange(11):
        case 0 | 1:
            graph.mutate(PUT, {"n": name, "a": number, "b": chance.choice(WORDS)})
        case 2 | 3 if {name, other} <= existing:
            graph.mutate(LINK, {"a": name, "b": other, "s": number})
        case 4 if name in existing:
            graph.mutate(JOIN, {"a": name})
        case 5:
            graph.mutate(AGE, {"n": name, "a": number})
        case 6 if "a" in existing:
            graph.load({"Knows": [{"from": "a", "to": "a", "since": number}]}, mode="append")
        case 7:
            graph.mutate(LEAVE, {"n": name})
        case 8:
            graph.mutate(PART, {"s": number})
        case 9:
            graph.load({"Person": [{"name": name, "age": number}, {"name": f"{name}{other}"}]}, mode="merge")
        case 10:
            graph.optimize()


def small_limits(patch: pytest.MonkeyPatch) -> None:
    """Fold deltas, merge segments and start lineages after few rows."""
    patch.setattr(column_chunks, "_SHORT", 1)
    patch.setattr(layered_adjacency, "MAX_DELTA", 4)
    patch.setattr(row_numbers, "_MIN_UNUSED", 4)
    patch.setattr(endpoints, "_MAX_MOVES", 3)
    patch.setattr(id_index, "MAX_UNSORTED_IDS", 5)
    patch.setattr(tables, "COMPACT_AT", 3)


@settings(max_examples=4, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**32), st.booleans()), min_size=6, max_size=9), st.booleans())
def test_reads_after_random_writes_of_two_handles_equal_those_of_a_new_handle(
    steps: list[tuple[int, bool]], small: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topology, "_FOLD_SHARE", 0)
        if small:
            small_limits(patch)
        with new_graph(fresh_memory()) as graph, og.open(graph.uri) as other:
            before = graph.commits()[0].id
            answers(graph)
            for seed, foreign in steps:
                write(other if foreign else graph, random.Random(seed))
                check_fresh(graph)
            check_fresh(graph, before)
            check_fresh(graph)


def test_reads_after_merge_and_schema_change_equal_those_of_a_new_handle() -> None:
    with new_graph(fresh_memory()) as graph:
        answers(graph)
        graph.branches.create("side")
        graph.mutate(LINK, {"a": "h", "b": "a", "s": 1}, branch="side")
        graph.mutate(LEAVE, {"n": "b"}, branch="side")
        graph.mutate(PUT, {"n": "x", "a": 1, "b": "red"})
        check_fresh(graph)
        graph.branches.merge("side")
        check_fresh(graph)
        graph.schema.apply(WIDER)
        graph.mutate(AGE, {"n": "a", "a": 50})
        check_fresh(graph)
        mood = "query q() { match { $p: Person } return { $p.name $p.mood } order { $p.name } }"
        assert [row["p.mood"] for row in graph.query(mood).rows()] == [None] * 8


def test_reads_after_each_write_of_another_handle_equal_those_of_a_new_handle(tmp_path: Path) -> None:
    with new_graph(str(tmp_path / "g")) as graph, og.open(graph.uri) as other:
        answers(graph)
        for name in NAMES:
            other.mutate(LINK, {"a": name, "b": "a", "s": 7})
            check_fresh(graph)
        other.mutate(PART, {"s": 7})
        check_fresh(graph)


def test_deleted_text_does_not_count_in_ranking() -> None:
    ranking = (
        'query q() { match { $p: Person } return { $p.name bm25($p.bio, "red fox") as s } '
        'order { bm25($p.bio, "red fox") desc } }'
    )
    with new_graph(fresh_memory()) as graph:
        graph.query(ranking)
        graph.mutate(LEAVE, {"n": "c"})
        graph.mutate(PUT, {"n": "d", "a": 1, "b": "red red fox"})
        with og.open(graph.uri, mode="r") as fresh:
            assert graph.query(ranking).rows() == fresh.query(ranking).rows()
