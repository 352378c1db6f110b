"""The contract of objects, for every backend."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from omnigraph.errors import InvalidInput, NotFound, StorageError
from omnigraph.store.objects.object_store import ObjectStore
from tests.contract import object_worker
from tests.support.s3 import Bucket
from tests.support.workers import run_together

pytest_plugins = ["tests.support.s3_fixtures"]

MIB = 1024 * 1024
WORKER = "tests.contract.object_worker"
ODD_KEYS = [
    ".hidden",
    "%41%2F",
    "a b",
    "a&b=c;d,e",
    "a:b@c",
    "brackets[1](2){3}",
    "dots...",
    "kéy/日本語/ключ",
    "plus+star*",
    "quotes'\"`",
    "question?fragment#",
    "slash\\back|pipe",
    "tilde~caret^",
    "xml<&>",
    "x" * 255,
    "🙂",
]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Place:
    """Return the address of a backend for other processes."""

    uri: str
    options: dict[str, str]

    def open(self) -> ObjectStore:
        return ObjectStore.open(self.uri, self.options)

    def task(self, work: str, **arguments: Any) -> dict[str, Any]:
        return {"uri": self.uri, "options": self.options, "work": work, "arguments": arguments}


def place_of(backend: str, request: pytest.FixtureRequest) -> Place:
    match backend:
        case "local":
            folder: Path = request.getfixturevalue("tmp_path")
            return Place(str(folder / "graph"), {})
        case "memory":
            return Place(f"memory://{uuid4().hex}/graph", {})
        case "s3":
            bucket: Bucket = request.getfixturevalue("s3")
            return Place(f"{bucket.uri}/graph", bucket.options)
        case "moto":
            uri, options = request.getfixturevalue("moto_bucket")
            return Place(f"{uri}/graph", options)
    raise ValueError(backend)


@pytest.fixture(params=["local", "memory", "s3", "moto"])
def place(request: pytest.FixtureRequest) -> Place:
    return place_of(request.param, request)


@pytest.fixture(params=["local", "memory", "s3"])
def racy_place(request: pytest.FixtureRequest) -> Place:
    """Backends for concurrent access. moto is left out, because its reads fail while an object is replaced."""
    return place_of(request.param, request)


@pytest.fixture(params=["local", "s3"])
def shared_place(request: pytest.FixtureRequest) -> Place:
    """Backends that processes can share."""
    return place_of(request.param, request)


@pytest.fixture
def store(place: Place) -> ObjectStore:
    return place.open()


def at_once(count: int, work: Callable[[int], Result]) -> list[Result]:
    """Run `work` in threads that start at the same time."""
    barrier = threading.Barrier(count)

    def run(number: int) -> Result:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))


class TestOneObject:
    def test_get_after_put_returns_the_data(self, store: ObjectStore) -> None:
        store.put("a/b.json", b'{"x": 1}')
        assert store.get("a/b.json").data == b'{"x": 1}'

    def test_get_on_another_handle_returns_the_data(self, place: Place) -> None:
        place.open().put("a", b"1")
        assert place.open().get("a").data == b"1"

    def test_put_replaces_the_whole_object(self, store: ObjectStore) -> None:
        store.put("a", b"a long first version")
        store.put("a", b"short")
        assert store.get("a").data == b"short"

    def test_put_returns_the_tag_of_the_object(self, store: ObjectStore) -> None:
        assert store.put("a", b"1") == store.get("a").etag

    def test_put_of_other_content_changes_the_tag(self, store: ObjectStore) -> None:
        assert store.put("a", b"1") != store.put("a", b"2")

    def test_put_of_empty_object_creates_it(self, store: ObjectStore) -> None:
        store.put("empty", b"")
        assert store.get("empty").data == b""
        assert [(found.key, found.size) for found in store.list()] == [("empty", 0)]

    def test_get_of_large_object_returns_all_bytes(self, store: ObjectStore) -> None:
        data = bytes(range(256)) * (6 * MIB // 256)
        store.put("large", data)
        assert store.get("large").data == data

    def test_get_of_missing_object_raises_not_found(self, store: ObjectStore) -> None:
        with pytest.raises(NotFound) as caught:
            store.get("nothing/here")
        assert caught.value.details == {"key": "nothing/here"}

    def test_get_of_folder_raises_not_found(self, store: ObjectStore) -> None:
        store.put("a/b", b"1")
        with pytest.raises(NotFound):
            store.get("a")

    def test_get_below_an_object_raises_not_found(self, store: ObjectStore) -> None:
        store.put("a", b"1")
        with pytest.raises(NotFound):
            store.get("a/b")

    @pytest.mark.parametrize("key", ODD_KEYS)
    def test_put_with_any_text_as_key_is_readable(self, store: ObjectStore, key: str) -> None:
        key = f"odd/{key}"
        assert store.create_if_absent(key, b"1")
        assert not store.create_if_absent(key, b"2")
        assert store.replace_if_matches(key, b"3", store.get(key).etag) is not None
        assert [found.key for found in store.list("odd")] == [key]
        store.delete(key)
        assert not store.exists_any("odd")

    @pytest.mark.parametrize(
        "key",
        [
            "",
            "/a",
            "a/",
            "a//b",
            ".",
            "a/../b",
            "new\nline",
            "nul\0",
            "x" * 256,
            "y/" * 400 + "y",
            "\udcff",
            ".omnigraph-1.tmp",
        ],
    )
    def test_call_with_malformed_key_is_refused(self, store: ObjectStore, key: str) -> None:
        for call in (store.get, store.delete, lambda key: store.put(key, b""), store.list):
            if key == "" and call == store.list:
                continue
            with pytest.raises(InvalidInput):
                call(key)
        assert not store.exists_any()


class TestCreateIfAbsent:
    def test_create_if_absent_of_existing_key_returns_false_and_keeps_the_data(
        self, store: ObjectStore
    ) -> None:
        assert store.create_if_absent("a", b"first")
        assert not store.create_if_absent("a", b"second")
        assert store.get("a").data == b"first"

    def test_create_if_absent_with_equal_bytes_returns_false(self, store: ObjectStore) -> None:
        assert [store.create_if_absent("a", b"same") for _ in range(3)] == [True, False, False]

    def test_create_if_absent_after_put_returns_false(self, store: ObjectStore) -> None:
        store.put("a", b"1")
        assert not store.create_if_absent("a", b"2")

    def test_create_if_absent_after_delete_succeeds(self, store: ObjectStore) -> None:
        store.create_if_absent("a", b"1")
        store.delete("a")
        assert store.create_if_absent("a", b"2")

    def test_create_if_absent_in_threads_has_one_winner(self, racy_place: Place) -> None:
        store = racy_place.open()
        keys = [f"race/{number}" for number in range(20)]
        won = at_once(8, lambda _: [key for key in keys if store.create_if_absent(key, b"same")])
        assert sorted(key for winner in won for key in winner) == sorted(keys)

    def test_create_if_absent_in_processes_has_one_winner(self, shared_place: Place) -> None:
        keys = [f"race/{number:03}" for number in range(100)]
        won = run_together(WORKER, [shared_place.task("create", keys=keys) for _ in range(4)])
        assert sorted(key for winner in won for key in winner) == keys
        assert [found.key for found in shared_place.open().list()] == keys


class TestReplaceIfMatches:
    def test_replace_if_matches_with_current_tag_replaces_the_object(self, store: ObjectStore) -> None:
        tag = store.put("a", b"1")
        new = store.replace_if_matches("a", b"2", tag)
        assert new is not None
        assert (store.get("a").data, store.get("a").etag) == (b"2", new)

    def test_replace_if_matches_with_stale_tag_changes_nothing(self, store: ObjectStore) -> None:
        stale = store.put("a", b"1")
        store.put("a", b"2")
        assert store.replace_if_matches("a", b"3", stale) is None
        assert store.get("a").data == b"2"

    def test_replace_if_matches_of_missing_object_changes_nothing(self, store: ObjectStore) -> None:
        tag = store.put("a", b"1")
        store.delete("a")
        assert store.replace_if_matches("a", b"2", tag) is None
        assert store.replace_if_matches("never/was", b"2", tag) is None
        assert not store.exists_any()

    def test_replace_if_matches_in_threads_loses_no_update(self, racy_place: Place) -> None:
        racy_place.open().put("counter", b"0")
        at_once(6, lambda _: object_worker.count_up(racy_place.open(), "counter", 10))
        assert racy_place.open().get("counter").data == b"60"

    def test_replace_if_matches_in_processes_loses_no_update(self, shared_place: Place) -> None:
        shared_place.open().put("counter", b"0")
        task = shared_place.task("count_up", key="counter", times=25)
        lost = run_together(WORKER, [task] * 4)
        assert shared_place.open().get("counter").data == b"100"
        assert sum(lost) > 0, "the processes never met, so nothing was shown"

    def test_replace_if_matches_beside_put_loses_no_update(self, racy_place: Place) -> None:
        # In each round the swap is first and the put remains, or the put is first and the swap fails.
        store = racy_place.open()
        for number in range(60):
            tag = store.put("a", f"base {number}".encode())
            swap = f"swap {number}".encode()
            put = f"put {number}".encode()

            def write(thread: int, tag: str = tag, swap: bytes = swap, put: bytes = put) -> None:
                if thread:
                    store.put("a", put)
                else:
                    store.replace_if_matches("a", swap, tag)

            at_once(2, write)
            assert store.get("a").data == put


class TestVisibility:
    """A reader sees one complete version while others replace the object."""

    def test_get_beside_put_in_threads_returns_whole_objects(self, racy_place: Place) -> None:
        store = racy_place.open()
        store.put("big", b"a" * MIB)

        def work(number: int) -> list[str]:
            if number < 2:
                object_worker.replace(store, "big", "bc"[number], 15)
                return []
            return object_worker.watch(store, "big", 15)

        assert at_once(4, work) == [[], [], [], []]

    def test_get_beside_put_in_processes_returns_whole_objects(self, shared_place: Place) -> None:
        shared_place.open().put("big", b"a" * MIB)
        writers = [shared_place.task("replace", key="big", letter=letter, times=25) for letter in "bc"]
        readers = [shared_place.task("watch", key="big", times=25)] * 2
        assert run_together(WORKER, writers + readers) == [25, 25, [], []]

    def test_get_beside_create_if_absent_returns_whole_objects(self, racy_place: Place) -> None:
        store = racy_place.open()
        stop = threading.Event()

        def create() -> None:
            try:
                for number in range(15):
                    store.create_if_absent(f"new/{number:02}", b"x" * MIB)
            finally:
                stop.set()

        with ThreadPoolExecutor(1) as threads:
            done = threads.submit(create)
            sizes = set()
            while not stop.is_set():
                sizes |= {found.size for found in store.list("new")}
            done.result()
        assert sizes <= {MIB}


class TestList:
    def test_list_of_empty_store_is_empty(self, store: ObjectStore) -> None:
        assert list(store.list()) == []
        assert list(store.list("no/such/folder")) == []
        assert not store.exists_any()

    def test_list_has_size_and_age_of_objects(self, store: ObjectStore) -> None:
        store.put("a", b"12345")
        (found,) = store.list()
        assert (found.key, found.size) == ("a", 5)
        assert abs(datetime.now(UTC) - found.last_modified) < timedelta(minutes=1)

    def test_list_of_prefix_matches_whole_folder_names(self, store: ObjectStore) -> None:
        for key in ("ab", "a/1", "a/deep/2", "a.b", "b/3"):
            store.put(key, b"")
        assert [found.key for found in store.list("a")] == ["a/1", "a/deep/2"]
        assert [found.key for found in store.list("a/deep")] == ["a/deep/2"]
        assert store.exists_any("b")
        assert not store.exists_any("c")

    def test_list_is_ordered_by_the_bytes_of_the_key(self, store: ObjectStore) -> None:
        # A dot sorts before the slash and a zero after it, so a directory does not sort by its name alone.
        keys = ["a.z", "a/b/c", "a/b.c", "a/b0", "a0", "B", "é", "z", "🙂", "｡"]
        for key in keys:
            store.put(key, b"")
        assert [found.key for found in store.list()] == sorted(keys, key=str.encode)

    def test_list_stays_below_the_prefix_of_the_store(self, place: Place) -> None:
        place.open().put("inside", b"")
        ObjectStore.open(f"{place.uri}-neighbour", place.options).put("outside", b"")
        ObjectStore.open(f"{place.uri}/below", place.options).put("deeper", b"")
        assert [found.key for found in place.open().list()] == ["below/deeper", "inside"]

    def test_list_of_several_pages_is_complete(self, store: ObjectStore) -> None:
        keys = [f"many/{number:05}" for number in range(1005)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda key: store.put(key, b""), keys))
        assert [found.key for found in store.list("many")] == keys
        store.delete_many(keys)
        assert not store.exists_any("many")


class TestDelete:
    def test_delete_removes_the_object(self, store: ObjectStore) -> None:
        store.put("a", b"1")
        store.delete("a")
        with pytest.raises(NotFound):
            store.get("a")

    def test_delete_of_missing_object_succeeds(self, store: ObjectStore) -> None:
        store.put("a/b", b"1")
        for key in ("a/b", "a/b", "never/was"):
            store.delete(key)

    def test_delete_of_several_keys_keeps_other_objects(self, store: ObjectStore) -> None:
        for key in ("a/1", "a/2", "b/1", "b"[:1] + "c"):
            store.put(key, b"")
        store.delete_many(["a/1", "b/1", "a/missing"])
        assert [found.key for found in store.list()] == ["a/2", "bc"]

    def test_delete_of_no_keys_succeeds(self, store: ObjectStore) -> None:
        store.delete_many([])

    def test_delete_in_threads_succeeds(self, racy_place: Place) -> None:
        store = racy_place.open()
        store.put("a", b"1")
        at_once(6, lambda _: store.delete("a"))
        assert not store.exists_any()


class TestMemory:
    def test_memory_stores_of_different_names_are_separate(self) -> None:
        one, two = uuid4().hex, uuid4().hex
        ObjectStore.open(f"memory://{one}").put("a", b"1")
        assert not ObjectStore.open(f"memory://{two}").exists_any()


class TestBucket:
    def test_get_from_missing_bucket_raises_storage_error(self, s3: Bucket) -> None:
        store = ObjectStore.open("s3://no-such-bucket/graph", s3.options)
        calls: list[Callable[[], object]] = [
            lambda: store.get("a"),
            lambda: store.put("a", b""),
            lambda: store.create_if_absent("a", b""),
            lambda: store.replace_if_matches("a", b"", '"tag"'),
            lambda: list(store.list()),
            lambda: store.delete("a"),
        ]
        for call in calls:
            with pytest.raises(StorageError, match="NoSuchBucket") as caught:
                call()
            assert not caught.value.transient
