"""What a load can be given, and the reader for each: files of records, tables per type, records, streams."""

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
from omnigraph.sources.json.line_blocks import without_bom
from omnigraph.sources.json.ndjson import read_ndjson
from omnigraph.sources.json.permissive import read_permissive
from omnigraph.sources.mapping.type_mapping import Format, LoadMapping, TypeMapping, effective_source
from omnigraph.sources.python_records import read_dicts, read_rows
from omnigraph.sources.row_batch import InputBatch, OnReject
from omnigraph.sources.tabular import TableInput, read_dict_rows, read_table, read_typed_rows
from omnigraph.sources.typed_files import read_table_file
from omnigraph.store.storage_options import StorageOptions

_PER_TYPE = 'give tables per type: {"Person": table, "Knows": edges}'


@dataclass(frozen=True)
class _Opening:
    catalog: Catalog
    permissive: bool
    on_reject: OnReject | None
    options: StorageOptions = field(default_factory=dict)
    mapping: LoadMapping | None = None

    def of_type(self, key: str) -> TypeMapping | None:
        return None if self.mapping is None else self.mapping.types.get(key)


def open_source(
    source: Any,
    catalog: Catalog,
    *,
    permissive: bool = False,
    on_reject: OnReject | None = None,
    options: StorageOptions | None = None,
    mapping: LoadMapping | None = None,
) -> Iterator[InputBatch]:
    """The rows of whatever a load was given.

    - A path, a glob, a folder or a binary stream of graph records, one JSON object a line; ``.gz`` is unpacked.
      A path may also be an address: ``s3://bucket/key``, with a slash at its end for all files below it, or
      ``file://``. `options` are how to reach it.
    - A mapping from type to its rows: a path of CSV, JSON, Parquet, ORC, Avro or Arrow files, an Arrow, pandas or
      polars table, record batches, or rows as dicts. ``node:`` or ``edge:`` says which type is meant where both
      have the name.
    - An iterable of records as dicts.

    With a `mapping` tables per type may have other columns, and None as a source stands for those that it names.
    What a source is gets decided at once, before the first row is asked for: something else, a file that is not
    there, an unknown type raise here.
    """
    opening = _Opening(catalog, permissive, on_reject, options or {}, mapping)
    source = effective_source(source, mapping)
    if isinstance(source, Mapping):
        if {"type", "edge"} & source.keys():
            # Names of types begin with a capital letter.
            raise InvalidInput("a single record is no source", hint="give a list of records")
        return _chain(
            [_announced(find_table(catalog, str(name)).key, part, opening) for name, part in source.items()]
        )
    if isinstance(source, str | Path):
        return _chain([_records_of(file, opening) for file in list_records(source, opening.options)])
    if _is_stream(source):
        return _read_records(source, getattr(source, "name", None), opening)
    if table_of(source) is not None:
        raise InvalidInput("a table does not say what type its rows have", hint=_PER_TYPE)
    if isinstance(source, Iterable) and not isinstance(source, bytes | bytearray):
        return read_dicts(source, catalog, on_reject=on_reject)
    raise InvalidInput(
        f"cannot load from {type(source).__name__}", hint=f"give a path, records, or {_PER_TYPE[5:]}"
    )


def _chain(parts: Iterable[Callable[[], Iterator[InputBatch]]]) -> Iterator[InputBatch]:
    opened = list(parts)
    return (batch for part in opened for batch in part())


# --- graph records ------------------------------------------------------------------------------------------


def list_records(source: str | Path, options: StorageOptions) -> list[InputFile]:
    """The files of graph records that a path names."""
    files = list_files(source, RECORD_SUFFIXES, options)
    odd = next((file for file in files if file.format not in (None, "json")), None)
    if odd is not None:
        raise InvalidInput(f"`{odd.name}` does not say what type its rows have", hint=_PER_TYPE)
    return files


def _records_of(file: InputFile, opening: _Opening) -> Callable[[], Iterator[InputBatch]]:
    def read() -> Iterator[InputBatch]:
        with open_file(file) as stream:
            yield from _read_records(stream, file.name, opening)

    return read


def _read_records(stream: BinaryIO, name: Any, opening: _Opening) -> Iterator[InputBatch]:
    reader = read_permissive if opening.permissive else read_ndjson
    source = name if isinstance(name, str) else None
    data = without_bom(read_chunks(stream, source))
    return reader(data, opening.catalog, source=source, on_reject=opening.on_reject)


def _is_stream(source: Any) -> bool:
    return callable(getattr(source, "read", None))


# --- tables per type --------------------------------------------------------------------------------------


def _announced(key: str, rows: Any, opening: _Opening) -> Callable[[], Iterator[InputBatch]]:
    """The reader of a type, beginning with a batch without rows: a type that is named is there, be it empty."""
    table = opening.catalog.tables[key]
    nothing = InputBatch(key, logical_schema(table).empty_table(), pa.array([], pa.int64()))
    read = _typed(key, rows, opening)
    return lambda: chain([nothing], read())


def _typed(key: str, rows: Any, opening: _Opening) -> Callable[[], Iterator[InputBatch]]:
    """The reader of what a mapping has for a type."""
    catalog, on_reject, mapping = opening.catalog, opening.on_reject, opening.of_type(key)
    if isinstance(rows, str | Path):
        files = list_table_files(rows, opening.options, None if mapping is None else mapping.format)
        return lambda: (batch for found in files for batch in _read_file(*found, key, opening))
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
    raise InvalidInput(f"'{key}' cannot be loaded from {type(rows).__name__}", hint="give a path or a table")


def _read_file(file: InputFile, form: Format, key: str, opening: _Opening) -> Iterator[InputBatch]:
    wanted = TableInput(key, opening.catalog, file.name, opening.on_reject, opening.of_type(key))
    with open_file(file) as stream:
        yield from read_table_file(stream, form, wanted)


def _read_rows(key: str, rows: Iterable[Any], opening: _Opening) -> Iterator[InputBatch]:
    """Record batches or dicts, whichever comes first."""
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
