"""Keys read in parts by whoever needs them: files that tasks set down, and rows that are committed.

What reads is a value that can be pickled, and parts are small, so that both can travel to where the work is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.catalog.catalog import Table
from omnigraph.graph.scratch_files import ScratchFolder
from omnigraph.load.key_checks import committed_columns, committed_rows
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import get_fragment
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.records import TablePin

T = TypeVar("T")


def grouped(items: Iterable[tuple[T, int]], most: int) -> Iterator[tuple[T, ...]]:
    """Neighbours together, up to so many rows, each item given with its number of rows.

    >>> list(grouped([("a", 3), ("b", 2), ("c", 9), ("d", 1)], 5))
    [('a', 'b'), ('c',), ('d',)]
    """
    group: list[T] = []
    held = 0
    for item, rows in items:
        if group and held + rows > most:
            yield tuple(group)
            group, held = [], 0
        group.append(item)
        held += rows
    if group:
        yield tuple(group)


@dataclass(frozen=True)
class KeyFiles:
    """Files of keys in the scratch of a load."""

    scratch: ScratchFolder

    def __call__(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The keys of some files."""
        for name in names:
            with self.scratch.open_read(name) as stream, pq.ParquetFile(stream) as opened:
                yield from opened.iter_batches()


@dataclass(frozen=True)
class CommittedKeys:
    """Some columns of a pinned table, as keys."""

    scratch: ScratchFolder
    pin: TablePin
    table: Table
    columns: tuple[str, ...]

    def __call__(self, fragments: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """The keys of some fragments."""
        with translate_lance_errors(f"read {self.pin.path}"):
            root = LanceRoot.from_uri(self.scratch.uri, self.scratch.options, "full")
            dataset = root.open(self.pin.path, self.pin.version)
            scanner = dataset.scanner(
                columns=committed_columns(self.table, self.columns),
                fragments=[get_fragment(dataset, item) for item in fragments],
                scan_in_order=False,
            )
            for batch in scanner.to_batches():
                yield committed_rows(self.table, self.columns, batch)
