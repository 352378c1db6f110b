"""Leases of long reads: garbage collection keeps the commits that they read.

Garbage collection keeps every state of a short time, which is enough for most reads. A thread of the handle notices
a read that takes longer. It writes a lease for the commit and renews it until the read ends. Short reads cost no
request. The lease of a process that has ended has no effect.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from omnigraph.errors import OmnigraphError
from omnigraph.graph.recovery.leases import READ, RENEW_SECONDS, Lease
from omnigraph.store.objects.object_store import ObjectStore

# A read that takes longer than this many seconds has a lease. Retention keeps the states of a longer time.
LEASE_AFTER = 4.0
# Commits of Spark frames, which tell nobody when they are no longer used.
_MAX_HELD = 16


class ReadLeases:
    """The reads of one handle. A thread watches them while there are any."""

    def __init__(self, objects: ObjectStore, graph_id: str) -> None:
        self._objects = objects
        self._graph_id = graph_id
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        # The commit and the beginning of each read that is running.
        self._running: dict[int, tuple[str, float]] = {}
        self._held: OrderedDict[str, None] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def reading(self, commit_id: str) -> Iterator[None]:
        """Keep a commit for the duration of the block, from `LEASE_AFTER` seconds on."""
        number = next(self._numbers)
        with self._changed:
            self._running[number] = (commit_id, time.monotonic())
            self._start()
        try:
            yield
        finally:
            with self._changed:
                del self._running[number]

    def hold(self, commit_id: str) -> None:
        """Keep a commit until the handle is closed, or until so many others are held that it is the oldest."""
        with self._changed:
            self._held[commit_id] = None
            self._held.move_to_end(commit_id)
            while len(self._held) > _MAX_HELD:
                self._held.popitem(last=False)
            self._start()

    def close(self) -> None:
        """Remove the lease and end the thread."""
        with self._changed:
            self._closed = True
            self._held.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._watch, name="omnigraph-read-leases", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        lease: Lease | None = None
        written = 0.0
        while True:
            with self._changed:
                if not self._closed:
                    self._changed.wait(LEASE_AFTER / 2)
                commits = self._long_reads()
                idle = self._closed or not (self._running or self._held)
                if idle:
                    # The next read starts another thread.
                    self._thread = None
            now = time.monotonic()
            if lease is not None and idle:
                # A lease that cannot be removed expires.
                with suppress(OmnigraphError):
                    self._objects.delete(lease.key)
            if idle:
                return
            if lease is None and commits:
                lease = replace(Lease.new(READ, self._graph_id), commits=())
            if lease is not None and (lease.commits != commits or now - written >= RENEW_SECONDS):
                # The next turn tries again if storage fails.
                with suppress(OmnigraphError):
                    lease = replace(lease.renewed(), commits=commits)
                    self._objects.put(lease.key, lease.to_bytes())
                    written = now

    def _long_reads(self) -> tuple[str, ...]:
        since = time.monotonic() - LEASE_AFTER / 2
        long = {commit_id for commit_id, began in self._running.values() if began <= since}
        return tuple(sorted(long | self._held.keys()))
