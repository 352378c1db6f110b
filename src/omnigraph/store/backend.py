"""What a kind of storage has to be able to do to hold control objects, and the errors it may raise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

__all__ = ["Backend", "Object", "ObjectInfo"]


@dataclass(frozen=True, slots=True)
class Object:
    """One object as it was at one moment: its bytes, and the tag to replace exactly this with."""

    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing says of an object; `key` is the key to get it by."""

    key: str
    size: int
    last_modified: datetime


class Backend(Protocol):
    """The operations behind `ObjectStore`, which documents them and has checked keys and prefixes already."""

    def get(self, key: str) -> Object: ...

    def put(self, key: str, data: bytes) -> str: ...

    def create_if_absent(self, key: str, data: bytes) -> bool: ...

    def replace_if_matches(self, key: str, data: bytes, etag: str) -> str | None: ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]: ...

    def delete_many(self, keys: Sequence[str]) -> None: ...
