"""Full-text search on the sources of Python's library: BM25 against a reference, latency beside LanceDB and DuckDB.

``python -m bench.text_search --peer lancedb=build/lancedb/bin/python`` prints a table. A document is a function or
class of the standard library, reduced to its ASCII words, so that all systems have the same tokens: no stems, no
stop words. The reference computes BM25 with k1 = 1.2 and b = 0.75 as published. All systems have the same documents
and answer the same queries in turns.
"""

from __future__ import annotations

import argparse
import ast
import math
import re
import sys
import sysconfig
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import omnigraph as og
from bench.search import Peer, file_bytes, read_rows, timed, write_rows

TOP = 10
K1, B = 1.2, 0.75
_WORD = re.compile("[A-Za-z]+")


def documents(limit: int) -> list[str]:
    """Return the words of the functions and classes of the standard library."""
    found: list[str] = []
    for file in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" in file.parts:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                text = file.read_text("utf-8")
                nodes = ast.parse(text).body
            except (SyntaxError, UnicodeDecodeError, ValueError):
                continue
        lines = text.splitlines()
        for node in _definitions(nodes):
            found.append(" ".join(_WORD.findall(" ".join(lines[node.lineno - 1 : node.end_lineno]))))
            if len(found) == limit:
                return found
    return found


def _definitions(nodes: Sequence[ast.stmt]) -> Iterator[Any]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from _definitions(node.body)


class Reference:
    """BM25 as published, over lists of postings."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._postings: dict[str, dict[int, int]] = defaultdict(dict)
        self._lengths = []
        for place, text in enumerate(texts):
            words = text.lower().split()
            self._lengths.append(len(words))
            for word, count in Counter(words).items():
                self._postings[word][place] = count
        self._mean = sum(self._lengths) / len(texts)

    def best(self, query: str) -> list[float]:
        """Return the ten highest scores."""
        scores: dict[int, float] = defaultdict(float)
        number = len(self._lengths)
        for word in sorted(set(query.lower().split())):
            found = self._postings.get(word, {})
            rarity = math.log(1 + (number - len(found) + 0.5) / (len(found) + 0.5))
            for place, count in found.items():
                length = K1 * (1 - B + B * self._lengths[place] / self._mean)
                scores[place] += rarity * count * (K1 + 1) / (count + length)
        return sorted(scores.values(), reverse=True)[:TOP]

    def words(self, low: int, high: int) -> list[str]:
        """Return the words that are in so many documents."""
        return sorted(word for word, found in self._postings.items() if low <= len(found) < high)


class Ours:
    """The documents as nodes of a graph."""

    name = "omnigraph"
    _query = (
        "query best($q: String) { match { $d: Doc } return { $d.name as name, bm25($d.body, $q) as score }"
        f" order {{ bm25($d.body, $q) }} limit {TOP} }}"
    )

    def __init__(self, folder: Path) -> None:
        self._uri = str(folder / "graph")
        schema = "node Doc { name: String @key\n body: String @text(simple) }"
        self._graph = og.init(self._uri, schema=schema, upkeep="off")

    def load(self, file: Path) -> tuple[float, float]:
        """Load an Arrow file."""
        return timed(lambda: self._graph.load({"Doc": read_rows(file)}, "append"))[1:]

    def build(self) -> tuple[float, float]:
        """Build the indexes."""
        return timed(lambda: self._graph.optimize(engine="local"))[1:]

    def find(self, query: str) -> tuple[list[float], float, float]:
        """Return the scores of the best rows, the seconds, and the seconds of processor time."""
        return timed(lambda: self._graph.query(self._query, {"q": query}).table["score"].to_pylist())

    def index_bytes(self) -> int:
        """Return the size of the indexes."""
        return file_bytes(Path(self._uri).glob("nodes/*/_indices/*/*"))

    def close(self) -> None:
        """Close the graph."""
        self._graph.close()


class TextPeer(Peer):
    """A peer in a process of its own."""

    @classmethod
    def of(cls, peer: str, folder: Path) -> TextPeer:
        """Return the peer of an argument ``NAME=PYTHON``."""
        name, _, python = peer.partition("=")
        return cls(name, python, folder, "text_peer.py")

    def find(self, query: str) -> tuple[list[float], float, float]:
        """Return the scores of the best rows, the seconds, and the seconds of processor time."""
        return self.ask("search", query)

    def index_bytes(self) -> int:
        """Return the size of the indexes; 0 if they are no files of their own."""
        return file_bytes(self._folder.glob("docs.lance/_indices/*/*"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--peer", action="append", default=[], help="lancedb=PYTHON or duckdb=PYTHON")
    chosen = parser.parse_args(arguments)
    texts = documents(chosen.documents)
    reference = Reference(texts)
    chance = np.random.default_rng(5)
    rare, usual = reference.words(5, 50), reference.words(500, len(texts) // 4)
    with tempfile.TemporaryDirectory(prefix="omnigraph-text-") as name:
        folder = Path(name)
        systems: list[Ours | TextPeer] = [Ours(folder)]
        systems += [TextPeer.of(peer, folder) for peer in chosen.peer]
        sys.stdout.write(f"{len(texts):,} documents, {sum(map(len, texts)) / 1e6:.1f} MB\n")
        rows = pa.table({"name": [f"d{number}" for number in range(len(texts))], "body": texts})
        file = write_rows(rows, folder / "rows.arrow")
        for system in systems:
            loaded, built = system.load(file), system.build()
            sys.stdout.write(
                f"{'load and build':14} {system.name:10} load {loaded[0]:.1f} s (cpu {loaded[1]:.1f})"
                f"  build {built[0]:.1f} s (cpu {built[1]:.1f})  indexes {system.index_bytes() / 1e6:.1f} MB\n"
            )
        for label, words in (("rare words", rare), ("usual words", usual)):
            asked = [" ".join(chance.choice(words, 2, replace=False)) for _ in range(chosen.queries + 3)]
            _compare(label, systems, reference, asked)
        for system in systems:
            system.close()


def _compare(label: str, systems: Sequence[Any], reference: Reference, asked: Sequence[str]) -> None:
    """Print how often the best scores are those of the reference, and the latency of each system."""
    equal: Counter[str] = Counter()
    times: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for number, query in enumerate(asked):
        expected = reference.best(query)
        for system in [*systems[number % len(systems) :], *systems[: number % len(systems)]]:
            scores, wall, processor = system.find(query)
            if number >= 3:
                equal[system.name] += len(scores) == len(expected) and np.allclose(
                    scores, expected, rtol=1e-9
                )
                times[system.name].append((1e3 * wall, 1e3 * processor))
    for system in systems:
        walls, processors = zip(*times[system.name], strict=True)
        sys.stdout.write(
            f"{label:14} {system.name:10} top-{TOP} scores equal {equal[system.name]:3}/{len(walls)}"
            f"  p50 {np.median(walls):6.1f} ms  p99 {np.quantile(walls, 0.99):6.1f} ms"
            f"  cpu {np.median(processors):6.1f} ms\n"
        )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
