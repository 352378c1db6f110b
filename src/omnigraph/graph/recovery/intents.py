"""Intents of bulk writes: objects in storage that allow recovery to complete or discard an interrupted write.

The objects of an operation are below ``__recovery/`` and have its id as their name:

- ``<id>.json``, the intent: operation, actor, branch and owner; after confirmation also the complete write plan;
- ``<id>.lease``, a heartbeat of the owner;
- ``<id>.outcome``, created once, by the owner before its swap or by a recovery process that discards the work;
- ``<id>.probe``, written by a recovery process to read the clock of the store.

Reservations of branches (`graph/reservations.py`) are listed with them.

The lease is advisory: it may expire while its owner is only paused. The outcome object makes this safe, because
owner and recovery process create it with create-if-absent and only one of them succeeds.
"""

from __future__ import annotations

import math
import os
import threading
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from omnigraph.errors import Conflict, NotFound, OmnigraphError, RecoveryRequired
from omnigraph.graph.recovery.process_identity import process_start, this_machine
from omnigraph.graph.write_plan import WritePlan
from omnigraph.lang.temporal import epoch_micros
from omnigraph.store.checked_json import decode_checked, encode_checked
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import propagate_context

PREFIX = "__recovery/"
LEASE_SECONDS = 30.0
# In the keys of reservations, between the id and the branch.
RESERVATION_MARK = ".reserves-"
# Operations that threads of this process work on. An intent of this process that is not listed is abandoned.
_RUNNING: set[str] = set()
Outcome: TypeAlias = Literal["publishing", "discarded"]


@dataclass(frozen=True, slots=True)
class IntentOwner:
    """The process that an intent belongs to. `started` distinguishes it from a later process with the same pid."""

    machine: str
    pid: int
    started: str

    def to_body(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"machine": self.machine, "pid": self.pid, "started": self.started}


# The owner of an intent that no process has claimed yet.
UNCLAIMED = IntentOwner("held", 0, "")


@dataclass(frozen=True, slots=True)
class Intent:
    """A running or interrupted bulk write. `plan` is None until the write is confirmed.

    `claim_timeout` is the number of seconds that an unclaimed intent waits for a process to claim it.
    `staged_since` is the time of the store, in microseconds, when the intent was written first. It is None until
    the intent is replaced, because the object has this time.
    """

    id: str
    operation: str
    actor: str | None
    branch: str
    incarnation: str
    base: str
    owner: IntentOwner
    created_at: int
    plan: WritePlan | None = None
    claim_timeout: float = 0.0
    staged_since: int | None = None

    def to_bytes(self) -> bytes:
        """Return the JSON form."""
        return encode_checked(
            {
                "id": self.id,
                "operation": self.operation,
                "actor": self.actor,
                "branch": self.branch,
                "incarnation": self.incarnation,
                "base": self.base,
                "owner": self.owner.to_body(),
                "created_at": self.created_at,
                "state": "staging" if self.plan is None else "confirmed",
                "plan": None if self.plan is None else self.plan.to_body(),
                "held": self.claim_timeout,
                **({} if self.staged_since is None else {"staged_since": self.staged_since}),
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, id_: str) -> Intent:
        """Parse the JSON form; `RecoveryRequired` if it cannot be parsed. The object is not removed."""
        try:
            body = decode_checked(data)
            return cls(
                id=body["id"],
                operation=body["operation"],
                actor=body["actor"],
                branch=body["branch"],
                incarnation=body["incarnation"],
                base=body["base"],
                owner=IntentOwner(**body["owner"]),
                created_at=int(body["created_at"]),
                plan=None if body["plan"] is None else WritePlan.from_body(body["plan"]),
                claim_timeout=float(body.get("held", 0.0)),
                staged_since=body.get("staged_since"),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecoveryRequired(
                f"the intent of operation {id_} cannot be read: {error!r}",
                details={"operation_id": id_, "cause": repr(error)},
                hint=f"inspect {PREFIX}{id_}.json; `omnigraph repair --confirm --force` discards the operation; "
                "reading with mode='r' still works",
            ) from error


@dataclass(frozen=True, slots=True)
class PendingOperations:
    """The ids of operations that have an intent, and the keys of objects whose intent was removed.

    `reservations` are the keys of reservations of branches. They need no recovery.
    """

    ids: tuple[str, ...]
    stray_keys: tuple[str, ...]
    reservations: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ids or self.stray_keys)


class Intents:
    """The intents of one graph.

    A reader without write access cannot write a probe to read the clock of the store. It uses the local clock.
    """

    def __init__(
        self, objects: ObjectStore, lease_seconds: float = LEASE_SECONDS, *, writable: bool = True
    ) -> None:
        self._objects = objects
        self._writable = writable
        self.lease_seconds = lease_seconds

    def pending(self) -> PendingOperations:
        """List ``__recovery/`` with one request. It is empty when no bulk write is running."""
        keys = {item.key for item in self._objects.list(PREFIX.rstrip("/"))}
        reservations = {key for key in keys if RESERVATION_MARK in key}
        keys -= reservations
        intents = {key for key in keys if key.endswith(".json")}
        owned = {key.removesuffix(".json") for key in intents}
        strays = {key for key in keys - intents if key.rsplit(".", 1)[0] not in owned}
        ids = sorted(key.removeprefix(PREFIX).removesuffix(".json") for key in intents)
        return PendingOperations(tuple(ids), tuple(sorted(strays)), tuple(sorted(reservations)))

    def with_times(self) -> list[tuple[Intent, int]]:
        """Return the pending intents, each with the time of the store when it was written first.

        Everything that is staged under an intent is at least as new. One request lists the intents.
        """
        found: list[tuple[Intent, int]] = []
        for item in list(self._objects.list(PREFIX.rstrip("/"))):
            if item.key.endswith(".json"):
                intent = self.read(item.key.removeprefix(PREFIX).removesuffix(".json"))
                if intent is not None:
                    written = epoch_micros(item.last_modified)
                    found.append((intent, min(written, intent.staged_since or written)))
        return found

    def remove_strays(self, pending: PendingOperations) -> None:
        """Delete leases and outcomes whose intent is gone. An interrupted `remove` leaves them behind."""
        self._objects.delete_many(pending.stray_keys)

    def read(self, id_: str) -> Intent | None:
        """Return an intent, or None if there is none."""
        try:
            return Intent.from_bytes(self._objects.get(f"{PREFIX}{id_}.json").data, id_)
        except NotFound:
            return None

    def write(self, intent: Intent) -> str:
        """Write an intent and return its entity tag."""
        return self._objects.put(f"{PREFIX}{intent.id}.json", intent.to_bytes())

    def create(self, intent: Intent) -> bool:
        """Write an intent if there is none with its id; return whether this call did."""
        return self._objects.create_if_absent(f"{PREFIX}{intent.id}.json", intent.to_bytes())

    def replace_if_matches(self, intent: Intent, etag: str) -> str | None:
        """Replace an intent if it still has `etag`; return the new tag, or None if recovery removed the intent."""
        return self._objects.replace_if_matches(f"{PREFIX}{intent.id}.json", intent.to_bytes(), etag)

    def claim(self, id_: str, owner: IntentOwner) -> str | None:
        """Set the owner of an unclaimed intent; return its entity tag, or None if it is gone or has an owner."""
        try:
            written = self.time_of(id_)
            stored = self._objects.get(f"{PREFIX}{id_}.json")
        except NotFound:
            return None
        intent = Intent.from_bytes(stored.data, id_)
        if intent.owner != UNCLAIMED:
            return None
        claimed = replace(intent, owner=owner, claim_timeout=0.0, staged_since=written)
        return self.replace_if_matches(claimed, stored.etag)

    def time_of(self, id_: str) -> int:
        """Return the time of the store when an intent was last written; `NotFound` if there is none."""
        return epoch_micros(self._objects.head(f"{PREFIX}{id_}.json").last_modified)

    def renew_lease(self, id_: str, ahead: float = 0.0) -> None:
        """Write a heartbeat. `ahead` dates it that many seconds into the future."""
        self._objects.put(f"{PREFIX}{id_}.lease", str(time.time() + ahead).encode())

    def claim_outcome(self, id_: str, outcome: Outcome) -> Outcome | None:
        """Decide the outcome of an operation once; return the valid one, or None if the operation has ended.

        `remove` deletes the outcome object last. A late caller may therefore create it again. It recognizes
        from the missing intent that the operation has ended.
        """
        decided = self._decide(id_, outcome)
        if decided is not None and self.read(id_) is not None:
            return decided
        self._objects.delete(f"{PREFIX}{id_}.outcome")
        return None

    def fence(self, id_: str) -> Outcome | None:
        """Prevent the owner of an unreadable intent from publishing; return the outcome that holds."""
        return self._decide(id_, "discarded")

    def _decide(self, id_: str, outcome: Outcome) -> Outcome | None:
        key = f"{PREFIX}{id_}.outcome"
        if self._objects.create_if_absent(key, outcome.encode()):
            return outcome
        try:
            return "discarded" if self._objects.get(key).data == b"discarded" else "publishing"
        except NotFound:
            return None

    def remove(self, id_: str) -> None:
        """Delete the objects of an operation. The intent goes first: without it a paused owner cannot publish."""
        self._objects.delete(f"{PREFIX}{id_}.json")
        self._objects.delete_many(f"{PREFIX}{id_}.{kind}" for kind in ("lease", "outcome", "probe"))

    def is_abandoned(self, intent: Intent) -> bool:
        """Return whether the owner is dead, as far as this process can tell."""
        owner = intent.owner
        if owner.machine == this_machine():
            if owner.pid == os.getpid() and owner.started == process_start(owner.pid):
                return intent.id not in _RUNNING
            return process_start(owner.pid) != owner.started
        return not self.has_recent_heartbeat(intent.id, intent)

    def has_recent_heartbeat(self, id_: str, intent: Intent | None = None) -> bool:
        """Return whether the lease of an operation is valid. `intent` is None if it cannot be read.

        The heartbeat has the time of the owner's clock. It is accepted if it is plausible by the local clock; a
        wrong clock can then only delay recovery. Otherwise a clock is wrong or the owner is dead, and the
        modification times of the store decide.
        """
        created, timeout = (
            (0.0, 0.0) if intent is None else (intent.created_at / 1_000_000, intent.claim_timeout)
        )
        valid_for = self.lease_seconds + timeout
        try:
            heartbeat = float(self._objects.get(f"{PREFIX}{id_}.lease").data) - timeout
        except (NotFound, ValueError):
            heartbeat = created
        age = time.time() - heartbeat
        return 0 <= age < valid_for or self._seconds_since_write(id_, intent) < valid_for

    def _seconds_since_write(self, id_: str, intent: Intent | None) -> float:
        """Return the seconds since the last write of the owner, by the clock of the store."""
        intent_key, lease, probe = (f"{PREFIX}{id_}.{kind}" for kind in ("json", "lease", "probe"))
        if self._writable:
            self._objects.put(probe, str(time.time()).encode())
        modified = {item.key: item.last_modified for item in self._objects.list(PREFIX.rstrip("/"))}
        now = modified.get(probe) if self._writable else datetime.now(UTC)
        if intent_key not in modified or now is None:
            # The operation has ended meanwhile.
            if self._writable:
                self._objects.delete(probe)
            return 0.0
        # An operation that was just begun or claimed has no lease yet, or an old one. Its intent is newer.
        keys = [lease] if intent is None else [lease, intent_key]
        last = max((modified[key] for key in keys if key in modified), default=None)
        return math.inf if last is None else (now - last).total_seconds()


class OwnedIntent:
    """An intent that this process owns, with a thread that renews its lease."""

    def __init__(self, intents: Intents, intent: Intent, etag: str) -> None:
        self._intents = intents
        self.intent = intent
        self._etag = etag
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=propagate_context(self._renew_periodically), name=f"lease-{intent.id}", daemon=True
        )

    @classmethod
    def begin(cls, intents: Intents, intent: Intent) -> OwnedIntent:
        """Write an intent before anything is staged. After an error nothing has happened."""
        _RUNNING.add(intent.id)
        try:
            etag = intents.write(intent)
            intents.renew_lease(intent.id)
        except OmnigraphError:
            _RUNNING.discard(intent.id)
            raise
        owned = cls(intents, intent, etag)
        owned.start()
        return owned

    @classmethod
    def claim(cls, intents: Intents, id_: str) -> OwnedIntent:
        """Claim an unclaimed intent; `Conflict` if recovery discarded it or another process claimed it."""
        _RUNNING.add(id_)
        try:
            etag = intents.claim(id_, this_process())
            if etag is None:
                raise discarded_error(id_, "before a process claimed it")
            intents.renew_lease(id_)
            intent = intents.read(id_)
            if intent is None:
                raise discarded_error(id_, "before a process claimed it")
        except OmnigraphError:
            _RUNNING.discard(id_)
            raise
        owned = cls(intents, intent, etag)
        owned.start()
        return owned

    def start(self) -> None:
        """Start to renew the lease."""
        self._thread.start()

    def confirm(self, plan: WritePlan) -> None:
        """Store the plan after everything is staged. From here on, recovery completes the write after a crash.

        Raises `Conflict` if recovery took this process for dead and discarded the write.
        """
        id_ = self.intent.id
        try:
            written = self.intent.staged_since or self._intents.time_of(id_)
        except NotFound:
            raise discarded_error(id_, "while its process was paused") from None
        confirmed = replace(self.intent, plan=plan, staged_since=written)
        etag = self._intents.replace_if_matches(confirmed, self._etag)
        if etag is None:
            raise discarded_error(id_, "while its process was paused")
        self.intent, self._etag = confirmed, etag

    def claim_publish(self) -> None:
        """Claim the right to publish; `Conflict` if recovery took this process for dead and discarded the write."""
        if self._intents.claim_outcome(self.intent.id, "publishing") != "publishing":
            raise discarded_error(self.intent.id, "while its process was paused")

    def end(self, *, keep: bool = False) -> str | None:
        """Stop the heartbeat and remove the intent. If the removal fails, return a warning; recovery removes it."""
        self._stopped.set()
        self._thread.join()
        try:
            if not keep:
                self._intents.remove(self.intent.id)
        except OmnigraphError as error:
            return f"cannot remove the intent of operation {self.intent.id}, recovery will do it: {error.message}"
        finally:
            # Only after the intent is gone. Otherwise another thread would treat it as abandoned.
            _RUNNING.discard(self.intent.id)
        return None

    def _renew_periodically(self) -> None:
        while not self._stopped.wait(self._intents.lease_seconds / 3):
            try:
                self._intents.renew_lease(self.intent.id)
            except OmnigraphError:
                # A missed heartbeat may let recovery discard the write. The outcome object keeps that safe.
                continue


def lease_intent(intents: Intents, intent: Intent, seconds: float) -> str:
    """Write an unclaimed intent with a lease for some seconds; return its id.

    An existing intent with the same id is kept, so that several processes may lease it together.
    """
    if intents.create(replace(intent, claim_timeout=seconds)):
        intents.renew_lease(intent.id, seconds)
    return intent.id


def discarded_error(id_: str, when: str) -> Conflict:
    """Return the error for an operation that recovery discarded."""
    return Conflict(
        f"operation {id_} was discarded by recovery {when}",
        details={"operation_id": id_},
        hint="nothing is visible; run it again",
    )


def this_process() -> IntentOwner:
    """Return this process as the owner of an intent."""
    return IntentOwner(this_machine(), os.getpid(), process_start(os.getpid()))
