"""The cache: its budget holds, the least recently used goes, and a value is made by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.errors import StorageError
from tests.support.places import together
from tests.support.waiting import HANG


@dataclass(frozen=True)
class Value:
    """Something of a size."""

    nbytes: int
    name: str = ""


def making(nbytes: int, name: str = "") -> Callable[[], Value]:
    return lambda: Value(nbytes, name)


def unneeded() -> Value:
    raise AssertionError("it was built although it is there")


@dataclass
class Builder:
    """Builds slowly, and notes how often, and how many threads at a time."""

    nbytes: int
    built: int = 0
    most: int = 0
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pause: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> Value:
        with self._lock:
            self.built += 1
            self._now += 1
            self.most = max(self.most, self._now)
        self._pause.wait(0.002)
        with self._lock:
            self._now -= 1
        return Value(self.nbytes)


def test_get_builds_a_value_once() -> None:
    cache = Cache(100)
    first = cache.get_or_build("column", 1, making(10))
    assert cache.get_or_build("column", 1, unneeded) is first
    assert cache.get("column", 1) is first
    assert cache.get("column", 2) is None


def test_cache_separates_versions_and_families() -> None:
    cache = Cache(100)
    for family in ("a", "b"):
        for version in (1, 2):
            cache.get_or_build(family, version, making(10, f"{family}{version}"))
    found = {
        (family, version): cache.get_or_build(family, version, unneeded).name
        for family in ("a", "b")
        for version in (1, 2)
    }
    assert found == {("a", 1): "a1", ("a", 2): "a2", ("b", 1): "b1", ("b", 2): "b2"}


def test_cache_evicts_the_least_recently_used_value() -> None:
    cache = Cache(100)
    for name in "abc":
        cache.get_or_build(name, 1, making(30))
    assert cache.get("a", 1) is not None
    cache.get_or_build("d", 1, making(30))
    assert [name for name in "abcd" if cache.get(name, 1) is not None] == ["a", "c", "d"]


def test_cache_counts_a_rebuilt_value_as_used() -> None:
    cache = Cache(100)
    for name in "abc":
        cache.get_or_build(name, 1, making(30))
    cache.get_or_build("a", 1, unneeded)
    cache.get_or_build("d", 1, making(30))
    assert [name for name in "abcd" if cache.get(name, 1) is not None] == ["a", "c", "d"]


def test_cache_returns_a_too_large_value_without_keeping_it() -> None:
    cache = Cache(100)
    small = cache.get_or_build("small", 1, making(40))
    assert cache.get_or_build("large", 1, making(51)).nbytes == 51
    assert cache.get("large", 1) is None
    assert cache.latest("large") is None
    assert cache.get("small", 1) is small
    assert cache.get_or_build("half", 1, making(50)) is cache.get("half", 1)


@pytest.mark.parametrize(("nbytes", "fits"), [(0, True), (50, True), (51, False)])
def test_cache_keeps_a_value_of_half_the_budget(nbytes: int, fits: bool) -> None:
    assert Cache(100).fits(nbytes) is fits


def test_cache_newest_of_family_is_the_last_one_kept() -> None:
    cache = Cache(100)
    cache.get_or_build("f", 2, making(30, "two"))
    cache.get_or_build("f", 1, making(30, "one"))
    newest = cache.latest("f")
    assert newest is not None
    assert newest.name == "one"
    # Looking at an older one does not make it the newest.
    cache.get("f", 2)
    cache.get_or_build("g", 1, making(50))
    assert cache.get("f", 1) is None
    assert cache.get("f", 2) is not None
    # The latest version that is left serves as the base of the next one.
    assert cache.latest("f") is cache.get("f", 2)
    cache.get_or_build("f", 3, making(10, "three"))
    newest = cache.latest("f")
    assert newest is not None
    assert newest.name == "three"


def test_cache_keeps_as_many_versions_as_the_last_put_allows() -> None:
    cache = Cache(10_000)
    for version in range(20):
        cache.put("f", version, Value(1), versions=16)
    assert len(cache.versions("f")) == 16
    cache.put("f", 20, Value(1), versions=4)
    assert [cache.get("f", version) is not None for version in range(16, 21)] == [
        False,
        True,
        True,
        True,
        True,
    ]


def test_cache_counts_uses_by_family_and_version() -> None:
    cache = Cache(100)
    assert [cache.count_use("f", 1) for _ in range(3)] == [1, 2, 3]
    assert cache.count_use("f", 2) == 1
    assert cache.count_use("g", 1) == 1


def test_cache_clear_removes_everything() -> None:
    cache = Cache(100)
    cache.get_or_build("f", 1, making(30))
    cache.count_use("f", 1)
    cache.clear()
    assert cache.get("f", 1) is None
    assert cache.latest("f") is None
    assert cache.count_use("f", 1) == 1
    assert (cache.stats().entries, cache.stats().nbytes) == (0, 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 3), st.integers(0, 60)), max_size=40))
def test_cache_bytes_equal_the_entries_and_stay_within_the_budget(
    puts: list[tuple[str, int, int]],
) -> None:
    cache = Cache(100)
    held: dict[tuple[str, int], int] = {}
    for family, version, nbytes in puts:
        value = cache.get_or_build(family, version, making(nbytes))
        held[family, version] = value.nbytes
        here = [key for key in held if cache.get(*key) is not None]
        stats = cache.stats()
        assert stats.entries == len(here)
        assert stats.nbytes == sum(held[key] for key in here) <= stats.budget


def test_get_in_threads_builds_one_value() -> None:
    cache, builder = Cache(100), Builder(10)
    found = together([lambda: cache.get_or_build("f", 1, builder)] * 6)
    assert len({id(item) for item in found}) == 1
    assert builder.built == 1


def test_get_of_too_large_value_in_threads_builds_one_at_a_time() -> None:
    cache, builder = Cache(100), Builder(90)
    together([lambda: [cache.get_or_build("f", 1, builder) for _ in range(5)]] * 6)
    assert (builder.built, builder.most) == (30, 1)


def test_get_of_different_values_in_threads_builds_concurrently() -> None:
    cache = Cache(100)
    meeting = threading.Barrier(2, timeout=HANG)

    def build() -> Value:
        meeting.wait()
        return Value(10)

    found = together([lambda: cache.get_or_build("f", 1, build), lambda: cache.get_or_build("f", 2, build)])
    assert found == [Value(10), Value(10)]


def test_get_inside_a_build_is_allowed() -> None:
    cache = Cache(100)
    found = cache.get_or_build(
        "outer", 1, lambda: Value(cache.get_or_build("inner", 1, making(10)).nbytes + 1)
    )
    assert found.nbytes == 11


def test_cache_bytes_are_exact_with_concurrent_clear_and_build() -> None:
    cache, builder = Cache(100), Builder(20)

    def build() -> None:
        for number in range(30):
            cache.get_or_build("f", number % 2, builder)

    def clear() -> None:
        for _ in range(60):
            builder._pause.wait(0.001)
            cache.clear()

    assert together([build, build, build, build, clear]) == [None] * 5
    held = sum(cache.get("f", version) is not None for version in (0, 1))
    assert (cache.stats().entries, cache.stats().nbytes) == (held, 20 * held)


def test_get_after_failed_build_builds_again() -> None:
    cache = Cache(100)

    def fail() -> Value:
        raise StorageError("could not read")

    for version in range(3):
        with pytest.raises(StorageError):
            cache.get_or_build("f", version, fail)
    assert cache.stats().entries == 0
    assert not cache._pool._builds
    assert cache.get_or_build("f", 1, making(10)) is cache.latest("f")
