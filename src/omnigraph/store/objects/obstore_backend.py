"""Control objects in S3-compatible buckets and in memory, over obstore.

Two handles on the same place: reads and listings may be repeated blindly, so obstore retries them. Changes
are tried once by obstore and retried here, because obstore repeats a conditional put whose reply was lost and
then reports the conflict with its own first attempt. Every write carries a mark of its own as object
metadata; when a reply is lost, the object is read back and the mark tells whose it is.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
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

_MARK = "omnigraph-write"
_PAGE = 1000
# An upload has at most 10,000 parts in S3, so their size bounds that of an object: 160 GB.
_PART = 16 * 1024 * 1024
_PARTS_AT_ONCE = 4
# What obstore raises: its own errors, FileNotFoundError, and ValueError for what it cannot parse.
_ERRORS = (BaseError, OSError, ValueError)

# Memory lives as long as the process, so that every handle of one name sees the same objects.
_memories: dict[str, MemoryStore] = {}
_memories_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class _Found:
    """An object as read, with the mark of the write that made it."""

    data: bytes
    etag: str
    mark: str


@dataclass(frozen=True, slots=True)
class _Condition:
    """When a write may happen.

    `open_to` says whether it could still succeed on what is there now. `beaten_by` says whether what is there
    proves that no earlier attempt of this write was ever in place.
    """

    kind: str
    mode: PutMode
    open_to: Callable[[_Found | None], bool]
    beaten_by: Callable[[_Found], bool]


_ALWAYS = _Condition("put", "overwrite", lambda _: True, lambda _: False)
# Someone's creation in place means that ours is not: it never was, or it has been deleted since.
_IF_ABSENT = _Condition(
    "create", "create", lambda found: found is None, lambda found: found.mark.startswith("create/")
)


def _if_tagged(etag: str) -> _Condition:
    def unchanged(found: _Found | None) -> bool:
        return found is not None and found.etag == etag

    return _Condition("replace", {"e_tag": etag}, unchanged, lambda _: False)


class ObstoreBackend:
    """Control objects below one prefix of a bucket or of a named memory."""

    def __init__(self, connect: Callable[[int], Handle], prefix: str, policy: RetryPolicy) -> None:
        self._connect = connect
        self._prefix = f"{prefix}/" if prefix else ""
        self._policy = policy

    @classmethod
    def at(cls, location: Location, options: StorageOptions) -> ObstoreBackend:
        """The objects at a remote location, with checked options."""
        policy = RetryPolicy.of(options)
        if location.scheme == "memory":
            with _memories_lock:
                memory = _memories.setdefault(location.authority, MemoryStore())
            return cls(lambda _: memory, location.path, policy)
        return cls(lambda retries: _s3(location.authority, options, policy, retries), location.path, policy)

    # Each handle takes some 10 ms to make, for its TLS roots, and many stores only need one of them.
    @cached_property
    def _reader(self) -> Handle:
        return self._connect(self._policy.max_retries)

    @cached_property
    def _writer(self) -> Handle:
        return self._connect(0)

    def get(self, key: str) -> Object:
        try:
            found = self._read(self._reader, key)
        except _ERRORS as error:
            raise ObstoreFailure.of(error).as_error(f"get object `{key}`") from error
        if found is None:
            raise NotFound(f"no object `{key}`", details={"key": key})
        return Object(found.data, found.etag)

    def put(self, key: str, data: bytes) -> str:
        tag = self._write(key, data, _ALWAYS)
        if tag is None:
            raise StorageError(f"the store refused an unconditional put of `{key}` as conditional")
        return tag

    def create_if_absent(self, key: str, data: bytes) -> bool:
        return self._write(key, data, _IF_ABSENT) is not None

    def replace_if_matches(self, key: str, data: bytes, etag: str) -> str | None:
        return self._write(key, data, _if_tagged(etag))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        folder = (self._prefix + prefix).rstrip("/") or None
        # A folder that holds nothing is asked for too.
        count_requests(reads=1)
        try:
            for number, page in enumerate(obstore.list(self._reader, folder, chunk_size=_PAGE)):
                count_requests(reads=min(number, 1))
                for found in page:
                    yield self._info(found)
        except _ERRORS as error:
            raise ObstoreFailure.of(error).as_error(f"list `{prefix}`") from error

    def delete_many(self, keys: Sequence[str]) -> None:
        paths = [self._prefix + key for key in keys]
        failure = ObstoreFailure.of(TimeoutError("no attempt was made"))
        # Repeated here: obstore takes a delete for something that must not be sent twice.
        for _ in self._attempts():
            # A store takes a thousand names in a request.
            count_requests(writes=-(-len(paths) // _PAGE))
            try:
                obstore.delete(self._writer, paths)
                return
            except _ERRORS as error:
                failure = ObstoreFailure.of(error)
            if failure.missing:
                return
            if not failure.transient:
                break
        raise failure.as_error(f"delete {len(keys)} objects, `{keys[0]}` first")

    def head(self, key: str) -> ObjectInfo:
        count_requests(reads=1)
        try:
            return self._info(obstore.head(self._reader, self._prefix + key))
        except _ERRORS as error:
            raise _unread(ObstoreFailure.of(error), key) from error

    def pin(self, info: ObjectInfo) -> _PinnedObject:
        return _PinnedObject(self._reader, self._prefix + info.key, info)

    @contextmanager
    def writing(self, key: str) -> Iterator[Writable]:
        upload = _Upload(self, key)
        try:
            yield upload
        except BaseException:
            upload.abandon()
            raise
        upload.finish()

    def open_parts(self, key: str, mark: str) -> WritableFile:
        """An upload in parts. Sending a part again replaces it, so obstore may retry them."""
        return obstore.open_writer(
            self._reader,
            self._prefix + key,
            attributes={_MARK: mark},
            buffer_size=_PART,
            max_concurrency=_PARTS_AT_ONCE,
        )

    def has_mark(self, key: str, mark: str) -> bool:
        """Whether the object is the one that a write with this mark made."""
        count_requests(reads=1)
        result = obstore.get(self._reader, self._prefix + key, options={"range": (0, 1)})
        return result.attributes.get(_MARK) == mark

    def _info(self, found: ObjectMeta) -> ObjectInfo:
        return ObjectInfo(
            key=found["path"].removeprefix(self._prefix),
            size=found["size"],
            last_modified=found["last_modified"],
            etag=found["e_tag"],
        )

    def _read(self, handle: Handle, key: str) -> _Found | None:
        """The object, or None; other failures as obstore raises them."""
        count_requests(reads=1)
        try:
            result = obstore.get(handle, self._prefix + key)
            data = result.bytes().to_bytes()
        except FileNotFoundError as error:
            if ObstoreFailure.of(error).missing:
                return None
            raise
        return _Found(data, result.meta["e_tag"] or "", result.attributes.get(_MARK, ""))

    def _write(self, key: str, data: bytes, condition: _Condition) -> str | None:
        """Write under a condition: the new tag, or None if the condition did not hold.

        `doubt` means that an attempt may have taken effect unseen. From then on a refusal proves nothing,
        as it may be our own write that is in the way; only reading back does.
        """
        mark = f"{condition.kind}/{uuid4().hex}"
        doubt = False
        failure = ObstoreFailure.of(TimeoutError("no attempt was made"))
        for _ in self._attempts():
            try:
                return self._put_once(key, data, condition, mark)
            except _ERRORS as error:
                failure = ObstoreFailure.of(error)
            if failure.lost and not doubt:
                return None
            if not (failure.lost or failure.transient or failure.maybe_done):
                break
            doubt = doubt or failure.maybe_done
            if not (doubt or failure.conflict):
                continue
            try:
                found = self._read(self._writer, key)
            except _ERRORS:
                continue
            if found is not None and found.mark == mark:
                return found.etag
            if condition.open_to(found):
                continue
            if not doubt or (found is not None and condition.beaten_by(found)):
                return None
            break
        what = f"{condition.kind} object `{key}`"
        if doubt:
            raise OutcomeUnknown(
                f"cannot tell whether the store did {what}",
                details={"key": key, "reason": failure.summary},
                hint="read the object to find out",
            )
        raise failure.as_error(what)

    def _put_once(self, key: str, data: bytes, condition: _Condition, mark: str) -> str:
        count_requests(writes=1)
        result = obstore.put(
            self._writer,
            self._prefix + key,
            data,
            attributes={_MARK: mark},
            mode=condition.mode,
            use_multipart=False,
        )
        return result["e_tag"] or ""

    def _attempts(self) -> Iterator[int]:
        """Count attempts, pausing between them, within the policy's bounds."""
        deadline = time.monotonic() + self._policy.retry_timeout
        yield 0
        for attempt in range(1, self._policy.max_retries + 1):
            longest = min(self._policy.longest_pause, self._policy.backoff * 2 ** (attempt - 1))
            # Jitter keeps writers that failed together from coming back together.
            pause = longest * random.uniform(0.5, 1)
            if time.monotonic() + pause > deadline:
                return
            time.sleep(pause)
            yield attempt


class _PinnedObject:
    """One version of an object. Each piece is a request of its own, so a slow reader holds no connection open."""

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
            raise _unread(ObstoreFailure.of(error), key) from error
        if len(data) != end - start:
            raise StorageError(f"object `{key}` came {end - start - len(data)} bytes short", transient=True)
        return data

    def close(self) -> None:
        """Nothing is held between requests."""


class _Upload:
    """Bytes on their way to one object: a single put while they are few, an upload in parts beyond that.

    Parts are no object: it is there when the store has been told that they are complete.
    """

    def __init__(self, backend: ObstoreBackend, key: str) -> None:
        self._backend = backend
        self._key = key
        self._mark = f"upload/{uuid4().hex}"
        self._pending = bytearray()
        self._sent = 0
        self._parts: WritableFile | None = None

    def write(self, data: bytes, /) -> int:
        self._pending += data
        if len(self._pending) > _PART:
            if self._parts is None:
                self._parts = self._backend.open_parts(self._key, self._mark)
            try:
                self._send(self._parts)
            except _ERRORS as error:
                raise _failed_upload(error).as_error(f"write object `{self._key}`") from error
        return len(data)

    def finish(self) -> None:
        """Make the object visible."""
        if self._parts is None:
            self._backend.put(self._key, bytes(self._pending))
            return
        try:
            self._send(self._parts)
            # The parts, what begins them and what completes them.
            count_requests(writes=2 - (-self._sent // _PART))
            self._parts.close()
        except _ERRORS as error:
            self._settle(_failed_upload(error), error)

    def abandon(self) -> None:
        """Have the store forget the parts. Where it cannot be told, they stay invisible."""
        if self._parts is not None:
            stopped = InterruptedError("the writer stopped")
            with suppress(*_ERRORS):
                self._parts.__exit__(type(stopped), stopped, None)

    def _send(self, parts: WritableFile) -> None:
        parts.write(bytes(self._pending))
        self._sent += len(self._pending)
        self._pending.clear()

    def _settle(self, failure: ObstoreFailure, error: Exception) -> None:
        """Find out whether an upload that failed at its end is complete."""
        # A part that could not be sent leaves nothing to complete. A lost reply to the completion does, and
        # when it is asked for again, the upload is not known any more.
        if "partNumber=" in failure.summary or not (failure.maybe_done or failure.code == "NoSuchUpload"):
            raise failure.as_error(f"write object `{self._key}`") from error
        with suppress(*_ERRORS):
            if self._backend.has_mark(self._key, self._mark):
                return
        raise OutcomeUnknown(
            f"cannot tell whether the store completed object `{self._key}`",
            details={"key": self._key, "reason": failure.summary},
            hint="look at the object to find out; it is whole or not there",
        ) from error


def _failed_upload(error: Exception) -> ObstoreFailure:
    failure = ObstoreFailure.of(error)
    # The errors of an upload come without the part that names the kind of transport failure.
    lost = failure.status is None and failure.transport is None and "HTTP error" in failure.summary
    return replace(failure, transport="Request") if lost else failure


def _unread(failure: ObstoreFailure, key: str) -> NotFound | StorageError:
    """The error for an object that cannot be read."""
    if failure.missing:
        return NotFound(f"no object `{key}`", details={"key": key})
    if failure.lost:
        return StorageError(
            f"object `{key}` was replaced while it was read",
            transient=True,
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
                "max_backoff": timedelta(seconds=policy.longest_pause),
                "base": 2,
            },
        },
    )
