"""OmniGraph, through its public API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import omnigraph as og
from bench.shapes import SCHEMA, Params, Read, Write


class OmniGraph:
    """A graph on local disk with default settings, including durability."""

    name = "omnigraph"

    def __init__(self, folder: Path) -> None:
        self._graph: Any = og.open(str(_place(folder)))

    @classmethod
    def load(cls, folder: Path, tables: dict[str, pa.Table], files: dict[str, Path]) -> None:  # noqa: ARG003
        """Append the tables in one commit."""
        graph: Any = og.init(str(_place(folder)), schema=SCHEMA)
        graph.load(tables, mode="append")
        graph.close()

    @classmethod
    def open(cls, folder: Path) -> OmniGraph:
        """Open a loaded graph."""
        return cls(folder)

    def takes(self, shape: Read | Write) -> bool:  # noqa: ARG002
        """Return True: every shape has a `.gq` text."""
        return True

    def read(self, shape: Read, params: Params) -> pa.Table:
        """Run the query and return the Arrow table."""
        table: pa.Table = self._graph.query(shape.gq, dict(params)).table
        return table

    def write(self, shape: Write, params: Params) -> None:
        """Run the mutation as one commit."""
        self._graph.mutate(shape.gq, dict(params))

    def close(self) -> None:
        """Close the graph."""
        self._graph.close()


def _place(folder: Path) -> Path:
    return folder / "graph.omni"
