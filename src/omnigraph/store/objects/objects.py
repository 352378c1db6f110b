"""Objects that are not Lance tables: the few small blobs of a graph, and files to load from and export to.

One interface over local disks, named memory and S3-compatible buckets. What it promises is executable: the
contract suite runs the same tests against every backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import has_magic

from omnigraph.errors import InvalidInput
from omnigraph.store.location import Location
from omnigraph.store.objects.backend import Backend, Object, ObjectInfo, Writable
from omnigraph.store.objects.local_backend import LocalBackend, is_temporary
from omnigraph.store.objects.obstore_backend import ObstoreBackend
from omnigraph.store.objects.streams import ObjectReader
from omnigraph.store.storage_options import RetryPolicy, StorageOptions, check_options
from omnigraph.store.sync import Durability

__all__ = ["Object", "ObjectInfo", "ObjectReader", "ObjectStore", "Writable"]

# The narrowest limits of the backends: a name on a local disk, a key in S3 with room for the graph's prefix.
_LONGEST_SEGMENT = 255
_LONGEST_KEY = 700


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """The objects below one location, shared safely by threads, processes and machines.

    - A reader sees the whole of one version of an object or none of it, whatever happens to its writer.
    - After a write returned, every later read and list sees it. On a local disk with `full` durability it
      also survives a power failure; object stores promise the same by themselves; memory lasts as long as
      the process and is shared by all handles of one name.
    - A tag stands for content: equal tags mean equal bytes, and on S3 equal bytes have equal tags. Data
      that is compared and swapped must therefore never return to an earlier state; a counter or a fresh id
      in it is enough.

    Keys are names joined by `/`, any text without control characters; a key must not be the folder of
    another.

    Every operation raises `StorageError` when storage fails or refuses, `transient` when trying again may
    help, and `InvalidInput` for a malformed key. A write raises `OutcomeUnknown` when it may or may not
    have happened and reading back could not settle it: the object is then wholly the old one or wholly the
    new one.
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
        """The objects below an address. Nothing is touched: an absent folder or bucket shows at first use."""
        location = uri if isinstance(uri, Location) else Location.parse(uri)
        options = options or {}
        check_options(options)
        if location.is_local:
            backend = LocalBackend(location, durability, RetryPolicy.of(options).retry_timeout)
            return cls(location, backend, options)
        return cls(location, ObstoreBackend.at(location, options), options)

    @classmethod
    def holding(cls, uri: str, options: StorageOptions | None = None) -> tuple[ObjectStore, str]:
        """The bucket or memory that the address of an object is in, and the rest of it, the object's key.

        The key is what stands there, also where it would have a meaning in a URL: nothing but objects is looked
        up by it. It may be a pattern, or a folder with a slash at its end.

        >>> ObjectStore.holding("memory://scratch/daily/part-?.ndjson")[1]
        'daily/part-?.ndjson'
        """
        scheme, separator, rest = uri.partition("://")
        authority, _, key = rest.partition("/")
        location = Location.parse(scheme + separator + authority)
        if location.is_local:
            raise InvalidInput(f"`{uri}` is on a local disk")
        return cls.open(location, options), key

    def get(self, key: str) -> Object:
        """The object at `key`. Raises `NotFound` when, and only when, there is none."""
        return self._backend.get(_checked(key))

    def put(self, key: str, data: bytes) -> str:
        """Store `data` at `key`, replacing what is there, and return its tag.

        Two puts at once leave one of the two. A put that timed out may still arrive later and replace what
        others wrote since: where order matters, use `replace_if_matches`.
        """
        return self._backend.put(_checked(key), data)

    def create_if_absent(self, key: str, data: bytes) -> bool:
        """Store `data` if nothing is at `key`; true for exactly one of any number of callers.

        The winner is known even when its reply was lost, and even when all callers send the same bytes.
        """
        return self._backend.create_if_absent(_checked(key), data)

    def replace_if_matches(self, key: str, data: bytes, etag: str) -> str | None:
        """Replace the object if it still has `etag`: the new tag, or None when it changed or is gone."""
        return self._backend.replace_if_matches(_checked(key), data, etag)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object in the folder `prefix` and below, by key in the order of its UTF-8 bytes.

        `a` lists `a/b` but not `ab`. The listing is not a snapshot: objects that come or go meanwhile may
        or may not be in it, all others are.
        """
        return self._backend.list(_checked(prefix) if prefix else "")

    def exists_any(self, prefix: str = "") -> bool:
        """Whether the folder `prefix` holds any object; one request, however many there are."""
        return next(self.list(prefix), None) is not None

    def delete(self, key: str) -> None:
        """Remove the object; one that is not there is fine."""
        self.delete_many([key])

    def delete_many(self, keys: Iterable[str]) -> None:
        """Remove objects, as `delete` does. A failure leaves some of them; delete them again."""
        checked = [_checked(key) for key in keys]
        if checked:
            self._backend.delete_many(checked)

    # --- large objects -----------------------------------------------------------------------------------

    def head(self, key: str) -> ObjectInfo:
        """What a listing would say of the object at `key`. Raises `NotFound` when there is none."""
        return self._backend.head(_checked(key))

    def match(self, pattern: str) -> Sequence[ObjectInfo]:
        """The objects that a pattern names, in the order of `list`: ``*``, ``?`` and ``[…]`` in a name, ``**`` for
        any number of folders. An object of exactly this key is the only one meant.

        What is below the last folder before the first of these is listed, all of it.
        """
        parts = pattern.split("/")
        fixed = next((place for place, part in enumerate(parts) if has_magic(part)), len(parts) - 1)
        listed = list(self.list("/".join(parts[:fixed])))
        same = [info for info in listed if info.key == pattern]
        return same or [info for info in listed if _matches(info.key.split("/"), parts)]

    def open_read(self, info: ObjectInfo) -> ObjectReader:
        """The content of an object that was listed, to be read from any place; a few blocks are held in memory.

        Reading raises `NotFound` when the object is gone, and a transient `StorageError` when it has been replaced
        since it was listed. A local file is the one that is there when this is called.
        """
        return ObjectReader(self._backend.pin(info), info.key)

    def writing(self, key: str) -> AbstractContextManager[Writable]:
        """Write an object of any size, replacing what is there when the block ends, whole or not at all.

        An error in the block leaves what was there, and goes on as it is. Memory holds a few parts. Raises
        `OutcomeUnknown` when the end of a large one went unanswered and reading back could not settle it.
        """
        return self._backend.writing(_checked(key))


def _matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not names
    if pattern[0] == "**":
        return any(_matches(names[skipped:], pattern[1:]) for skipped in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])


def _checked(key: str) -> str:
    segments = key.split("/")
    problem = None
    if any(segment in ("", ".", "..") for segment in segments):
        problem = "has an empty, . or .. segment"
    elif any(character < " " or character == "\x7f" for character in key):
        problem = "has a control character"
    elif is_temporary(segments[-1]):
        problem = "has a name that is kept for unfinished writes"
    else:
        try:
            longest = max(len(segment.encode()) for segment in segments)
            if longest > _LONGEST_SEGMENT or len(key.encode()) > _LONGEST_KEY:
                problem = "is too long"
        except UnicodeEncodeError:
            problem = "is not valid text"
    if problem:
        raise InvalidInput(f"object key {key!r} {problem}")
    return key
