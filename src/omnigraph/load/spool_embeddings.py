"""The vectors of the rows of a spool, computed while the input is read.

Every way to load rows reads them into a spool: in memory, on disk, in tasks and in streams. The digest of the input
does not depend on computed vectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.engine.arrow_arrays import single_array
from omnigraph.errors import OmnigraphError
from omnigraph.lang.schema import EmbeddedProperty
from omnigraph.search.embeddings.row_embeddings import embed_rows, embedded_properties, max_batch_rows
from omnigraph.search.embeddings.vector_computation import VectorComputation
from omnigraph.sources.operation_columns import pack_given, unpack_given
from omnigraph.sources.row_batch import BATCH_ROWS
from omnigraph.sources.row_operations import GIVEN, OPERATION, Operation


class SpoolEmbeddings:
    """Computes the vectors that rows lack."""

    def __init__(self, catalog: Catalog, vectors: VectorComputation | None) -> None:
        self._catalog = catalog
        self._vectors = vectors
        self._digests: dict[str, Any] = {}
        self._properties: dict[str, tuple[EmbeddedProperty, ...]] = {}

    def _of(self, table: Table) -> tuple[EmbeddedProperty, ...]:
        found = self._properties.get(table.key)
        if found is None:
            found = self._properties[table.key] = embedded_properties(self._catalog, table)
        return found

    def applies(self, table: Table) -> bool:
        """Return whether rows of a table have computed vectors."""
        return bool(self._of(table))

    def batch_rows(self, table: Table) -> int:
        """Return how many rows to process at once."""
        properties = self._of(table)
        return max_batch_rows(properties) if properties else BATCH_ROWS

    def digest(self, key: str) -> bytes | None:
        """Return a hash of the rows of a table without computed vectors; None if it has none."""
        found = self._digests.get(key)
        digest: bytes | None = None if found is None else found.digest()
        return digest

    def embed(
        self, table: Table, rows: pa.Table, on_refused: Callable[[int, OmnigraphError], object] | None
    ) -> pa.Table:
        """Return rows with the vectors that they lack, and with the columns that a patch then gives."""
        digest = self._digests.setdefault(table.key, hashlib.blake2b(digest_size=16))
        for batch in rows.select([name for name in rows.column_names if name != "id"]).to_batches():
            digest.update(batch.serialize())
        partial = given = ignored = None
        if OPERATION in rows.column_names:
            codes = single_array(rows[OPERATION]).to_numpy(zero_copy_only=False)
            partial, ignored = codes == Operation.PATCH, codes == Operation.DELETE
            given = unpack_given(single_array(rows[GIVEN]), len(table.columns))
        refused = None
        if on_refused is not None:
            report = on_refused

            def refused(position: int, _: str, error: OmnigraphError) -> None:
                report(position, error)

        found, given = embed_rows(
            self._vectors or VectorComputation(None),
            table,
            self._of(table),
            rows,
            partial=partial,
            given=given,
            ignored=ignored,
            on_refused=refused,
        )
        if given is None:
            return found
        place = found.column_names.index(GIVEN)
        return found.set_column(place, found.schema.field(place), pack_given(np.asarray(given)))
