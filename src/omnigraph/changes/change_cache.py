"""A cache of the changes of commits. They never change, and all readers of a branch request the same ones.

Only commits with few changes are cached, which are the ones that many readers follow. A large commit would evict
the data that reads have cached, so each reader computes its changes anew.
"""

from __future__ import annotations

import pickle
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Final, cast

from omnigraph.changes.change_records import EntityChange
from omnigraph.changes.commit_diff import CommitDiff
from omnigraph.changes.cursors import EntityKey
from omnigraph.engine.memory.memory_cache import Cache

MAX_CACHED_CHANGES: Final = 256
MAX_CACHED_BYTES: Final = 256 << 10
_OVERHEAD = 256


@dataclass(frozen=True, slots=True)
class CachedChanges:
    """The pickled changes of a commit, so that callers cannot modify the cached objects."""

    packed: bytes

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return len(self.packed) + _OVERHEAD

    def unpack(self) -> list[EntityChange]:
        """Return a copy of the changes."""
        return cast(list[EntityChange], pickle.loads(self.packed))


def stream_cached_changes(diff: CommitDiff, after: EntityKey | None, cache: Cache) -> Generator[EntityChange]:
    """Yield what `CommitDiff.stream` yields, from the cache if possible. Caches a complete small stream."""
    # Each commit is a family of its own: of a family only the last versions are kept, and polls reach further back.
    family = ("changes", diff.change_filter.fingerprint, diff.commit.id)
    cached: CachedChanges | None = cache.get(family, None)
    if cached is not None:
        yield from (item for item in cached.unpack() if after is None or item.key.order > after.order)
        return
    changes: list[EntityChange] = []
    with closing(diff.stream(after)) as stream:
        for change in stream:
            if len(changes) <= MAX_CACHED_CHANGES:
                changes.append(change)
            yield change
    if after is None and len(changes) <= MAX_CACHED_CHANGES:
        packed = CachedChanges(pickle.dumps(changes, pickle.HIGHEST_PROTOCOL))
        if packed.nbytes <= MAX_CACHED_BYTES:
            cache.get_or_build(family, None, lambda: packed)
