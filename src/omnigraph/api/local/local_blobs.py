"""The Blob values of a local graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.api.blobs import BlobInfo, Blobs, BlobSelector
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.lang.types import Scalar

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.read.blob_values import BlobsInUse, StoredBlob
    from omnigraph.read.reader import Reader


@dataclass(frozen=True, slots=True)
class LocatedBlob:
    """A value in storage. Its tag is known without reading its bytes, its size is not."""

    selector: BlobSelector
    stored: StoredBlob
    resolved_snapshot: str

    @property
    def uri(self) -> str | None:
        """The address of an external value."""
        return self.stored.uri

    @property
    def etag(self) -> str:
        """The tag of the value as an HTTP header."""
        return f'"{self.stored.tag}"'

    def read(self, in_use: BlobsInUse) -> memoryview:
        """Return the bytes. Raises `NotFound` if the entity has no value."""
        data = self.stored.read(in_use)
        if data is None:
            raise _not_found(self.selector)
        return data


def locate_blob(graph: Graph, reader: Reader, selector: BlobSelector) -> LocatedBlob:
    """Find a value without reading its bytes.

    Raises `InvalidInput` if the schema has no such property, and `NotFound` if there is no such entity.
    """
    from omnigraph.read.blob_values import find_blob

    snapshot = graph.snapshot(selector.branch or "main", selector.snapshot)
    key = f"{selector.entity}:{selector.type_name}"
    table = snapshot.catalog.tables.get(key)
    if table is None:
        raise InvalidInput(f"unknown {selector.entity} type '{selector.type_name}'")
    column = next((item for item in table.columns if item.name == selector.property), None)
    if column is None or column.type.scalar is not Scalar.BLOB:
        raise InvalidInput(
            f"{selector.entity} type '{selector.type_name}' has no Blob property '{selector.property}'"
        )
    stored = find_blob(reader.session(snapshot).table(key), selector.property, selector.id)
    if stored is None:
        raise _not_found(selector)
    return LocatedBlob(selector, stored, f"manifest:{snapshot.branch}:v{snapshot.commit.sequence}")


class LocalBlobs(Blobs):
    """`Blobs` of a local graph. Storage returns a value only as a whole, so it is held in memory.

    >>> import omnigraph as og
    >>> g = og.init("memory://docs-blobs", schema="node Photo { name: String @key  data: Blob }")
    >>> _ = g.load({"Photo": [{"name": "a", "data": "base64:aGVsbG8="}]})
    >>> with LocalBlobs(g).open(BlobSelector("node", "Photo", "a", "data"), offset=1) as chunks:
    ...     b"".join(chunks)
    b'ello'
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def stat(self, selector: BlobSelector) -> BlobInfo:
        return self._read(selector)[0]

    @contextmanager
    def open(
        self, selector: BlobSelector, offset: int = 0, length: int | None = None
    ) -> Iterator[Iterator[bytes]]:
        info, data = self._read(selector)
        start, end = info.byte_range(offset, length)
        yield iter((data[start:end],))

    def _read(self, selector: BlobSelector) -> tuple[BlobInfo, bytes]:
        from omnigraph.read.blob_values import BlobsInUse
        from omnigraph.read.reader import Reader

        located = locate_blob(self._graph, Reader(), selector)
        if located.uri is not None:
            return BlobInfo(located.resolved_snapshot, uri=located.uri), b""
        data = bytes(located.read(BlobsInUse(0)))
        return BlobInfo(located.resolved_snapshot, len(data), located.etag), data


def _not_found(selector: BlobSelector) -> NotFound:
    return NotFound(f"{selector.entity} type '{selector.type_name}' has no blob for id '{selector.id}'")
