"""Objects in S3-compatible buckets and in memory, through obstore.

There are two handles on the same place. Reads and listings are safe to repeat, so obstore retries them. Writes
are sent once by obstore and retried here, because obstore repeats a conditional put whose reply was lost and
then reports the conflict with its own first attempt. Every write stores a unique write id in the object
metadata. When a reply is lost, the object is read back, and the write id tells whether this write created it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

import obstore
from obstore.exceptions import BaseError
from obstore.store import MemoryStore, S3Store

from omnigraph.errors import NotFound, OutcomeUnknown, StorageError
from omnigraph.store.location import Location
from omnigraph.store.objects.backend import Object, ObjectInfo, Writable
from omnigraph.store.objects.obstore_errors import ObstoreFailure
from omnigraph.store.request_counts import count_requests
from omnigraph.store.storage_options import RetryPolicy, StorageOptions

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode, WritableFile
    from obstore.store import S3Config

__all__ = ["ObstoreBackend"]

Handle: TypeAlias = S3Store | MemoryStore

_WRITE_ID = "omnigraph-write"
_PAGE_KEYS = 1000
# S3 allows 10,000 parts in a multipart upload, so the part size limits an object to 160 GB.
_PART_BYTES = 16 * 1024 * 1024
_CONCURRENT_PARTS = 4
_CHUNK_BYTES = 4 * 1024 * 1024
# obstore raises its own errors, FileNotFoundError, and ValueError for replies that it cannot parse.
_ERRORS = (BaseError, OSError, ValueError)

# Memory stores live as long as the process, so that all stores of one name share their objects.
_memories: dict[str, MemoryStore] = {}
_memories_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class _StoredObject:
    """An object with the id of the write that created it."""

    data: bytes
    etag: str
    write_id: str


@dataclass(frozen=True, slots=True)
class _Condition:
    """The condition of a write.

    `holds_for` returns whether the write could still succeed, given the present object. `excluded_by` returns
    whether the present object proves that no earlier attempt of this write took effect.
    """

    kind: str
    mode: PutMode
    holds_for: Callable[[_StoredObject | None], bool]
    excluded_by: Callable[[_StoredObject], bool]


_ALWAYS = _Condition("put", "overwrite", lambda _: True, lambda _: False)
# An object that another create wrote means that this create did not take effect, or was deleted since.
_IF_ABSENT = _Condition(
    "create",
    "create",
    lambda present: present is None,
    lambda present: present.write_id.startswith("create/"),
)


def _if_matches(etag: str) -> _Condition:
    def unchanged(present: _StoredObject | None) -> bool:
        return present is not None and present.etag == etag

    return _Condition("replace", {"e_tag": etag}, unchanged, lambda _: False)


class ObstoreBackend:
    """Objects below one prefix of a bucket or of a named memory."""

    def __init__(self, connect: Callable[[int], Handle], prefix: str, policy: RetryPolicy) -> None:
        self._connect = connect
        self._prefix = f"{prefix}/" if prefix else ""
        self._policy = policy

    @classmethod
    def at(cls, location: Location, options: StorageOptions) -> ObstoreBackend:
        """Return the objects at a remote location; `options` are already checked."""
        policy = RetryPolicy.of(options)
        if location.scheme == "memory":
            with _memories_lock:
                memory = _memories.setdefault(location.authority, MemoryStore())
            return cls(lambda _: memory, location.path, policy)
        return cls(lambda retries: _s3(location.authority, options, policy, retries), location.path, policy)

    # A handle takes about 10 ms to create, because it loads TLS roots. Many stores need only one of the two.
    @cached_property
    def _reader(self) -> Handle:
        return self._connect(self._policy.max_retries)

    @cached_property
    def _writer(self) -> Handle:
        return self._connect(0)

    def get(self, key: str) -> Object:
        try:
            stored = self._read(self._reader, key)
        except _ERRORS as error:
            raise ObstoreFailure.of(error).as_error(f"get object `{key}`") from error
        if stored is None:
            raise NotFound(f"no object `{key}`", details={"key": key})
        return Object(stored.data, stored.etag)

    def read_chunks(self, key: str) -> Iterator[bytes]:
        count_requests(reads=1)
        try:
            result = obstore.get(self._reader, self._prefix + key)
            received = 0
            for chunk in result.stream(min_chunk_size=_CHUNK_BYTES):
                received += len(chunk)
                yield bytes(chunk)
        except _ERRORS as error:
            raise _read_error(ObstoreFailure.of(error), key) from error
        if received != result.meta["size"]:
            raise StorageError(
                f"cannot read object `{key}`: expected {result.meta['size']} bytes, got {received}",
                transient=True,
            )

    def put(self, key: str, data: bytes) -> str:
        etag = self._write(key, data, _ALWAYS)
        if etag is None:
            raise StorageError(
                f"cannot put object `{key}`: the store reported a failed condition for a put without condition"
            )
        return etag

    def create_if_absent(self, key: str, data: bytes) -> bool:
        return self._write(key, data, _IF_ABSENT) is not None

    def replace_if_matches(self, key: str, data: bytes, etag: str) -> str | None:
        return self._write(key, data, _if_matches(etag))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        folder = (self._prefix + prefix).rstrip("/") or None
        # A listing without results takes one request too.
        count_requests(reads=1)
        try:
            for number, page in enumerate(obstore.list(self._reader, folder, chunk_size=_PAGE_KEYS)):
                count_requests(reads=min(number, 1))
                for meta in page:
                    yield self._info(meta)
        except _ERRORS as error:
            raise ObstoreFailure.of(error).as_error(f"list `{prefix}`") from error

    def delete_many(self, keys: Sequence[str]) -> None:
        paths = [self._prefix + key for key in keys]
        failure = ObstoreFailure.of(TimeoutError("no attempt was made"))
        # obstore does not retry deletes, although they are idempotent.
        for _ in self._attempts():
            # One request deletes up to a thousand objects.
            count_requests(writes=-(-len(paths) // _PAGE_KEYS))
            try:
                obstore.delete(self._writer, paths)
                return
            except _ERRORS as error:
                failure = ObstoreFailure.of(error)
            if failure.object_missing:
                return
            if not failure.transient:
                break
        more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        raise failure.as_error(f"delete object `{keys[0]}`{more}")

    def delete_tree(self) -> None:
        listed = self.list("")
        while keys := [info.key for info in islice(listed, _PAGE_KEYS)]:
            self.delete_many(keys)

    def head(self, key: str) -> ObjectInfo:
        count_requests(reads=1)
        try:
            return self._info(obstore.head(self._reader, self._prefix + key))
        except _ERRORS as error:
            raise _read_error(ObstoreFailure.of(error), key) from error

    def open_range_reader(self, info: ObjectInfo) -> _ObjectRangeReader:
        return _ObjectRangeReader(self._reader, self._prefix + info.key, info)

    @contextmanager
    def open_write(self, key: str) -> Iterator[Writable]:
        upload = _Upload(self, key)
        try:
            yield upload
        except BaseException:
            upload.abort()
            raise
        upload.finish()

    def open_multipart(self, key: str, write_id: str) -> WritableFile:
        """Start a multipart upload. A part that is sent again replaces itself, so obstore may retry it."""
        return obstore.open_writer(
            self._reader,
            self._prefix + key,
            attributes={_WRITE_ID: write_id},
            buffer_size=_PART_BYTES,
            max_concurrency=_CONCURRENT_PARTS,
        )

    def has_write_id(self, key: str, write_id: str) -> bool:
        """Return whether the write with this id created the present object."""
        count_requests(reads=1)
        result = obstore.get(self._reader, self._prefix + key, options={"range": (0, 1)})
        return result.attributes.get(_WRITE_ID) == write_id

    def _info(self, meta: ObjectMeta) -> ObjectInfo:
        return ObjectInfo(
            key=meta["path"].removeprefix(self._prefix),
            size=meta["size"],
            last_modified=meta["last_modified"],
            etag=meta["e_tag"],
        )

    def _read(self, handle: Handle, key: str) -> _StoredObject | None:
        """Return the object, or None when there is none. Other errors of obstore pass unchanged."""
        count_requests(reads=1)
        try:
            result = obstore.get(handle, self._prefix + key)
            data = result.bytes().to_bytes()
        except FileNotFoundError as error:
            if ObstoreFailure.of(error).object_missing:
                return None
            raise
        return _StoredObject(data, result.meta["e_tag"] or "", result.attributes.get(_WRITE_ID, ""))

    def _write(self, key: str, data: bytes, condition: _Condition) -> str | None:
        """Write under a condition; return the new entity tag, or None if the condition did not hold.

        `uncertain` means that an attempt may have taken effect although its reply was lost. From then on a failed
        condition proves nothing, because the write itself may have changed the object. Only reading back decides.
        """
        write_id = f"{condition.kind}/{uuid4().hex}"
        uncertain = False
        failure = ObstoreFailure.of(TimeoutError("no attempt was made"))
        for _ in self._attempts():
            try:
                return self._put_once(key, data, condition, write_id)
            except _ERRORS as error:
                failure = ObstoreFailure.of(error)
            if failure.condition_failed and not uncertain:
                return None
            if not (failure.condition_failed or failure.transient or failure.may_have_succeeded):
                break
            uncertain = uncertain or failure.may_have_succeeded
            if not (uncertain or failure.conflict):
                continue
            try:
                present = self._read(self._writer, key)
            except _ERRORS:
                continue
            if present is not None and present.write_id == write_id:
                return present.etag
            if condition.holds_for(present):
                continue
            if not uncertain or (present is not None and condition.excluded_by(present)):
                return None
            break
        if uncertain:
            raise OutcomeUnknown(
                f"cannot tell whether the store executed {condition.kind} of object `{key}`: {failure.reason}",
                details={"key": key, "reason": failure.summary},
                hint="read the object to find out",
            )
        raise failure.as_error(f"{condition.kind} object `{key}`")

    def _put_once(self, key: str, data: bytes, condition: _Condition, write_id: str) -> str:
        count_requests(writes=1)
        result = obstore.put(
            self._writer,
            self._prefix + key,
            data,
            attributes={_WRITE_ID: write_id},
            mode=condition.mode,
            use_multipart=False,
        )
        return result["e_tag"] or ""

    def _attempts(self) -> Iterator[int]:
        """Yield the numbers of the attempts that the retry policy allows, with a wait between them."""
        deadline = time.monotonic() + self._policy.retry_timeout
        yield 0
        for attempt in range(1, self._policy.max_retries + 1):
            backoff = min(self._policy.max_backoff, self._policy.backoff * 2 ** (attempt - 1))
            # Jitter, so that writers that failed at the same time do not retry at the same time.
            delay = backoff * random.uniform(0.5, 1)
            if time.monotonic() + delay > deadline:
                return
            time.sleep(delay)
            yield attempt


class _ObjectRangeReader:
    """One version of an object. Each range is one request, so a slow reader keeps no connection open."""

    def __init__(self, handle: Handle, path: str, info: ObjectInfo) -> None:
        self._handle = handle
        self._path = path
        self._info = info
        self.size = info.size

    def read(self, start: int, end: int) -> bytes:
        key = self._info.key
        count_requests(reads=1)
        try:
            result = obstore.get(
                self._handle, self._path, options={"range": (start, end), "if_match": self._info.etag}
            )
            data = result.bytes().to_bytes()
        except _ERRORS as error:
            raise _read_error(ObstoreFailure.of(error), key) from error
        if len(data) != end - start:
            raise StorageError(
                f"cannot read object `{key}`: expected {end - start} bytes, got {len(data)}", transient=True
            )
        return data

    def close(self) -> None:
        """Do nothing: there is no connection between requests."""


class _Upload:
    """An object that is being written: one put if it is small, else a multipart upload.

    The object becomes visible when the multipart upload is completed.
    """

    def __init__(self, backend: ObstoreBackend, key: str) -> None:
        self._backend = backend
        self._key = key
        self._write_id = f"upload/{uuid4().hex}"
        self._buffer = bytearray()
        self._sent = 0
        self._multipart: WritableFile | None = None

    def write(self, data: bytes, /) -> int:
        self._buffer += data
        if len(self._buffer) > _PART_BYTES:
            if self._multipart is None:
                self._multipart = self._backend.open_multipart(self._key, self._write_id)
            try:
                self._send(self._multipart)
            except _ERRORS as error:
                raise ObstoreFailure.of(error).as_error(f"write object `{self._key}`") from error
        return len(data)

    def finish(self) -> None:
        """Make the object visible."""
        if self._multipart is None:
            self._backend.put(self._key, bytes(self._buffer))
            return
        try:
            self._send(self._multipart)
            # The parts, the request that begins the upload, and the request that completes it.
            count_requests(writes=2 - (-self._sent // _PART_BYTES))
            self._multipart.close()
        except _ERRORS as error:
            self._check_completed(ObstoreFailure.of(error), error)

    def abort(self) -> None:
        """Abort the multipart upload. If that fails, the parts remain in the store and are invisible."""
        if self._multipart is not None:
            stopped = InterruptedError("the writer stopped")
            with suppress(*_ERRORS):
                self._multipart.__exit__(type(stopped), stopped, None)

    def _send(self, parts: WritableFile) -> None:
        parts.write(bytes(self._buffer))
        self._sent += len(self._buffer)
        self._buffer.clear()

    def _check_completed(self, failure: ObstoreFailure, error: Exception) -> None:
        """Find out whether an upload whose last request failed is complete."""
        # Without all parts the upload cannot have completed. It may have completed when the reply was lost; a
        # second completion then fails because the upload no longer exists.
        if "partNumber=" in failure.summary or not (
            failure.may_have_succeeded or failure.code == "NoSuchUpload"
        ):
            raise failure.as_error(f"write object `{self._key}`") from error
        with suppress(*_ERRORS):
            if self._backend.has_write_id(self._key, self._write_id):
                return
        raise OutcomeUnknown(
            f"cannot tell whether the store completed the upload of object `{self._key}`: {failure.reason}",
            details={"key": self._key, "reason": failure.summary},
            hint="read the object to find out; it has either its old or its new content",
        ) from error


def _read_error(failure: ObstoreFailure, key: str) -> NotFound | StorageError:
    """Return the error to raise for a failed read."""
    if failure.object_missing:
        return NotFound(f"no object `{key}`", details={"key": key})
    if failure.condition_failed:
        return StorageError(
            f"object `{key}` was replaced while it was read",
            kind="precondition",
            details={"key": key},
            hint="read it again from its beginning",
        )
    return failure.as_error(f"read object `{key}`")


def _s3(bucket: str, options: StorageOptions, policy: RetryPolicy, retries: int) -> S3Store:
    config: S3Config = {
        "bucket": bucket,
        "region": options.get("region", "us-east-1"),
        "virtual_hosted_style_request": options.get("virtual_hosted") == "true",
    }
    if "endpoint" in options:
        config["endpoint"] = options["endpoint"]
    if "access_key_id" in options:
        config["access_key_id"] = options["access_key_id"]
    if "secret_access_key" in options:
        config["secret_access_key"] = options["secret_access_key"]
    if "session_token" in options:
        config["session_token"] = options["session_token"]
    return S3Store(
        config=config,
        client_options={
            "allow_http": options.get("allow_http") == "true",
            "timeout": timedelta(seconds=policy.timeout),
            "connect_timeout": timedelta(seconds=policy.connect_timeout),
        },
        retry_config={
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=policy.retry_timeout),
            "backoff": {
                "init_backoff": timedelta(seconds=policy.backoff),
                "max_backoff": timedelta(seconds=policy.max_backoff),
                "base": 2,
            },
        },
    )
