"""Reads after writes: the cost of inserting one edge and then asking for one hop, compared with the insert alone.

``python -m bench.fresh 1000000 10000000`` prints a table for graphs of these numbers of edges. Inserts alone and
inserts with a hop alternate, so that noise affects both alike. The hop starts at the source of the new edge, and
its result is checked to contain the target. *Own* writes are those of the reading process, *foreign* ones those of
another process. The ratio is that of the medians, and of the lower quartiles. ``hop cpu`` is the processor time of
the hop in the reading process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

import omnigraph as og

ROOT = Path(__file__).parents[1]
SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person { since: I64? }"
HOP = "query hop($a: String) { match { $p: Person { name: $a } $p knows $q } return { $q.name as name } }"
INSERT = "query add($a: String, $b: String) { insert Knows { from: $a, to: $b } }"
EDGES_PER_NODE = 10
TURNS = 60
WARM_UPS = 6
GOAL = 1.2


@dataclass(frozen=True)
class Samples:
    """Milliseconds of inserts without a read, of inserts before a hop, and of these hops."""

    alone: list[float] = field(default_factory=list)
    write: list[float] = field(default_factory=list)
    hop: list[float] = field(default_factory=list)
    hop_processor: list[float] = field(default_factory=list)

    def ratio(self, quantile: float) -> float:
        """Return the time of an insert with a hop, divided by that of an insert alone.

        >>> Samples([2.0], [2.5], [0.5]).ratio(0.5)
        1.5
        """
        both = [write + hop for write, hop in zip(self.write, self.hop, strict=True)]
        return float(np.quantile(both, quantile) / np.quantile(self.alone, quantile))


def build(folder: Path, edges: int) -> str:
    """Load a random graph and return its address."""
    nodes = max(2, edges // EDGES_PER_NODE)
    chance = np.random.default_rng(1)
    names = pa.array([_name(number) for number in range(nodes)])
    ends = [names.take(pa.array(chance.integers(0, nodes, edges))) for _ in range(2)]
    uri = str(folder / f"fresh-{edges}.omni")
    graph: Any = og.init(uri, schema=SCHEMA)
    graph.load({"Person": pa.table({"name": names})}, mode="append")
    graph.load({"Knows": pa.table({"from": ends[0], "to": ends[1]})}, mode="append")
    graph.close()
    return uri


def measure(uri: str, edges: int, *, foreign: bool, turns: int = TURNS) -> Samples:
    """Alternate inserts alone and inserts with a hop; those of another process with `foreign`."""
    nodes = max(2, edges // EDGES_PER_NODE)
    chance = np.random.default_rng(2)
    samples = Samples()
    graph: Any = og.open(uri)
    with _writer(uri, graph, foreign=foreign) as write:
        for _ in range(WARM_UPS):
            graph.query(HOP, {"a": _name(0)})
        for turn in range(turns + WARM_UPS):
            pairs = [(_name(int(a)), _name(int(b))) for a, b in chance.integers(0, nodes, (2, 2))]
            alone = write(*pairs[0])
            # The timed hop follows one write.
            graph.query(HOP, {"a": pairs[0][0]})
            both = write(*pairs[1])
            start, processor = time.perf_counter(), time.process_time()
            found = graph.query(HOP, {"a": pairs[1][0]}).table
            hop, used = time.perf_counter() - start, time.process_time() - processor
            if pairs[1][1] not in found["name"].to_pylist():
                raise SystemExit(f"the hop from {pairs[1][0]} does not find the new edge to {pairs[1][1]}")
            if turn >= WARM_UPS:
                samples.alone.append(alone)
                samples.write.append(both)
                samples.hop.append(hop * 1e3)
                samples.hop_processor.append(used * 1e3)
    graph.close()
    return samples


@contextmanager
def _writer(uri: str, graph: Any, *, foreign: bool) -> Iterator[Any]:
    """Yield a function that inserts an edge and returns the milliseconds it took."""
    if not foreign:
        yield lambda a, b: _insert(graph, a, b)
        return
    command = [sys.executable, "-m", "bench.fresh", "--write", uri]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield lambda a, b: _ask(process.stdin, process.stdout, a, b)
        process.stdin.close()


def _ask(requests: IO[str] | None, answers: IO[str] | None, a: str, b: str) -> float:
    assert requests is not None
    assert answers is not None
    requests.write(f"{a} {b}\n")
    requests.flush()
    return float(answers.readline())


def _insert(graph: Any, a: str, b: str) -> float:
    start = time.perf_counter()
    graph.mutate(INSERT, {"a": a, "b": b})
    return (time.perf_counter() - start) * 1e3


def _serve(uri: str) -> None:
    """Insert the edges of the lines of the standard input."""
    with og.open(uri) as graph:
        for line in sys.stdin:
            a, b = line.split()
            sys.stdout.write(f"{_insert(graph, a, b)}\n")
            sys.stdout.flush()


def _name(number: int) -> str:
    return f"person-{number}"


def report(edges: int, samples: Samples, writer: str) -> str:
    """Return one line of the table."""
    alone, hop, used = (
        float(np.median(item)) for item in (samples.alone, samples.hop, samples.hop_processor)
    )
    ratios = f"{samples.ratio(0.5):>6.2f}  {samples.ratio(0.25):>14.2f}"
    return f"{edges:>12,}  {writer:8}  {alone:>8.2f}  {hop:>8.2f}  {used:>9.2f}  {ratios}"


def main(arguments: list[str]) -> None:
    """Print the table, or with ``--write`` insert edges for another process."""
    if arguments[:1] == ["--write"]:
        _serve(arguments[1])
        return
    header = ("edges", "writer", "write ms", "hop ms", "hop cpu", "ratio", "lower quartile")
    sys.stdout.write("{:>12}  {:8}  {:>8}  {:>8}  {:>9}  {:>6}  {:>14}\n".format(*header))
    for edges in [int(item) for item in arguments] or [1_000_000, 10_000_000]:
        with tempfile.TemporaryDirectory() as folder:
            uri = build(Path(folder), edges)
            for foreign in (False, True):
                samples = measure(uri, edges, foreign=foreign)
                sys.stdout.write(report(edges, samples, "foreign" if foreign else "own") + "\n")
                sys.stdout.flush()
    sys.stdout.write(f"goal: ratio at most {GOAL}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
