"""Readers of keys in parts: key files that tasks wrote, and columns of committed rows.

Readers can be pickled and the names of their parts are short, so tasks can run them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.catalog.catalog import Table
from omnigraph.engine.committed_rows import physical_columns
from omnigraph.graph.recovery.scratch_files import ScratchFolder
from omnigraph.load.keys import committed_key_rows, without_ids
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import get_fragment
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.records import TablePin

T = TypeVar("T")


def group_by_rows(items: Iterable[tuple[T, int]], max_rows: int) -> Iterator[tuple[T, ...]]:
    """Group consecutive items up to a number of rows. Each item comes with its number of rows.

    >>> list(group_by_rows([("a", 3), ("b", 2), ("c", 9), ("d", 1)], 5))
    [('a', 'b'), ('c',), ('d',)]
    """
    group: list[T] = []
    group_rows = 0
    for item, rows in items:
        if group and group_rows + rows > max_rows:
            yield tuple(group)
            group, group_rows = [], 0
        group.append(item)
        group_rows += rows
    if group:
        yield tuple(group)


@dataclass(frozen=True)
class KeyFileReader:
    """Reads the key files in the scratch folder of a load."""

    scratch: ScratchFolder

    def __call__(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the keys in the files of these names."""
        for name in names:
            with self.scratch.open_read(name) as stream, pq.ParquetFile(stream) as opened:
                yield from opened.iter_batches()


@dataclass(frozen=True)
class CommittedKeyReader:
    """Reads columns of a table version as keys."""

    scratch: ScratchFolder
    pin: TablePin
    table: Table
    columns: tuple[str, ...]
    removed: pa.Array | None = None

    def __call__(self, fragments: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield the keys in the fragments with these ids, except for rows that are removed."""
        with translate_lance_errors(f"read {self.pin.path}"):
            root = LanceRoot.from_uri(self.scratch.uri, self.scratch.options, "full")
            dataset = root.open(self.pin.path, self.pin.version)
            scanner = dataset.scanner(
                columns=physical_columns(self.table, self.columns),
                fragments=[get_fragment(dataset, item) for item in fragments],
                scan_in_order=False,
            )
            for batch in scanner.to_batches():
                yield without_ids(committed_key_rows(self.table, self.columns, batch), self.removed)
