"""Graphs with clustered vectors, and the rows that searches of them give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

import omnigraph as og
from omnigraph.store.tables.index_segments import index_kind
from omnigraph.store.tables.table_indexes import list_indexes, list_segments
from omnigraph.store.tables.vector_indexes import VectorIndexMethod

DIMENSION: Final = 16
ROWS: Final = 12_000
CLUSTERS: Final = 60
# `part` is the number of the row modulo 1,000, and `cluster` that of its vectors.
SCHEMA: Final = f"""
node Doc {{
    name: String @key
    part: I32
    cluster: I32
    v: Vector({DIMENSION})? @index
}}
node Tag {{ name: String @key }}
edge Tagged: Tag -> Doc
"""
KEY: Final = "node:Doc"
Rows = list[dict[str, Any]]


def centers() -> np.ndarray:
    """Return the centers of the clusters."""
    return np.random.default_rng(17).normal(size=(CLUSTERS, DIMENSION))


def documents(first: int = 0, count: int = ROWS) -> pa.Table:
    """Return documents by number. A document has the same vector in every call; each hundredth has none."""
    numbers = np.arange(first, first + count)
    noise = np.random.default_rng(5).normal(size=(max(ROWS, 2 * count) * 2, DIMENSION))
    vectors = (centers()[numbers % CLUSTERS] + 0.6 * noise[numbers % len(noise)]).astype(np.float32)
    return pa.table(
        {
            "name": [f"d{number}" for number in numbers.tolist()],
            "part": pa.array(numbers % 1_000, pa.int32()),
            "cluster": pa.array(numbers % CLUSTERS, pa.int32()),
            "v": pa.FixedSizeListArray.from_arrays(
                pa.array(vectors.ravel()), DIMENSION, mask=pa.array(numbers % 100 == 99)
            ),
        }
    )


def make_indexed(uri: str | Path, schema: str = SCHEMA) -> og.LocalGraph:
    """Return a graph of documents whose index covers all of them."""
    graph = og.init(str(uri), schema=schema)
    graph.load({"Doc": documents()}, "append")
    graph.optimize(engine="local")
    return graph


def queries(count: int, seed: int = 3) -> list[list[float]]:
    """Return vectors that are in no graph, each near a center."""
    drawn = np.random.default_rng(seed)
    chosen = centers()[drawn.integers(0, CLUSTERS, count)] + 0.6 * drawn.normal(size=(count, DIMENSION))
    return [[float(item) for item in row] for row in chosen.astype(np.float32)]


def search(
    graph: og.LocalGraph,
    vector: Sequence[float],
    match: str = "$d: Doc",
    options: str = "",
    *,
    fn: str = "nearest",
    limit: int = 10,
    **where: Any,
) -> Rows:
    """Return the names and distances of the nearest documents."""
    return graph.query(text(match, options, fn, limit), {"q": list(vector)}, **where).rows()


def text(match: str = "$d: Doc", options: str = "", fn: str = "nearest", limit: int = 10) -> str:
    """Return the text of a search."""
    call = f"{fn}($d.v, $q{options})"
    return (
        f"query near($q: Vector({DIMENSION})) {{ match {{ {match} }} return {{ $d.name as name, {call} as far }}"
        f" order {{ {call} }} limit {limit} }}"
    )


def recall(
    graph: og.LocalGraph, match: str = "$d: Doc", options: str = "", *, count: int = 20, **how: Any
) -> float:
    """Return the share of the exact results that a search finds. Checks the rules that hold for every search."""
    found = 0.0
    for vector in queries(count):
        exact = search(graph, vector, match, ", exact: true", **how)
        rows = search(graph, vector, match, options, **how)
        assert len(rows) == len(exact)
        assert rows == sorted(rows, key=lambda row: row["far"])
        known = {row["name"]: row["far"] for row in exact}
        assert all(known.get(row["name"], row["far"]) == row["far"] for row in rows)
        found += sum(row["name"] in known for row in rows) / max(1, len(exact))
    return found / count


def explain(graph: og.LocalGraph, match: str = "$d: Doc", options: str = "", **how: Any) -> str:
    """Return how a search is executed."""
    lines = graph.explain(text(match, options, **how), {"q": [0.5] * DIMENSION}).splitlines()
    return "\n".join(line.strip() for line in lines if "search" in line or "exactly" in line)


def vector_indexes(graph: og.LocalGraph, **where: Any) -> dict[str, int]:
    """Return the vector indexes of the documents, each with the number of rows that it covers."""
    snapshot = graph.snapshot(**where)
    return {
        item.name: item.rows
        for item in list_indexes(snapshot.tables, snapshot.pin(KEY))
        if VectorIndexMethod.parse(index_kind(item.columns[0], item.name)) is not None
    }


def num_segments(graph: og.LocalGraph) -> int:
    """Return the number of segments of the vector index of the documents."""
    snapshot = graph.snapshot()
    names = vector_indexes(graph)
    return sum(item.index in names for item in list_segments(snapshot.tables, snapshot.pin(KEY)))


def _all(graph: og.LocalGraph) -> None:
    graph.load({"Doc": documents()}, "append")


def _pieces(graph: og.LocalGraph) -> None:
    for first in range(0, ROWS, ROWS // 6):
        graph.load({"Doc": documents(first, ROWS // 6)}, "append")
        if first:
            change_before(graph, first)


def change_before(graph: og.LocalGraph, count: int) -> None:
    """Delete and insert a document with a number below `count`."""
    number = (count * 7) // 11
    graph.mutate(f'query gone() {{ delete Doc where name = "d{number}" }}')
    graph.load({"Doc": documents(number, 1)}, "merge")


def _indexed(graph: og.LocalGraph) -> None:
    _all(graph)
    graph.optimize(engine="local")


def _half(graph: og.LocalGraph) -> None:
    graph.load({"Doc": documents(0, ROWS - 1_500)}, "append")
    graph.optimize(engine="local")
    graph.load({"Doc": documents(ROWS - 1_500, 1_500)}, "append")
    change_before(graph, ROWS)


def _compacted(graph: og.LocalGraph) -> None:
    _half(graph)
    graph.optimize(engine="local")


LAYOUTS: Final[dict[str, Callable[[og.LocalGraph], None]]] = {
    "one fragment": _all,
    "many fragments": _pieces,
    "indexed": _indexed,
    "half indexed": _half,
    "compacted": _compacted,
}
