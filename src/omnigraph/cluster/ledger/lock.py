"""The lock of a cluster: one operation at a time. It never expires by itself.

The compare-and-swap of the ledger protects the ledger without the lock. The lock keeps two operations from moving
the same graphs at the same time. A killed process leaves its lock behind, and an operator removes it by its id.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from ulid import ULID

from omnigraph.cluster.diagnostics import ClusterFailure, Diagnostic, error, reason, warning
from omnigraph.cluster.ledger.storage import FOLDER, ClusterStorage
from omnigraph.errors import NotFound, OmnigraphError

LOCK_KEY: Final = f"{FOLDER}/lock.json"
_MEMBERS: Final = {"version", "lock_id", "operation", "created_at", "pid"}
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ClusterLock:
    """A held lock."""

    lock_id: str
    operation: str
    created_at: str
    pid: int

    @property
    def age_seconds(self) -> int | None:
        """The age of the lock; None if its time is not valid."""
        try:
            created = datetime.fromisoformat(self.created_at)
            return max(0, int((datetime.now(UTC) - created).total_seconds()))
        except (ValueError, TypeError):
            return None

    def to_bytes(self) -> bytes:
        """Return the content of the lock file."""
        document = {
            "version": _VERSION,
            "lock_id": self.lock_id,
            "operation": self.operation,
            "created_at": self.created_at,
            "pid": self.pid,
        }
        return json.dumps(document).encode() + b"\n"


def acquire_lock(storage: ClusterStorage, operation: str) -> ClusterLock:
    """Take the lock. Raises `ClusterFailure`: with `state_lock_held` and what to do if another process has it."""
    lock = ClusterLock(str(ULID()), operation, timestamp(), os.getpid())
    try:
        if storage.objects.create_if_absent(LOCK_KEY, lock.to_bytes()):
            return lock
        held = read_lock(storage)
    except OmnigraphError as failure:
        if isinstance(failure, ClusterFailure):
            raise
        raise ClusterFailure(error("state_lock_error", storage.path(LOCK_KEY), reason(failure))) from failure
    raise ClusterFailure(error("state_lock_held", storage.path(LOCK_KEY), _held_message(held)))


def _held_message(held: ClusterLock | None) -> str:
    if held is None:
        return "another operation has just released the lock: run the command again"
    age = "" if held.age_seconds is None else f" for {held.age_seconds} seconds"
    return (
        f"`cluster {held.operation}` of process {held.pid} holds the lock {held.lock_id}{age}: wait for it; if "
        f"that process has ended, run `omnigraph cluster force-unlock {held.lock_id}`"
    )


def read_lock(storage: ClusterStorage) -> ClusterLock | None:
    """Return the held lock, or None. Raises `ClusterFailure` if it cannot be read."""
    path = storage.path(LOCK_KEY)
    try:
        data = storage.objects.get(LOCK_KEY).data
    except NotFound:
        return None
    except OmnigraphError as failure:
        raise ClusterFailure(error("state_lock_read_error", path, reason(failure))) from failure
    try:
        document: dict[str, Any] = json.loads(data)
        if document["version"] != _VERSION:
            message = f"the lock has version {document['version']!r}, this release reads version {_VERSION}"
            raise ClusterFailure(error("unsupported_state_lock_version", path, message))
        if document.keys() != _MEMBERS:
            raise ValueError("its members are not those of a lock")
        return ClusterLock(
            str(document["lock_id"]), str(document["operation"]), str(document["created_at"]), document["pid"]
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as failure:
        message = f"the lock file is not valid: {failure}; if no operation is running, delete it"
        raise ClusterFailure(error("invalid_state_lock", path, message)) from failure


def release_lock(storage: ClusterStorage, lock: ClusterLock) -> tuple[Diagnostic, ...]:
    """Remove the lock if it is still this one. A failure is a warning: the operation itself is done."""
    try:
        held = read_lock(storage)
        if held is not None and held.lock_id == lock.lock_id:
            storage.objects.delete(LOCK_KEY)
    except OmnigraphError as failure:
        message = f"the lock {lock.lock_id} is left behind, remove it with force-unlock: {reason(failure)}"
        return (warning("state_lock_error", storage.path(LOCK_KEY), message),)
    return ()


def remove_lock(storage: ClusterStorage, lock_id: str) -> None:
    """Remove the lock with an id. Raises `ClusterFailure` if there is none, or another one."""
    path = storage.path(LOCK_KEY)
    held = read_lock(storage)
    if held is None:
        raise ClusterFailure(error("state_lock_missing", path, "no lock is held"))
    if held.lock_id != lock_id:
        message = f"the held lock is {held.lock_id} of `cluster {held.operation}`, not {lock_id}"
        raise ClusterFailure(error("state_lock_id_mismatch", path, message))
    try:
        storage.objects.delete(LOCK_KEY)
    except OmnigraphError as failure:
        raise ClusterFailure(error("state_lock_error", path, reason(failure))) from failure


def timestamp() -> str:
    """Return the current time in UTC, as records contain it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
