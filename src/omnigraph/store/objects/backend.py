"""The operations that a kind of storage provides for objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

__all__ = ["Backend", "Object", "ObjectInfo", "RangeReader", "Writable"]


@dataclass(frozen=True, slots=True)
class Object:
    """The content of an object at one moment, and the entity tag for a conditional replace."""

    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a listing. `key` is the key to read it with.

    `etag` is the entity tag of the listed version. It is None on a local disk, where it would require a read.
    """

    key: str
    size: int
    last_modified: datetime
    etag: str | None = None


class RangeReader(Protocol):
    """Access to byte ranges of one version of an object."""

    @property
    def size(self) -> int: ...

    def read(self, start: int, end: int) -> bytes:
        """Return exactly the bytes from `start` up to `end`, which is at most `size`."""
        ...

    def close(self) -> None: ...


class Writable(Protocol):
    """An object that is being written."""

    def write(self, data: bytes, /) -> int: ...


class Backend(Protocol):
    """The operations behind `ObjectStore`, which documents them and validates keys and prefixes."""

    def get(self, key: str) -> Object: ...

    def read_chunks(self, key: str) -> Iterator[bytes]: ...

    def put(self, key: str, data: bytes) -> str: ...

    def create_if_absent(self, key: str, data: bytes) -> bool: ...

    def replace_if_matches(self, key: str, data: bytes, etag: str) -> str | None: ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]: ...

    def delete_many(self, keys: Sequence[str]) -> None: ...

    def delete_tree(self) -> None: ...

    def head(self, key: str) -> ObjectInfo: ...

    def open_range_reader(self, info: ObjectInfo) -> RangeReader: ...

    def open_write(self, key: str) -> AbstractContextManager[Writable]: ...
