"""Reads through the public API, with the ways of running them that must not change the rows forced one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import omnigraph as og
from omnigraph.lang import ir
from omnigraph.read.read_session import ReadSettings
from omnigraph.search.embeddings.embedder import MockEmbedder
from tests.differential.naive import JsonRow

Expand: TypeAlias = Literal["csr", "index"]
EXPANDS: Final[tuple[Expand, ...]] = ("csr", "index")
PROJECTION_ENGINES: Final = ("arrow", "duckdb")


def open_handle(uri: str) -> og.LocalGraph:
    """A handle on a stored graph."""
    return og.open(uri, mode="r", durability="os", embedder=MockEmbedder())


def engine_rows(
    graph: og.LocalGraph,
    text: str,
    params: Mapping[str, Any] | None = None,
    *,
    expand: Expand | None = None,
    projection: str | None = None,
) -> list[JsonRow]:
    """The rows that a graph gives for a read; None leaves the choice to the engine."""
    graph._reader.settings = ReadSettings(expand=expand, projection=projection)
    return graph.query(text, params).rows()


def ways_to_run(query: ir.ReadQuery, number: int) -> Iterator[tuple[Expand | None, str]]:
    """Yield both expand modes if the query follows edges; the projection engines alternate from one to the next."""
    expands: tuple[Expand | None, ...] = (
        EXPANDS if any(item.kind == "edge" for item in query.reads) else (None,)
    )
    for turn, expand in enumerate(expands, start=number):
        yield expand, PROJECTION_ENGINES[turn % len(PROJECTION_ENGINES)]
