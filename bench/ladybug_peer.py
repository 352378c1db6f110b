"""`ladybug`, an embedded graph database, as a peer."""

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
    """A database on local disk with everything at its defaults.

    The connection keeps the prepared statement of each text, so only the first call of a shape compiles it. Rows
    are taken as Arrow, which was as fast as Python rows for small answers and faster for large ones.
    """

    name = "ladybug"

    def __init__(self, folder: Path) -> None:
        # Optional, and slow to import: only who measures it pays.
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
        """Open the database that was loaded."""
        return cls(folder)

    def takes(self, shape: Read | Write) -> bool:  # noqa: ARG002
        """Everything that is measured can be said in Cypher."""
        return True

    def read(self, shape: Read, params: Params) -> pa.Table:
        """Execute the prepared text and take all rows as one Arrow table."""
        with self._connection.execute(shape.cypher, dict(params)) as result:
            table: pa.Table = result.get_as_arrow(-1)
        return table

    def write(self, shape: Write, params: Params) -> None:
        """Execute in a transaction of its own, which is on disk when it ends."""
        self._connection.execute(shape.cypher, dict(params)).close()

    def close(self) -> None:
        """Close the database: it writes its log into its files."""
        self._connection.close()
        self._database.close()


def _database(folder: Path) -> Path:
    return folder / "graph.lbug"
