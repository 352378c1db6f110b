"""Intents: what a bulk writer leaves behind so that its work survives it.

Objects below ``__recovery/``, all named by the operation's id:

- ``<id>.json``, the intent: who does what to which branch; once confirmed, the complete plan;
- ``<id>.lease``, a heartbeat that says the owner lives;
- ``<id>.outcome``, made once by whoever gets there first: the owner before its swap, or a healer that discards;
- ``<id>.probe``, of a healer that asks the store what time it is.

The lease is a courtesy and may be wrong about a paused owner. The outcome object is what makes that harmless.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from omnigraph.errors import Conflict, NotFound, OmnigraphError, RecoveryRequired
from omnigraph.graph.write_plan import Plan
from omnigraph.store.manifest.records import encode_body
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import propagate_context

PREFIX = "__recovery/"
LEASE_SECONDS = 30.0
# Operations that threads of this process are busy with: what is not among them has been left behind.
_RUNNING: set[str] = set()
Outcome: TypeAlias = Literal["publishing", "discarded"]
# The states in which Linux lists a process that has ended.
_ENDED = frozenset("ZXx")


@dataclass(frozen=True, slots=True)
class Owner:
    """The process behind an intent; `started` tells it from a later process with the same number."""

    machine: str
    pid: int
    started: str

    def to_body(self) -> dict[str, Any]:
        """The JSON form."""
        return {"machine": self.machine, "pid": self.pid, "started": self.started}


# Of an intent that waits for the process that will do its work.
HELD = Owner("held", 0, "")


@dataclass(frozen=True, slots=True)
class Intent:
    """An interrupted or running bulk write. `plan` is None until it is confirmed.

    `held` is for how many seconds one that is nobody's yet waits for its owner.
    """

    id: str
    operation: str
    actor: str | None
    branch: str
    incarnation: str
    base: str
    owner: Owner
    created_at: int
    plan: Plan | None = None
    held: float = 0.0

    def to_bytes(self) -> bytes:
        """The JSON form."""
        return encode_body(
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
                "held": self.held,
            }
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes, id_: str) -> Intent:
        """Read the JSON form; `RecoveryRequired` when it cannot be read, and the object stays."""
        try:
            body = json.loads(data)
            return cls(
                id=body["id"],
                operation=body["operation"],
                actor=body["actor"],
                branch=body["branch"],
                incarnation=body["incarnation"],
                base=body["base"],
                owner=Owner(**body["owner"]),
                created_at=int(body["created_at"]),
                plan=None if body["plan"] is None else Plan.from_body(body["plan"]),
                held=float(body.get("held", 0.0)),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecoveryRequired(
                f"the intent of operation {id_} cannot be read",
                details={"operation_id": id_, "cause": repr(error)},
                hint=f"inspect {PREFIX}{id_}.json; `omnigraph repair --confirm --force` gives it up; "
                "reading with mode='r' still works",
            ) from error


@dataclass(frozen=True, slots=True)
class Pending:
    """Operations that have an intent, and objects that have lost theirs."""

    ids: tuple[str, ...]
    strays: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.ids or self.strays)


class Intents:
    """The intents of one graph. Who may not write cannot ask the store for the time, and goes by the clock here."""

    def __init__(
        self, objects: ObjectStore, lease_seconds: float = LEASE_SECONDS, *, writable: bool = True
    ) -> None:
        self._objects = objects
        self._writable = writable
        self.lease_seconds = lease_seconds

    def pending(self) -> Pending:
        """What lies in ``__recovery/``; one request, nothing in the steady state."""
        keys = {item.key for item in self._objects.list(PREFIX.rstrip("/"))}
        intents = {key for key in keys if key.endswith(".json")}
        owned = {key.removesuffix(".json") for key in intents}
        strays = {key for key in keys - intents if key.rsplit(".", 1)[0] not in owned}
        ids = sorted(key.removeprefix(PREFIX).removesuffix(".json") for key in intents)
        return Pending(tuple(ids), tuple(sorted(strays)))

    def tidy(self, pending: Pending) -> None:
        """Remove what an interrupted removal left: without its intent a lease or an outcome holds nobody up."""
        self._objects.delete_many(pending.strays)

    def read(self, id_: str) -> Intent | None:
        """An intent, or None when it is gone."""
        try:
            return Intent.from_bytes(self._objects.get(f"{PREFIX}{id_}.json").data, id_)
        except NotFound:
            return None

    def write(self, intent: Intent) -> str:
        """Put an intent; gives the tag that it is replaced by."""
        return self._objects.put(f"{PREFIX}{intent.id}.json", intent.to_bytes())

    def create(self, intent: Intent) -> bool:
        """Put an intent unless there is one of its id; whether this call did."""
        return self._objects.create_if_absent(f"{PREFIX}{intent.id}.json", intent.to_bytes())

    def replace_if_matches(self, intent: Intent, tag: str) -> str | None:
        """Replace an intent that nobody has touched; None when a healer has removed it meanwhile."""
        return self._objects.replace_if_matches(f"{PREFIX}{intent.id}.json", intent.to_bytes(), tag)

    def take_over(self, id_: str, owner: Owner) -> str | None:
        """Make an intent that is held somebody's own; its tag, or None when it is gone or taken."""
        try:
            found = self._objects.get(f"{PREFIX}{id_}.json")
        except NotFound:
            return None
        intent = Intent.from_bytes(found.data, id_)
        return (
            self.replace_if_matches(replace(intent, owner=owner, held=0.0), found.etag)
            if intent.owner == HELD
            else None
        )

    def beat(self, id_: str, ahead: float = 0.0) -> None:
        """Say that the owner lives, or will be heard of after so many seconds."""
        self._objects.put(f"{PREFIX}{id_}.lease", str(time.time() + ahead).encode())

    def claim_outcome(self, id_: str, outcome: Outcome) -> Outcome | None:
        """Decide an operation's outcome, once: gives the one that holds, or None when it has been settled.

        The outcome object is the last to be removed. Whoever comes late may therefore make it anew, and tells by
        the missing intent that nothing is left to decide.
        """
        held = self._decide(id_, outcome)
        if held is not None and self.read(id_) is not None:
            return held
        self._objects.delete(f"{PREFIX}{id_}.outcome")
        return None

    def fence(self, id_: str) -> Outcome | None:
        """Keep the owner of an intent that cannot be read from publishing; gives the outcome that holds."""
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
        """Forget an operation. The intent goes first: once it is gone, a paused owner cannot publish any more."""
        self._objects.delete(f"{PREFIX}{id_}.json")
        self._objects.delete_many(f"{PREFIX}{id_}.{kind}" for kind in ("lease", "outcome", "probe"))

    def is_abandoned(self, intent: Intent) -> bool:
        """Whether the owner is gone, as far as can be told from here."""
        owner = intent.owner
        if owner.machine == this_machine():
            if owner.pid == os.getpid() and owner.started == process_start(owner.pid):
                return intent.id not in _RUNNING
            return process_start(owner.pid) != owner.started
        return not self.is_heard(intent.id, intent)

    def is_heard(self, id_: str, intent: Intent | None = None) -> bool:
        """Whether an owner has been heard of lately. Without its intent, which nobody can read, the lease decides.

        An owner says when by its own clock. That is believed where it is plausible by the clock here, which only
        puts healing off, if anything. Otherwise one of the two is wrong, or the owner is dead: the store knows.
        """
        begun, held = (0.0, 0.0) if intent is None else (intent.created_at / 1_000_000, intent.held)
        patience = self.lease_seconds + held
        try:
            claimed = float(self._objects.get(f"{PREFIX}{id_}.lease").data) - held
        except (NotFound, ValueError):
            claimed = begun
        return 0 <= time.time() - claimed < patience or self._silence(id_, intent) < patience

    def _silence(self, id_: str, intent: Intent | None) -> float:
        """For how many seconds an owner has written nothing, all by the clock of the store."""
        intended, lease, probe = (f"{PREFIX}{id_}.{kind}" for kind in ("json", "lease", "probe"))
        if self._writable:
            self._objects.put(probe, str(time.time()).encode())
        written = {item.key: item.last_modified for item in self._objects.list(PREFIX.rstrip("/"))}
        now = written.get(probe) if self._writable else datetime.now(UTC)
        if intended not in written or now is None:
            # Settled by others meanwhile: nothing is left to ask about.
            if self._writable:
                self._objects.delete(probe)
            return 0.0
        # What has just been begun, or taken over, has no lease yet, or an old one.
        signs = [lease] if intent is None else [lease, intended]
        heard = max((written[key] for key in signs if key in written), default=None)
        return math.inf if heard is None else (now - heard).total_seconds()


class OwnedIntent:
    """An intent held by this process: begins, is confirmed, and ends, with a heartbeat meanwhile."""

    def __init__(self, intents: Intents, intent: Intent, tag: str) -> None:
        self._intents = intents
        self.intent = intent
        self._tag = tag
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=propagate_context(self._beat), name=f"lease-{intent.id}", daemon=True
        )

    @classmethod
    def begin(cls, intents: Intents, intent: Intent) -> OwnedIntent:
        """Write the intent before anything is staged. When it cannot be written nothing has happened."""
        _RUNNING.add(intent.id)
        try:
            tag = intents.write(intent)
            intents.beat(intent.id)
        except OmnigraphError:
            _RUNNING.discard(intent.id)
            raise
        owned = cls(intents, intent, tag)
        owned.start()
        return owned

    @classmethod
    def adopt(cls, intents: Intents, id_: str) -> OwnedIntent:
        """Take over an intent that is held; `Conflict` when it is over."""
        _RUNNING.add(id_)
        try:
            tag = intents.take_over(id_, this_process())
            if tag is None:
                raise discarded(id_, "while nobody had taken it up")
            intents.beat(id_)
            intent = intents.read(id_)
            if intent is None:
                raise discarded(id_, "while nobody had taken it up")
        except OmnigraphError:
            _RUNNING.discard(id_)
            raise
        owned = cls(intents, intent, tag)
        owned.start()
        return owned

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def confirm(self, plan: Plan) -> None:
        """Everything is staged: from here on the work outlives this process.

        `Conflict` when a healer took this process for dead and discarded it: what is gone stays gone.
        """
        confirmed = replace(self.intent, plan=plan)
        tag = self._intents.replace_if_matches(confirmed, self._tag)
        if tag is None:
            raise discarded(self.intent.id, "while its process was paused")
        self.intent, self._tag = confirmed, tag

    def enter_swap(self) -> None:
        """Claim the right to publish; `Conflict` when a healer took this process for dead and discarded it."""
        if self._intents.claim_outcome(self.intent.id, "publishing") != "publishing":
            raise discarded(self.intent.id, "while its process was paused")

    def end(self, *, keep: bool = False) -> str | None:
        """Stop the heartbeat and remove the intent; gives a warning when that fails: the next heal does it."""
        self._stopped.set()
        self._thread.join()
        try:
            if not keep:
                self._intents.remove(self.intent.id)
        except OmnigraphError as error:
            return f"the intent of operation {self.intent.id} could not be removed: {error.message}"
        finally:
            # Not before the intent is gone: another thread would take it for one that was left behind.
            _RUNNING.discard(self.intent.id)
        return None

    def _beat(self) -> None:
        while not self._stopped.wait(self._intents.lease_seconds / 3):
            try:
                self._intents.beat(self.intent.id)
            except OmnigraphError:
                # A missed beat only makes a healer bolder, and the outcome object holds against that.
                continue


def hold_intent(intents: Intents, intent: Intent, seconds: float) -> str:
    """Write an intent that is nobody's yet and counts as alive for so long; its id.

    One of that id that is there already stays as it is, so that several processes can hold one together.
    """
    if intents.create(replace(intent, held=seconds)):
        intents.beat(intent.id, seconds)
    return intent.id


def discarded(id_: str, when: str) -> Conflict:
    """The error of work that recovery has given up."""
    return Conflict(
        f"operation {id_} was discarded by recovery {when}",
        details={"operation_id": id_},
        hint="nothing is visible; run it again",
    )


def this_process() -> Owner:
    """This process as the owner of an intent."""
    return Owner(this_machine(), os.getpid(), process_start(os.getpid()))


@cache
def this_machine() -> str:
    """What tells one machine, boot and process namespace from another."""
    parts = [socket.gethostname(), *_read_links("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid")]
    return "|".join(parts)


def _read_links(boot: str, namespace: str) -> Iterator[str]:
    if Path(boot).exists():
        yield Path(boot).read_text().strip()
    if Path(namespace).is_symlink():
        yield str(Path(namespace).readlink())


def process_start(pid: int) -> str:
    """When a process began, in the system's own words; empty when there is none.

    One that has ended and only waits for its parent to ask how counts as gone: it may have to wait for ever.

    >>> process_start(os.getpid()) != ""
    True
    """
    try:
        # The name in parentheses may itself hold spaces and parentheses.
        found = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return "" if found[0] in _ENDED else found[19]
    except (FileNotFoundError, ProcessLookupError):
        pass
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "alive"
    return "alive"
