"""Where rows are, told to writers from the ids that reads keep in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from omnigraph.engine.memory.id_index import LOOSE_IDS, IdIndex
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.engine.memory.table_columns import Frame, parts_of
from omnigraph.graph.snapshot import Snapshot
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.tables import Tables


class CachedIds:
    """Answers from a cache of ids; a table whose ids are not worth keeping has no answer."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def addresses(self, snapshot: Snapshot, key: str, ids: Sequence[str]) -> dict[str, int] | None:
        """The addresses of those of the rows that are there, by id; None when that is not known."""
        frame = Frame(snapshot, key, self._cache)
        found: dict[str, int] = {}
        for id_ in ids:
            address = frame.address(id_)
            if address is None:
                return None
            if address >= 0:
                found[id_] = address
        return found

    def learn(self, tables: Tables, pin: TablePin, ids: pa.Array) -> None:
        """Take over the ids of a version's new rows, so that nobody has to read them back.

        The version may never become visible: then nobody will ask for its file.
        """
        family = ("ids", pin.path)
        known: IdIndex | None = self._cache.newest(family)
        if known is None or known.loose_rows + len(ids) > LOOSE_IDS:
            return
        new = [part for part in parts_of(self._cache, tables, pin) if part.files not in known.covered]
        if len(new) == 1 and new[0].rows == len(ids) and new[0].deletions is None:
            places = np.arange(len(ids), dtype=np.uint32)
            self._cache.replace(family, lambda old: (old or known).extended([(new[0].files, places, ids)]))
