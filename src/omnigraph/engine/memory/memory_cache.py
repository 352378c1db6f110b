"""Memory for what reads keep, bounded in bytes. What is in it changes how fast rows come, never which."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar


class Sized(Protocol):
    """Something that knows the memory it holds."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        ...


T = TypeVar("T", bound=Sized)
# One value may take this part of the budget.
_SHARE = 2
# So many questions are counted before counting begins anew.
_REMEMBERED = 4_096


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What a cache holds and how it has been used."""

    entries: int
    nbytes: int
    budget: int
    hits: int
    misses: int


@dataclass
class _Making:
    """A value being made, and how many threads are at it or wait for it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    threads: int = 0


@dataclass
class _Uses:
    """How often a cache was asked, and whether for something. Only changed under the lock of its memory."""

    hits: int = 0
    misses: int = 0
    closed: bool = False


class Memory:
    """What any number of caches hold together. Safe to share between threads.

    Least recently used goes first, whichever cache it belongs to; a value is made by one thread at a time.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[Hashable, Hashable], Any] = OrderedDict()
        self._newest: dict[Hashable, tuple[Hashable, Hashable]] = {}
        self._making: dict[tuple[Hashable, Hashable], _Making] = {}
        self._asked: dict[tuple[Hashable, Hashable], int] = {}
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes that are held now, by all."""
        with self._lock:
            return self._nbytes

    def get(self, family: Hashable, version: Hashable, uses: _Uses) -> Any | None:
        """The value, or None when it is not there."""
        key = (family, version)
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                uses.misses += 1
            else:
                uses.hits += 1
                self._entries.move_to_end(key)
            return found

    def newest(self, family: Hashable) -> Any | None:
        """The value of the family that was put last, if it is still there."""
        with self._lock:
            key = self._newest.get(family)
            return None if key is None else self._entries.get(key)

    def asked(self, family: Hashable, version: Hashable) -> int:
        """Note that a value would have been of use; how often that has been so, this time included."""
        key = (family, version)
        with self._lock:
            if len(self._asked) > _REMEMBERED:
                self._asked.clear()
            self._asked[key] = self._asked.get(key, 0) + 1
            return self._asked[key]

    def make(self, family: Hashable, version: Hashable, build: Callable[[], T], uses: _Uses) -> T:
        """The value, built when it is not there; it is kept when it fits."""
        key = (family, version)
        with self._making_alone(key):
            found: T | None = self.get(family, version, uses)
            if found is None:
                found = build()
                self._keep(key, found, uses)
        return found

    def replace(self, family: Hashable, build: Callable[[T | None], T], uses: _Uses) -> T:
        """Renew the one value of a family that has no versions, from the one that is there."""
        key = (family, None)
        with self._making_alone(key):
            found = build(self.newest(family))
            self._keep(key, found, uses)
        return found

    def held(self, is_wanted: Callable[[Hashable], bool]) -> tuple[int, int]:
        """How many values of some families there are, and their bytes."""
        with self._lock:
            found = [value.nbytes for (family, _), value in self._entries.items() if is_wanted(family)]
            return len(found), sum(found)

    def forget(self, is_wanted: Callable[[Hashable], bool], uses: _Uses, *, close: bool) -> None:
        """Let go of some families; once a cache is closed, what is still being made for it is not kept."""
        with self._lock:
            uses.closed = uses.closed or close
            for key in [key for key in self._entries if is_wanted(key[0])]:
                self._nbytes -= self._entries.pop(key).nbytes
            for family in [family for family in self._newest if is_wanted(family)]:
                del self._newest[family]
            for key in [key for key in self._asked if is_wanted(key[0])]:
                del self._asked[key]

    @contextmanager
    def _making_alone(self, key: tuple[Hashable, Hashable]) -> Iterator[None]:
        """One thread at a time for each key; the last one to leave takes the lock away, whatever happened."""
        with self._lock:
            making = self._making.setdefault(key, _Making())
            making.threads += 1
        try:
            with making.lock:
                yield
        finally:
            with self._lock:
                making.threads -= 1
                if not making.threads:
                    del self._making[key]

    def _keep(self, key: tuple[Hashable, Hashable], value: Sized, uses: _Uses) -> None:
        if value.nbytes > self.budget // _SHARE:
            return
        with self._lock:
            if uses.closed:
                return
            former = self._entries.pop(key, None)
            self._nbytes -= 0 if former is None else former.nbytes
            self._entries[key] = value
            self._newest[key[0]] = key
            self._nbytes += value.nbytes
            while self._nbytes > self.budget:
                gone, dropped = self._entries.popitem(last=False)
                self._nbytes -= dropped.nbytes
                if self._newest.get(gone[0]) == gone:
                    del self._newest[gone[0]]


class Cache:
    """One graph's part of a memory. Safe to share between threads.

    Keys are ``(family, version)``: the newest value of a family is what a new version may be made from. They are
    this cache's own: graphs that call their tables and versions the same never meet in a memory that they share.

    >>> memory = Memory(1_000)
    >>> one, other = Cache(memory), Cache(memory)
    >>> len(one.make("f", 1, lambda: memoryview(b"one"))), other.get("f", 1)
    (3, None)
    """

    def __init__(self, memory: Memory | int) -> None:
        self._memory = Memory(memory) if isinstance(memory, int) else memory
        self._uses = _Uses()

    @property
    def budget(self) -> int:
        """Bytes that this cache and those that share its memory may hold together."""
        return self._memory.budget

    def get(self, family: Hashable, version: Hashable) -> Any | None:
        """The value, or None when it is not there."""
        return self._memory.get((self, family), version, self._uses)

    def newest(self, family: Hashable) -> Any | None:
        """The value of the family that was put last, if it is still there."""
        return self._memory.newest((self, family))

    def asked(self, family: Hashable, version: Hashable) -> int:
        """Note that a value would have been of use; how often that has been so, this time included."""
        return self._memory.asked((self, family), version)

    def fits(self, nbytes: int) -> bool:
        """Whether something of this size may be kept without pushing out most of the rest."""
        return nbytes <= self.budget // _SHARE

    def make(self, family: Hashable, version: Hashable, build: Callable[[], T]) -> T:
        """The value, built when it is not there; it is kept when it fits."""
        return self._memory.make((self, family), version, build, self._uses)

    def replace(self, family: Hashable, build: Callable[[T | None], T]) -> T:
        """Renew the one value of a family that has no versions, from the one that is there."""
        return self._memory.replace((self, family), build, self._uses)

    def stats(self) -> CacheStats:
        """What this cache holds now."""
        entries, nbytes = self._memory.held(self._owns)
        return CacheStats(entries, nbytes, self.budget, self._uses.hits, self._uses.misses)

    def clear(self) -> None:
        """Let go of everything."""
        self._memory.forget(self._owns, self._uses, close=False)

    def close(self) -> None:
        """Let go of everything for good: what is made from now on is given and not kept."""
        self._memory.forget(self._owns, self._uses, close=True)

    def _owns(self, family: Hashable) -> bool:
        return isinstance(family, tuple) and family[0] is self
