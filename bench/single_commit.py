"""One-row commits: the time of each kind of write beside a raw, synced Lance append, and the time of its phases.

The rounds of all writes alternate, so that a busy disk or processor affects all of them alike. Phases are measured
in rounds of their own, in processor time of the calling thread under the profiler, which about doubles it: compare
them with each other and between two versions of the program, not with the times of the writes.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa

import omnigraph as og
from bench.lance_peer import RawLance
from bench.shapes import Write

SCHEMA = (
    "node Person { name: String @key  age: I32?  city: String?  joined: Date? }\nedge Knows: Person -> Person"
)
INSERT = "query put($n: String, $a: I32) { insert Person { name: $n, age: $a } }"
UPDATE = "query set_age($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
DELETE = "query remove($n: String) { delete Person where name = $n }"
PEOPLE = 1_000
RAW = "raw Lance append"
GOAL = 1.5
# The phases of a mutation, each a function by the end of its file name.
PHASES = {
    "whole mutation": ("local_mutations.py", "run_mutation"),
    "apply statements": ("mutate.py", "_apply"),
    "validate": ("validate.py", "validate"),
    "compare with committed rows": ("overlay.py", "_unread"),
    "write rows": ("fragment_writer.py", "append_rows"),
    "commit the table version": ("tables.py", "_commit"),
    "read the staged files back": ("read_back.py", "read_back"),
    "publish": ("publish.py", "publish_chain"),
    "write the manifest files": ("manifest.py", "_write"),
    "swap": ("manifest.py", "_commit"),
    "sync": ("sync.py", "_sync_all"),
}

Step = Callable[[int], object]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="number of writes of each kind")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        times = measure(steps(Path(folder)), rounds)
        print_times(times)
        sys.stdout.write("\n")
        print_phases(profile(Path(folder), rounds))


def steps(folder: Path) -> dict[str, Step]:
    """Return the writes to measure. A round writes, replaces, updates and deletes the same row."""
    found: dict[str, Step] = {RAW: raw_append(folder / "raw")}
    for durability in ("full", "os"):
        graph = make_graph(folder / durability, durability)
        found |= {
            f"{name} ({durability})": step
            for name, step in {
                "insert": lambda i, graph=graph: graph.mutate(INSERT, {"n": f"n{i}", "a": i}),
                "upsert": lambda i, graph=graph: graph.mutate(INSERT, {"n": f"n{i}", "a": i + 1}),
                "update": lambda i, graph=graph: graph.mutate(UPDATE, {"n": f"n{i}", "a": i + 2}),
                "delete": lambda i, graph=graph: graph.mutate(DELETE, {"n": f"n{i}"}),
            }.items()
        }
    return found


def make_graph(folder: Path, durability: str) -> og.Graph:
    """Return a graph with some people, after some writes."""
    graph = og.init(str(folder), schema=SCHEMA, durability="os" if durability == "os" else "full")
    graph.load({"Person": [{"name": f"p{i}", "age": i % 90} for i in range(PEOPLE)]})
    graph.load({"Knows": [{"from": f"p{i}", "to": f"p{i + 1}"} for i in range(PEOPLE - 1)]})
    for number in range(20):
        graph.mutate(INSERT, {"n": f"warm{number}", "a": number})
    return graph


def raw_append(folder: Path) -> Step:
    """Return an append of one row to a Lance dataset that syncs the written files and their folders."""
    schema = pa.schema(
        [("name", pa.string()), ("age", pa.int32()), ("city", pa.string()), ("joined", pa.date32())]
    )
    rows = pa.Table.from_pylist([{"name": f"p{i}", "age": i % 90} for i in range(PEOPLE)], schema=schema)
    folder.mkdir()
    lance.write_dataset(rows, folder / "people.lance")
    peer = RawLance(folder)
    shape = Write(RAW, INSERT, "", lambda _: {}, {})
    return lambda i: peer.write(shape, {"n": f"n{i}", "a": i, "c": None})


def measure(named: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of every write, by name."""
    times: dict[str, list[float]] = {name: [] for name in named}
    for number in range(-10, rounds):
        for name, step in named.items():
            begin = time.perf_counter()
            step(number)
            if number >= 0:
                times[name].append(time.perf_counter() - begin)
    return times


def print_times(times: dict[str, list[float]]) -> None:
    """Print the median and the lower quartile of each write, and the ratio of the medians to the raw append."""
    raw = statistics.median(times[RAW])
    sys.stdout.write(f"{'write':<24} {'median ms':>10} {'quartile ms':>12} {'ratio':>7}  goal {GOAL}\n")
    for name, found in times.items():
        median, quartile = statistics.median(found), statistics.quantiles(found, n=4)[0]
        sys.stdout.write(f"{name:<24} {median * 1e3:>10.2f} {quartile * 1e3:>12.2f} {median / raw:>7.2f}\n")


def profile(folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Return the milliseconds of processor time of each phase, by kind of write."""
    graph = make_graph(folder / "profiled", "full")
    kinds: dict[str, Step] = {
        "insert": lambda i: graph.mutate(INSERT, {"n": f"n{i}", "a": i}),
        "update": lambda i: graph.mutate(UPDATE, {"n": f"n{i}", "a": i + 1}),
        "delete": lambda i: graph.mutate(DELETE, {"n": f"n{i}"}),
    }
    found: dict[str, dict[str, float]] = {}
    for kind, step in kinds.items():
        profiler = cProfile.Profile(time.thread_time)
        profiler.enable()
        for number in range(rounds):
            step(number)
        profiler.disable()
        found[kind] = _phases(pstats.Stats(profiler), rounds)
    return found


def _phases(stats: pstats.Stats, rounds: int) -> dict[str, float]:
    entries = stats.stats.items()  # type: ignore[attr-defined]
    totals = dict.fromkeys(PHASES, 0.0)
    for (file, _, function), (_, _, _, cumulative, _) in entries:
        for phase, (ending, name) in PHASES.items():
            if function == name and file.endswith(f"/{ending}"):
                totals[phase] += cumulative / rounds * 1e3
    return totals


def print_phases(found: dict[str, dict[str, float]]) -> None:
    """Print the processor time of the phases, in milliseconds under the profiler."""
    sys.stdout.write(f"{'phase (CPU ms, profiled)':<30}" + "".join(f"{kind:>9}" for kind in found) + "\n")
    for phase in PHASES:
        cells = "".join(f"{totals[phase]:>9.2f}" for totals in found.values())
        sys.stdout.write(f"{phase:<30}{cells}\n")


if __name__ == "__main__":
    main()
