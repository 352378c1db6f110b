"""Reader of tables with rows of several types: a column names the type of each row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.table_lookup import find_table
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.sources.input_rows import ArrowRows
from omnigraph.sources.mapping.type_mapping import TypeMapping
from omnigraph.sources.rejects import OnReject, RejectHandler
from omnigraph.sources.row_batch import BATCH_ROWS, InputBatch
from omnigraph.sources.row_operations import RowOperations
from omnigraph.sources.table_reader import TableReader
from omnigraph.sources.table_values import convert_column


def read_routed_table(
    column: str,
    batches: Iterable[pa.RecordBatch],
    catalog: Catalog,
    *,
    source: str | None = None,
    on_reject: OnReject | None = None,
    operations: RowOperations | None = None,
) -> Iterator[InputBatch]:
    """Read rows whose type is in a column, such as ``Person`` or ``edge:Knows``.

    A row is read by the columns of its type. The other columns belong to other types and are ignored. A row with an
    unknown type is rejected.
    """
    readers: dict[str, TableReader] = {}
    rejects = RejectHandler("row", source, on_reject)
    first = 1
    for whole in batches:
        for start in range(0, whole.num_rows, BATCH_ROWS):
            batch = whole.slice(start, BATCH_ROWS)
            names = batch.column(column).dictionary_encode()
            codes = pc.fill_null(names.indices, -1).to_numpy(zero_copy_only=False)
            for code in np.unique(codes).tolist():
                name = None if code < 0 else names.dictionary[code].as_py()
                positions = np.flatnonzero(codes == code)
                rows = ArrowRows(batch.take(pa.array(positions)))
                try:
                    reader = _reader(readers, name, column, catalog, source, on_reject, operations)
                    reader.check_names(batch.schema.names)
                except (InvalidInput, NotFound) as error:
                    for index, position in enumerate(positions.tolist()):
                        rejects.reject(first + position, InvalidInput(error.message), rows.record(index))
                    continue
                yield from reader.read(rows, positions + first)
            first += batch.num_rows


def _reader(
    readers: dict[str, TableReader],
    name: str | None,
    column: str,
    catalog: Catalog,
    source: str | None,
    on_reject: OnReject | None,
    operations: RowOperations | None,
) -> TableReader:
    if name is None:
        raise InvalidInput(f"column '{column}' has no type")
    if name not in readers:
        key = find_table(catalog, name).key
        mapping = TypeMapping(key, ignores_others=True, operations=operations)
        readers[name] = TableReader(
            catalog, key, "row", convert_column, source=source, on_reject=on_reject, mapping=mapping
        )
    return readers[name]
