"""Checks of the external URIs that enter a graph: the policy allows them, and their objects exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import BLOB_URI
from omnigraph.lang.types import Scalar
from omnigraph.rules.external_blobs import ExternalBlobPolicy
from omnigraph.store.objects.object_probe import probe_objects


@dataclass(frozen=True)
class BlobIngress:
    """The policy for external URIs in new rows, and the storage options to reach their objects.

    The default refuses every URI. Instances can be pickled, so that tasks can check their rows.
    """

    policy: ExternalBlobPolicy = field(default_factory=ExternalBlobPolicy)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def probe(self, uris: Iterable[str]) -> None:
        """Raise `ExternalBlobError` if the object of an allowed URI cannot be found."""
        probe_objects(uris, self.options)

    def probe_rows(self, table: Table, rows: pa.RecordBatch) -> None:
        """Probe the objects of all external URIs in rows by logical column."""
        for column in table.columns:
            if column.type.scalar is Scalar.BLOB and column.name in rows.schema.names:
                self.probe(external_uris(rows.column(column.name)).unique().drop_null().to_pylist())


def external_uris(values: pa.Array) -> pa.Array:
    """Return the URI of each Blob value; null for bytes and missing values."""
    if not pa.types.is_struct(values.type):
        return pa.nulls(len(values), pa.string())
    return pc.struct_field(values, BLOB_URI)
