"""Large objects: seekable reads in few requests, and atomic writes, on every backend."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import InvalidInput, NotFound, OutcomeUnknown, StorageError
from omnigraph.store.objects import object_reader
from omnigraph.store.objects.object_store import ObjectStore
from tests.contract.test_object_store import Place, place_of
from tests.support.s3 import Bucket
from tests.support.s3_objects import Reply, Request
from tests.support.s3_seam import How, Log

pytest_plugins = ["tests.support.s3_fixtures"]

MIB = 1024 * 1024
# Larger than a part of an upload and than two blocks of a download.
LARGE = random.Random(7).randbytes(20 * MIB)
ABSORBED: list[How | int] = ["drop", "reset", 500, 503]


@pytest.fixture(params=["local", "memory", "s3", "moto"])
def place(request: pytest.FixtureRequest) -> Place:
    return place_of(request.param, request)


@pytest.fixture
def store(place: Place) -> ObjectStore:
    return place.open()


@pytest.fixture
def bucket_store(s3: Bucket) -> ObjectStore:
    return ObjectStore.open(s3.uri, s3.options)


@contextmanager
def small_blocks(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_reader, "BLOCK_BYTES", size)
        yield


@contextmanager
def truncated_replies(bucket: Bucket, times: int | None) -> Iterator[None]:
    """Replies to GET with the full length and half of the body."""
    objects = bucket.server.objects
    answer = objects.answer
    left = [1_000_000 if times is None else times]

    def stop_half_way(request: Request) -> Reply:
        reply = answer(request)
        if request.method != "GET" or not left[0]:
            return reply
        left[0] -= 1
        half = reply.body[: len(reply.body) // 2]
        return Reply(reply.status, half, {**reply.headers, "Connection": "close"}, size=len(reply.body))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "answer", stop_half_way)
        yield


def methods(log: Log, bucket: Bucket) -> list[str]:
    """Return the requests to one bucket. Late requests of other tests may arrive too."""
    return [item.method for item in log.requests if item.bucket == bucket.name]


# --- reading ------------------------------------------------------------------------------------------------


class _Bytes:
    """A range reader over bytes that counts its reads."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.asked = 0

    def read(self, start: int, end: int) -> bytes:
        assert 0 <= start < end <= self.size
        self.asked += 1
        return self.data[start:end]

    def close(self) -> None:
        pass


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(-1, 60), st.just(0)),
        st.tuples(st.just("seek"), st.integers(0, 120), st.just(io.SEEK_SET)),
        st.tuples(st.just("seek"), st.integers(-10, 0), st.just(io.SEEK_END)),
        st.tuples(st.just("skip"), st.integers(0, 30), st.just(io.SEEK_CUR)),
    ),
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(size=st.integers(10, 100), block=st.integers(1, 40), steps=STEPS)
def test_object_reader_reads_and_seeks_like_a_file(
    size: int, block: int, steps: list[tuple[str, int, int]]
) -> None:
    data = bytes(range(size))
    expected = io.BytesIO(data)
    with small_blocks(block), object_reader.ObjectReader(_Bytes(data), "x") as reader:
        for kind, number, whence in steps:
            if kind == "read":
                assert reader.read(number) == expected.read(number)
            else:
                assert reader.seek(number, whence) == expected.seek(number, whence)
            assert reader.tell() == expected.tell()
            assert len(reader._blocks) <= object_reader.CACHED_BLOCKS


def test_object_reader_does_not_fetch_recent_blocks_again() -> None:
    source = _Bytes(bytes(100))
    with small_blocks(10), object_reader.ObjectReader(source, "x") as reader:
        for position in (95, 0, 12, 99, 25, 95):
            reader.seek(position)
            reader.read(1)
    assert source.asked == 4, "the end was used last, so the beginning made room"


def test_object_reader_refuses_invalid_calls_like_a_file() -> None:
    reader = object_reader.ObjectReader(_Bytes(b"abc"), "x")
    with pytest.raises(ValueError, match="negative position -1"):
        reader.seek(-4, io.SEEK_END)
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.read(1)


def test_open_read_streams_large_small_and_empty_objects(store: ObjectStore) -> None:
    for key, data in (("a/large", LARGE), ("a/small", b"abc"), ("a/empty", b"")):
        store.put(key, data)
        info = store.head(key)
        assert (info.key, info.size) == (key, len(data))
        assert next(found for found in store.list("a") if found.key == key) == info
        with store.open_read(info) as reader:
            assert reader.read() == data
            assert reader.read(1) == b""
            reader.seek(1)
            assert reader.read(5) == data[1:6]


def test_head_of_missing_object_raises_not_found(store: ObjectStore) -> None:
    store.put("folder/a", b"1")
    for key in ("nothing", "folder", "folder/a/b"):
        with pytest.raises(NotFound):
            store.head(key)
    gone = store.head("folder/a")
    store.delete("folder/a")
    with pytest.raises(NotFound), store.open_read(gone) as reader:
        reader.read()


def test_object_reader_of_replaced_object_never_mixes_versions(place: Place) -> None:
    store = place.open()
    store.put("a", b"old" * 10)
    with small_blocks(10), store.open_read(store.head("a")) as reader:
        assert reader.read(10) == (b"old" * 10)[:10]
        store.put("a", b"new" * 10)
        if store.location.is_local:
            assert reader.read() == (b"old" * 10)[10:]
            return
        with pytest.raises(StorageError, match="was replaced while it was read") as caught:
            reader.read()
    assert caught.value.kind == "precondition"


def test_open_read_of_20_mb_makes_four_requests(s3: Bucket, bucket_store: ObjectStore) -> None:
    bucket_store.put("a", LARGE)
    with s3.seam.recording() as log, bucket_store.open_read(bucket_store.head("a")) as reader:
        while reader.read(64 * 1024):
            pass
    assert methods(log, s3) == ["HEAD", "GET", "GET", "GET"], str(log)


def test_open_read_of_20_mb_parquet_makes_four_requests(s3: Bucket, bucket_store: ObjectStore) -> None:
    numbers = pa.array(range(700_000), pa.int64())
    table = pa.table({f"c{place}": numbers for place in range(4)})
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=50_000, compression="none", use_dictionary=False)
    assert len(file.getvalue()) > 20 * MIB
    bucket_store.put("a.parquet", file.getvalue())
    with s3.seam.recording() as log, bucket_store.open_read(bucket_store.head("a.parquet")) as reader:
        batches = list(pq.ParquetFile(reader).iter_batches(8_192))
    assert pa.Table.from_batches(batches).equals(table)
    assert methods(log, s3) == ["HEAD", "GET", "GET", "GET"], str(log)


@pytest.mark.parametrize("how", ABSORBED)
def test_object_reader_retries_one_failed_block(
    s3: Bucket, bucket_store: ObjectStore, how: How | int
) -> None:
    bucket_store.put("a", bytes(range(100)))
    with (
        small_blocks(40),
        s3.seam.fail(how, method="GET", nth=2) as fault,
        bucket_store.open_read(bucket_store.head("a")) as reader,
    ):
        assert reader.read() == bytes(range(100))
    assert fault.hits == 1


def test_object_reader_of_truncated_response_completes_or_raises(
    s3: Bucket, bucket_store: ObjectStore
) -> None:
    bucket_store.put("a", bytes(range(100)))
    info = bucket_store.head("a")
    with truncated_replies(s3, times=1), bucket_store.open_read(info) as reader:
        assert reader.read() == bytes(range(100))
    with (
        truncated_replies(s3, times=None),
        bucket_store.open_read(info) as reader,
        pytest.raises(StorageError) as caught,
    ):
        reader.read()
    assert caught.value.transient


def test_object_reader_of_truncated_local_file_raises(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = ObjectStore.open(str(folder))
    (folder / "a").write_bytes(bytes(100))
    with small_blocks(40), store.open_read(store.head("a")) as reader:
        reader.read(10)
        (folder / "a").write_bytes(bytes(50))
        with pytest.raises(StorageError, match="was truncated while it was read"):
            reader.read()


# --- finding ------------------------------------------------------------------------------------------------


def test_list_with_pattern_matches_names_and_folders(store: ObjectStore) -> None:
    keys = ["a/1.csv", "a/2.csv", "a/2.txt", "a/b/3.csv", "a/b/c/4.csv", "ab/5.csv", "a[1].csv"]
    for key in keys:
        store.put(key, b"x")

    def match(pattern: str) -> list[str]:
        return [info.key for info in store.match(pattern)]

    assert match("a/*.csv") == ["a/1.csv", "a/2.csv"]
    assert match("a/?.*") == ["a/1.csv", "a/2.csv", "a/2.txt"]
    assert match("a/[!1].csv") == ["a/2.csv"]
    assert match("a*/*.csv") == ["a/1.csv", "a/2.csv", "ab/5.csv"]
    assert match("a/**/*.csv") == ["a/1.csv", "a/2.csv", "a/b/3.csv", "a/b/c/4.csv"]
    assert match("a/*/c/*") == ["a/b/c/4.csv"]
    assert match("a[1].csv") == ["a[1].csv"], "an object of exactly this key is meant"
    assert match("A/*") == match("z/*") == []


def test_split_uri_returns_store_and_key() -> None:
    name = uuid4().hex
    store, key = ObjectStore.split_uri(f"memory://{name}/a/100%?#.csv")
    assert (store.location.uri, key) == (f"memory://{name}", "a/100%?#.csv")
    for refused in ("file:///tmp/a", "https://host/a", "s3:///a"):
        with pytest.raises(InvalidInput):
            ObjectStore.split_uri(refused)


# --- writing ------------------------------------------------------------------------------------------------


def test_open_write_in_pieces_makes_one_object(store: ObjectStore) -> None:
    for key, data, step in (("a/large", LARGE, 3 * MIB), ("a/small", b"abc", 1), ("a/empty", b"", 1)):
        with store.open_write(key) as file:
            for start in range(0, len(data), step):
                assert file.write(data[start : start + step]) == len(data[start : start + step])
            assert not store.exists_any(key), "nothing is there before all of it is"
        assert store.get(key).data == data
    assert [info.key for info in store.list("a")] == ["a/empty", "a/large", "a/small"]


@pytest.mark.parametrize("size", [10, 20 * MIB])
def test_open_write_that_fails_keeps_the_previous_object(store: ObjectStore, size: int) -> None:
    store.put("a", b"before")

    def fail() -> None:
        with store.open_write("a") as file:
            file.write(LARGE[:size])
            raise OSError("our own")

    with pytest.raises(OSError, match="our own"):
        fail()
    assert store.get("a").data == b"before"
    assert [info.key for info in store.list()] == ["a"]


def test_open_write_beside_other_requests_succeeds(store: ObjectStore) -> None:
    store.put("b", b"1")
    with store.open_write("a") as file:
        for start in range(0, len(LARGE), 10 * MIB):
            file.write(LARGE[start : start + 10 * MIB])
            assert store.get("b").data == b"1"
    assert store.get("a").data == LARGE


def test_open_write_that_fails_or_is_abandoned_leaves_no_parts(s3: Bucket, bucket_store: ObjectStore) -> None:
    with (
        s3.seam.fail(503, method="PUT", key="a", nth=2, times=None),
        pytest.raises(StorageError) as caught,
        bucket_store.open_write("a") as file,
    ):
        file.write(LARGE)
    assert caught.value.transient
    with suppress(KeyError), bucket_store.open_write("a") as file:
        file.write(LARGE)
        raise KeyError
    assert s3.keys == []
    assert not s3.server.objects._uploads


@pytest.mark.parametrize("how", ABSORBED)
def test_open_write_retries_one_failed_part(s3: Bucket, bucket_store: ObjectStore, how: How | int) -> None:
    with s3.seam.fail(how, method="PUT", nth=2) as fault, bucket_store.open_write("a") as file:
        file.write(LARGE)
    assert fault.hits == 1
    assert bucket_store.get("a").data == LARGE


def test_open_write_with_lost_parts_raises_storage_error(s3: Bucket, bucket_store: ObjectStore) -> None:
    with (
        s3.seam.fail("drop", method="PUT", times=None),
        pytest.raises(StorageError, match="connection failed") as caught,
        bucket_store.open_write("a") as file,
    ):
        file.write(LARGE)
    assert caught.value.transient
    assert s3.keys == []


@contextmanager
def kept_metadata(bucket: Bucket) -> Iterator[None]:
    """Make the server keep the metadata of multipart uploads, as S3 does."""
    objects = bucket.server.objects
    answer = objects.answer
    marks: dict[str, str] = {}

    def keep(request: Request) -> Reply:
        reply = answer(request)
        if request.method == "POST" and "uploads" in request.query:
            marks[request.key] = request.headers["x-amz-meta-omnigraph-write"]
        if request.method == "GET" and request.key in marks:
            headers = {**reply.headers, "x-amz-meta-omnigraph-write": marks[request.key]}
            return Reply(reply.status, reply.body, headers, reply.size)
        return reply

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "answer", keep)
        yield


@pytest.mark.parametrize("how", ["drop", "applied_500"])
def test_open_write_with_lost_completion_response_finds_its_object(
    s3: Bucket, bucket_store: ObjectStore, how: How
) -> None:
    with (
        kept_metadata(s3),
        s3.seam.fail(how, method="POST", nth=2) as fault,
        bucket_store.open_write("a") as file,
    ):
        file.write(LARGE)
    assert fault.hits == 1
    assert bucket_store.get("a").data == LARGE


def test_open_write_with_unverifiable_completion_raises_outcome_unknown(
    s3: Bucket, bucket_store: ObjectStore
) -> None:
    with (
        s3.seam.fail("drop", method="POST", nth=2, times=None),
        s3.seam.fail(503, method="GET", times=None),
        pytest.raises(OutcomeUnknown, match="completed the upload of object `a`"),
        bucket_store.open_write("a") as file,
    ):
        file.write(LARGE)


def test_open_write_of_20_mb_makes_four_requests(s3: Bucket, bucket_store: ObjectStore) -> None:
    with s3.seam.recording() as log, bucket_store.open_write("a") as file:
        for start in range(0, len(LARGE), 100_000):
            file.write(LARGE[start : start + 100_000])
    assert sorted(methods(log, s3)) == ["POST", "POST", "PUT", "PUT"], str(log)


def test_invalid_key_is_refused_before_any_request(store: ObjectStore) -> None:
    for key in ("", "a//b", "../a"):
        with pytest.raises(InvalidInput):
            store.head(key)
        with pytest.raises(InvalidInput):
            store.open_write(key)
