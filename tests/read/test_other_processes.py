"""What another process has committed is seen by the very next read."""

from __future__ import annotations

from pathlib import Path

import omnigraph as og
from tests.support.workers import started

SCHEMA = "node Person { name: String @key  age: I32? }"
AGE = 'query age() { match { $p: Person { name: "a" } } return { $p.age as age } }'
ROUNDS = 50


def test_a_commit_of_another_process_is_in_the_next_read_however_quickly_they_follow(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "g"), schema=SCHEMA, durability="os")
    graph.load([{"type": "Person", "data": {"name": "a", "age": -1}}])
    graph.query(AGE)
    seen = []
    with started("tests.read.committing_worker", [{"uri": graph.uri}]) as (other,):
        assert other.stdin is not None
        assert other.stdout is not None
        for number in range(ROUNDS):
            other.stdin.write(f"{number}\n")
            other.stdin.flush()
            commit = other.stdout.readline().strip()
            result = graph.query(AGE)
            seen.append((result.commit_id == commit, result.scalar()))
    assert seen == [(True, number) for number in range(ROUNDS)]
    graph.close()
