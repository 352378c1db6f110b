"""Processes with long-lived handles that mutate and load the same keys concurrently; some are killed.

Afterwards the history is replayed commit by commit with a simple model. The stored rows of each commit must be the
result of the writes up to it, and every receipt must be correct.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.faults.api_churn import Churn, Step, on, step_of
from tests.model import people_model as model
from tests.model.people_model import SCHEMA, State
from tests.support.forked import start_worker

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]

SEED_VARIABLE = "OMNIGRAPH_SEED"
LIFETIME = 300.0
FOUNDER = "founder"


@dataclass
class Story:
    """The observed receipts and outcomes of a worker, and how often it was killed."""

    receipts: list[dict[str, Any]] = field(default_factory=list)
    words: Counter[str] = field(default_factory=Counter)
    # Messages of steps during which it was killed. They may or may not be committed.
    unknown: list[str] = field(default_factory=list)
    deaths: int = 0


def live(churn: Churn, fates: dict[int, float]) -> Story:
    """Run a worker to its last step; kill it during the given steps and restart it."""
    story = Story()
    while churn.first < churn.last:
        reached = _live_once(churn, fates, story)
        churn = replace(churn, first=reached, life=churn.life + 1)
    return story


def _live_once(churn: Churn, fates: dict[int, float], story: Story) -> int:
    process = start_worker("tests.faults.api_churn", churn.to_argument())
    watchdog = threading.Timer(LIFETIME, process.kill)
    watchdog.start()
    begun: int | None = None
    reached, killed = churn.first, False
    try:
        for line in process.stdout:
            word, number, *rest = line.split(maxsplit=2)
            reached = int(number)
            if word == "BEGIN":
                begun = reached
                if reached in fates:
                    time.sleep(fates.pop(reached))
                    process.kill()
                    killed = True
                continue
            begun, reached = None, reached + 1
            story.words[word if word != "LOST" else rest[0].strip()] += 1
            if word == "ACK":
                story.receipts.append(json.loads(rest[0]))
    finally:
        process.close()
        watchdog.cancel()
    assert killed or reached == churn.last, f"worker {churn.worker} stopped by itself at step {reached}"
    story.deaths += killed
    if begun is not None:
        story.unknown.append(step_of(churn, begun).to_message())
        reached = begun + 1
    return reached


def run_all(uri: str, branches: tuple[str, ...], size: tuple[int, int], seed: int) -> list[Story]:
    """Run workers concurrently; half of them are killed once."""
    processes, steps = size
    chance = random.Random(seed)
    lives = []
    for number in range(processes):
        fates = {chance.randrange(steps): chance.uniform(0, 0.08)} if number % 2 else {}
        lives.append((Churn(uri, branches, seed, number, 0, 0, steps), fates))
    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(lambda item: live(*item), lives))


def check_history(graph: og.Graph, stories: Sequence[Story]) -> None:
    """Check that every commit is the result of its message on its parent, and that receipts are correct."""
    receipts = {item["commit"]: item["affected"] for story in stories for item in story.receipts}
    assert len(receipts) == sum(len(story.receipts) for story in stories), "two steps had one commit"
    unknown = Counter(message for story in stories for message in story.unknown)
    states: dict[str, State] = {}
    for branch in graph.branches.list():
        chain = graph.commits(branch, limit=None)[::-1]
        assert [commit.sequence for commit in chain] == list(range(1, len(chain) + 1))
        for parent, commit in zip([None, *chain], chain, strict=False):
            if commit.id in states:
                continue
            if parent is None or commit.actor == FOUNDER:
                states[commit.id] = State() if parent is None else on(states[parent.id], commit.message or "")
                continue
            assert commit.parents == (parent.id,)
            assert commit.message is not None
            before = states[parent.id]
            after = states[commit.id] = on(before, commit.message)
            check_stored(graph, commit.id, after)
            told = receipts.pop(commit.id, None)
            if told is None:
                unknown[commit.message] -= 1
                assert unknown[commit.message] == 0, f"nobody made commit {commit.id}"
            else:
                kept = {name: counts for name, counts in told.items() if any(counts.values())}
                assert kept == model.affected(before, after), f"{commit.id} says what it did not do"
    assert not receipts, f"acknowledged commits are in no history: {sorted(receipts)}"


def check_stored(graph: og.Graph, commit: str, state: State) -> None:
    """Check that storage has the rows of the state, each once, and the row counts of the commit."""
    snapshot = graph.snapshot(at=commit)
    stored = {"Person": snapshot.scan("node:Person").to_pylist()}
    stored |= {name: snapshot.scan(f"edge:{name}").to_pylist() for name in model.EDGES}
    people = sorted((row["id"], _number(row)) for row in stored["Person"])
    assert people == sorted(state.people.items()), f"people of {commit}"
    for name in model.EDGES:
        ids = [row["id"] for row in stored[name]]
        assert len(set(ids)) == len(ids), f"{name} of {commit} has an id twice"
        edges = sorted((row["src"], row["dst"], _number(row)) for row in stored[name])
        assert edges == sorted(state.edges[name].values()), f"{name} of {commit}"
    for name, rows in stored.items():
        pin = snapshot.pin(f"node:{name}" if name == "Person" else f"edge:{name}")
        assert pin.rows == len(rows), f"{name} of {commit}"


def _number(row: dict[str, Any]) -> int:
    return next(value for value in row.values() if isinstance(value, int))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return a new seed, which is printed after a failure; `OMNIGRAPH_SEED` sets one."""
    found = int(os.environ.get(SEED_VARIABLE, random.SystemRandom().randrange(10**6)))
    sys.stdout.write(f'repeat: {SEED_VARIABLE}={found} .venv/bin/python -m pytest "{request.node.nodeid}"\n')
    return found


@pytest.fixture
def size(every_cut: bool) -> tuple[int, int]:
    """Return the number of processes and of steps of each."""
    return (6, 30) if every_cut else (4, 15)


@pytest.mark.parametrize(
    "branches",
    [
        pytest.param(("main",), id="one-branch"),
        pytest.param(("main", "a", "b"), id="three-branches", marks=pytest.mark.long),
    ],
)
def test_a_history_of_mutations_and_loads_of_the_same_keys_can_be_replayed(
    branches: tuple[str, ...],
    tmp_path: Path,
    seed: int,
    size: tuple[int, int],
    record_property: Callable[[str, object], None],
) -> None:
    uri = str(tmp_path / "graph")
    graph = og.init(uri, SCHEMA, durability="os", actor=FOUNDER)
    # Each branch starts from the previous one and has its own first commit.
    for number, branch in enumerate(branches):
        if number:
            graph.branches.create(branch, branches[number - 1])
        load = model.Load("merge", [(f"p{place}", number) for place in range(number, 5)])
        graph.load(load.source(), "merge", branch=branch, message=Step(branch, load=load).to_message())
    stories = run_all(uri, branches, size, seed)
    check_history(og.open(uri, mode="r"), stories)
    assert not list((tmp_path / "graph" / "__recovery").glob("*"))
    record_property("kills", sum(story.deaths for story in stories))
    assert sum(story.words["ACK"] for story in stories) > size[0] * size[1] / 4, [
        item.words for item in stories
    ]
