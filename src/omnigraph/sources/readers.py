"""Selection of the reader for a load source: files of records, tables per type, records, streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.columns import logical_schema
from omnigraph.catalog.table_lookup import find_table
from omnigraph.errors import InvalidInput
from omnigraph.sources.dataframes import TypedRows, table_of
from omnigraph.sources.input_files import (
    RECORD_SUFFIXES,
    InputFile,
    list_files,
    list_table_files,
    open_file,
    read_chunks,
)
from omnigraph.sources.input_warnings import WarningCollector
from omnigraph.sources.json.line_blocks import without_bom
from omnigraph.sources.json.ndjson import read_ndjson
from omnigraph.sources.json.permissive import read_permissive
from omnigraph.sources.mapping.type_mapping import (
    Format,
    LoadMapping,
    TypeMapping,
    effective_source,
    with_operations,
)
from omnigraph.sources.python_records import read_dicts, read_rows
from omnigraph.sources.rejects import OnReject
from omnigraph.sources.row_batch import InputBatch
from omnigraph.sources.row_operations import RowOperations
from omnigraph.sources.table_reader import TableInput
from omnigraph.sources.tabular import read_dict_rows, read_table, read_typed_rows
from omnigraph.sources.typed_files import read_table_file
from omnigraph.store.storage_options import StorageOptions

_BY_TYPE = 'tables by type: {"Person": table, "Knows": edges}'


@dataclass(frozen=True)
class _OpenOptions:
    catalog: Catalog
    permissive: bool
    on_reject: OnReject | None
    options: StorageOptions = field(default_factory=dict)
    mapping: LoadMapping | None = None
    warnings: WarningCollector | None = None
    csv_null: str = ""
    operations: RowOperations | None = None

    def of_type(self, key: str) -> TypeMapping | None:
        own = None if self.mapping is None else self.mapping.types.get(key)
        return with_operations(key, own, self.operations)


def open_source(
    source: Any,
    catalog: Catalog,
    *,
    permissive: bool = False,
    on_reject: OnReject | None = None,
    options: StorageOptions | None = None,
    mapping: LoadMapping | None = None,
    warnings: WarningCollector | None = None,
    csv_null: str = "",
    operations: RowOperations | None = None,
) -> Iterator[InputBatch]:
    """Return the rows of a load source.

    - A path, a glob, a folder or a binary stream of graph records, one JSON object per line; ``.gz`` is
      decompressed. A path may also be a URI: ``s3://bucket/key``, with a trailing slash for all files below it,
      or ``file://``. `options` are the storage options for it.
    - A mapping from type to its rows: a path of CSV, JSON, Parquet, ORC, Avro or Arrow files, an Arrow, pandas
      or polars table, record batches, or rows as dicts. A prefix ``node:`` or ``edge:`` resolves a name that
      both kinds have.
    - An iterable of records as dicts.

    With a `mapping` tables may have other columns, and the source None stands for the sources of the mapping. An
    unsupported source, a missing file and an unknown type raise at once, before the first row is read. `warnings`
    receives what the `permissive` reader leaves out. `csv_null` is the text of an unquoted CSV cell that means
    null. With `operations` the batches have the columns of `operation_columns.change_schema`.
    """
    opening = _OpenOptions(
        catalog, permissive, on_reject, options or {}, mapping, warnings, csv_null, operations
    )
    source = effective_source(source, mapping)
    if isinstance(source, Mapping):
        if {"type", "edge"} & source.keys():
            # Type names start with an upper-case letter.
            raise InvalidInput("cannot load from a single record", hint="pass a list of records")
        return _chain(
            [_type_reader(find_table(catalog, str(name)).key, part, opening) for name, part in source.items()]
        )
    if isinstance(source, str | Path):
        return _chain([_records_of(file, opening) for file in list_records(source, opening.options)])
    if _is_stream(source):
        return _read_records(source, getattr(source, "name", None), opening)
    if table_of(source) is not None:
        raise InvalidInput("the type of the rows of a table is unknown", hint=f"pass {_BY_TYPE}")
    if isinstance(source, Iterable) and not isinstance(source, bytes | bytearray):
        return read_dicts(source, catalog, on_reject=on_reject, operations=operations)
    raise InvalidInput(
        f"cannot load from {type(source).__name__}", hint=f"pass a path, records, or {_BY_TYPE}"
    )


def _chain(parts: Iterable[Callable[[], Iterator[InputBatch]]]) -> Iterator[InputBatch]:
    opened = list(parts)
    return (batch for part in opened for batch in part())


# --- graph records ------------------------------------------------------------------------------------------


def list_records(source: str | Path, options: StorageOptions) -> list[InputFile]:
    """Return the files of graph records of a path."""
    files = list_files(source, RECORD_SUFFIXES, options)
    table = next((file for file in files if file.format not in (None, "json")), None)
    if table is not None:
        raise InvalidInput(f"the type of the rows of `{table.name}` is unknown", hint=f"pass {_BY_TYPE}")
    return files


def _records_of(file: InputFile, opening: _OpenOptions) -> Callable[[], Iterator[InputBatch]]:
    def read() -> Iterator[InputBatch]:
        with open_file(file) as stream:
            yield from _read_records(stream, file.name, opening)

    return read


def _read_records(stream: BinaryIO, name: Any, opening: _OpenOptions) -> Iterator[InputBatch]:
    source = name if isinstance(name, str) else None
    data = without_bom(read_chunks(stream, source))
    if opening.permissive:
        return read_permissive(
            data, opening.catalog, source=source, on_reject=opening.on_reject, warnings=opening.warnings
        )
    return read_ndjson(
        data,
        opening.catalog,
        source=source,
        on_reject=opening.on_reject,
        operations=opening.operations,
    )


def _is_stream(source: Any) -> bool:
    return callable(getattr(source, "read", None))


# --- tables per type --------------------------------------------------------------------------------------


def _type_reader(key: str, rows: Any, opening: _OpenOptions) -> Callable[[], Iterator[InputBatch]]:
    """Return the reader of a type; its first batch is empty, so that the load includes a type without rows."""
    table = opening.catalog.tables[key]
    empty = InputBatch(key, logical_schema(table).empty_table(), pa.array([], pa.int64()))
    read = _rows_reader(key, rows, opening)
    return lambda: chain([empty], read())


def _rows_reader(key: str, rows: Any, opening: _OpenOptions) -> Callable[[], Iterator[InputBatch]]:
    """Return the reader of the rows of a type."""
    catalog, on_reject, mapping = opening.catalog, opening.on_reject, opening.of_type(key)
    if isinstance(rows, str | Path):
        files = list_table_files(rows, opening.options, None if mapping is None else mapping.format)
        return lambda: (batch for file, form in files for batch in _read_file(file, form, key, opening))
    table = table_of(rows)
    if isinstance(table, TypedRows):
        return lambda: read_typed_rows(key, table, catalog, on_reject=on_reject, mapping=mapping)
    if table is not None:
        return lambda: read_table(key, table, catalog, on_reject=on_reject, mapping=mapping)
    if (
        isinstance(rows, Iterable)
        and not isinstance(rows, bytes | bytearray | Mapping)
        and not _is_stream(rows)
    ):
        return lambda: _read_rows(key, rows, opening)
    raise InvalidInput(f"cannot load '{key}' from {type(rows).__name__}", hint="pass a path or a table")


def _read_file(file: InputFile, form: Format, key: str, opening: _OpenOptions) -> Iterator[InputBatch]:
    table = TableInput(
        key, opening.catalog, file.name, opening.on_reject, opening.of_type(key), opening.csv_null
    )
    with open_file(file) as stream:
        yield from read_table_file(stream, form, table)


def _read_rows(key: str, rows: Iterable[Any], opening: _OpenOptions) -> Iterator[InputBatch]:
    """Read record batches or dicts, depending on the first item."""
    iterator = iter(rows)
    first = next(iterator, None)
    if first is None:
        return iter(())
    rest = chain([first], iterator)
    catalog, on_reject, mapping = opening.catalog, opening.on_reject, opening.of_type(key)
    if not isinstance(first, Mapping):
        return read_table(key, rest, catalog, on_reject=on_reject, mapping=mapping)
    if mapping is None:
        return read_rows(key, rest, catalog, on_reject=on_reject)
    return read_dict_rows(key, rest, catalog, on_reject=on_reject, mapping=mapping)
