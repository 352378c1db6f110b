"""Row addresses for writers, from the ids that reads have cached."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pyarrow as pa

from omnigraph.engine.memory.cached_table import CachedTable
from omnigraph.engine.memory.id_index import MAX_UNSORTED_IDS, IdIndex
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.engine.memory.table_versions import (
    extend_fragments,
    is_small,
    keep_rows_of_files,
    keep_written_rows,
    known_deleted_rows,
    table_fragments,
    written_rows,
)
from omnigraph.graph.snapshot import Snapshot
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.row_addresses import Offsets
from omnigraph.store.tables.table_fragments import TableFragment
from omnigraph.store.tables.tables import Tables


class CachedIds:
    """An optional cache of row addresses by id. Tables whose ids are not cached have no answer."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        # Called with the table, the fragment and the rows of each small fragment that is written.
        self.on_written: Callable[[str, TableFragment, pa.Table], None] | None = None

    def addresses(self, snapshot: Snapshot, key: str, ids: Sequence[str]) -> dict[str, int] | None:
        """Return the addresses of the existing rows among `ids`, by id; None if the ids are not cached."""
        table = CachedTable(snapshot, key, self._cache)
        found: dict[str, int] = {}
        for id_ in ids:
            address = table.address(id_)
            if address is None:
                return None
            if address >= 0:
                found[id_] = address
        return found

    def rows(self, snapshot: Snapshot, key: str, addresses: Sequence[int]) -> pa.Table | None:
        """Return rows by address with their physical columns, if this process has written them recently."""
        return CachedTable(snapshot, key, self._cache).rows_in_memory(addresses)

    def fragments(self, tables: Tables, pin: TablePin) -> tuple[TableFragment, ...]:
        """Return the fragments of a version in row order."""
        return table_fragments(self._cache, tables, pin)

    def deleted_offsets(self, fragment: TableFragment) -> Offsets | None:
        """Return the offsets of the deleted rows of a fragment, ascending; None if they are not in memory."""
        return known_deleted_rows(self._cache, fragment)

    def written_rows(self, path: str, fragment: TableFragment) -> pa.Table | None:
        """Return all rows that were written to a fragment, by offset; None if they are not in memory."""
        return written_rows(self._cache, path, fragment)

    def add_written(self, path: str, files: str, rows: pa.Table) -> None:
        """Add the rows of a small fragment that another process wrote, given its data files.

        The fragment may never become part of a version. Its rows are then never looked up.
        """
        keep_rows_of_files(self._cache, path, files, rows)

    def learn(
        self, tables: Tables, base: TablePin, pin: TablePin, deleted: Collection[int] | None, rows: pa.Table
    ) -> None:
        """Add a version's new rows to the cache, so that they are not read back.

        The version may never become visible. Its file is then never looked up.
        """
        if deleted is None:
            fragments = table_fragments(self._cache, tables, pin)
        else:
            fragments = extend_fragments(self._cache, tables, base, pin, deleted)
        written = fragments[-1:]
        if len(written) != 1 or written[0].rows != rows.num_rows or written[0].deletions is not None:
            return
        keep_written_rows(self._cache, pin.path, written[0], rows)
        if self.on_written is not None and is_small(written[0]):
            self.on_written(pin.path, written[0], rows)
        family = ("ids", pin.path)
        known: IdIndex | None = self._cache.latest(family)
        if known is None or known.covers([written[0].files]) or rows.num_rows > MAX_UNSORTED_IDS:
            return
        ids = rows["id"].combine_chunks()
        offsets = np.arange(len(ids), dtype=np.uint32)
        self._cache.update(family, lambda old: (old or known).extended([(written[0].files, offsets, ids)]))
