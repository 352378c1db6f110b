"""State that all reads of one graph share: the cache, query plans, settings."""

from __future__ import annotations

import threading
from typing import TypeAlias

import pyarrow as pa
from cachetools import LRUCache

from omnigraph.budget.machine import usable_memory
from omnigraph.engine.memory.memory_cache import Cache, CachePool, CacheStats
from omnigraph.engine.memory.row_lookups import CachedIds
from omnigraph.engine.parameters import Bindings
from omnigraph.graph.snapshot import Snapshot
from omnigraph.lang import ir
from omnigraph.read.explain import explain_plan
from omnigraph.read.plan import ReadPlan
from omnigraph.read.query import plan_on, planning_rows, run_read
from omnigraph.read.read_session import ReadSession, ReadSettings, SnapshotTables
from omnigraph.read.stored_models import StoredModels
from omnigraph.search.embeddings.embedder import Embedder
from omnigraph.search.embeddings.vector_computation import VectorComputation

_MAX_PLANS = 512
# The sizes of all tables of a commit, as the planner rounds them.
_Sizes: TypeAlias = tuple[int, ...]
# The default cache takes 1 / _MEMORY_SHARE of the memory.
_MEMORY_SHARE = 4
_MIN_BUDGET = 64 << 20


def default_budget() -> int:
    """Return the default size of the read cache in bytes: a quarter of the memory of the machine or container."""
    return max(_MIN_BUDGET, usable_memory() // _MEMORY_SHARE)


class Reader:
    """Runs the reads of a graph. Thread-safe.

    `memory` is the cache size in bytes, by default `default_budget`, or a pool that several readers share.
    """

    def __init__(
        self,
        memory: CachePool | int | None = None,
        embedder: Embedder | None = None,
        settings: ReadSettings | None = None,
    ) -> None:
        self.cache = Cache(default_budget() if memory is None else memory)
        self.ids = CachedIds(self.cache)
        self.vectors = VectorComputation(embedder)
        self._stored_models = StoredModels()
        self.settings = settings or ReadSettings()
        self._lock = threading.Lock()
        # The tables of the last snapshot; reads between two commits use the same one.
        self._tables: SnapshotTables | None = None
        self._plans: LRUCache[tuple[int, _Sizes], tuple[ir.ReadQuery, ReadPlan]] = LRUCache(_MAX_PLANS)
        # The last commit that was read, and the sizes of its tables.
        self._sizes: tuple[str, _Sizes] = ("", ())

    @property
    def embedder(self) -> Embedder | None:
        """The embedding providers of the graph."""
        return self.vectors.embedder

    def run(self, snapshot: Snapshot, query: ir.ReadQuery, bindings: Bindings) -> pa.Table:
        """Return the rows of a read on a snapshot. Raises the errors of `Snapshot.reading`."""
        # Some files, such as deletion files, are first read while the query runs.
        with snapshot.reading(), snapshot.held():
            return run_read(self._session(snapshot, bindings), self.plan(snapshot, query))

    def explain(self, snapshot: Snapshot, query: ir.ReadQuery, bindings: Bindings) -> str:
        """Return the plan of a read as text. Does not run the read."""
        return explain_plan(self._session(snapshot, bindings), self.plan(snapshot, query))

    def session(self, snapshot: Snapshot) -> ReadSession:
        """Return a session that reads a snapshot's tables through the cache."""
        return self._session(snapshot, Bindings())

    def plan(self, snapshot: Snapshot, query: ir.ReadQuery) -> ReadPlan:
        """Return the plan of a read at a commit. A cached plan holds while the sizes of tables are similar."""
        commit_id, sizes = self._sizes
        if commit_id != snapshot.commit_id:
            sizes = tuple(planning_rows(pin.rows) for pin in snapshot.commit.tables.values())
            self._sizes = (snapshot.commit_id, sizes)
        key = (id(query), sizes)
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
        """Return the contents of the cache."""
        return self.cache.stats()

    def close(self) -> None:
        """Release the cache. Later reads run without it."""
        self.cache.close()
        self._tables = None

    def close_embedder(self) -> None:
        """Close the connections to the embedding provider. Later searches by text open new ones."""
        if self.embedder is not None:
            from omnigraph.search.embeddings.providers import close_provider

            close_provider(self.embedder)

    def _session(self, snapshot: Snapshot, bindings: Bindings) -> ReadSession:
        tables = self._tables
        if tables is None or tables.snapshot is not snapshot:
            tables = self._tables = SnapshotTables(snapshot, self.cache)
        return ReadSession(snapshot, tables, bindings, self.settings, self.embedder, self._stored_models)
