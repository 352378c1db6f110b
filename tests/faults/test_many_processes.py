"""Concurrent writers that are killed at random: one commit chain per branch, and no partial write."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from omnigraph.graph.repository import Repository
from tests.support.churn import COUNTER, Churn, Step, step_of
from tests.support.forked import start_worker
from tests.support.workload import KNOWS, PAIR, PERSON, Findings, Rows, check_invariants, prepare_setting

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(1800)]

SEED_VARIABLE = "OMNIGRAPH_SEED"
LIFETIME = 300.0


@dataclass
class Story:
    """The observed work of one worker over all its runs."""

    done: list[tuple[Step, str]] = field(default_factory=list)
    lost: list[Step] = field(default_factory=list)
    # Steps during which it was killed. They may or may not be committed.
    unknown: list[Step] = field(default_factory=list)
    deaths: int = 0


def live(churn: Churn, deaths: Sequence[tuple[int, float]]) -> Story:
    """Run a worker to its last step; kill it during the given steps and restart it."""
    story = Story()
    fates = dict(deaths)
    while churn.first < churn.last:
        reached, killed = _live_once(churn, fates, story)
        assert killed or reached == churn.last, f"worker {churn.worker} stopped at step {reached}"
        story.deaths += killed
        churn = replace(churn, first=reached, life=churn.life + 1)
    return story


def _live_once(churn: Churn, fates: dict[int, float], story: Story) -> tuple[int, bool]:
    """Run the process once; return the next step and whether it was killed."""
    process = start_worker("tests.support.churn", churn.to_argument())
    watchdog = threading.Timer(LIFETIME, process.kill)
    watchdog.start()
    begun: int | None = None
    reached, killed = churn.first, False
    try:
        for line in process.stdout:
            word, number, *rest = line.split()
            reached = int(number)
            step = step_of(churn.seed, churn.worker, reached, churn.life)
            if word == "BEGIN":
                begun = reached
                if reached in fates:
                    time.sleep(fates.pop(reached))
                    process.kill()
                    killed = True
                continue
            begun, reached = None, reached + 1
            if word == "ACK":
                story.done.append((step, rest[0]))
            elif word == "LOST":
                story.lost.append(step)
    finally:
        process.close()
        watchdog.cancel()
    if begun is not None:
        assert killed, f"worker {churn.worker} died by itself in step {begun}"
        story.unknown.append(step_of(churn.seed, churn.worker, begun, churn.life))
    return reached, killed


def run_all(uri: str, branches: Sequence[str], steps: int, seed: int) -> list[Story]:
    """Run one worker per branch name concurrently; each is killed once or twice at random."""
    chance = random.Random(seed)
    lives = []
    for number, branch in enumerate(branches):
        deaths = [(chance.randrange(steps), chance.uniform(0, 0.06)) for _ in range(chance.choice((1, 2)))]
        lives.append((Churn(uri, branch, seed, number, 0, 0, steps), deaths))
    with ThreadPoolExecutor(len(lives)) as pool:
        return list(pool.map(lambda item: live(*item), lives))


def check_stories(found: Findings, branch: str, stories: Sequence[Story]) -> None:
    """Check that the rows of a branch agree with the work of its workers, and that every commit has a worker."""
    _, tables = found.state.branches[branch]
    rows = tables[PERSON]
    assert rows == tables[KNOWS]
    acknowledged = [commit for story in stories for _, commit in story.done]
    assert len(set(acknowledged)) == len(acknowledged), "two steps were told of one commit"
    written = [item for item in found.commits.values() if item.branch == branch and item.actor == "writer"]
    nobodys = {item.id for item in written} - set(acknowledged)
    assert len(nobodys) <= sum(len(story.unknown) for story in stories), f"nobody made {nobodys}"
    for story in stories:
        _check_rows(rows, story)
    _check_counter(rows, stories)


def _check_rows(rows: Rows, story: Story) -> None:
    deleted = {step.id for step, _ in story.done if step.action == "delete"}
    doubtful = {step.id for step in story.unknown if step.action == "delete"}
    for step, _ in story.done:
        if step.action in ("insert", "insert-once") and step.id not in deleted | doubtful:
            assert step.id in rows, f"{step.id} was acknowledged and is not there"
        if step.action == "insert-if-absent":
            assert step.id in rows
    inserted = {step.id for step, _ in story.done if step.action == "insert-once"}
    maybe = {step.id for step in story.unknown}
    for id_ in deleted:
        # A row is inserted before a later step deletes it.
        assert id_ not in rows or id_ in maybe or id_ not in inserted, f"{id_} was deleted and is there"


def _check_counter(rows: Rows, stories: Sequence[Story]) -> None:
    surely = sum(step.id == COUNTER for story in stories for step, _ in story.done)
    perhaps = sum(step.id == COUNTER for story in stories for step in story.unknown)
    assert surely <= rows.get(COUNTER, 0) <= surely + perhaps, "an increment was lost or counted twice"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return a new seed, which is printed after a failure; `OMNIGRAPH_SEED` sets one."""
    found = int(os.environ.get(SEED_VARIABLE, random.SystemRandom().randrange(10**6)))
    sys.stdout.write(f'repeat: {SEED_VARIABLE}={found} .venv/bin/python -m pytest "{request.node.nodeid}"\n')
    return found


@pytest.fixture
def size(every_cut: bool) -> tuple[int, int]:
    """Return the number of processes and of steps of each."""
    return (8, 50) if every_cut else (4, 12)


def test_writers_of_one_branch_that_are_killed_leave_one_chain(
    tmp_path: Path, seed: int, size: tuple[int, int], record_property: Callable[[str, object], None]
) -> None:
    uri = str(tmp_path / "graph")
    prepare_setting("small", uri)
    processes, steps = size
    stories = run_all(uri, ["main"] * processes, steps, seed)
    found = check_invariants(uri, acknowledged=[id_ for story in stories for _, id_ in story.done])
    check_stories(found, "main", stories)
    record_property("kills", sum(story.deaths for story in stories))
    assert sum(len(story.done) for story in stories) > processes * steps / 4


def test_writers_of_many_branches_never_stand_in_each_others_way(
    tmp_path: Path, seed: int, size: tuple[int, int], record_property: Callable[[str, object], None]
) -> None:
    uri = str(tmp_path / "graph")
    prepare_setting("small", uri)
    processes, steps = size
    graph = Repository.open(uri)
    branches = [f"work/{number}" for number in range(processes)]
    for branch in branches:
        graph.create_branch(branch)
    graph.close()
    stories = run_all(uri, branches, steps, seed)
    found = check_invariants(uri, acknowledged=[id_ for story in stories for _, id_ in story.done])
    for branch, story in zip(branches, stories, strict=True):
        check_stories(found, branch, [story])
        assert story.lost == [], f"{branch} has one writer and lost {story.lost}"
    record_property("kills", sum(story.deaths for story in stories))


def test_the_writers_do_everything_there_is() -> None:
    actions = {step_of(1, worker, number, 0).action for worker in range(4) for number in range(40)}
    assert actions == {"insert", "insert-once", "insert-if-absent", "delete", "count", "rewrite"}
    assert all(step_of(1, 0, number, 0).id.startswith(PAIR) for number in range(40))
