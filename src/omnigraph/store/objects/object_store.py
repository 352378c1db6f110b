"""Objects that are not Lance tables: control objects of a graph, files to load from and files to export to.

One interface over local disks, named memory and S3-compatible buckets. The contract tests run against every
backend.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import has_magic

from omnigraph.errors import InvalidInput
from omnigraph.store.location import Location
from omnigraph.store.objects.backend import Backend, Object, ObjectInfo, Writable
from omnigraph.store.objects.local_backend import LocalBackend, is_temporary
from omnigraph.store.objects.object_reader import ObjectReader
from omnigraph.store.objects.obstore_backend import ObstoreBackend
from omnigraph.store.storage_options import (
    RetryPolicy,
    StorageOptions,
    check_credentials,
    check_options,
    resolve_options,
)
from omnigraph.store.sync import Durability

__all__ = ["Object", "ObjectInfo", "ObjectReader", "ObjectStore", "Writable"]

# The smallest limits of the backends in bytes: a file name on a local disk, and an S3 key less room for the prefix.
_MAX_SEGMENT_BYTES = 255
_MAX_KEY_BYTES = 700
_CONTROL_CHARACTER = re.compile("[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """The objects below one location. Threads, processes and machines may share it.

    - A reader sees one version of an object completely, or no object, whatever happens to its writer.
    - After a write returns, every later read and list sees it. On a local disk with `full` durability it also
      survives a power failure, as it does on object stores. Memory lasts as long as the process, and all stores of
      one name share it.
    - An entity tag identifies content: equal tags mean equal bytes, and on S3 equal bytes have equal tags. Data
      that is compared and swapped must therefore never return to an earlier state. A counter or a new id in the
      data ensures this.

    A key consists of names joined by `/`, without control characters. No key may be the directory of another key.

    Every operation raises `StorageError` when storage fails or refuses, with `transient` set when a retry may
    help, and `InvalidInput` for a malformed key. A write raises `OutcomeUnknown` when it may have happened and
    reading back could not decide it. The object then has either the old or the new content.
    """

    location: Location
    _backend: Backend = field(repr=False, compare=False)
    options: StorageOptions = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(
        cls,
        uri: str | Location,
        options: StorageOptions | None = None,
        *,
        durability: Durability = "full",
    ) -> ObjectStore:
        """Return the objects below an address. Storage is not accessed until the first operation."""
        location = uri if isinstance(uri, Location) else Location.parse(uri)
        options = resolve_options(options)
        check_options(options)
        if location.is_local:
            backend = LocalBackend(location, durability, RetryPolicy.of(options).retry_timeout)
            return cls(location, backend, options)
        if location.scheme == "s3":
            check_credentials(options)
        return cls(location, ObstoreBackend.at(location, options), options)

    @classmethod
    def split_uri(cls, uri: str, options: StorageOptions | None = None) -> tuple[ObjectStore, str]:
        """Return the bucket or memory of an object's address, and the object's key.

        The key is taken literally, including characters with a meaning in URLs. It may be a pattern, or a directory
        with a slash at its end. Raises `InvalidInput` for an address on a local disk.

        >>> ObjectStore.split_uri("memory://scratch/daily/part-?.ndjson")[1]
        'daily/part-?.ndjson'
        """
        scheme, separator, rest = uri.partition("://")
        authority, _, key = rest.partition("/")
        location = Location.parse(scheme + separator + authority)
        if location.is_local:
            raise InvalidInput(f"`{uri}` is on a local disk, expected an s3:// or memory:// address")
        return cls.open(location, options), key

    def get(self, key: str) -> Object:
        """Return the object at `key`. Raises `NotFound` only when there is none."""
        return self._backend.get(_check_key(key))

    def read_chunks(self, key: str) -> Iterator[bytes]:
        """Yield the content of the object at `key` in chunks, with one request. Raises `NotFound`."""
        return self._backend.read_chunks(_check_key(key))

    def put(self, key: str, data: bytes) -> str:
        """Store `data` at `key`, replacing any object there, and return its entity tag.

        Of two concurrent puts one remains. A put that timed out may still arrive later and replace newer content.
        Where the order matters, use `replace_if_matches`.
        """
        return self._backend.put(_check_key(key), data)

    def create_if_absent(self, key: str, data: bytes) -> bool:
        """Store `data` if there is no object at `key`; return True for exactly one of all concurrent callers.

        The winner is known even when its reply was lost, and even when all callers send the same bytes.
        """
        return self._backend.create_if_absent(_check_key(key), data)

    def replace_if_matches(self, key: str, data: bytes, etag: str) -> str | None:
        """Replace the object if it still has `etag`; return the new tag, or None when it changed or is gone."""
        return self._backend.replace_if_matches(_check_key(key), data, etag)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield every object below the directory `prefix`, ordered by the UTF-8 bytes of the key.

        `a` lists `a/b` but not `ab`. The listing is not a snapshot: an object that is created or deleted meanwhile
        may or may not be in it.
        """
        return self._backend.list(_check_key(prefix) if prefix else "")

    def exists_any(self, prefix: str = "") -> bool:
        """Return whether there is any object below `prefix`, with one request."""
        return next(self.list(prefix), None) is not None

    def delete(self, key: str) -> None:
        """Delete the object, if it exists."""
        self.delete_many([key])

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects. After a failure some of them may remain; the call can be repeated."""
        checked = [_check_key(key) for key in keys]
        if checked:
            self._backend.delete_many(checked)

    def delete_tree(self) -> None:
        """Delete everything below the location, temporary files included.

        After a failure some of it may remain; the call can be repeated.
        """
        self._backend.delete_tree()

    # --- large objects -----------------------------------------------------------------------------------

    def head(self, key: str) -> ObjectInfo:
        """Return the listing entry of the object at `key`. Raises `NotFound` when there is none."""
        return self._backend.head(_check_key(key))

    def match(self, pattern: str) -> Sequence[ObjectInfo]:
        """Return the objects that match a pattern, in the order of `list`.

        ``*``, ``?`` and ``[…]`` match within a name, ``**`` matches any number of directories. An object whose key
        equals the pattern is the only match. Everything below the directories before the first wildcard is listed.
        """
        parts = pattern.split("/")
        fixed = next((index for index, part in enumerate(parts) if has_magic(part)), len(parts) - 1)
        listed = list(self.list("/".join(parts[:fixed])))
        exact = [info for info in listed if info.key == pattern]
        return exact or [info for info in listed if _matches(info.key.split("/"), parts)]

    def open_read(self, info: ObjectInfo) -> ObjectReader:
        """Open a listed object as a seekable file that keeps a few blocks in memory.

        A read raises `NotFound` when the object was deleted, and a transient `StorageError` when it was replaced
        since it was listed. A local file is opened in the state that it has at this call.
        """
        return ObjectReader(self._backend.open_range_reader(info), info.key)

    def open_write(self, key: str) -> AbstractContextManager[Writable]:
        """Return a context to write an object of any size. The end of the block replaces the present object.

        An error in the block is raised again and leaves the present object unchanged. Memory holds a few parts.
        Raises `OutcomeUnknown` when the reply to the completion of a large object was lost and reading back
        could not decide whether it happened.
        """
        return self._backend.open_write(_check_key(key))


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not names
    if pattern[0] == "**":
        return any(_matches(names[skipped:], pattern[1:]) for skipped in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])


def _check_key(key: str) -> str:
    segments = key.split("/")
    problem = None
    if any(segment in ("", ".", "..") for segment in segments):
        problem = "has an empty, . or .. segment"
    elif _CONTROL_CHARACTER.search(key) is not None:
        problem = "has a control character"
    elif is_temporary(segments[-1]):
        problem = "has a name that is reserved for temporary files"
    else:
        try:
            longest = max(len(segment.encode()) for segment in segments)
            if longest > _MAX_SEGMENT_BYTES or len(key.encode()) > _MAX_KEY_BYTES:
                problem = "is too long"
        except UnicodeEncodeError:
            problem = "is not valid text"
    if problem:
        raise InvalidInput(f"object key {key!r} {problem}")
    return key
