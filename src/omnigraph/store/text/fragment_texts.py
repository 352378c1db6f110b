"""Texts of fragments in the order of their rows, for building an index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import get_fragment
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.row_addresses import ROW_ADDRESS, offsets_of
from omnigraph.store.tables.table_fragments import TableFragment
from omnigraph.store.tables.tables import Tables

_BATCH_ROWS = 8_192
# The rows of which the sizes of all texts are estimated.
_SAMPLE_ROWS = 1_000


def read_fragment_texts(
    dataset: lance.LanceDataset, fragment_id: int, column: str, slice_bytes: int
) -> Iterator[pa.Array]:
    """Yield the texts of a fragment by offset, null for deleted rows, in arrays of about `slice_bytes`."""
    fragment = get_fragment(dataset, fragment_id)
    scanner = dataset.scanner(
        columns=[column],
        fragments=[fragment],
        with_row_address=True,
        scan_in_order=True,
        batch_size=_BATCH_ROWS,
    )
    waiting: list[pa.Array] = []
    nbytes = done = 0
    for batch in scanner.to_batches():
        offsets = offsets_of(batch.column(ROW_ADDRESS).to_numpy()).astype(np.int64)
        stop = int(offsets[-1]) + 1 if len(offsets) else done
        places = np.full(stop - done, -1, np.int64)
        places[offsets - done] = np.arange(len(offsets))
        texts = batch.column(column).cast(pa.large_string())
        waiting.append(texts.take(pa.array(places, mask=places < 0)))
        done, nbytes = stop, nbytes + texts.nbytes
        if nbytes >= slice_bytes:
            yield pa.concat_arrays(waiting)
            waiting, nbytes = [], 0
    waiting.append(pa.nulls(fragment.physical_rows - done, pa.large_string()))
    yield pa.concat_arrays(waiting)


def mean_text_bytes(tables: Tables, pin: TablePin, column: str, fragments: Sequence[TableFragment]) -> int:
    """Return the mean size of a text, by a sample of rows from the largest fragment."""
    if not fragments:
        return 0
    largest = max(fragments, key=lambda item: item.rows)
    with translate_lance_errors(f"read {pin.path}"):
        dataset = tables.open(pin.path, pin.version)
        fragment = get_fragment(dataset, largest.id)
        texts = dataset.scanner(columns=[column], fragments=[fragment], limit=_SAMPLE_ROWS).to_table()[column]
    sizes = pc.binary_length(texts.cast(pa.large_string()))
    return int((pc.sum(sizes).as_py() or 0) // max(1, len(texts)))
