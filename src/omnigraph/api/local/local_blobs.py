"""The Blob values of a local graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.api.results.blobs import Blob, BlobInfo, BlobSelector
from omnigraph.errors import InvalidInput
from omnigraph.lang.types import Scalar

if TYPE_CHECKING:
    from omnigraph.catalog.catalog import Catalog, Table
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.read.reader import Reader


def open_blob(reader: Reader, snapshot: Snapshot, selector: BlobSelector) -> Blob:
    """Open a value of a snapshot. Its bytes are not read.

    Raises `InvalidInput` if the schema has no such property, and `NotFound` if there is no such entity or it has no
    value.
    """
    from omnigraph.read.blob_values import find_blob

    table = _table(snapshot.catalog, selector)
    column = next((item for item in table.columns if item.name == selector.property_name), None)
    if column is None or column.type.scalar is not Scalar.BLOB:
        raise InvalidInput(
            f"{table.kind} type '{table.name}' has no Blob property '{selector.property_name}'"
        )
    stored = find_blob(reader.session(snapshot).table(table.key), selector.property_name, selector.id)
    if stored is None:
        raise selector.not_found(table.kind, table.name)
    resolved = f"manifest:{snapshot.branch}:v{snapshot.commit.sequence}"
    if stored.uri is not None:
        return Blob(BlobInfo(resolved, uri=stored.uri), None)
    content = stored.open()
    if content is None:
        raise selector.not_found(table.kind, table.name)
    return Blob(BlobInfo(resolved, content.size, f'"{stored.tag}"'), content)


def _table(catalog: Catalog, selector: BlobSelector) -> Table:
    for kind, name in selector.kinds:
        table = catalog.tables.get(f"{kind}:{name}")
        if table is not None:
            return table
    kind, name = selector.kinds[0]
    raise InvalidInput(f"unknown {kind} type '{name}'")
