"""The read cache: an LRU cache bounded in bytes. Cached values affect the speed of reads, never their results."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar


class Sized(Protocol):
    """A value that reports its memory use."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        ...


T = TypeVar("T", bound=Sized)
# A single value may take at most 1 / _MAX_SHARE of the budget.
_MAX_SHARE = 2
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
class _PendingBuild:
    """A build in progress, and the number of threads that run it or wait for it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    threads: int = 0


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
        self._latest: dict[Hashable, tuple[Hashable, Hashable]] = {}
        self._builds: dict[tuple[Hashable, Hashable], _PendingBuild] = {}
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
            key = self._latest.get(family)
            return None if key is None else self._entries.get(key)

    def count_use(self, family: Hashable, version: Hashable) -> int:
        """Count a use of a value that is not cached, and return the number of such uses so far."""
        key = (family, version)
        with self._lock:
            if len(self._uses) > _MAX_COUNTED_KEYS:
                self._uses.clear()
            self._uses[key] = self._uses.get(key, 0) + 1
            return self._uses[key]

    def get_or_build(
        self, family: Hashable, version: Hashable, build: Callable[[], T], counters: _Counters
    ) -> T:
        """Return a value; build it if it is not cached, and cache it if it fits."""
        key = (family, version)
        with self._building(key):
            value: T | None = self.get(family, version, counters)
            if value is None:
                value = build()
                self._store(key, value, counters)
        return value

    def update(self, family: Hashable, build: Callable[[T | None], T], counters: _Counters) -> T:
        """Replace the value of a family without versions by one built from the cached value."""
        key = (family, None)
        with self._building(key):
            value = build(self.latest(family))
            self._store(key, value, counters)
        return value

    def usage(self, selects: Callable[[Hashable], bool]) -> tuple[int, int]:
        """Return the number of values of the selected families, and their bytes."""
        with self._lock:
            sizes = [value.nbytes for (family, _), value in self._entries.items() if selects(family)]
            return len(sizes), sum(sizes)

    def drop(self, selects: Callable[[Hashable], bool], counters: _Counters, *, close: bool) -> None:
        """Remove the selected families. With `close`, values that are still being built are not cached."""
        with self._lock:
            counters.closed = counters.closed or close
            for key in [key for key in self._entries if selects(key[0])]:
                self._nbytes -= self._entries.pop(key).nbytes
            for family in [family for family in self._latest if selects(family)]:
                del self._latest[family]
            for key in [key for key in self._uses if selects(key[0])]:
                del self._uses[key]

    @contextmanager
    def _building(self, key: tuple[Hashable, Hashable]) -> Iterator[None]:
        """Hold the build lock of a key. The last thread to leave removes the lock, also after an error."""
        with self._lock:
            build = self._builds.setdefault(key, _PendingBuild())
            build.threads += 1
        try:
            with build.lock:
                yield
        finally:
            with self._lock:
                build.threads -= 1
                if not build.threads:
                    del self._builds[key]

    def _store(self, key: tuple[Hashable, Hashable], value: Sized, counters: _Counters) -> None:
        if value.nbytes > self.budget // _MAX_SHARE:
            return
        with self._lock:
            if counters.closed:
                return
            previous = self._entries.pop(key, None)
            self._nbytes -= 0 if previous is None else previous.nbytes
            self._entries[key] = value
            self._latest[key[0]] = key
            self._nbytes += value.nbytes
            while self._nbytes > self.budget:
                evicted_key, evicted = self._entries.popitem(last=False)
                self._nbytes -= evicted.nbytes
                if self._latest.get(evicted_key[0]) == evicted_key:
                    del self._latest[evicted_key[0]]


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

    def count_use(self, family: Hashable, version: Hashable) -> int:
        """Count a use of a value that is not cached, and return the number of such uses so far."""
        return self._pool.count_use((self, family), version)

    def fits(self, nbytes: int) -> bool:
        """Return whether a value of this size is cached. Larger values would evict most others."""
        return nbytes <= self.budget // _MAX_SHARE

    def get_or_build(self, family: Hashable, version: Hashable, build: Callable[[], T]) -> T:
        """Return a value; build it if it is not cached, and cache it if it fits."""
        return self._pool.get_or_build((self, family), version, build, self._counters)

    def update(self, family: Hashable, build: Callable[[T | None], T]) -> T:
        """Replace the value of a family without versions by one built from the cached value."""
        return self._pool.update((self, family), build, self._counters)

    def stats(self) -> CacheStats:
        """Return the current contents of this cache, and its hits and misses."""
        entries, nbytes = self._pool.usage(self._owns)
        return CacheStats(entries, nbytes, self.budget, self._counters.hits, self._counters.misses)

    def clear(self) -> None:
        """Remove all values."""
        self._pool.drop(self._owns, self._counters, close=False)

    def close(self) -> None:
        """Remove all values and cache no more. Later values are built and returned, but not cached."""
        self._pool.drop(self._owns, self._counters, close=True)

    def _owns(self, family: Hashable) -> bool:
        return isinstance(family, tuple) and family[0] is self
