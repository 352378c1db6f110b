"""Write throughput of the load test: all clients insert, on one branch or on eight, beside the embedded ceiling."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import omnigraph as og
from bench.traffic_graph import GRAPH, INSERT, POINT, lane, pair_params, ring_name
from bench.traffic_journal import Story

_PAIRS = 'query pairs() { match { $p: Person { side: "a" } } return { $p.pair as pair } }'
_THREADS = 16


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What one embedded handle does on the same machine: commits per second of many threads, and a point query."""

    commits: float
    commits_on_lanes: float
    point_ms: float


def check_lanes(folder: Path, stories: Sequence[Story], lanes: int) -> list[str]:
    """Compare the acknowledged inserts with the pairs of each branch. Each must be there once."""
    wrong = []
    with og.open(str(folder / f"{GRAPH}.omni"), mode="r") as graph:
        for branch in {lane(number) for number in range(lanes)}:
            found = Counter(row["pair"] for row in graph.query(_PAIRS, branch=branch))
            for story in stories:
                for entry in story.entries:
                    if entry.what.get("branch") != branch:
                        continue
                    count = found.pop(entry.what["pairs"][0], 0)
                    if count != entry.is_done and not (entry.is_open and count == 1):
                        wrong.append(f"{entry} is there {count} times")
            wrong += [f"pair {pair} of {branch} was never sent" for pair in found]
    return wrong


def measure_ceiling(folder: Path, seconds: float, lanes: int) -> Ceiling:
    """Insert with threads of one embedded handle, and query, on the graph of the load test."""
    with og.open(str(folder / f"{GRAPH}.omni")) as graph:
        on_main = _commit(graph, seconds, 1, "e")
        on_lanes = _commit(graph, seconds, lanes, "f")
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < 1.0:
            graph.query(POINT, {"n": ring_name(count)})
            count += 1
        return Ceiling(on_main, on_lanes, (time.perf_counter() - began) / count * 1000)


def _commit(graph: og.Graph, seconds: float, lanes: int, prefix: str) -> float:
    over = threading.Event()

    def run(number: int) -> int:
        done = 0
        while not over.is_set():
            graph.mutate(INSERT, pair_params(f"{prefix}{number}-{done}", -1, 1), branch=lane(number % lanes))
            done += 1
        return done

    began = time.perf_counter()
    with ThreadPoolExecutor(_THREADS) as pool:
        running = [pool.submit(run, number) for number in range(_THREADS)]
        time.sleep(seconds)
        over.set()
        total = sum(item.result() for item in running)
    return total / (time.perf_counter() - began)
