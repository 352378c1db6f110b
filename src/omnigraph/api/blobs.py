"""Single values of bytes: which one is meant, what is known of it, and the bytes themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.errors import InvalidInput, NotFound
from omnigraph.lang.types import Scalar

if TYPE_CHECKING:
    from omnigraph.api.changes import Kind
    from omnigraph.api.graph import Graph
    from omnigraph.read.blob_values import BlobsInUse, StoredBlob
    from omnigraph.read.reader import Reader


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """Which value is meant: of an entity, on a branch or at a commit."""

    entity: Kind
    type_name: str
    id: str
    property: str
    branch: str | None = None
    snapshot: str | None = None

    def to_params(self) -> dict[str, str | None]:
        """The parameters of a request for it."""
        return {
            "entity": self.entity,
            "type": self.type_name,
            "id": self.id,
            "property": self.property,
            "branch": self.branch,
            "snapshot": self.snapshot,
        }


@dataclass(frozen=True, slots=True)
class Blob:
    """What is known of a value: how large it is and its tag, or the address that it is kept at."""

    resolved_snapshot: str
    size: int | None = None
    etag: str | None = None
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class FoundBlob:
    """A value where it is stored: its tag needs no bytes, its size does."""

    place: BlobPlace
    stored: StoredBlob
    resolved_snapshot: str

    @property
    def uri(self) -> str | None:
        """The address of one that is kept elsewhere."""
        return self.stored.uri

    @property
    def etag(self) -> str:
        """Its tag, as HTTP writes it."""
        return f'"{self.stored.tag}"'

    def read(self, in_use: BlobsInUse) -> memoryview:
        """Its bytes; `NotFound` when the entity has no value."""
        data = self.stored.read(in_use)
        if data is None:
            raise _missing(self.place)
        return data


def look_for_blob(graph: Graph, reader: Reader, place: BlobPlace) -> FoundBlob:
    """Where a value of a graph stands; no bytes of it are read.

    Raises `InvalidInput` when the schema has no such value, and `NotFound` when there is no such entity.
    """
    from omnigraph.read import blob_values

    found = graph.snapshot(place.branch or "main", place.snapshot)
    key = f"{place.entity}:{place.type_name}"
    table = found.catalog.tables.get(key)
    if table is None:
        raise InvalidInput(f"unknown {place.entity} type '{place.type_name}'")
    column = next((item for item in table.columns if item.name == place.property), None)
    if column is None or column.type.scalar is not Scalar.BLOB:
        raise InvalidInput(f"{place.entity} type '{place.type_name}' has no Blob property '{place.property}'")
    stored = blob_values.find_blob(reader.session(found).table(key), place.property, place.id)
    if stored is None:
        raise _missing(place)
    return FoundBlob(place, stored, f"manifest:{found.branch}:v{found.commit.sequence}")


def find_blob(graph: Graph, place: BlobPlace) -> tuple[Blob, bytes]:
    """A value of a graph and its bytes; there are none here when it is kept elsewhere.

    Raises what `look_for_blob` raises, and `NotFound` when the entity has no value.

    >>> import omnigraph as og
    >>> g = og.init("memory://docs-blobs", schema="node Photo { name: String @key  data: Blob }")
    >>> _ = g.load({"Photo": [{"name": "a", "data": "base64:aGVsbG8="}]})
    >>> find_blob(g, BlobPlace("node", "Photo", "a", "data"))[1]
    b'hello'
    """
    from omnigraph.read.blob_values import BlobsInUse
    from omnigraph.read.reader import Reader

    found = look_for_blob(graph, Reader(), place)
    if found.uri is not None:
        return Blob(found.resolved_snapshot, uri=found.uri), b""
    data = bytes(found.read(BlobsInUse(0)))
    return Blob(found.resolved_snapshot, len(data), found.etag), data


def _missing(place: BlobPlace) -> NotFound:
    return NotFound(f"{place.entity} type '{place.type_name}' has no blob for id '{place.id}'")
