"""Threads that read while others write: every result is the state of the commit that it names."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import omnigraph as og
from tests.support.places import fresh_memory, together

SCHEMA = """
node Person { name: String @key  round: I32 }
edge Knows: Person -> Person
"""
AGES = "query ages() { match { $p: Person } return { $p.name as name, $p.round as round } }"
PAIRS = "query pairs() { match { $a: Person  $a knows $b } return { $a.name as a, $b.round as round } }"
COUNT = (
    "query count() { match { $a: Person  $a knows $b } return { count($b) as n, min($b.round) as round } }"
)
ROUNDS = 12
READERS = 3


def records(number: int) -> list[dict[str, Any]]:
    """Everybody's row of a round, one more person, and an edge from each new one to the first."""
    people = [
        {"type": "Person", "data": {"name": f"p{place}", "round": number}} for place in range(number + 1)
    ]
    return [*people, {"edge": "Knows", "from": f"p{number}", "to": "p0"}]


def state(number: int, text: str) -> list[tuple[Any, ...]]:
    """What a query gives after a round."""
    people = [f"p{place}" for place in range(number + 1)]
    if text == COUNT:
        return [(number + 1, number)]
    return sorted((name, number) for name in people)


@pytest.mark.parametrize("cache_bytes", [None, 3_000])
def test_every_result_is_the_state_of_the_commit_it_names(cache_bytes: int | None) -> None:
    graph = og.init(fresh_memory(), schema=SCHEMA, cache_bytes=cache_bytes)
    first = graph.load(records(0), mode="merge").commit
    assert first is not None
    rounds = {first.id: 0}
    done = threading.Event()
    seen: list[tuple[str, str, list[tuple[Any, ...]]]] = []

    def write() -> None:
        try:
            for number in range(1, ROUNDS):
                commit = graph.load(records(number), mode="merge").commit
                assert commit is not None
                rounds[commit.id] = number
        finally:
            done.set()

    def read(place: int) -> Callable[[], None]:
        def run() -> None:
            turn = place
            while not done.is_set() or turn < place + 3:
                text = (AGES, PAIRS, COUNT)[turn % 3]
                # Every other read is of a commit some way back.
                known = sorted(rounds, key=rounds.__getitem__)
                at = known[len(known) // 2] if turn % 2 else None
                result = graph.query(text, at=at)
                assert at is None or result.commit_id == at
                seen.append((text, result.commit_id, sorted(tuple(row.values()) for row in result.rows())))
                turn += 1

        return run

    assert together([write, *(read(place) for place in range(READERS))]) == [None] * (READERS + 1)
    assert len({commit for _, commit, _ in seen}) > 3
    for text, commit, found in seen:
        assert found == state(rounds[commit], text)
    assert graph._reader.stats().nbytes <= graph._reader.stats().budget
