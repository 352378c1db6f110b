"""A thousand random histories on a graph and in the model: merges, conflicts, reverts, diffs.

`OMNIGRAPH_CUTS=all` runs a hundred times as many. `OMNIGRAPH_HISTORY` repeats the one that a failure names.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

import omnigraph as og
from omnigraph.store.tables import tables as tables_module
from tests.model.histories import Run, merge_base_shapes, runs
from tests.model.history_steps import SCHEMA
from tests.support.merging import Replay
from tests.support.places import fresh_memory

VARIABLE: Final = "OMNIGRAPH_HISTORY"
# The seeds of a chunk by their number of lanes, 250 histories. Narrow ones have more kinds of writes.
SEEDS: Final = {1: 6, 61: 4}
CHUNKS: Final = 400 if os.environ.get("OMNIGRAPH_CUTS") == "all" else 2


@pytest.fixture(autouse=True)
def early_folding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compact tables after a few writes, so that writes move rows that they do not change."""
    monkeypatch.setattr(tables_module, "COMPACT_AT", 3)
    monkeypatch.setattr(tables_module, "COMPACTION_TIERS", (2, 4, 8))


@pytest.mark.faults
@pytest.mark.parametrize("chosen", [os.environ[VARIABLE]] if VARIABLE in os.environ else range(CHUNKS))
def test_generated_histories_go_as_in_the_model(chosen: int | str, tmp_path: Path) -> None:
    found = one_of(chosen) if isinstance(chosen, str) else runs_of(chosen)
    # A graph in memory is faster, but its memory is not released, so only the first one is.
    in_memory = chosen == 0
    replay_all(found, fresh_memory() if in_memory else str(tmp_path / "graph"))


def test_generated_histories_have_criss_cross_merges_of_every_shape() -> None:
    found: Counter[tuple[int, int]] = Counter()
    for chunk in range(3):
        for run in runs_of(chunk):
            found += merge_base_shapes(run)
    several = {shape: count for shape, count in found.items() if shape[0] > 1}
    assert sum(several.values()) > found.total() / 10, found
    assert {bases for bases, _ in several} >= {2, 3}, found
    assert {depth for _, depth in several} >= {1, 2}, found


def one_of(history: str) -> Iterable[Run]:
    """Return the history that a failure named."""
    seed, lanes = history.split(":")
    wanted = [int(lane) for lane in lanes.split(",")]
    return runs(int(seed), wanted, wide=int(seed) % len_of_chunk() >= SEEDS[1])


def runs_of(chunk: int) -> Iterator[Run]:
    """Return the histories of a chunk. No two chunks share a seed."""
    seed = chunk * len_of_chunk()
    for lanes, seeds in SEEDS.items():
        for _ in range(seeds):
            yield from runs(seed, range(lanes), wide=lanes > 1)
            seed += 1


def len_of_chunk() -> int:
    """Return the number of seeds of a chunk."""
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
