"""Garbage collection on random histories and policies: retained commits stay readable, others are removed whole."""

from __future__ import annotations

import random
import tempfile
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.graph.publish import now_micros
from omnigraph.graph.repository import Repository
from omnigraph.maintain.cleanup import cleanup
from omnigraph.store.manifest.records import CommitRecord
from tests.maintain.graphs import (
    CITY,
    NO_GRACE,
    PERSON,
    RECLAIMED,
    change,
    history,
    maintain,
    merge,
    new_graph,
    overwrite,
    reopened,
    rows_at,
    table_files,
)

STEPS = ["insert"] * 5 + ["delete", "delete", "overwrite", "rewrite", "index"]
STEPS += ["branch", "branch", "unbranch", "merge", "cleanup"]


class History:
    """A graph for random steps."""

    def __init__(self, graph: Repository, dice: random.Random) -> None:
        self.graph = graph
        self.dice = dice
        self.ids = 0

    def step(self, kind: str) -> None:
        graph, dice = self.graph, self.dice
        branch, key = dice.choice(list(graph.branches())), dice.choice([PERSON, PERSON, CITY])
        self.ids += 1
        match kind:
            case "insert":
                change(graph, f"i{self.ids}", key=key, branch=branch)
            case "delete":
                ids = graph.snapshot(branch).scan(key, columns=["id"])["id"].to_pylist()
                change(graph, key=key, branch=branch, delete=dice.sample(ids, min(2, len(ids))))
            case "overwrite":
                overwrite(graph, f"o{self.ids}", key=key, branch=branch)
            case "rewrite" | "index":
                maintain(graph, key, branch, index=kind == "index")
            case "branch":
                # A new handle, because this one may have removed versions in its cache.
                fresh = reopened(graph)
                readable = [item for item in history(graph).values() if rows_at(fresh, item) != RECLAIMED]
                graph.create_branch(f"b{self.ids}", at=dice.choice(readable).id)
            case "unbranch":
                if branch != "main":
                    graph.delete_branch(branch)
            case "merge":
                if branch != "main":
                    merge(graph, branch)
            case "cleanup":
                cleanup(graph, keep=dice.randint(1, 3), confirm=True, grace=NO_GRACE)


def must_stay(graph: Repository, keep: int | None, older_than: timedelta | None, now: int) -> set[str]:
    """Return the retained commits by the definition in the guide, with a simple algorithm."""
    commits = history(graph)
    found: set[str] = set()
    for branch in graph.branches():
        line = list(graph.commits(branch))
        found |= {item.id for item in line[: keep or 1]}
        for newer in line[: (keep or 1) - 1]:
            if newer.merged_parent is not None:
                found.add(newer.merged_parent)
        if older_than is not None:
            replaced_after = now - older_than // timedelta(microseconds=1)
            found |= {older.id for newer, older in pairwise(line) if newer.created_at > replaced_after}
    assert found <= set(commits)
    return found


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    steps=st.lists(st.sampled_from(STEPS), min_size=4, max_size=16),
    seed=st.integers(0, 2**32 - 1),
    keep=st.none() | st.integers(1, 4),
    age=st.none() | st.floats(0, 1),
)
def test_retained_commits_read_the_same_and_others_the_same_or_reclaimed(
    steps: list[str], seed: int, keep: int | None, age: float | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        graph = new_graph(str(Path(folder) / "g"))
        walk = History(graph, random.Random(seed))
        for kind in steps:
            walk.step(kind)
        if keep is None and age is None:
            keep = 1
        older_than = None if age is None else _age(list(history(graph).values()), age)
        reader = reopened(graph)
        before_rows = {item.id: rows_at(reader, item) for item in history(graph).values()}
        before_files = table_files(graph)
        predicted = cleanup(graph, keep=keep, older_than=older_than, grace=NO_GRACE)
        assert table_files(graph) == before_files
        report = cleanup(graph, keep=keep, older_than=older_than, confirm=True, grace=NO_GRACE)
        stay = must_stay(graph, keep, older_than, now_micros())

        assert [item.error for item in report.datasets if item.error] == []
        gone = {name: size for name, size in before_files.items() if name not in table_files(graph)}
        assert (report.files_removed, report.bytes_removed) == (len(gone), sum(gone.values()))
        if older_than is None:
            assert report.datasets == predicted.datasets
            assert cleanup(graph, keep=keep, grace=NO_GRACE).files_removed == 0
        fresh = reopened(graph)
        for item in history(graph).values():
            after = rows_at(fresh, item)
            if item.id in stay:
                assert after == before_rows[item.id], f"{item.id} was to stay"
            else:
                assert after in (before_rows[item.id], RECLAIMED), f"{item.id} reads other rows"
        for branch in graph.branches():
            assert rows_at(fresh, fresh.head(branch).commit) != RECLAIMED


def _age(commits: list[CommitRecord], share: float) -> timedelta:
    """Return an age limit between the oldest and the newest commit."""
    times = [item.created_at for item in commits]
    moment = min(times) + int((max(times) - min(times)) * share)
    return timedelta(microseconds=max(0, now_micros() - moment))
