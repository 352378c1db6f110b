"""The interface of the measured systems. A call returns when the result is in memory as Arrow."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pyarrow as pa

from bench.shapes import Params, Read, Write


class System(Protocol):
    """A system with its own copy of the graph."""

    name: str

    def takes(self, shape: Read | Write) -> bool:
        """Whether the system can run the shape."""
        ...

    def read(self, shape: Read, params: Params) -> pa.Table:
        """Run a query and return all rows."""
        ...

    def write(self, shape: Write, params: Params) -> None:
        """Run a write, which is durable on return."""
        ...

    def close(self) -> None:
        """Close the files, so that another process can open them."""
        ...


class Loader(Protocol):
    """Loads the graph into an empty folder once, and opens it any number of times."""

    name: str

    def load(self, folder: Path, tables: dict[str, pa.Table], files: dict[str, Path]) -> None:
        """Load the graph, from tables or files."""
        ...

    def open(self, folder: Path) -> System:
        """Open the loaded graph."""
        ...
