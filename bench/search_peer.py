"""A vector table of LanceDB or of raw Lance in a process of its own, for `bench.search`.

LanceDB is installed in an environment of its own, so this file imports nothing of the project. Requests and answers
are lines of JSON. Processor time is that of the process, in which all threads of the library run.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

NPROBES, REFINE = 20, 5


class LanceDb:
    """A table of LanceDB, with its defaults for durability and indexes of the same kind as ours."""

    def __init__(self, folder: str) -> None:
        import lancedb

        self._database = lancedb.connect(folder)
        self._table: Any = None

    def load(self, file: str) -> None:
        """Create the table from an Arrow file."""
        self._table = self._database.create_table("docs", _read(file))

    def build(self) -> None:
        """Build the vector index and an index of the filtered column."""
        self._table.create_index(metric="l2", vector_column_name="v", index_type="IVF_RQ")
        self._table.create_scalar_index("part", index_type="BTREE")

    def add(self, file: str) -> None:
        """Append the rows of an Arrow file."""
        self._table.add(_read(file))

    def search(self, vector: list[float], where: str | None) -> list[str]:
        """Return the names of the ten nearest rows."""
        query = self._table.search(vector, vector_column_name="v").metric("l2").nprobes(NPROBES)
        query = query.refine_factor(REFINE).select(["name"]).limit(10)
        if where is not None:
            query = query.where(where, prefilter=True)
        names: list[str] = query.to_arrow()["name"].to_pylist()
        return names


class RawLance:
    """A dataset of Lance without a database."""

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/docs.lance"
        self._dataset: Any = None

    def load(self, file: str) -> None:
        """Write the dataset from an Arrow file."""
        import lance

        self._dataset = lance.write_dataset(_read(file), self._path)

    def build(self) -> None:
        """Build the vector index and an index of the filtered column."""
        self._dataset.create_index("v", "IVF_RQ", metric="l2")
        self._dataset.create_scalar_index("part", "BTREE")

    def add(self, file: str) -> None:
        """Append the rows of an Arrow file."""
        import lance

        self._dataset = lance.write_dataset(_read(file), self._path, mode="append")

    def search(self, vector: list[float], where: str | None) -> list[str]:
        """Return the names of the ten nearest rows."""
        import numpy as np

        nearest = {
            "column": "v",
            "q": np.array(vector, np.float32),
            "k": 10,
            "nprobes": NPROBES,
            "refine_factor": REFINE,
        }
        scanner = self._dataset.scanner(
            columns=["name", "_distance"], nearest=nearest, filter=where, prefilter=where is not None
        )
        names: list[str] = scanner.to_table()["name"].to_pylist()
        return names


def _read(file: str) -> Any:
    import pyarrow as pa

    with pa.memory_map(file) as source:
        return pa.ipc.open_file(source).read_all()


def main() -> None:
    """Answer requests until the input ends."""
    library, folder = sys.argv[1:3]
    Path(folder).mkdir(parents=True, exist_ok=True)
    peer = {"lancedb": LanceDb, "lance": RawLance}[library](folder)
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        wall, processor = time.perf_counter(), time.process_time()
        result = getattr(peer, method)(*arguments)
        took = time.perf_counter() - wall, time.process_time() - processor
        sys.stdout.write(json.dumps([result, *took]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
