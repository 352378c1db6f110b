"""Reservations of branches: a write that lost several races in a row asks the other writers to wait.

A write whose branch moved is prepared again. A slow preparation can lose every race against fast writers. After a
few losses the write reserves its branch: it creates an object below ``__recovery/``, which every write lists when
it begins. The other writers then wait until the object is gone, or for the time that its name states.

A reservation decides who goes first, never what is correct: the swap of the branch head stays the only
compare-and-swap. A writer that ignores a reservation, or removes one, can only delay the write that made it.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.graph.recovery.intents import RESERVATION_MARK, IntentOwner, this_process
from omnigraph.graph.recovery.process_identity import process_start, this_machine
from omnigraph.store.manifest.manifest_files import new_id
from omnigraph.store.manifest.records import encode_body
from omnigraph.store.objects.object_store import ObjectStore

# Preparations that a write loses before it reserves its branch.
LOSSES_BEFORE_RESERVATION = 4
# A reservation lasts three times as long as the last preparation took, within these bounds.
_MIN_SECONDS = 0.5
_MAX_SECONDS = 15.0
_POLL_SECONDS = (0.002, 0.05)
_KEY = re.compile(rf"__recovery/(?P<id>\w+){re.escape(RESERVATION_MARK)}(?P<branch>\w+)-(?P<millis>\d+)")


@dataclass(frozen=True, slots=True)
class ReservationKey:
    """The parts of the name of a reservation: its id, which orders them by age, its branch and its duration."""

    id: str
    branch: str
    millis: int

    @classmethod
    def parse(cls, key: str) -> ReservationKey | None:
        """Return the parts of a key, or None if it is not the key of a reservation."""
        found = _KEY.fullmatch(key)
        return None if found is None else cls(found["id"], found["branch"], int(found["millis"]))

    def __str__(self) -> str:
        return f"__recovery/{self.id}{RESERVATION_MARK}{self.branch}-{self.millis}"

    @property
    def seconds(self) -> float:
        """The time that other writers wait."""
        return min(self.millis / 1000, _MAX_SECONDS)


class BranchReservation:
    """The reservation that one write makes when it needs one. A context manager, which removes it."""

    def __init__(self, objects: ObjectStore, branch: str) -> None:
        self._objects = objects
        self._branch = _digest(branch)
        self._key: ReservationKey | None = None
        self._began = time.monotonic()

    @property
    def id(self) -> str | None:
        """The id, which is smaller than that of every later reservation; None if the branch is not reserved."""
        return None if self._key is None else self._key.id

    def __enter__(self) -> BranchReservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._key is not None:
            # A reservation that cannot be removed ends after its time.
            with suppress(OmnigraphError):
                self._objects.delete(str(self._key))

    def begin_preparation(self, losses: int) -> None:
        """Reserve the branch if the write has lost often, for longer than the last preparation took."""
        now = time.monotonic()
        took, self._began = now - self._began, now
        if losses < LOSSES_BEFORE_RESERVATION:
            return
        seconds = min(max(3 * took, _MIN_SECONDS), _MAX_SECONDS)
        former = self._key
        id_ = new_id() if former is None else former.id
        self._key = ReservationKey(id_, self._branch, round(seconds * 1000))
        # Another writer may have removed the former one. Without a reservation the write competes as before.
        with suppress(OmnigraphError):
            self._objects.put(str(self._key), encode_body(this_process().to_body()).encode())
            if former is not None and former != self._key:
                self._objects.delete(str(former))


def wait_for_reservations(
    objects: ObjectStore,
    branch: str,
    keys: Iterable[str],
    own: str | None,
    list_keys: Callable[[], Iterable[str]],
) -> bool:
    """Wait for the reservations of a branch that are older than the own one; return whether there were any.

    `keys` are the listed reservations, `own` is the id of the reservation of this write, and `list_keys` lists them
    again. A reservation whose time is over, or whose process has ended, is removed.
    """
    first = _first_of(branch, keys, own)
    if first is None:
        return False
    waiting_for: dict[str, float] = {}
    pause = _POLL_SECONDS[0]
    while first is not None:
        now = time.monotonic()
        if first.id not in waiting_for:
            waiting_for[first.id] = now
            if _has_ended(objects, first):
                waiting_for[first.id] = now - first.seconds
        if now - waiting_for[first.id] >= first.seconds:
            objects.delete(str(first))
        else:
            time.sleep(pause)
            pause = min(2 * pause, _POLL_SECONDS[1])
        first = _first_of(branch, list_keys(), own)
    return True


def _first_of(branch: str, keys: Iterable[str], own: str | None) -> ReservationKey | None:
    """Return the oldest reservation of a branch that this write waits for."""
    digest = _digest(branch)
    found = (ReservationKey.parse(key) for key in keys)
    others = [
        key for key in found if key is not None and key.branch == digest and (own is None or key.id < own)
    ]
    return min(others, key=lambda key: key.id, default=None)


def _has_ended(objects: ObjectStore, key: ReservationKey) -> bool:
    """Return whether the process of a reservation was one of this machine and has ended."""
    try:
        owner = IntentOwner(**json.loads(objects.get(str(key)).data))
    except (NotFound, ValueError, TypeError):
        return False
    return owner.machine == this_machine() and process_start(owner.pid) != owner.started


def _digest(branch: str) -> str:
    return hashlib.blake2b(branch.encode(), digest_size=8).hexdigest()
