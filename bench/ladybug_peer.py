"""The peer `ladybug`, an embedded graph database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.shapes import Params, Read, Write

_LADYBUG_SCHEMA = (
    "CREATE NODE TABLE Person(name STRING PRIMARY KEY, age INT32, city STRING, joined DATE)",
    "CREATE NODE TABLE Company(name STRING PRIMARY KEY, founded INT32)",
    "CREATE REL TABLE Knows(FROM Person TO Person, since DATE, weight DOUBLE)",
    "CREATE REL TABLE WorksAt(FROM Person TO Company)",
)


class Ladybug:
    """A database on local disk with default settings.

    Statements are prepared once per shape. Rows are fetched as Arrow, which measured as fast as Python rows for
    small results and faster for large ones.
    """

    name = "ladybug"

    def __init__(self, folder: Path) -> None:
        # Optional dependency, and slow to import.
        import ladybug

        self._database: Any = ladybug.Database(_database(folder))
        self._connection: Any = ladybug.Connection(self._database)

    @classmethod
    def load(cls, folder: Path, tables: dict[str, pa.Table], files: dict[str, Path]) -> None:  # noqa: ARG003
        """Copy from the Parquet files."""
        loading = cls(folder)
        for statement in _LADYBUG_SCHEMA:
            loading._connection.execute(statement).close()
        for table, file in files.items():
            loading._connection.execute(f"COPY {table} FROM '{file}'").close()
        loading.close()

    @classmethod
    def open(cls, folder: Path) -> Ladybug:
        """Open a loaded database."""
        return cls(folder)

    def takes(self, shape: Read | Write) -> bool:  # noqa: ARG002
        """Return True: every shape has a Cypher text."""
        return True

    def read(self, shape: Read, params: Params) -> pa.Table:
        """Execute the prepared statement and return all rows as one Arrow table."""
        with self._connection.execute(shape.cypher, dict(params)) as result:
            table: pa.Table = result.get_as_arrow(-1)
        return table

    def write(self, shape: Write, params: Params) -> None:
        """Execute in one transaction, which is durable on return."""
        self._connection.execute(shape.cypher, dict(params)).close()

    def close(self) -> None:
        """Close the database, which checkpoints its log."""
        self._connection.close()
        self._database.close()


def _database(folder: Path) -> Path:
    return folder / "graph.lbug"
