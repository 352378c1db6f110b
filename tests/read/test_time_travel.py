"""Old and new commits through one cache: the rows are always those of the commit that was asked for."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import NotFound
from omnigraph.maintain.cleanup import cleanup
from tests.support.places import fresh_memory

SCHEMA = """
node Person { name: String @key  age: I32?  size: I32? }
edge Knows: Person -> Person
"""
PAIRS = (
    "query pairs() { match { $a: Person  $a knows $b } return { $a.name as a, $b.name as b, $b.age as age } }"
)
AGES = "query ages() { match { $p: Person } return { $p.name as name, $p.age as age } }"
SIZES = "query sizes() { match { $p: Person } return { sum($p.size) as size } }"
LARGE = "query large() { match { $p: Person  $p.size > 2 } return { $p.name } }"


def person(name: str, age: int = 1) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, "age": age, "size": age}}


def knows(source: str, target: str) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target}


def rows(graph: og.Graph, text: str, at: Any = None) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in graph.query(text, at=at).rows())


def test_old_and_new_commits_take_turns_and_each_has_its_own_rows() -> None:
    graph = og.init(fresh_memory(), schema=SCHEMA)
    ages: dict[str, int] = {}
    links: set[tuple[str, str]] = set()
    expected: dict[str, tuple[list[Any], list[Any]]] = {}
    chance = random.Random(7)
    for number in range(14):
        names = sorted(ages)
        if number % 4 == 3:
            gone = chance.choice(names)
            delete = "query d($n: String) { delete Person where name = $n }"
            commit = graph.mutate(delete, {"n": gone}).commit
            del ages[gone]
            links = {pair for pair in links if gone not in pair}
        else:
            new = {f"p{chance.randrange(8)}": number for _ in range(2)}
            ages |= new
            pair = (chance.choice(sorted(ages)), chance.choice(sorted(ages)))
            extra = [] if pair in links else [knows(*pair)]
            links.add(pair)
            commit = graph.load(
                [*(person(name, age) for name, age in new.items()), *extra], mode="merge"
            ).commit
        assert commit is not None
        expected[commit.id] = (
            sorted(ages.items()),
            sorted((source, target, ages[target]) for source, target in links),
        )
        for id_ in [commit.id, *chance.choices(sorted(expected), k=2)]:
            assert (rows(graph, AGES, id_), rows(graph, PAIRS, id_)) == expected[id_]
    assert (rows(graph, AGES), rows(graph, PAIRS)) == expected[graph.commits()[0].id]


def test_a_moment_a_commit_and_a_snapshot_are_one_state() -> None:
    graph = og.init(fresh_memory(), schema=SCHEMA)
    first = graph.load([person("a")]).commit
    assert first is not None
    snapshot = graph.snapshot()
    graph.load([person("b")])
    assert rows(graph, AGES) == [("a", 1), ("b", 1)]
    for at in (first.id, first.created_at, snapshot):
        result = graph.query(AGES, at=at)
        assert result.commit_id == first.id
        assert result.rows() == [{"name": "a", "age": 1}]


def test_a_key_that_one_branch_has_deleted_is_still_taken_on_the_others() -> None:
    graph = og.init(fresh_memory(), schema=SCHEMA)
    graph.load([person("a"), person("b")])
    graph.branches.create("side")
    graph.mutate('query d() { delete Person where name = "a" }')
    point = 'query p() { match { $p: Person { name: "a" } } return { $p.age as age } }'
    assert graph.query(point).rows() == []
    again = og.open(graph.uri)
    # What this handle knows first is the branch without the row.
    assert again.query(point).rows() == []
    assert again.query(point, branch="side").rows() == [{"age": 1}]
    again.mutate('query i() { insert Person { name: "a", age: 2 } }', branch="side")
    found = again.query(AGES, branch="side").rows()
    assert sorted(tuple(row.values()) for row in found) == [("a", 2), ("b", 1)]


# --- cleanup ---------------------------------------------------------------------------------------------


@pytest.fixture
def cleaned(tmp_path: Path) -> tuple[og.Graph, str]:
    """A graph and its commit before the last, of which one column is in memory and whose data is gone."""
    graph = og.init(str(tmp_path / "g"), schema=SCHEMA, durability="os")
    graph.load([person("a", 1), person("b", 5), knows("a", "b")])
    old = graph.commits()[0].id
    assert rows(graph, AGES, old) == [("a", 1), ("b", 5)]
    graph.load({"Person": [{"name": "z"}], "Knows": [{"from": "z", "to": "z"}]}, mode="overwrite")
    other = og.open(graph.uri, durability="os")
    assert cleanup(other._repository, keep=1, grace=timedelta(0), confirm=True).confirmed
    other.close()
    return graph, old


def reclaimed(work: Any) -> str:
    with pytest.raises(NotFound) as caught:
        work()
    assert caught.value.details["reason"] == "reclaimed"
    return str(caught.value.details["commit_id"])


def test_query_at_reclaimed_commit_is_never_answered_from_memory(cleaned: tuple[og.Graph, str]) -> None:
    graph, old = cleaned
    for _ in range(2):
        assert reclaimed(lambda: graph.query(SIZES, at=old)) == old
        assert reclaimed(lambda: graph.query(PAIRS, at=old)) == old
        # These columns are in memory.
        assert reclaimed(lambda: graph.query(AGES, at=old)) == old
        assert reclaimed(lambda: graph.get("Person", "a", at=old)) == old
        assert rows(graph, AGES) == [("z", None)]


def test_query_at_held_snapshot_is_answered_until_its_data_is_reclaimed(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "g"), schema=SCHEMA, durability="os")
    graph.load([person("a", 1), person("b", 5), knows("a", "b")])
    held = graph.snapshot()
    other = og.open(graph.uri, durability="os")
    other.load({"Person": [{"name": "z"}], "Knows": [{"from": "z", "to": "z"}]}, mode="overwrite")
    for _ in range(2):
        assert rows(graph, AGES, held) == [("a", 1), ("b", 5)]
    assert cleanup(other._repository, keep=1, grace=timedelta(0), confirm=True).confirmed
    assert reclaimed(lambda: graph.query(AGES, at=held)) == held.commit_id
    assert rows(graph, AGES) == [("z", None)]
    other.close()


@pytest.mark.parametrize("cache_bytes", [None, 0])
def test_a_reclaimed_commit_says_so_to_a_handle_that_knows_nothing_of_it(
    cleaned: tuple[og.Graph, str], cache_bytes: int | None
) -> None:
    graph, old = cleaned
    fresh = og.open(graph.uri, mode="r", durability="os", cache_bytes=cache_bytes)
    for work in (
        lambda: fresh.query(AGES, at=old),
        lambda: fresh.query(LARGE, at=old),
        lambda: fresh.query(PAIRS, at=old),
        lambda: fresh.get("Person", "a", at=old),
        lambda: fresh.explain(LARGE, at=old),
    ):
        assert reclaimed(work) == old
    fresh.close()


def test_a_failed_read_of_a_reclaimed_commit_does_not_spoil_the_next_ones(
    cleaned: tuple[og.Graph, str],
) -> None:
    graph, old = cleaned
    for _ in range(3):
        assert reclaimed(lambda: graph.query(PAIRS, at=old)) == old
        assert rows(graph, PAIRS) == [("z", "z", None)]
    graph.load([person("y"), knows("y", "y")])
    assert rows(graph, PAIRS) == [("y", "y", 1), ("z", "z", None)]
