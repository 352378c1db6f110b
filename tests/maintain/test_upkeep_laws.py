"""Upkeep in random histories: passes of two long-lived handles remove what a new garbage collection would."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.graph.publish import now_micros
from omnigraph.graph.repository import Repository
from omnigraph.maintain.cleanup import cleanup
from omnigraph.maintain.settings import change_settings
from omnigraph.maintain.upkeep import Upkeep
from omnigraph.maintain.upkeep_state import KEY, UpkeepState
from tests.maintain.graphs import NO_GRACE, RECLAIMED, Rows, history, new_graph, reopened, rows_at
from tests.maintain.test_cleanup_laws import STEPS, History, must_stay
from tests.support.upkeep import without_minimum

WITH_UPKEEP = [step for step in STEPS if step != "cleanup"] + ["upkeep"] * 3


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    steps=st.lists(st.sampled_from(WITH_UPKEEP), min_size=6, max_size=24),
    seed=st.integers(0, 2**32 - 1),
    keep=st.integers(1, 4),
)
def test_upkeep_in_a_random_history_removes_what_cleanup_would_and_no_retained_state(
    steps: list[str], seed: int, keep: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, without_minimum():
        graph = new_graph(str(Path(folder) / "g"))
        change_settings(graph, retention={"keep": keep, "older_than": "0s", "thinned": "0s"})
        handles = [graph, Repository.open(graph.location.uri, durability="os")]
        passes = [Upkeep(item, every=1) for item in handles]
        walk = History(graph, random.Random(seed))
        rows: dict[str, Rows | str] = {}
        # Commits that a pass removed when they were not retained. A branch that is created at one of their
        # descendants later would retain them, and they stay removed.
        removed: set[str] = set()
        for kind in [*steps, "upkeep"]:
            if kind != "upkeep":
                walk.step(kind)
                reader = reopened(graph)
                for id_, commit in history(graph).items():
                    rows.setdefault(id_, rows_at(reader, commit))
                continue
            perform(walk.dice.choice(passes), walk.dice.choice(handles))
            assert cleanup(graph, keep=keep, grace=NO_GRACE).files_removed == 0
            stay, fresh = must_stay(graph, keep, None, now_micros()), reopened(graph)
            for id_, commit in history(graph).items():
                after = rows_at(fresh, commit)
                if after == RECLAIMED and id_ not in stay:
                    removed.add(id_)
                assert after == rows.get(id_, after) or (after == RECLAIMED and id_ in removed)
            for branch in graph.branches():
                assert rows_at(fresh, fresh.head(branch).commit) != RECLAIMED


def perform(work: Upkeep, handle: Repository) -> None:
    """Perform a pass that is due."""
    for stored in handle.objects.list(KEY.rpartition("/")[0]):
        state = UpkeepState.from_bytes(handle.objects.get(stored.key).data)
        handle.objects.put(KEY, replace(state, next_version=0).to_bytes())
    assert work.run_pass() is not None
