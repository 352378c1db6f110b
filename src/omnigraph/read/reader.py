"""What reads of one graph share between them: the cache, the plans, the settings."""

from __future__ import annotations

import os
import threading

import pyarrow as pa
from cachetools import LRUCache

from omnigraph.engine.memory.memory_cache import Cache, CacheStats, Memory
from omnigraph.engine.memory.row_lookups import CachedIds
from omnigraph.engine.parameters import Bindings
from omnigraph.graph.snapshot import Snapshot
from omnigraph.lang import ir
from omnigraph.read.explain import explain_plan
from omnigraph.read.plan import Plan
from omnigraph.read.query import plan_on, run_read
from omnigraph.read.session import ReadSession, Settings, SnapshotTables
from omnigraph.search.embedding import Embedder

_KEPT_PLANS = 512
_MEMORY_SHARE = 4
_LEAST_BUDGET = 64 << 20


def default_budget() -> int:
    """A quarter of the machine's memory."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return max(_LEAST_BUDGET, pages * size // _MEMORY_SHARE)


class Reader:
    """Runs reads. Safe to share between threads.

    `memory` is a number of bytes for this one alone, by default a quarter of the machine's, or what several share.
    """

    def __init__(
        self,
        memory: Memory | int | None = None,
        embedder: Embedder | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.cache = Cache(default_budget() if memory is None else memory)
        self.ids = CachedIds(self.cache)
        self.embedder = embedder
        self.settings = settings or Settings()
        self._lock = threading.Lock()
        # Those of the snapshot that was read last, which between two commits is the same one.
        self._tables: SnapshotTables | None = None
        self._plans: LRUCache[tuple[int, str], tuple[ir.ReadQuery, Plan]] = LRUCache(_KEPT_PLANS)

    def run(self, snapshot: Snapshot, query: ir.ReadQuery, bindings: Bindings) -> pa.Table:
        """The rows of a read on a snapshot."""
        return run_read(self._session(snapshot, bindings), self.plan(snapshot, query))

    def explain(self, snapshot: Snapshot, query: ir.ReadQuery, bindings: Bindings) -> str:
        """How the read would be run, as text; nothing is read for it but what planning looks at."""
        return explain_plan(self._session(snapshot, bindings), self.plan(snapshot, query))

    def session(self, snapshot: Snapshot) -> ReadSession:
        """Access to a snapshot's tables through the cache."""
        return self._session(snapshot, Bindings())

    def plan(self, snapshot: Snapshot, query: ir.ReadQuery) -> Plan:
        """The plan of a read at a commit, made once."""
        key = (id(query), snapshot.commit_id)
        with self._lock:
            known = self._plans.get(key)
        # An id may be reused after its query is gone, so the entry holds the query as well.
        if known is not None and known[0] is query:
            return known[1]
        plan = plan_on(query, snapshot)
        with self._lock:
            self._plans[key] = (query, plan)
        return plan

    def stats(self) -> CacheStats:
        """What the cache holds."""
        return self.cache.stats()

    def close(self) -> None:
        """Let go of what was kept. Reads are still answered, from storage."""
        self.cache.close()
        self._tables = None

    def _session(self, snapshot: Snapshot, bindings: Bindings) -> ReadSession:
        tables = self._tables
        if tables is None or tables.snapshot is not snapshot:
            tables = self._tables = SnapshotTables(snapshot, self.cache)
        return ReadSession(snapshot, tables, bindings, self.settings, self.embedder)
