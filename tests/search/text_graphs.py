"""Graphs of short texts, and the answers to full-text queries about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import omnigraph as og
from omnigraph.maintain import text_indexes
from omnigraph.search.inverted import segment_building
from omnigraph.store.tables.table_indexes import IndexSegment, list_indexes, list_segments
from omnigraph.store.text.text_index_names import is_text_index

ROWS: Final = 300
SCHEMA: Final = """
node Doc {
    name: String @key
    part: I32
    body: String? @text(with_position: true)
    title: String? @text(simple)
}
node Tag { name: String @key }
edge Tagged: Tag -> Doc
"""
KEY: Final = "node:Doc"
_WORDS: Final = [
    *(
        "graph",
        "graphs",
        "database",
        "databases",
        "the",
        "of",
        "red",
        "wine",
        "Café",
        "cafes",
        "naïve",
        "index",
    ),
    *(
        "indexes",
        "indexing",
        "vector",
        "vectors",
        "search",
        "searching",
        "手机壳",
        "手机",
        "東京都",
        "Straße",
    ),
    *("branch", "branches", "commit", "merge", "snapshot", "snapshots"),
]
QUERIES: Final = (
    "graph",
    "databases of cafe",
    "red AND wine",
    "graph NOT database",
    "(index OR vector) AND search^2",
    "gra* NOT graphs",
    "手机",
    '"red wine"',
    '"the graph of"',
    '"graph database" OR "red cafes"^3',
    "NOT commit",
    "nothing",
)
FIELDS: Final = ("$d.body", "[$d.title ^ 2, $d.body]")
FEW_QUERIES: Final = ("graph", "gra* NOT graphs", '"the graph of"', "NOT commit")
Answers = dict[str, list[dict[str, Any]]]


def document(number: int) -> dict[str, Any]:
    """Return a document by number, the same one in every call. Some have no title or no body, or an empty one."""
    drawn = np.random.default_rng(number)
    # Some words are in most texts, most in few.
    chosen = [_WORDS[int(place)] for place in len(_WORDS) * drawn.random(3 + number % 40) ** 2]
    body = " ".join(chosen) + (f". rare{number}" if number % 5 == 0 else "")
    return {
        "name": f"d{number:04}",
        "part": number % 100,
        "body": None if number % 17 == 3 else "" if number % 17 == 4 else body,
        "title": None if number % 7 == 1 else " ".join(chosen[:3]),
    }


def documents(first: int = 0, count: int = ROWS) -> list[dict[str, Any]]:
    """Return documents by number."""
    return [document(number) for number in range(first, first + count)]


def answers(
    graph: og.LocalGraph, queries: Sequence[str] = QUERIES, fields: Sequence[str] = FIELDS, **where: Any
) -> Answers:
    """Return what the queries find, with the scores of ranked rows."""
    found: Answers = {}
    for field in fields:
        for query in queries:
            ranked = (
                "query q($q: String) { match { $d: Doc } return { $d.name as name,"
                f" bm25({field}, $q) as score }} order {{ bm25({field}, $q) desc }} limit 25 }}"
            )
            found[f"bm25 {field} {query}"] = graph.query(ranked, {"q": query}, **where).rows()
            found[f"search {field} {query}"] = _names(
                graph, f"search({field.replace(' ^ 2', '')}, $q)", query, **where
            )
    for word in ("grph", "手机", "rare10"):
        found[f"fuzzy {word}"] = _names(graph, "fuzzy($d.body, $q, 1)", word, **where)
    return found


def _names(graph: og.LocalGraph, condition: str, query: str, **where: Any) -> list[dict[str, Any]]:
    result = "return { $d.name as name } order { $d.name }"
    text = f"query q($q: String) {{ match {{ $d: Doc {condition} }} {result} }}"
    return graph.query(text, {"q": query}, **where).rows()


def explain(graph: og.LocalGraph, field: str = "$d.body") -> list[str]:
    """Return how a search is executed."""
    query = f'query q() {{ match {{ $d: Doc search({field}, "graph") }} return {{ $d.name }} }}'
    return [
        line.strip() for line in graph.explain(query).splitlines() if "words of" in line or "analyze" in line
    ]


@contextmanager
def small_indexes() -> Iterator[None]:
    """Index tables of any size, and merge the postings of small slices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_indexes, "MIN_TABLE_ROWS", 1)
        patch.setattr(text_indexes, "MIN_SEGMENT_ROWS", 1)
        patch.setattr(segment_building, "_SLICE_BYTES", 4_000)
        patch.setattr(segment_building, "_RUN_POSTINGS", 500)
        yield


def text_indexes_of(graph: og.LocalGraph, **where: Any) -> dict[str, int]:
    """Return the full-text indexes of the documents by property, each with the number of rows that it covers."""
    snapshot = graph.snapshot(**where)
    names = {column.physical: column.name for column in snapshot.table(KEY).columns}
    return {
        names.get(item.columns[0], item.columns[0]): item.rows
        for item in list_indexes(snapshot.tables, snapshot.pin(KEY))
        if is_text_index(item.columns[0], item.name)
    }


def segments_of(graph: og.LocalGraph, name: str) -> list[IndexSegment]:
    """Return the segments of the full-text index of a property."""
    snapshot = graph.snapshot()
    column = snapshot.table(KEY).physical(name)
    found = list_segments(snapshot.tables, snapshot.pin(KEY))
    return [item for item in found if item.index.startswith(f"{column}_text_")]


def segment_files(graph: og.LocalGraph, name: str) -> list[Path]:
    """Return the files of the segments of a property."""
    folders = {f"{item.handle.uuid}" for item in segments_of(graph, name)}
    return sorted(
        file for file in Path(graph.uri).glob("nodes/*/_indices/*/*.lance") if file.parent.name in folders
    )


# --- layouts -------------------------------------------------------------------------------------------------


def _all(graph: og.LocalGraph) -> None:
    graph.load({"Doc": documents()}, "append")


def _pieces(graph: og.LocalGraph) -> None:
    step = ROWS // 6
    for first in range(0, ROWS, step):
        graph.load({"Doc": documents(first, step)}, "append")
        if first:
            change_before(graph, first)


def change_before(graph: og.LocalGraph, count: int) -> None:
    """Delete and insert a document with a number below `count`."""
    number = (count * 7) // 11
    graph.mutate(f'query gone() {{ delete Doc where name = "d{number:04}" }}')
    graph.load({"Doc": documents(number, 1)}, "merge")


def _indexed(graph: og.LocalGraph) -> None:
    _all(graph)
    graph.optimize(engine="local")


def _half(graph: og.LocalGraph) -> None:
    graph.load({"Doc": documents(0, ROWS - 60)}, "append")
    graph.optimize(engine="local")
    graph.load({"Doc": documents(ROWS - 60, 60)}, "append")
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
