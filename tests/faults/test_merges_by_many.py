"""Processes that write, branch, merge, revert and change the schema concurrently; some are killed.

Afterwards the history is replayed commit by commit. The stored rows of each commit must be the result of its
message on its parents, no acknowledged commit may be missing, and no deleted branch may remove a merged commit.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

import pytest

import omnigraph as og
from omnigraph.graph.repository import Repository
from omnigraph.store.manifest.records import CommitRecord
from tests.faults.merge_churn import WEIGHTS, Churn, action_of
from tests.support.api_writes import WRITER
from tests.support.forked import Worker, start_worker
from tests.support.merge_writes import SCHEMA
from tests.support.workload import PERSON, check_invariants, prepare_setting

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(1800)]

SEED_VARIABLE: Final = "OMNIGRAPH_SEED"
LIFETIME: Final = 300.0
Rows: TypeAlias = Mapping[str, int]


# --- lives of workers -----------------------------------------------------------------------------------------


@dataclass
class Story:
    """The acknowledged and lost steps of a worker, and how often it was killed."""

    told: list[dict[str, str]] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    deaths: int = 0


@contextmanager
def running(module: str, argument: str) -> Iterator[Worker]:
    """A worker process that is always ended afterwards."""
    process = start_worker(module, argument)
    watchdog = threading.Timer(LIFETIME, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        process.close()
        watchdog.cancel()


def live(churn: Churn, fates: dict[int, float]) -> Story:
    """Run a worker to its last step; kill it during the given steps and restart it."""
    story = Story()
    while churn.first < churn.last:
        reached, killed = churn.first, False
        with running("tests.faults.merge_churn", churn.to_argument()) as process:
            for line in process.stdout:
                word, number, *rest = line.split(maxsplit=2)
                match word:
                    case "BEGIN" if int(number) in fates:
                        time.sleep(fates.pop(int(number)))
                        process.kill()
                        killed = True
                    case "ACK":
                        story.told.append(json.loads(rest[0]))
                    case "LOST":
                        story.lost[rest[0].strip()] += 1
                    case "END":
                        reached = int(number) + 1
        assert killed or reached == churn.last, f"worker {churn.worker} stopped by itself at step {reached}"
        story.deaths += killed
        # An interrupted step is not repeated, because its commits may exist.
        churn = replace(churn, first=reached + (reached < churn.last), life=churn.life + 1)
    return story


def run_all(uri: str, size: tuple[int, int], seed: int) -> list[Story]:
    """Run workers concurrently; every second one is killed once."""
    processes, steps = size
    chance = random.Random(seed)
    lives = []
    for number in range(processes):
        fates = {chance.randrange(steps): chance.uniform(0, 0.2)} if number % 2 else {}
        lives.append((Churn(uri, seed, number, 0, 0, steps), fates))
    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(lambda item: live(*item), lives))


# --- what must hold -------------------------------------------------------------------------------------------


class Replay:
    """Return the rows of every commit, replayed from its message and its parents."""

    def __init__(self, graph: Repository, commits: Mapping[str, CommitRecord]) -> None:
        self._graph = graph
        self._commits = commits
        self._rows: dict[str, Rows] = {}
        for commit in sorted(commits.values(), key=lambda item: item.created_at):
            self._rows[commit.id] = self._make(commit)

    def check(self) -> None:
        """Check that the stored rows equal the replayed ones."""
        for id_, rows in self._rows.items():
            assert self._stored(id_) == rows, f"commit {id_}: {self._commits[id_].message}"

    def _make(self, commit: CommitRecord) -> Rows:
        if commit.message is None or commit.parent is None:
            return self._stored(commit.id)
        before = self._rows[commit.parent]
        match json.loads(commit.message):
            case {"insert": [id_, value]}:
                assert id_ not in before, f"{id_} is inserted twice"
                return {**before, id_: value}
            case {"merge": _}:
                assert commit.merged_parent is not None
                base = self._base([commit.parent], commit.merged_parent)
                return together(base, before, self._rows[commit.merged_parent])
            case {"revert": undone}:
                parent = self._commits[undone].parent
                assert parent is not None
                return together(self._rows[undone], before, self._rows[parent])
            case {"schema": _}:
                return before
        raise AssertionError(commit.message)

    def _base(self, ours: Sequence[str], theirs: str) -> Rows:
        """Return the rows of the merge base. Several are merged, with their own merge bases."""
        sides = [[self._graph.snapshot(at=id_) for id_ in ids] for ids in (ours, [theirs])]
        bases = [item.commit_id for item in self._graph.merge_bases(*sides)]
        rows = self._rows[bases[0]]
        for number, id_ in enumerate(bases[1:], 1):
            rows = together(self._base(bases[:number], id_), rows, self._rows[id_])
        return rows

    def _stored(self, id_: str) -> Rows:
        rows = self._graph.snapshot(at=id_).scan(PERSON).to_pylist()
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"]: next(value for value in row.values() if isinstance(value, int)) for row in rows}


def together(base: Rows, ours: Rows, theirs: Rows) -> Rows:
    """Merge rows that are only inserted and deleted."""
    kept = {id_: value for id_, value in ours.items() if id_ in theirs or id_ not in base}
    return kept | {id_: value for id_, value in theirs.items() if id_ not in base}


def ancestors(commits: Mapping[str, CommitRecord], start: str) -> set[str]:
    """Return a commit and all its ancestors over both parents."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        commit = commits[waiting.pop()]
        if commit.id not in found:
            found.add(commit.id)
            waiting += [parent for parent in (commit.parent, commit.merged_parent) if parent is not None]
    return found


def healed_heads(uri: str) -> dict[str, str]:
    """Return the heads of the branches after recovery."""
    graph = Repository.open(uri, durability="os")
    try:
        return {name: graph.head(name).commit.id for name in graph.branches()}
    finally:
        graph.close()


def check_lineage(
    graph: Repository,
    heads: Mapping[str, str],
    commits: Mapping[str, CommitRecord],
    told: Sequence[Mapping[str, str]],
) -> None:
    """Check that no acknowledged commit is lost, none is merged twice, and each is reachable from a branch."""
    reached = set().union(*(ancestors(commits, head) for head in heads.values()))
    assert reached == commits.keys(), f"a branch took along {sorted(commits.keys() - reached)}"
    on_main = ancestors(commits, heads["main"])
    assert len({item["commit"] for item in told}) == len(told), "two were told of one commit"
    for item in told:
        commit = commits[item["commit"]]
        assert commit.branch == item["branch"]
        assert item["branch"] in heads or commit.id in on_main, f"{item} went with its branch"
        if item["did"] == "merge":
            assert commit.operation == "merge"
            assert commit.merged_parent in on_main
    merged = Counter(item.merged_parent for item in commits.values() if item.merged_parent is not None)
    assert not [id_ for id_, times in merged.items() if times > 1], "something was merged twice"
    types = graph.snapshot(at=heads["main"]).catalog.tables
    for id_ in on_main:
        match json.loads(commits[id_].message or "null"):
            case {"schema": name}:
                assert f"node:{name}" in types, f"main has lost type {name}"


def check_identities(graph: Repository, commits: Mapping[str, CommitRecord]) -> None:
    """Check that an id belongs to one type in all schemas."""
    meanings: dict[int, str] = {}
    for commit in commits.values():
        for key, table in graph.snapshot(at=commit.id).catalog.tables.items():
            assert meanings.setdefault(table.id, key) == key, f"number {table.id} means two types"


# --- tests ----------------------------------------------------------------------------------------------------


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Return a new seed, which is printed after a failure; `OMNIGRAPH_SEED` sets one."""
    found = int(os.environ.get(SEED_VARIABLE, random.SystemRandom().randrange(10**6)))
    sys.stdout.write(f'repeat: {SEED_VARIABLE}={found} .venv/bin/python -m pytest "{request.node.nodeid}"\n')
    return found


def test_merges_and_reverts_and_schema_changes_by_many_leave_a_history_that_can_be_replayed(
    tmp_path: Path, seed: int, every_cut: bool, record_property: Callable[[str, object], None]
) -> None:
    uri = str(tmp_path / "graph")
    prepare_setting("small", uri)
    size = (6, 25) if every_cut else (4, 8)
    stories = run_all(uri, size, seed)
    record_property("kills", sum(story.deaths for story in stories))
    told = [item for story in stories for item in story.told]
    heads = healed_heads(uri)
    found = check_invariants(uri, acknowledged=[item["commit"] for item in told])
    graph = Repository.open(uri, mode="r")
    check_lineage(graph, heads, found.commits, told)
    check_identities(graph, found.commits)
    Replay(graph, found.commits).check()
    lost = sum((story.lost for story in stories), Counter())
    assert len(told) > size[0] * size[1] / 2, f"hardly anything happened: {lost}"


def test_a_merge_gets_through_while_the_target_keeps_moving_in_other_types(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    graph = og.init(uri, SCHEMA, durability="os", actor=WRITER)
    graph.load({"Person": [{"name": "ann"}, {"name": "bob"}], "City": [{"name": "bern"}]})
    with running("tests.faults.steady_writer", json.dumps({"uri": uri, "branch": "main"})) as rival:
        told: set[str] = set()
        for number in range(5):
            told |= follow(rival, 1)
            graph.branches.create("side")
            graph.load({"Person": [{"name": f"theirs-{number}"}]}, branch="side")
            graph.load({"Person": [{"name": f"ours-{number}"}]})
            merged = graph.branches.merge("side", delete_source=True)
            assert (merged.outcome, merged.branch_deleted) == ("merged", True)
        rival.kill()
        told |= follow(rival, None)
    names = {row["id"] for row in graph.snapshot().scan("node:Person").to_pylist()}
    assert names == {
        "ann",
        "bob",
        *(f"{side}-{number}" for side in ("ours", "theirs") for number in range(5)),
    }
    cities = {row["id"] for row in graph.snapshot().scan("node:City").to_pylist()}
    assert told <= cities


def test_a_writer_of_a_branch_that_is_merged_and_deleted_loses_no_acknowledged_commit(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    graph = og.init(uri, SCHEMA, durability="os", actor=WRITER)
    graph.branches.create("side")
    kept = 0
    with running("tests.faults.steady_writer", json.dumps({"uri": uri, "branch": "side"})) as rival:
        told = follow(rival, 3)
        while True:
            # The closer the other writer follows, the more often its next commit keeps the branch.
            merged = graph.branches.merge("side", delete_source=True)
            if merged.branch_deleted:
                break
            kept += 1
        told |= follow(rival, None)
    cities = [row["id"] for row in graph.snapshot().scan("node:City").to_pylist()]
    assert len(set(cities)) == len(cities)
    assert told <= set(cities), f"lost after {kept} merges: {sorted(told - set(cities))}"


def follow(process: Worker, count: int | None) -> set[str]:
    """Return the next acknowledged rows of a steady writer, or all up to its end."""
    found: set[str] = set()
    while len(found) != count and (line := process.stdout.readline()):
        found.add(line.split()[1])
    return found


def test_the_workers_do_everything_there_is() -> None:
    steps = [action_of(Churn("", 1, worker, 0, 0, 40), number) for worker in range(4) for number in range(40)]
    assert set(steps) == set(WEIGHTS)
