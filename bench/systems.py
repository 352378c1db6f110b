"""What every measured system can do. A call returns only when the answer is in memory as Arrow."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pyarrow as pa

from bench.shapes import Params, Read, Write


class System(Protocol):
    """One system on its own copy of the graph."""

    name: str

    def takes(self, shape: Read | Write) -> bool:
        """Whether the system can answer such a shape at all."""
        ...

    def read(self, shape: Read, params: Params) -> pa.Table:
        """Ask and take all rows."""
        ...

    def write(self, shape: Write, params: Params) -> None:
        """Change; durable on return."""
        ...

    def close(self) -> None:
        """Let go of the files, so that another process may open them."""
        ...


class Loader(Protocol):
    """How a system gets the graph: once into an empty folder, then open it as often as one likes."""

    name: str

    def load(self, folder: Path, tables: dict[str, pa.Table], files: dict[str, Path]) -> None:
        """Take the graph in, from whichever form the system prefers."""
        ...

    def open(self, folder: Path) -> System:
        """Open what was loaded."""
        ...
