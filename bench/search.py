"""Vector search: recall, latency and cost beside LanceDB and raw Lance, on generated clustered data.

``python -m bench.search --peer lancedb=build/lancedb/bin/python --rows 200000`` prints a table. All systems have
the same rows, the same kind of index and the same options, and answer the same queries in turns. No query is a row.
Recall is the share of the ten nearest rows by brute force that a search finds. Processor time (``cpu``) depends
less on other programs of the machine than the latency.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import omnigraph as og

ROOT = Path(__file__).parents[1]
PARTS = 1_000
# Parts of a thousand that pass the filter.
FILTERS = (None, 100, 10, 1)
INSERTS = (1, 1_000, 100_000)
TOP = 10
Vectors = npt.NDArray[np.float32]


@dataclass
class Data:
    """Rows in clusters that overlap. A row is in one of a thousand parts, independent of its vector."""

    dimension: int
    clusters: int
    chance: np.random.Generator = field(default_factory=lambda: np.random.default_rng(11))
    size: int = 0

    def __post_init__(self) -> None:
        self._centers = self.chance.normal(size=(self.clusters, self.dimension))
        self._vectors: Vectors = np.zeros((0, self.dimension), np.float32)
        self._parts = np.zeros(0, np.int32)

    def draw(self, count: int) -> Vectors:
        """Return vectors."""
        chosen = self._centers[self.chance.integers(0, self.clusters, count)]
        drawn: Vectors = (chosen + self.chance.normal(size=chosen.shape)).astype(np.float32)
        return drawn

    def add(self, count: int) -> pa.Table:
        """Return new rows."""
        vectors, parts = self.draw(count), self.chance.integers(0, PARTS, count).astype(np.int32)
        names = [f"d{number}" for number in range(self.size, self.size + count)]
        self._vectors = np.concatenate([self._vectors, vectors])
        self._squares = (self._vectors * self._vectors).sum(axis=1)
        self._parts = np.concatenate([self._parts, parts])
        self.size += count
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), self.dimension)
        return pa.table({"name": names, "part": pa.array(parts), "v": column})

    def nearest(self, query: Vectors, below: int | None) -> set[str]:
        """Return the names of the rows that are nearest to a query, by brute force."""
        kept = np.arange(self.size) if below is None else np.flatnonzero(self._parts < below)
        rough = (self._squares - 2 * self._vectors @ query)[kept]
        near = kept[np.argsort(rough)[: 10 * TOP]]
        distances = ((self._vectors[near].astype(np.float64) - query) ** 2).sum(axis=1)
        return {f"d{number}" for number in near[np.argsort(distances, kind="stable")[:TOP]].tolist()}


class Ours:
    """The rows as nodes of a graph."""

    name = "omnigraph"

    def __init__(self, folder: Path, dimension: int) -> None:
        self._uri, self._dimension = str(folder / "graph"), dimension
        schema = f"node Doc {{ name: String @key\n part: I32 @index\n v: Vector({dimension}) @index }}"
        self._graph = og.init(self._uri, schema=schema, upkeep="off")

    def load(self, file: Path) -> tuple[float, float]:
        """Load an Arrow file, as does `add`."""
        return timed(lambda: self._graph.load({"Doc": read_rows(file)}, "append"))[1:]

    add = load

    def build(self) -> tuple[float, float]:
        """Build the indexes."""
        return timed(lambda: self._graph.optimize(engine="local"))[1:]

    def search(self, vector: Vectors, below: int | None) -> tuple[list[str], float, float]:
        """Return the names of the nearest rows, the seconds, and the seconds of processor time."""
        where = "" if below is None else f" $d.part < {below}"
        text = (
            f"query near($q: Vector({self._dimension})) {{ match {{ $d: Doc{where} }} return {{ $d.name as name }}"
            f" order {{ nearest($d.v, $q) }} limit {TOP} }}"
        )
        params = {"q": vector.tolist()}
        found, *took = timed(lambda: self._graph.query(text, params).table["name"].to_pylist())
        return found, took[0], took[1]

    def index_bytes(self) -> int:
        """Return the size of the indexes."""
        return file_bytes(Path(self._uri).glob("nodes/*/_indices/*/*"))

    def close(self) -> None:
        """Close the graph."""
        self._graph.close()


class Peer:
    """A peer in a process of its own."""

    def __init__(self, name: str, python: str, folder: Path, script: str = "search_peer.py") -> None:
        self.name = name
        self._folder = folder / name
        command = [python, str(ROOT / "bench" / script), name, str(self._folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def load(self, file: Path) -> tuple[float, float]:
        """Create the table from an Arrow file."""
        return self.ask("load", str(file))[1:]

    def add(self, file: Path) -> tuple[float, float]:
        """Append the rows of an Arrow file."""
        return self.ask("add", str(file))[1:]

    def build(self) -> tuple[float, float]:
        """Build the indexes."""
        return self.ask("build")[1:]

    def search(self, vector: Vectors, below: int | None) -> tuple[list[str], float, float]:
        """Return the names of the nearest rows, the seconds, and the seconds of processor time."""
        return self.ask("search", vector.tolist(), None if below is None else f"part < {below}")

    def index_bytes(self) -> int:
        """Return the size of the indexes."""
        return file_bytes(self._folder.glob("docs.lance/_indices/*/*"))

    def close(self) -> None:
        """End the process."""
        _pipe(self._process.stdin).close()
        self._process.wait()

    def ask(self, *request: Any) -> tuple[Any, float, float]:
        """Return the answer to a request, the seconds, and the seconds of processor time."""
        _pipe(self._process.stdin).write(json.dumps(request) + "\n")
        _pipe(self._process.stdin).flush()
        line = _pipe(self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self._process.wait()}")
        result, wall, processor = json.loads(line)
        return result, wall, processor


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return the result of a call, the seconds, and the seconds of processor time."""
    wall, processor = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - wall, time.process_time() - processor


def file_bytes(files: Iterable[Path]) -> int:
    """Return the size of files."""
    return sum(file.stat().st_size for file in files)


def read_rows(file: Path) -> pa.Table:
    """Return the rows of an Arrow file."""
    with pa.memory_map(str(file)) as source:
        return pa.ipc.open_file(source).read_all()


def write_rows(rows: pa.Table, file: Path) -> Path:
    """Write rows to an Arrow file, and return it."""
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return file


def _compare(label: str, systems: Sequence[Ours | Peer], data: Data, below: int | None, queries: int) -> None:
    """Print the recall and the latency of each system for the same queries."""
    drawn = data.draw(queries + 3)
    hits: dict[str, list[float]] = {system.name: [] for system in systems}
    times: dict[str, list[tuple[float, float]]] = {system.name: [] for system in systems}
    for number, query in enumerate(drawn):
        exact = data.nearest(query, below)
        for system in [*systems[number % len(systems) :], *systems[: number % len(systems)]]:
            found, wall, processor = system.search(query, below)
            if number >= 3:
                hits[system.name].append(len(exact & set(found)) / max(1, len(exact)))
                times[system.name].append((1e3 * wall, 1e3 * processor))
    for system in systems:
        walls, processors = zip(*times[system.name], strict=True)
        sys.stdout.write(
            f"{label:22} {system.name:10} recall {np.mean(hits[system.name]):.3f}"
            f" (min {min(hits[system.name]):.1f})"
            f"  p50 {np.median(walls):7.1f} ms  p99 {np.quantile(walls, 0.99):7.1f} ms"
            f"  cpu {np.median(processors):6.1f} ms\n"
        )
    sys.stdout.flush()


@contextmanager
def _opened(peers: Sequence[str], folder: Path, dimension: int) -> Iterator[list[Ours | Peer]]:
    with ExitStack() as stack:
        systems: list[Ours | Peer] = [Ours(folder, dimension)]
        systems += [Peer(*peer.partition("=")[::2], folder) for peer in peers]
        for system in systems:
            stack.callback(system.close)
        yield systems


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--inserts", type=int, nargs="*", default=INSERTS)
    parser.add_argument("--peer", action="append", help="lancedb=PYTHON or lance=PYTHON; default: lance")
    chosen = parser.parse_args(arguments)
    data = Data(chosen.dimension, max(16, chosen.rows // 500))
    with tempfile.TemporaryDirectory(prefix="omnigraph-search-") as name:
        folder = Path(name)
        peers = chosen.peer or [f"lance={sys.executable}"]
        with _opened(peers, folder, chosen.dimension) as systems:
            sys.stdout.write(f"{chosen.rows:,} rows of {chosen.dimension} dimensions\n")
            file = write_rows(data.add(chosen.rows), folder / "rows.arrow")
            for system in systems:
                loaded, built = system.load(file), system.build()
                sys.stdout.write(
                    f"{'load and build':22} {system.name:10} load {loaded[0]:.1f} s (cpu {loaded[1]:.1f})"
                    f"  build {built[0]:.1f} s (cpu {built[1]:.1f})  indexes {system.index_bytes() / 1e6:.1f} MB\n"
                )
            for below in FILTERS:
                label = "all rows" if below is None else f"filter {100 * below / PARTS:g} %"
                _compare(label, systems, data, below, chosen.queries)
            for count in chosen.inserts:
                file = write_rows(data.add(count), folder / "more.arrow")
                for system in systems:
                    system.add(file)
                _compare(f"after {count:,} more", systems, data, None, chosen.queries)


if __name__ == "__main__":
    main()
