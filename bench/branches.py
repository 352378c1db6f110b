"""The cost of operations on graphs with few and with many branches: time on disk, requests and bytes on S3.

    python -m bench.branches [--branches 10 1000 10000] [--rounds 30] [--durability full]

The graphs are measured in alternating rounds of one run, so that the ratio between them does not depend on other
load of the machine. The S3 server of the tests counts the requests and the bytes of each operation.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

import omnigraph as og
from omnigraph.store.sync import Durability
from tests.support.s3 import Bucket, running_server
from tests.support.s3_graphs import upload_graph
from tests.support.s3_seam import Log

SCHEMA: Final = "node Person { name: String @key  age: I32? }\n"
ADD: Final = "query add($n: String, $a: I32) { insert Person { name: $n, age: $a } }"
PAGE: Final = 10
# The number of branches that are written to before the measurement, and of commits to main after that.
WRITTEN: Final = 150
COMMITS: Final = 200

Operation: TypeAlias = Callable[[], object]
# Elapsed time and processor time in milliseconds, by operation and number of branches.
Times: TypeAlias = dict[str, dict[int, list[tuple[float, float]]]]
# The requests of an operation, and the bytes of objects that were sent and received.
Traffic: TypeAlias = tuple[int, int, int]


def build(folder: Path, branches: int, commits: int = COMMITS) -> Path:
    """Create a graph with some commits and branches; return its path. `main` is one of the branches."""
    path = folder / f"{branches}"
    with og.init(path, SCHEMA, durability="os") as graph:
        names = [f"agent-{number:06}" for number in range(branches - 1)]
        for name in names:
            graph.branches.create(name)
        for name in names[:: max(1, branches // WRITTEN)]:
            graph.mutate(ADD, {"n": name, "a": 1}, branch=name)
        for number in range(commits):
            graph.mutate(ADD, {"n": f"first-{number}", "a": number})
    return path


class Operations:
    """The operations of one round on one graph. They leave the number of branches as it was."""

    def __init__(self, graph: og.Graph, branches: int, reopen: Callable[[], og.Graph]) -> None:
        self._graph = graph
        self._branches = branches
        self._reopen = reopen
        self._fresh: og.Graph = graph

    def of_round(self, round_: int) -> Mapping[str, Operation]:
        """Return the operations by name, in the order in which they must run."""
        # A name in the middle of the others.
        number = round_ * 7_919 % self._branches
        name, row = f"agent-{number:06}-{round_}", {"n": f"row-{round_}", "a": round_}
        graph = self._graph
        return {
            "create a branch": lambda: graph.branches.create(name),
            "first write to a branch": lambda: graph.mutate(ADD, row, branch=name),
            "second write to a branch": lambda: graph.mutate(ADD, {**row, "n": "other"}, branch=name),
            "write to main": lambda: graph.mutate(ADD, row),
            "delete a branch": lambda: graph.branches.delete(name),
            f"list {PAGE} branches": lambda: graph.branches.list(limit=PAGE),
            "open": self._open,
            "snapshot of main after open": lambda: self._fresh.snapshot(),
            f"list {PAGE} branches after open": lambda: self._fresh.branches.list(limit=PAGE),
        }

    def _open(self) -> None:
        self._fresh = self._reopen()

    def close_fresh(self) -> None:
        """Close the handle that the round opened."""
        self._fresh.close()


def measure(paths: Mapping[int, Path], rounds: int, durability: Durability) -> Times:
    """Measure all operations on graphs on disk, in alternating rounds. The first two rounds are not counted."""
    times: Times = {}
    with ExitStack() as stack:
        operations = {
            branches: Operations(
                stack.enter_context(og.open(path, durability=durability)),
                branches,
                lambda path=path: og.open(path, durability=durability),  # type: ignore[misc]
            )
            for branches, path in paths.items()
        }
        for round_ in range(rounds + 2):
            for branches, found in operations.items():
                for name, run in found.of_round(round_).items():
                    began = time.perf_counter(), time.process_time()
                    run()
                    elapsed = (time.perf_counter() - began[0]) * 1_000
                    processor = (time.process_time() - began[1]) * 1_000
                    if round_ >= 2:
                        times.setdefault(name, {}).setdefault(branches, []).append((elapsed, processor))
                found.close_fresh()
    return times


def count(path: Path, branches: int, bucket: Bucket) -> dict[str, Traffic]:
    """Return the traffic of each operation on a graph on S3, on a handle that has been used before."""
    uri = upload_graph(path, bucket, f"{branches}")
    options: dict[str, Any] = {"storage_options": bucket.options}
    counts: dict[str, Traffic] = {}
    with og.open(uri, **options) as graph:
        operations = Operations(graph, branches, lambda: og.open(uri, **options))
        for round_ in range(2):
            for name, run in operations.of_round(round_).items():
                with bucket.seam.recording() as log:
                    run()
                counts[name] = _traffic(log)
            operations.close_fresh()
    return counts


def _traffic(log: Log) -> Traffic:
    # The size of a listing follows the number of stored versions of the manifest and not the number of branches.
    received = sum(item.size for item in log.requests if "list-type" not in item.query)
    return len(log.requests), sum(item.sent for item in log.requests), received


def time_table(times: Times, branches: Sequence[int]) -> list[list[str]]:
    """Return the rows of the table of times: medians with their ratios, elapsed and of the processor."""
    numbers = [f"{number:,}" for number in branches]
    rows = [["on disk", *(f"{number} branches, ms" for number in numbers), "ratio"]]
    rows[0] += [*(f"{number} branches, processor ms" for number in numbers), "ratio"]
    for name, samples in times.items():
        row = [name]
        for clock in range(2):
            medians = [statistics.median(item[clock] for item in samples[number]) for number in branches]
            row += [*(f"{found:.2f}" for found in medians), f"{medians[-1] / medians[0]:.2f}"]
        rows.append(row)
    return rows


def traffic_table(counts: Mapping[int, Mapping[str, Traffic]], branches: Sequence[int]) -> list[list[str]]:
    """Return the rows of the table of requests on S3, with the kilobytes that were sent and received."""
    rows = [["on S3: requests, kB sent, kB received", *(f"{number:,} branches" for number in branches)]]
    for name in counts[branches[0]]:
        cells = [counts[number][name] for number in branches]
        rows.append([name, *(f"{n}, {up / 1_000:.0f}, {down / 1_000:.0f}" for n, up, down in cells)])
    return rows


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows as a Markdown table. The first row is the header."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, f"|{'---|' * len(rows[0])}")
    sys.stdout.write("\n".join(lines) + "\n\n")
    sys.stdout.flush()


def main() -> None:
    """Measure and print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--branches", type=int, nargs="+", default=[10, 1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--durability", choices=["full", "os"], default="full")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = {number: build(Path(folder), number) for number in given.branches}
        with running_server() as server, server.bucket() as bucket:
            counts = {number: count(path, number, bucket) for number, path in paths.items()}
        print_table(time_table(measure(paths, given.rounds, given.durability), given.branches))
        print_table(traffic_table(counts, given.branches))


if __name__ == "__main__":
    main()
