"""The changes of commits that were told before: they never change, and all who follow a branch ask for the same.

Only commits of a few changes are kept, which are those that many follow as they come. A large one is read anew by
each of its readers: it would push out what reads keep.
"""

from __future__ import annotations

import pickle
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Final, cast

from omnigraph.changes.change_records import EntityChange
from omnigraph.changes.cursors import Place
from omnigraph.changes.diff import CommitChanges
from omnigraph.engine.memory.memory_cache import Cache

MOST_CHANGES: Final = 256
MOST_BYTES: Final = 256 << 10
_OVERHEAD = 256


@dataclass(frozen=True, slots=True)
class KeptChanges:
    """The changes of a commit as bytes, so that nobody who gets them changes them for the next."""

    packed: bytes

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return len(self.packed) + _OVERHEAD

    def unpack(self) -> list[EntityChange]:
        """The changes, the caller's own."""
        return cast(list[EntityChange], pickle.loads(self.packed))


def tell_changes(opened: CommitChanges, place: Place | None, cache: Cache) -> Generator[EntityChange]:
    """What `CommitChanges.stream` gives, from memory when somebody was told all of it before."""
    family, version = ("changes", opened.wanted.fingerprint), opened.commit.id
    kept: KeptChanges | None = cache.get(family, version)
    if kept is not None:
        yield from (change for change in kept.unpack() if place is None or _is_behind(place, change))
        return
    told: list[EntityChange] = []
    with closing(opened.stream(place)) as stream:
        for change in stream:
            if len(told) <= MOST_CHANGES:
                told.append(change)
            yield change
    if place is None and len(told) <= MOST_CHANGES:
        found = KeptChanges(pickle.dumps(told, pickle.HIGHEST_PROTOCOL))
        if found.nbytes <= MOST_BYTES:
            cache.get_or_build(family, version, lambda: found)


def _is_behind(place: Place, change: EntityChange) -> bool:
    return (change.kind != "node", change.type_id, change.id) > (
        place.kind != "node",
        place.type_id,
        place.id,
    )
