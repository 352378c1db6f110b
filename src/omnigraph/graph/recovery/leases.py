"""Leases: objects that hold back garbage collection of a graph that is read, and that lock the target of a copy.

The objects are below ``__leases/``:

- ``<id>.json`` in a graph that a copy or a long read reads. Garbage collection keeps the commits that it names.
- ``target.json`` in the place that a copy writes. It admits one writer, and it marks a place whose copy is not
  finished, so that a later run continues it.

The owner renews a lease until it ends. A lease whose owner is dead has no effect, and is removed or taken over. A
copy is complete even if its lease was taken for dead, because every file is checked before the copy is published.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from omnigraph.errors import Conflict, NotFound, OmnigraphError
from omnigraph.graph.recovery.intents import IntentOwner, this_process
from omnigraph.graph.recovery.process_identity import process_start, this_machine
from omnigraph.lang.temporal import epoch_micros
from omnigraph.store.manifest.manifest_files import new_id
from omnigraph.store.manifest.records import encode_body
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import propagate_context

PREFIX = "__leases/"
TARGET = f"{PREFIX}target.json"
RENEW_SECONDS = 10.0
# The operation of leases of long reads. They need tables, and no old version of `__manifest`.
READ = "read"
# Larger than any plausible difference between the clocks of two machines plus a few missed renewals. A process of
# the same machine that has ended is recognized at once.
EXPIRY_SECONDS = 300.0
_MICROS = 1_000_000
# The locks of targets that this process holds, by the id of the lease.
_HELD: Final[set[str]] = set()


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease. `owner` is None after its run failed; the next run takes it over.

    `commits` are the commits whose files are being copied, or None for all commits. `graph_id` and `operation` tell
    what a target holds.
    """

    id: str
    operation: str
    graph_id: str
    owner: IntentOwner | None
    created_at: int
    renewed_at: int
    commits: tuple[str, ...] | None = None

    @classmethod
    def new(cls, operation: str, graph_id: str) -> Lease:
        """Return a lease of this process on all commits."""
        now = _now()
        return cls(new_id(), operation, graph_id, this_process(), now, now)

    @property
    def is_of_read(self) -> bool:
        """Whether the lease is that of a read, and not that of a copy."""
        return self.operation == READ

    @property
    def key(self) -> str:
        """The key of the object."""
        return f"{PREFIX}{self.id}.json"

    def to_bytes(self) -> bytes:
        """Return the JSON form."""
        body: dict[str, Any] = {
            "id": self.id,
            "operation": self.operation,
            "graph_id": self.graph_id,
            "owner": None if self.owner is None else self.owner.to_body(),
            "created_at": self.created_at,
            "renewed_at": self.renewed_at,
            "commits": None if self.commits is None else list(self.commits),
        }
        return encode_body(body).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Lease | None:
        """Parse the JSON form; None if it cannot be parsed."""
        try:
            body = json.loads(data)
            owner, commits = body["owner"], body["commits"]
            return cls(
                id=str(body["id"]),
                operation=str(body["operation"]),
                graph_id=str(body["graph_id"]),
                owner=None if owner is None else IntentOwner(**owner),
                created_at=int(body["created_at"]),
                renewed_at=int(body["renewed_at"]),
                commits=None if commits is None else tuple(map(str, commits)),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def is_live(self, modified: int, store_now: int | None = None) -> bool:
        """Return whether the owner may be alive. `modified` is the time of the last write of the object.

        `store_now` is the present time of the store, if it is known. Without it the clock of this machine is used.
        """
        if self.owner is None:
            return False
        if self.owner.machine == this_machine():
            return process_start(self.owner.pid) == self.owner.started
        age = _now() - max(self.renewed_at, modified) if store_now is None else store_now - modified
        return age < EXPIRY_SECONDS * _MICROS

    def renewed(self) -> Lease:
        """Return the lease with the present time."""
        return replace(self, renewed_at=_now())


@dataclass(frozen=True, slots=True)
class FoundLeases:
    """The leases of a graph: those in effect, and the keys of those whose owner is dead."""

    live: tuple[Lease, ...] = ()
    dead_keys: tuple[str, ...] = ()


def find_leases(objects: ObjectStore, store_now: int | None = None) -> FoundLeases:
    """Return the leases of copies that read a graph, with one listing and one read for each lease.

    `store_now` is the present time of the store in microseconds, if it is known.
    """
    live: list[Lease] = []
    dead: list[str] = []
    for info in objects.list(PREFIX.rstrip("/")):
        lease = _read(objects, info)
        if lease is None:
            continue
        if lease.is_live(epoch_micros(info.last_modified), store_now):
            # The lock of a target does not hold commits of the graph there.
            live += [lease] if info.key != TARGET else []
        else:
            dead.append(info.key)
    return FoundLeases(tuple(live), tuple(dead))


def _read(objects: ObjectStore, info: ObjectInfo) -> Lease | None:
    """Return a listed lease, or None if it has ended. An unreadable one holds all commits until it expires."""
    try:
        lease = Lease.from_bytes(objects.get(info.key).data)
    except NotFound:
        return None
    if lease is not None:
        return lease
    written = epoch_micros(info.last_modified)
    return Lease(info.key, "unknown", "", IntentOwner("", 0, ""), written, written)


class HeldLease:
    """A lease of this process, with a thread that renews it."""

    def __init__(self, objects: ObjectStore, lease: Lease) -> None:
        self._objects = objects
        self._lease = lease
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=propagate_context(self._renew), name=f"lease-{lease.id}", daemon=True
        )

    def narrow(self, commits: Iterator[str] | tuple[str, ...]) -> None:
        """Hold these commits only."""
        with self._lock:
            self._lease = replace(self._lease, commits=tuple(commits), renewed_at=_now())
            self._objects.put(self._lease.key, self._lease.to_bytes())

    def start(self) -> None:
        """Write the lease and begin to renew it."""
        self._objects.put(self._lease.key, self._lease.to_bytes())
        self._thread.start()

    def end(self) -> None:
        """Stop to renew the lease, and remove it. A lease that cannot be removed expires."""
        self._stopped.set()
        self._thread.join()
        with suppress(OmnigraphError):
            self._objects.delete(self._lease.key)

    def _renew(self) -> None:
        while not self._stopped.wait(RENEW_SECONDS):
            with suppress(OmnigraphError), self._lock:
                self._lease = self._lease.renewed()
                self._objects.put(self._lease.key, self._lease.to_bytes())


@contextmanager
def hold_lease(objects: ObjectStore, operation: str, graph_id: str) -> Iterator[HeldLease]:
    """Hold back the garbage collection of a graph for the duration of the block.

    Raises `StorageError` if the lease cannot be written, for example because the storage is read-only.
    """
    held = HeldLease(objects, Lease.new(operation, graph_id))
    held.start()
    try:
        yield held
    finally:
        held.end()


class TargetLock:
    """The lock of a place that this process writes a copy to. `taken_over` is set after a run that failed there."""

    def __init__(self, objects: ObjectStore, lease: Lease, etag: str, *, taken_over: bool) -> None:
        self.taken_over = taken_over
        self._objects = objects
        self._lease = lease
        self._etag: str | None = etag
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        _HELD.add(lease.id)
        self._thread = threading.Thread(
            target=propagate_context(self._renew), name=f"target-{lease.id}", daemon=True
        )
        self._thread.start()

    @classmethod
    def acquire(cls, objects: ObjectStore, operation: str, graph_id: str, *, resume: bool) -> TargetLock:
        """Lock a place; `Conflict` if another process writes there.

        A lock whose owner is dead is taken over. With `resume`, which is for a place without a graph, it must be
        that of the same operation on the same graph.
        """
        lease = Lease.new(operation, graph_id)
        if objects.create_if_absent(TARGET, lease.to_bytes()):
            return cls(objects, lease, objects.get(TARGET).etag, taken_over=False)
        try:
            stored = objects.get(TARGET)
            modified = epoch_micros(objects.head(TARGET).last_modified)
        except NotFound:
            raise _busy(objects, "another process") from None
        other = Lease.from_bytes(stored.data)
        if other is not None and _is_held(other, modified):
            owner = other.owner
            raise _busy(objects, f"process {owner.pid}" if owner is not None else "another process")
        if resume and other is not None and (other.operation, other.graph_id) != (operation, graph_id):
            raise Conflict(
                f"{objects.location} holds an unfinished {other.operation} of another graph",
                details={"uri": str(objects.location), "graph_id": other.graph_id},
                hint="choose an empty place, or remove the files there",
            )
        etag = objects.replace_if_matches(TARGET, lease.to_bytes(), stored.etag)
        if etag is None:
            raise _busy(objects, "another process")
        return cls(objects, lease, etag, taken_over=True)

    def check(self) -> None:
        """Raise `Conflict` if another process took this one for dead and took over the lock."""
        with self._lock:
            if self._etag is None:
                raise _busy(self._objects, "another process")

    def release(self, *, finished: bool) -> None:
        """Remove the lock, or leave it without an owner as the mark of an unfinished copy."""
        self._stopped.set()
        self._thread.join()
        # The mark cannot be written if the disk is full.
        _HELD.discard(self._lease.id)
        with suppress(OmnigraphError):
            if finished:
                self._objects.delete(TARGET)
            elif self._etag is not None:
                unowned = replace(self._lease, owner=None)
                self._objects.replace_if_matches(TARGET, unowned.to_bytes(), self._etag)

    def _renew(self) -> None:
        while not self._stopped.wait(RENEW_SECONDS):
            with suppress(OmnigraphError), self._lock:
                if self._etag is None:
                    return
                self._lease = self._lease.renewed()
                etag = self._objects.replace_if_matches(TARGET, self._lease.to_bytes(), self._etag)
                self._etag = self._present_etag() if etag is None else etag

    def _present_etag(self) -> str | None:
        """Return the tag of the lock if this process still owns it: the reply to a renewal may have been lost."""
        try:
            stored = self._objects.get(TARGET)
        except NotFound:
            return None
        present = Lease.from_bytes(stored.data)
        return stored.etag if present is not None and present.id == self._lease.id else None


def _is_held(lease: Lease, modified: int) -> bool:
    """Return whether a run may be writing to the place of a lock.

    A run that failed may have been unable to say so. Its process can live on, but does not renew the lock.
    """
    if lease.owner == this_process():
        return lease.id in _HELD
    age = _now() - max(lease.renewed_at, modified)
    return lease.is_live(modified) and age < EXPIRY_SECONDS * _MICROS


def has_unfinished_copy(objects: ObjectStore) -> bool:
    """Return whether a place holds a copy that is not finished."""
    try:
        objects.head(TARGET)
    except NotFound:
        return False
    return True


def _busy(objects: ObjectStore, owner: str) -> Conflict:
    return Conflict(
        f"{owner} is writing a copy to {objects.location}",
        details={"uri": str(objects.location)},
        hint="wait until it has ended",
    )


def _now() -> int:
    return time.time_ns() // 1000
