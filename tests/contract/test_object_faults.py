"""Objects when requests fail, hang, or succeed without a reply."""

from __future__ import annotations

import socket
from collections.abc import Callable
from uuid import uuid4

import pytest

from omnigraph.errors import NotFound, OmnigraphError, OutcomeUnknown, StorageError
from omnigraph.store.objects.object_store import ObjectStore
from tests.support.s3 import Bucket
from tests.support.s3_seam import How

pytest_plugins = ["tests.support.s3_fixtures"]

# The request took effect and its reply was lost.
UNSEEN: list[How | int] = ["drop", "applied_500", "late"]
# The request had no effect and can be repeated.
UNDONE: list[How | int] = ["reset", "hang", 500, 503, 429]


@pytest.fixture
def store(s3: Bucket) -> ObjectStore:
    """Timeouts for a slow machine and for requests that hang."""
    return ObjectStore.open(s3.uri, {**s3.options, "timeout": "250ms"})


@pytest.fixture
def impatient(s3: Bucket) -> ObjectStore:
    """Short timeouts, for requests that fail."""
    return ObjectStore.open(s3.uri, {**s3.options, "timeout": "50ms", "max_retries": "1"})


@pytest.fixture
def other(s3: Bucket) -> ObjectStore:
    """A concurrent client."""
    return ObjectStore.open(s3.uri, s3.options)


def tag_of(store: ObjectStore, key: str) -> str:
    return store.get(key).etag


class TestOneFault:
    """After a single fault the call succeeds, and takes effect exactly once."""

    @pytest.mark.parametrize("how", UNSEEN + UNDONE)
    def test_create_if_absent_with_lost_response_reports_success(
        self, s3: Bucket, store: ObjectStore, how: How | int
    ) -> None:
        with s3.seam.fail(how, method="PUT") as fault:
            assert store.create_if_absent("a", b"1")
        assert fault.hits == 1
        assert not store.create_if_absent("a", b"1")

    @pytest.mark.parametrize("how", UNSEEN + UNDONE)
    def test_replace_if_matches_with_lost_response_returns_the_new_tag(
        self, s3: Bucket, store: ObjectStore, how: How | int
    ) -> None:
        old = store.put("a", b"1")
        with s3.seam.fail(how, method="PUT") as fault:
            new = store.replace_if_matches("a", b"2", old)
        assert fault.hits == 1
        assert store.get("a").data == b"2"
        assert new == tag_of(store, "a")

    @pytest.mark.parametrize("how", UNSEEN + UNDONE)
    def test_put_with_lost_response_returns_the_tag(
        self, s3: Bucket, store: ObjectStore, how: How | int
    ) -> None:
        with s3.seam.fail(how, method="PUT") as fault:
            assert store.put("a", b"1") == tag_of(store, "a")
        assert fault.hits == 1

    @pytest.mark.parametrize("how", UNSEEN + UNDONE)
    def test_get_list_and_delete_after_failure_are_retried(
        self, s3: Bucket, store: ObjectStore, how: How | int
    ) -> None:
        store.put("a", b"1")
        with s3.seam.fail(how):
            assert store.get("a").data == b"1"
        with s3.seam.fail(how):
            assert [found.key for found in store.list()] == ["a"]
        with s3.seam.fail(how):
            store.delete("a")
        assert s3.keys == []

    def test_conditional_put_after_409_is_retried(self, s3: Bucket, store: ObjectStore) -> None:
        # S3 returns 409 when it cannot order two concurrent writes. This is not a failed condition.
        with s3.seam.fail(409, method="PUT"):
            assert store.create_if_absent("a", b"1")
        with s3.seam.fail(409, method="PUT"):
            assert store.replace_if_matches("a", b"2", tag_of(store, "a")) is not None
        assert store.get("a").data == b"2"


class TestSomeoneElseMeanwhile:
    """A reply is lost, and another client writes before the retry."""

    def test_create_if_absent_overtaken_by_another_returns_false(
        self, s3: Bucket, store: ObjectStore, other: ObjectStore
    ) -> None:
        with s3.seam.cut(lambda: creates(other, "a", b"theirs"), nth=1, applied=False, method="PUT"):
            assert not store.create_if_absent("a", b"ours")
        assert store.get("a").data == b"theirs"

    def test_create_if_absent_replaced_before_the_retry_raises_outcome_unknown(
        self, s3: Bucket, store: ObjectStore, other: ObjectStore
    ) -> None:
        # The create took effect and was deleted since, so neither result is certain.
        with (
            s3.seam.cut(lambda: puts(other, "a", b"theirs"), nth=1, applied=True, method="PUT"),
            pytest.raises(OutcomeUnknown) as caught,
        ):
            store.create_if_absent("a", b"ours")
        assert caught.value.details["key"] == "a"

    @pytest.mark.parametrize("applied", [False, True])
    def test_replace_if_matches_replaced_before_the_retry_raises_outcome_unknown(
        self, s3: Bucket, store: ObjectStore, other: ObjectStore, applied: bool
    ) -> None:
        tag = store.put("a", b"1")
        with (
            s3.seam.cut(lambda: puts(other, "a", b"theirs"), nth=1, applied=applied, method="PUT"),
            pytest.raises(OutcomeUnknown),
        ):
            store.replace_if_matches("a", b"ours", tag)
        assert store.get("a").data == b"theirs"

    def test_create_if_absent_after_409_overtaken_by_another_returns_false(
        self, s3: Bucket, store: ObjectStore, other: ObjectStore
    ) -> None:
        tag = store.put("b", b"1")
        other.put("a", b"theirs")
        other.put("b", b"theirs")
        with s3.seam.fail(409, method="PUT"):
            assert not store.create_if_absent("a", b"ours")
        with s3.seam.fail(409, method="PUT"):
            assert store.replace_if_matches("b", b"ours", tag) is None

    def test_create_if_absent_overtaken_with_equal_bytes_returns_false(
        self, s3: Bucket, store: ObjectStore, other: ObjectStore
    ) -> None:
        with s3.seam.cut(lambda: creates(other, "a", b"same"), nth=1, applied=False, method="PUT"):
            assert not store.create_if_absent("a", b"same")


class TestStorageGone:
    """With a permanent fault every call ends within its limits, with the right error."""

    @pytest.mark.parametrize("how", ["drop", "reset", "hang", 500])
    def test_write_without_any_response_raises_outcome_unknown(
        self, s3: Bucket, impatient: ObjectStore, other: ObjectStore, how: How | int
    ) -> None:
        tag = other.put("b", b"1")
        writes: list[Callable[[], object]] = [
            lambda: impatient.put("a", b"1"),
            lambda: impatient.create_if_absent("c", b"1"),
            lambda: impatient.replace_if_matches("b", b"2", tag),
        ]
        for write in writes:
            with s3.seam.fail(how, times=None), pytest.raises(OutcomeUnknown):
                write()

    @pytest.mark.parametrize(
        ("status", "transient"), [(503, True), (429, True), (403, False), (501, False), (400, False)]
    )
    def test_write_that_is_refused_changes_nothing(
        self, s3: Bucket, store: ObjectStore, status: int, transient: bool
    ) -> None:
        tag = store.put("b", b"1")
        writes: list[Callable[[], object]] = [
            lambda: store.put("a", b"1"),
            lambda: store.create_if_absent("a", b"1"),
            lambda: store.replace_if_matches("b", b"2", tag),
        ]
        for write in writes:
            with s3.seam.fail(status, times=None), pytest.raises(StorageError, match=str(status)) as caught:
                write()
            assert caught.value.transient is transient
        assert s3.keys == ["b"]
        assert store.get("b").data == b"1"

    @pytest.mark.parametrize(
        ("how", "transient"),
        [("reset", True), ("hang", True), (500, True), (503, True), (403, False), (501, False)],
    )
    def test_get_that_fails_is_not_reported_as_not_found(
        self, s3: Bucket, impatient: ObjectStore, other: ObjectStore, how: How | int, transient: bool
    ) -> None:
        other.put("a", b"1")
        reads: list[Callable[[], object]] = [
            lambda: impatient.get("a"),
            lambda: list(impatient.list()),
            lambda: impatient.exists_any(),
            lambda: impatient.delete("a"),
        ]
        for read in reads:
            with s3.seam.fail(how, times=None), pytest.raises(StorageError) as caught:
                read()
            assert caught.value.transient is transient

    def test_list_that_fails_on_a_later_page_raises(self, s3: Bucket, store: ObjectStore) -> None:
        for number in range(1001):
            s3.server.objects.put(s3.name, f"many/{number:04}", b"")
        with s3.seam.fail(503, nth=2, times=None), pytest.raises(StorageError):
            list(store.list("many"))

    def test_call_to_unreachable_server_raises_transient_error(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        options = {
            "endpoint": f"http://127.0.0.1:{port}",
            "allow_http": "true",
            "access_key_id": "k",
            "secret_access_key": "s",
            "max_retries": "1",
            "retry_backoff": "1ms",
        }
        store = ObjectStore.open("s3://bucket", options)
        calls: list[Callable[[], object]] = [
            lambda: store.get("a"),
            lambda: store.put("a", b""),
            lambda: store.create_if_absent("a", b""),
        ]
        for call in calls:
            with pytest.raises(StorageError) as caught:
                call()
            assert caught.value.transient

    def test_call_with_wrong_access_key_raises_without_retry(self, s3: Bucket) -> None:
        store = ObjectStore.open(s3.uri, {**s3.options, "access_key_id": "someone-else"})
        with pytest.raises(StorageError, match="403") as caught:
            store.put("a", b"")
        assert not caught.value.transient

    def test_retries_are_bounded_in_number(self, s3: Bucket) -> None:
        store = ObjectStore.open(s3.uri, {**s3.options, "max_retries": "3"})
        with s3.seam.recording() as log, s3.seam.fail(503, times=None), pytest.raises(StorageError):
            store.put("a", b"")
        assert log.count("PUT") == 4

    def test_retries_are_bounded_in_time(self, s3: Bucket) -> None:
        limits = {
            "timeout": "100ms",
            "max_retries": "1000",
            "retry_timeout": "300ms",
            "retry_backoff": "20ms",
        }
        store = ObjectStore.open(s3.uri, {**s3.options, **limits})
        with s3.seam.recording() as log, s3.seam.fail("hang", times=None), pytest.raises(OutcomeUnknown):
            store.create_if_absent("a", b"")
        # 300 ms allow a few attempts of 100 ms, far fewer than the limit of a thousand.
        assert log.count() < 20


class TestEveryCallUnderEveryFault:
    """Any fault at any request leads to a defined and correct outcome."""

    @pytest.mark.parametrize("how", [*UNSEEN, *UNDONE, 403, 404, 409, 412, 501])
    @pytest.mark.parametrize("times", [1, None])
    @pytest.mark.parametrize("nth", [1, 2, 3])
    def test_conditional_writes_under_any_fault_report_the_true_outcome(
        self, s3: Bucket, how: How | int, times: int | None, nth: int
    ) -> None:
        limits = {"timeout": "60ms", "max_retries": "1"}
        store = ObjectStore.open(s3.uri, {**s3.options, **limits})
        truth = ObjectStore.open(s3.uri, s3.options)
        key, mine = uuid4().hex, uuid4().hex.encode()
        outcome: object
        with s3.seam.fail(how, nth=nth, times=times):
            try:
                outcome = store.create_if_absent(key, mine)
                if outcome:
                    outcome = store.replace_if_matches(key, mine + b"2", store.get(key).etag)
            except OmnigraphError as error:
                outcome = error
        try:
            there = truth.get(key).data
        except NotFound:
            there = b""
        match outcome:
            case str():
                assert there == mine + b"2"
            case False:
                # The server reported a failed condition without another client.
                assert how == 412
                assert there == b""
            case None:
                assert how in (404, 412)
                assert there == mine
            case StorageError() | NotFound():
                assert there in (b"", mine)
            case _:
                assert isinstance(outcome, OutcomeUnknown)


class TestCost:
    """One request for each operation."""

    def test_each_operation_takes_one_request(self, s3: Bucket, other: ObjectStore) -> None:
        tag = other.put("a", b"1")
        calls: list[Callable[[], object]] = [
            lambda: other.get("a"),
            lambda: other.put("b", b"1"),
            lambda: other.create_if_absent("c", b"1"),
            lambda: other.create_if_absent("c", b"1"),
            lambda: other.replace_if_matches("a", b"2", tag),
            lambda: other.replace_if_matches("a", b"3", tag),
            lambda: list(other.list()),
            lambda: other.exists_any("nothing"),
            lambda: other.delete("a"),
            lambda: other.delete_many(["b", "c"]),
        ]
        counted = []
        for call in calls:
            with s3.seam.recording() as log:
                call()
            counted.append(len(log.requests))
        assert counted == [1] * len(calls)

    def test_exists_any_reads_one_page(self, s3: Bucket, other: ObjectStore) -> None:
        for number in range(2500):
            s3.server.objects.put(s3.name, f"many/{number:04}", b"")
        with s3.seam.recording() as log:
            assert other.exists_any("many")
        assert len(log.requests) == 1
        with s3.seam.recording() as log:
            assert len(list(other.list("many"))) == 2500
        assert len(log.requests) == 3


def creates(store: ObjectStore, key: str, data: bytes) -> None:
    assert store.create_if_absent(key, data)


def puts(store: ObjectStore, key: str, data: bytes) -> None:
    store.put(key, data)
