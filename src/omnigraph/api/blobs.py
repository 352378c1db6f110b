"""Blob values: how a caller names one, its metadata, and the interface that reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.changes import Kind


@dataclass(frozen=True, slots=True)
class BlobSelector:
    """A Blob property of one entity, on a branch or at a commit."""

    entity: Kind
    type_name: str
    id: str
    property: str
    branch: str | None = None
    snapshot: str | None = None

    def to_params(self) -> dict[str, str | None]:
        """Return the parameters of an HTTP request for the value."""
        return {
            "entity": self.entity,
            "type": self.type_name,
            "id": self.id,
            "property": self.property,
            "branch": self.branch,
            "snapshot": self.snapshot,
        }


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """The metadata of a Blob value: `size` and `etag` of a managed value, or the `uri` of an external one."""

    resolved_snapshot: str
    size: int | None = None
    etag: str | None = None
    uri: str | None = None

    def byte_range(self, offset: int, length: int | None) -> tuple[int, int]:
        """Return the first byte of a range and the byte after its end.

        Raises `InvalidInput` if the value is external or the offset is past the end.

        >>> BlobInfo("manifest:main:v1", size=10).byte_range(4, 100)
        (4, 10)
        """
        self.refuse_external()
        size = self.size or 0
        if offset >= size > 0:
            noun = "byte" if size == 1 else "bytes"
            raise InvalidInput(
                f"offset {offset} is at or past the end of the value, which has {size} {noun}",
                details={"size": size},
            )
        start = min(offset, size)
        return start, size if length is None else min(size, start + length)

    def refuse_external(self) -> None:
        """Raise `InvalidInput` if the value is external: the graph stores its address, not its bytes."""
        if self.uri is not None:
            raise InvalidInput(
                f"the value is external: it is stored at {self.uri}", details={"uri": self.uri}
            )


class Blobs(ABC):
    """The Blob values of a graph."""

    @abstractmethod
    def stat(self, selector: BlobSelector) -> BlobInfo:
        """Return the metadata of a value.

        Raises `InvalidInput` if the schema has no such property, and `NotFound` if there is no such entity or it
        has no value.
        """

    @abstractmethod
    def open(
        self, selector: BlobSelector, offset: int = 0, length: int | None = None
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Return the bytes of a managed value, or of a range of it, in chunks.

        Raises the errors of `stat`, and `InvalidInput` if the value is external or `offset` is past its end.
        """
