"""The peer Lance: the cost of the storage layer without a database."""

from __future__ import annotations

import os
from pathlib import Path

import lance
import pyarrow as pa

from bench.shapes import Params, Read, Write


class RawLance:
    """The people as one Lance dataset with an index on the name."""

    name = "lance"

    def __init__(self, folder: Path) -> None:
        self._path = _people(folder)
        self._people = lance.dataset(self._path)
        self._durable = self._files()

    @classmethod
    def load(cls, folder: Path, tables: dict[str, pa.Table], files: dict[str, Path]) -> None:  # noqa: ARG003
        """Write the people and index their names."""
        dataset = lance.write_dataset(tables["Person"], _people(folder))
        dataset.create_scalar_index("name", "BTREE")

    @classmethod
    def open(cls, folder: Path) -> RawLance:
        """Open a written dataset."""
        return cls(folder)

    def takes(self, shape: Read | Write) -> bool:
        """Whether the shape uses the people only, and no query after a write."""
        return "lance" in shape.goals

    def read(self, shape: Read, params: Params) -> pa.Table:
        """Run the shape as a filter over the people."""
        if shape.lance is None:
            raise ValueError(f"{shape.name} cannot be run on one table")
        table: pa.Table = self._people.to_table(filter=shape.lance.format(**params))
        return table

    def write(self, shape: Write, params: Params) -> None:  # noqa: ARG002 - the only write is an append
        """Append one row and sync the written files, because Lance does not sync."""
        row = {"name": params["n"], "age": params["a"], "city": params["c"], "joined": None}
        rows = pa.Table.from_pylist([row], schema=self._people.schema)
        self._people = lance.write_dataset(rows, self._people, mode="append")
        after = self._files()
        new = after - self._durable
        for path in [*new, *{path.parent for path in new}]:
            _sync(path)
        self._durable = after

    def close(self) -> None:
        """Do nothing: no files are held open."""

    def _files(self) -> set[Path]:
        folders = [self._path / name for name in ("data", "_transactions", "_versions")]
        return {Path(entry) for folder in folders for entry in os.scandir(folder)}


def _people(folder: Path) -> Path:
    return folder / "people.lance"


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
