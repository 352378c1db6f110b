"""A cache that is bounded in bytes. What is in it changes how fast rows come, never which."""

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


class Cache:
    """Least recently used goes first. Safe to share between threads; a value is made by one of them at a time.

    Keys are ``(family, version)``: the newest value of a family is what a new version may be made from.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[Hashable, Hashable], Any] = OrderedDict()
        self._newest: dict[Hashable, tuple[Hashable, Hashable]] = {}
        self._making: dict[tuple[Hashable, Hashable], _Making] = {}
        self._asked: dict[tuple[Hashable, Hashable], int] = {}
        self._nbytes = 0
        self._hits = 0
        self._misses = 0

    def get(self, family: Hashable, version: Hashable) -> Any | None:
        """The value, or None when it is not there."""
        key = (family, version)
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                self._misses += 1
            else:
                self._hits += 1
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

    def fits(self, nbytes: int) -> bool:
        """Whether something of this size may be kept without pushing out most of the rest."""
        return nbytes <= self.budget // 2

    def make(self, family: Hashable, version: Hashable, build: Callable[[], T]) -> T:
        """The value, built when it is not there; it is kept when it fits."""
        key = (family, version)
        with self._making_alone(key):
            found: T | None = self.get(family, version)
            if found is None:
                found = build()
                self._keep(key, found)
        return found

    def replace(self, family: Hashable, build: Callable[[T | None], T]) -> T:
        """Renew the one value of a family that has no versions, from the one that is there."""
        key = (family, None)
        with self._making_alone(key):
            found = build(self.newest(family))
            self._keep(key, found)
        return found

    def stats(self) -> CacheStats:
        """What is held now."""
        with self._lock:
            return CacheStats(len(self._entries), self._nbytes, self.budget, self._hits, self._misses)

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._entries.clear()
            self._newest.clear()
            self._asked.clear()
            self._nbytes = 0

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

    def _keep(self, key: tuple[Hashable, Hashable], value: Sized) -> None:
        if not self.fits(value.nbytes):
            return
        with self._lock:
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
