"""The vectors of rows that are written: computed where a row has the text and no vector.

A vector that is given is stored as it is. The record of a vector says to which text and model it belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.errors import ErrorLocation, InvalidInput, OmnigraphError, StorageError
from omnigraph.lang.schema import EmbeddedProperty
from omnigraph.search.embeddings.embedding_records import record_array
from omnigraph.search.embeddings.vector_computation import VectorComputation

Mask: TypeAlias = npt.NDArray[np.bool_]
# Called with the position of a row whose text the provider refuses, the property, and the error.
OnRefused: TypeAlias = Callable[[int, str, OmnigraphError], None]

# The vectors of one batch of rows take about this much memory.
_BATCH_BYTES = 32 << 20


def embedded_properties(catalog: Catalog, table: Table) -> tuple[EmbeddedProperty, ...]:
    """Return the vector properties of a table that writes compute."""
    node = catalog.schema.node(table.name) if table.kind == "node" else None
    return () if node is None else node.embedded


def max_batch_rows(properties: Sequence[EmbeddedProperty]) -> int:
    """Return how many rows with computed vectors to process at once."""
    numbers = sum(item.vector.type.dim or 0 for item in properties)
    return max(256, _BATCH_BYTES // (4 * max(1, numbers)))


def embed_rows(
    computation: VectorComputation,
    table: Table,
    properties: Sequence[EmbeddedProperty],
    rows: pa.Table,
    *,
    partial: Mask | None = None,
    given: Mask | None = None,
    ignored: Mask | None = None,
    on_refused: OnRefused | None = None,
) -> tuple[pa.Table, Mask | None]:
    """Return rows with the vectors that they lack and the records of all vectors, and the updated `given`.

    Rows in `partial` change only the columns that `given` names, a matrix of rows and columns of the table; their
    vector is computed if they give the text. Rows in `ignored` are not changed. With `on_refused`, a row whose text
    the provider refuses is reported and keeps no vector; a provider that is not available raises in any case.
    """
    names = [column.name for column in table.columns]
    count = rows.num_rows
    for item in properties:
        source, vector, record = item.embed.source, item.name, item.record
        texts = rows[source].combine_chunks()
        has_text, has_vector = _valid(texts), _valid(rows[vector])
        has_record = _valid(rows[record])
        if ignored is not None:
            has_text, has_vector, has_record = (
                mask & ~ignored for mask in (has_text, has_vector, has_record)
            )
        gives_text = np.ones(count, bool)
        if partial is not None and given is not None:
            gives_text = ~partial | given[:, names.index(source)]
            has_text &= gives_text
            has_vector &= ~partial | given[:, names.index(vector)]
            has_record &= ~partial | given[:, names.index(record)]
        computed = np.flatnonzero(has_text & ~has_vector)
        recorded = has_vector & ~has_record
        if len(computed):
            chosen = texts.take(pa.array(computed)).to_pylist()
            kept, vectors = _compute(computation, table, item, chosen, computed, on_refused)
            computed = computed[kept]
            rows = _with_vectors(rows, vector, computed, vectors)
            recorded[computed] = True
        known = pc.if_else(pa.array(has_text), texts, pa.scalar(None, texts.type))
        at = np.flatnonzero(recorded)
        records = record_array(item.embed, known.take(pa.array(at)).to_pylist())
        # A text without a vector has no record, also in a row that replaces another one.
        cleared = gives_text & ~has_vector & ~recorded
        if ignored is not None:
            cleared &= ~ignored
        rows = _with_records(rows, record, at, records, cleared)
        if given is not None and partial is not None:
            written = partial & (recorded | (gives_text & ~has_vector))
            if ignored is not None:
                written &= ~ignored
            given[written, names.index(vector)] = True
            given[written, names.index(record)] = True
    return rows, given


def _valid(column: Any) -> Mask:
    mask: Mask = (
        pc.is_valid(column).to_numpy(zero_copy_only=False)
        if isinstance(column, pa.Array)
        else (pc.is_valid(column).to_numpy())
    )
    return mask.copy()


def _compute(
    computation: VectorComputation,
    table: Table,
    item: EmbeddedProperty,
    texts: Sequence[str],
    positions: npt.NDArray[np.int64],
    on_refused: OnRefused | None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the indexes of the texts that have a vector, and the vectors."""
    dim = item.vector.type.dim or 0
    try:
        return np.arange(len(texts)), computation.compute(item.embed, dim, texts)
    except OmnigraphError as error:
        if on_refused is None or not _concerns_a_text(error):
            raise located(error, table, item) from error
        if len(texts) == 1:
            on_refused(int(positions[0]), item.name, error)
            return np.empty(0, np.int64), np.empty((0, dim), np.float32)
    # The provider refused some texts of many: halve them until only those are left.
    middle = len(texts) // 2
    halves = []
    for start, end in ((0, middle), (middle, len(texts))):
        kept, vectors = _compute(computation, table, item, texts[start:end], positions[start:end], on_refused)
        halves.append((kept + start, vectors))
    return np.concatenate([kept for kept, _ in halves]), np.concatenate([vectors for _, vectors in halves])


def _concerns_a_text(error: OmnigraphError) -> bool:
    """Return whether another text may succeed: not if the provider is unavailable or not configured."""
    return isinstance(error, StorageError) and error.kind == "permanent"


def located(error: OmnigraphError, table: Table, item: EmbeddedProperty) -> OmnigraphError:
    """Return an error with the type and the property whose vectors are computed."""
    if isinstance(error, InvalidInput) and error.location is None:
        return error.located(ErrorLocation(type=table.name, property=item.name))
    error.add_note(f"while computing the vectors of '{table.name}.{item.name}'")
    return error


def _with_vectors(
    rows: pa.Table, name: str, positions: npt.NDArray[np.int64], vectors: npt.NDArray[np.float32]
) -> pa.Table:
    if not len(positions):
        return rows
    place = rows.column_names.index(name)
    column = rows[name].combine_chunks()
    new = vector_array(vectors, column.type)
    order = np.arange(rows.num_rows)
    order[positions] = rows.num_rows + np.arange(len(positions))
    return rows.set_column(place, name, pa.concat_arrays([column, new]).take(pa.array(order)))


def vector_array(vectors: npt.NDArray[np.float32], type_: pa.DataType) -> pa.Array:
    """Return vectors as a column of a type: a fixed-size list, or a list before validation."""
    values = pa.array(np.ascontiguousarray(vectors).reshape(-1)).cast(type_.value_type)
    if pa.types.is_fixed_size_list(type_):
        return pa.FixedSizeListArray.from_arrays(values, type=type_)
    offsets = np.arange(len(vectors) + 1) * (vectors.shape[1] if vectors.ndim > 1 else 0)
    if pa.types.is_large_list(type_):
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values, type=type_)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=type_)


def _with_records(
    rows: pa.Table, name: str, positions: npt.NDArray[np.int64], records: pa.Array, cleared: Mask
) -> pa.Table:
    place = rows.column_names.index(name)
    column = rows[name].combine_chunks().cast(pa.string())
    order = np.arange(rows.num_rows)
    order[positions] = rows.num_rows + np.arange(len(positions))
    taken = pa.concat_arrays([column, records]).take(pa.array(order, mask=cleared))
    return rows.set_column(place, name, taken)
