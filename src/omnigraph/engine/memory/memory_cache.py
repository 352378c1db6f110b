"""The read cache: an LRU cache bounded in bytes. Cached values affect the speed of reads, never their results."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from omnigraph.store.shared_reads import SharedReads


class Sized(Protocol):
    """A value that reports its memory use.

    Values of a family may share parts, such as the base of two versions. Such a value has a property `parts`: the
    objects that hold its memory. The pool counts every object once.
    """

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        ...


@dataclass(frozen=True, slots=True)
class _Overhead:
    """The estimated memory of the objects around the parts of a value."""

    nbytes: int


_OVERHEAD = _Overhead(512)
T = TypeVar("T", bound=Sized)
# A single value may take at most 1 / _MAX_SHARE of the budget.
_MAX_SHARE = 2
# The latest versions of a family that stay cached, if the caller names no other number. A process that writes adds
# a version with every commit.
MAX_VERSIONS = 8
# The use counters are reset when they hold more keys than this.
_MAX_COUNTED_KEYS = 4_096


@dataclass(frozen=True, slots=True)
class CacheStats:
    """The contents of a cache, and its hits and misses."""

    entries: int
    nbytes: int
    budget: int
    hits: int
    misses: int


@dataclass
class _Counters:
    """Hits and misses of one cache. Modified only under the lock of its pool."""

    hits: int = 0
    misses: int = 0
    closed: bool = False


class CachePool:
    """Memory that several caches share. Thread-safe.

    The least recently used value of all caches is evicted first. A missing value is built by one thread at a time.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[Hashable, Hashable], Any] = OrderedDict()
        # The versions of every family, the latest one last.
        self._versions: dict[Hashable, list[Hashable]] = {}
        # How many values hold an object, by the identity of the object, and its bytes.
        self._parts: dict[int, tuple[int, int]] = {}
        self._builds = SharedReads()
        self._uses: dict[tuple[Hashable, Hashable], int] = {}
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes in use by all caches."""
        with self._lock:
            return self._nbytes

    def get(self, family: Hashable, version: Hashable, counters: _Counters) -> Any | None:
        """Return a value, or None if it is not cached."""
        key = (family, version)
        with self._lock:
            value = self._entries.get(key)
            if value is None:
                counters.misses += 1
            else:
                counters.hits += 1
                self._entries.move_to_end(key)
            return value

    def latest(self, family: Hashable) -> Any | None:
        """Return the value of a family that was stored last, if it is still cached. Does not count as a use."""
        with self._lock:
            versions = self._versions.get(family)
            return self._entries[family, versions[-1]] if versions else None

    def versions(self, family: Hashable) -> list[Any]:
        """Return the cached values of a family, the latest one last. Does not count as a use."""
        with self._lock:
            return [self._entries[family, version] for version in self._versions.get(family, ())]

    def put(
        self, family: Hashable, version: Hashable, value: Sized, counters: _Counters, versions: int
    ) -> None:
        """Store a value. The last `versions` versions of its family stay cached."""
        self._store((family, version), value, counters, versions)

    def count_use(self, family: Hashable, version: Hashable) -> int:
        """Count a use of a value that is not cached, and return the number of such uses so far."""
        key = (family, version)
        with self._lock:
            if len(self._uses) > _MAX_COUNTED_KEYS:
                self._uses.clear()
            self._uses[key] = self._uses.get(key, 0) + 1
            return self._uses[key]

    def get_or_build(
        self,
        family: Hashable,
        version: Hashable,
        build: Callable[[], T],
        counters: _Counters,
        versions: int = MAX_VERSIONS,
    ) -> T:
        """Return a value; build it if it is not cached, and cache it if it fits."""
        key = (family, version)
        with self._builds.alone(key):
            value: T | None = self.get(family, version, counters)
            if value is None:
                value = build()
                self._store(key, value, counters, versions)
        return value

    def update(self, family: Hashable, build: Callable[[T | None], T], counters: _Counters) -> T:
        """Replace the value of a family without versions by one built from the cached value."""
        key = (family, None)
        with self._builds.alone(key):
            value = build(self.latest(family))
            self._store(key, value, counters, MAX_VERSIONS)
        return value

    def usage(self, selects: Callable[[Hashable], bool]) -> tuple[int, int]:
        """Return the number of values of the selected families, and their bytes."""
        with self._lock:
            values = [value for (family, _), value in self._entries.items() if selects(family)]
            parts = dict(part for value in values for part in _parts(value))
            return len(values), sum(self._size(identity, part) for identity, part in parts.items())

    def drop(self, selects: Callable[[Hashable], bool], counters: _Counters, *, close: bool) -> None:
        """Remove the selected families. With `close`, values that are still being built are not cached."""
        with self._lock:
            counters.closed = counters.closed or close
            for key in [key for key in self._entries if selects(key[0])]:
                self._remove(key)
            for key in [key for key in self._uses if selects(key[0])]:
                del self._uses[key]

    def forget(self, family: Hashable) -> None:
        """Remove all values of one family."""
        with self._lock:
            for version in list(self._versions.get(family, ())):
                self._remove((family, version))

    def _store(
        self, key: tuple[Hashable, Hashable], value: Sized, counters: _Counters, max_versions: int
    ) -> None:
        with self._lock:
            if counters.closed:
                return
            parts = [(identity, self._size(identity, part)) for identity, part in _parts(value)]
            if sum(nbytes for _, nbytes in parts) > self.budget // _MAX_SHARE:
                return
            self._remove(key)
            family, version = key
            self._entries[key] = value
            versions = self._versions.setdefault(family, [])
            versions.append(version)
            for identity, nbytes in parts:
                holders, _ = self._parts.get(identity, (0, 0))
                self._nbytes += 0 if holders else nbytes
                self._parts[identity] = (holders + 1, nbytes)
            while len(versions) > max_versions:
                self._remove((family, versions[0]))
            while self._nbytes > self.budget and self._entries:
                self._remove(next(iter(self._entries)))

    def _size(self, identity: int, part: Sized) -> int:
        """Return the bytes of an object. Asking Arrow takes long, so known sizes are kept."""
        known = self._parts.get(identity)
        return part.nbytes if known is None else known[1]

    def _remove(self, key: tuple[Hashable, Hashable]) -> None:
        value = self._entries.pop(key, None)
        if value is None:
            return
        family, version = key
        versions = self._versions[family]
        versions.remove(version)
        if not versions:
            del self._versions[family]
        for identity, _ in _parts(value):
            holders, nbytes = self._parts.pop(identity)
            if holders > 1:
                self._parts[identity] = (holders - 1, nbytes)
            else:
                self._nbytes -= nbytes


def _parts(value: Sized) -> Iterator[tuple[int, Sized]]:
    """Yield the objects that hold the memory of a value, each once, with their identities."""
    shared = getattr(value, "parts", None)
    if shared is None:
        yield id(value), value
        return
    yield id(value), _OVERHEAD
    yield from {id(part): part for part in shared}.items()


class Cache:
    """The cache of one graph, in a pool that it may share with others. Thread-safe.

    Keys are ``(family, version)``. A new version of a value can be built from the latest version in its family.
    Keys are private to a cache: graphs that share a pool and use equal table names and versions do not collide.

    >>> pool = CachePool(1_000)
    >>> one, other = Cache(pool), Cache(pool)
    >>> len(one.get_or_build("f", 1, lambda: memoryview(b"one"))), other.get("f", 1)
    (3, None)
    """

    def __init__(self, pool: CachePool | int) -> None:
        self._pool = CachePool(pool) if isinstance(pool, int) else pool
        self._counters = _Counters()

    @property
    def budget(self) -> int:
        """The byte limit of all caches in the pool together."""
        return self._pool.budget

    def get(self, family: Hashable, version: Hashable) -> Any | None:
        """Return a value, or None if it is not cached."""
        return self._pool.get((self, family), version, self._counters)

    def latest(self, family: Hashable) -> Any | None:
        """Return the value of a family that was stored last, if it is still cached. Does not count as a use."""
        return self._pool.latest((self, family))

    def versions(self, family: Hashable) -> list[Any]:
        """Return the cached values of a family, the latest one last. Does not count as a use."""
        return self._pool.versions((self, family))

    def put(self, family: Hashable, version: Hashable, value: Sized, versions: int = MAX_VERSIONS) -> None:
        """Store a value, or replace it by another form of it. The last `versions` of its family stay cached."""
        self._pool.put((self, family), version, value, self._counters, versions)

    def count_use(self, family: Hashable, version: Hashable) -> int:
        """Count a use of a value that is not cached, and return the number of such uses so far."""
        return self._pool.count_use((self, family), version)

    def fits(self, nbytes: int) -> bool:
        """Return whether a value of this size is cached. Larger values would evict most others."""
        return nbytes <= self.budget // _MAX_SHARE

    def get_or_build(
        self, family: Hashable, version: Hashable, build: Callable[[], T], versions: int = MAX_VERSIONS
    ) -> T:
        """Return a value; build it if it is not cached, and cache it if it fits."""
        return self._pool.get_or_build((self, family), version, build, self._counters, versions)

    def update(self, family: Hashable, build: Callable[[T | None], T]) -> T:
        """Replace the value of a family without versions by one built from the cached value."""
        return self._pool.update((self, family), build, self._counters)

    def stats(self) -> CacheStats:
        """Return the current contents of this cache, and its hits and misses."""
        entries, nbytes = self._pool.usage(self._owns)
        return CacheStats(entries, nbytes, self.budget, self._counters.hits, self._counters.misses)

    def drop(self, selects: Callable[[Any], bool]) -> None:
        """Remove the values of the selected families."""
        self._pool.drop(lambda family: self._owns(family, selects), self._counters, close=False)

    def forget(self, family: Hashable) -> None:
        """Remove all values of one family. Unlike `drop`, it does not look at the others."""
        self._pool.forget((self, family))

    def clear(self) -> None:
        """Remove all values."""
        self._pool.drop(self._owns, self._counters, close=False)

    def close(self) -> None:
        """Remove all values and cache no more. Later values are built and returned, but not cached."""
        self._pool.drop(self._owns, self._counters, close=True)

    def _owns(self, family: Hashable, selects: Callable[[Any], bool] | None = None) -> bool:
        return isinstance(family, tuple) and family[0] is self and (selects is None or selects(family[1]))
