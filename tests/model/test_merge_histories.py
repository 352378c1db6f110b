"""Thousands of generated histories, each on a graph and in the model at once: merges, conflicts, reverts, diffs.

`OMNIGRAPH_CUTS=all` runs twenty times as many; `OMNIGRAPH_HISTORY` repeats one, as a failure says.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

import omnigraph as og
from omnigraph.store import tables as tables_module
from tests.model.histories import Run, runs
from tests.model.history_steps import SCHEMA
from tests.support.merging import Replay
from tests.support.places import fresh_memory

VARIABLE: Final = "OMNIGRAPH_HISTORY"
# Seeds of a chunk by how many lanes they have, 250 histories: narrow ones do more kinds of writes.
SEEDS: Final = {1: 10, 24: 10}
CHUNKS: Final = 400 if os.environ.get("OMNIGRAPH_CUTS") == "all" else 20


@pytest.fixture(autouse=True)
def early_folding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are folded within a few writes, so that writes move rows that they do not change."""
    monkeypatch.setattr(tables_module, "FOLD_AT", 3)
    monkeypatch.setattr(tables_module, "FOLD_TIERS", (2, 4, 8))


@pytest.mark.faults
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.skipif(VARIABLE in os.environ, reason="one history is repeated")
def test_generated_histories_go_as_in_the_model(chunk: int, tmp_path: Path) -> None:
    # Memory is quicker, but is not given back before the process ends, so only few have it.
    replay_all(runs_of(chunk), fresh_memory() if chunk < 10 else str(tmp_path / "graph"))


@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no history")
def test_one_history_goes_as_in_the_model(tmp_path: Path) -> None:
    seed, lanes = os.environ[VARIABLE].split(":")
    wanted = [int(lane) for lane in lanes.split(",")]
    replay_all(runs(int(seed), wanted, wide=int(seed) % len_of_chunk() >= SEEDS[1]), str(tmp_path / "graph"))


def runs_of(chunk: int) -> Iterator[Run]:
    """The histories of a chunk; no two chunks have a seed in common."""
    seed = chunk * len_of_chunk()
    for lanes, seeds in SEEDS.items():
        for _ in range(seeds):
            yield from runs(seed, range(lanes), wide=lanes > 1)
            seed += 1


def len_of_chunk() -> int:
    """How many seeds a chunk has."""
    return sum(SEEDS.values())


def replay_all(found: Iterable[Run], uri: str) -> None:
    """Replay histories, each on new branches of one graph."""
    graph = og.init(uri, schema=SCHEMA, durability="os")
    genesis = graph.commits()[0].id
    for number, run in enumerate(found):
        replay = Replay(graph, f"h{number}/", genesis)
        try:
            _replay(replay, run)
        except Exception as error:
            error.add_note(
                f'repeat: {VARIABLE}={run} .venv/bin/python -m pytest "tests/model/test_merge_histories.py"'
            )
            raise
    graph.close()


def _replay(replay: Replay, run: Run) -> None:
    replay.run(run.steps)
    random = Random(run.seed)
    for _ in range(2):
        replay.check_diff(*random.choices(range(len(replay.ids)), k=2))
    replay.close()
