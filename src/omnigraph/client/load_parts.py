"""What a load was given, as the parts that are sent: files as they are, tables as Arrow, rows as lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa

from omnigraph.client.multipart_body import Part
from omnigraph.errors import InvalidInput, StorageError
from omnigraph.protocol.upload_lines import BATCHES, ROWS, STREAM, TABLE, TYPED_ROWS, write_lines
from omnigraph.sources.dataframes import TypedRows, table_of
from omnigraph.sources.input_files import InputFile, list_files, list_table_files, read_chunks
from omnigraph.sources.mapping.document import read_document
from omnigraph.sources.mapping.type_mapping import FORMATS, Format
from omnigraph.sources.readers import list_records
from omnigraph.sources.row_batch import BATCH_ROWS
from omnigraph.spark.engine.spark_load import is_spark_source
from omnigraph.store.storage_options import StorageOptions

RECORDS: Final = "records"
MAPPING: Final = "mapping"


def list_parts(source: Any, mapping: Any, options: StorageOptions) -> list[Part] | None:
    """The parts of a load; None for what cannot be loaded, of which only the schema tells why.

    Files that are not there are refused as they are elsewhere. Rows are asked for when they are sent.
    """
    if mapping is None:
        return _parts(source, {}, options)
    document, base, part = _read_mapping(mapping, options)
    source = _mapped_source(source, document, base)
    found = None if not isinstance(source, Mapping) else _parts(source, document, options)
    return None if found is None else [part, *found]


def _parts(source: Any, document: Mapping[str, Any], options: StorageOptions) -> list[Part] | None:
    if is_spark_source(source):
        raise InvalidInput(
            "DataFrames and tables of Spark are loaded by Spark, which has to reach the storage of the graph",
            hint="open the graph by the address of its storage, or give `frame.toArrow()`",
        )
    if isinstance(source, Mapping):
        if {"type", "edge"} & source.keys():
            return None
        found: list[Part] = []
        for name, rows in source.items():
            parts = _typed(str(name), rows, _format(document, str(name)), options)
            if parts is None:
                return None
            found += parts
        return found
    if isinstance(source, str | Path):
        return [_file_part(RECORDS, file) for file in list_records(source, options)]
    if _is_stream(source):
        name = getattr(source, "name", None)
        label = name if isinstance(name, str) else None
        return [Part(RECORDS, lambda: _stream_bytes(source, label), STREAM, label)]
    if table_of(source) is not None or not _is_iterable(source):
        return None
    return [Part(RECORDS, lambda: write_lines(source), ROWS)]


def _typed(name: str, rows: Any, form: Format | None, options: StorageOptions) -> list[Part] | None:
    """The parts of what there is for a type."""
    if isinstance(rows, str | Path):
        return [_file_part(name, file) for file, _ in list_table_files(rows, options, form)]
    table = table_of(rows)
    if isinstance(table, TypedRows):
        return [Part(name, lambda: write_lines(table), TYPED_ROWS)]
    if table is not None:
        return [Part(name, lambda: _table_bytes(table), TABLE)]
    if not _is_iterable(rows) or isinstance(rows, Mapping) or _is_stream(rows):
        return None
    iterator = iter(rows)
    first = next(iterator, None)
    if first is None or isinstance(first, Mapping):
        return [Part(name, lambda: write_lines(_after(first, iterator)), ROWS)]
    return [Part(name, lambda: _batch_bytes(_after(first, iterator)), BATCHES)]


def _after(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    return rest if first is None else chain([first], rest)


def _is_stream(source: Any) -> bool:
    return callable(getattr(source, "read", None))


def _is_iterable(source: Any) -> bool:
    return isinstance(source, Iterable) and not isinstance(source, bytes | bytearray)


# --- mappings ---------------------------------------------------------------------------------------------


def _read_mapping(given: Any, options: StorageOptions) -> tuple[Mapping[str, Any], str | None, Part]:
    """What a mapping says, the folder that its sources are relative to, and the part that is sent of it.

    A file is sent as it is: what is wrong with it is told with the lines on which it stands.
    """
    if isinstance(given, Mapping):
        return given, None, Part(MAPPING, lambda: write_lines([dict(given)]), ROWS)
    document, base = read_document(given, options)
    value = document.value if isinstance(document.value, Mapping) else {}
    (file,) = list_files(given, ("",), options)
    return value, base, _file_part(MAPPING, InputFile(str(given), file.open))


def _mapped_source(source: Any, document: Mapping[str, Any], base: str | None) -> Any:
    """The source by type; None where a mapping does not lead to one."""
    if isinstance(source, Mapping):
        return source
    if source is not None:
        return {next(iter(document)): source} if len(document) == 1 else None
    found = {name: _member(document, name, "source") for name in document}
    if not found or None in found.values():
        return None
    return {name: _resolved(path, base) for name, path in found.items() if path is not None}


def _resolved(source: str, base: str | None) -> str:
    if base is None or "://" in source or Path(source).is_absolute():
        return source
    return f"{base}/{source}" if "://" in base else str(Path(base) / source)


def _format(document: Mapping[str, Any], name: str) -> Format | None:
    """The format that a mapping gives for a type, which it may spell with its kind or without."""
    plain = name.rpartition(":")[2]
    entry = next((item for item in (name, plain, f"node:{plain}", f"edge:{plain}") if item in document), None)
    given = None if entry is None else _member(document, entry, "format")
    return next((form for form in FORMATS if given is not None and given.lower() == form), None)


def _member(document: Mapping[str, Any], name: str, member: str) -> str | None:
    entry = document[name]
    value = entry.get(member) if isinstance(entry, Mapping) else None
    return value if isinstance(value, str) and value else None


# --- bytes ------------------------------------------------------------------------------------------------


def _file_part(name: str, file: InputFile) -> Part:
    return Part(name, lambda: _file_bytes(file), label=file.name)


def _file_bytes(file: InputFile) -> Iterator[bytes]:
    """The bytes of a file, packed as they are."""
    try:
        stream = file.open()
    except OSError as error:
        raise StorageError(f"cannot read `{file.name}`: {error}", details={"source": file.name}) from error
    with stream:
        yield from read_chunks(stream, file.name)


def _stream_bytes(stream: BinaryIO, name: str | None) -> Iterator[bytes]:
    for piece in read_chunks(stream, name):
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise InvalidInput(
                f"a binary stream is needed, and this one gives {type(piece).__name__}",
                hint='open the file with mode "rb"',
            )
        yield bytes(piece)


def _table_bytes(table: pa.Table | pa.RecordBatchReader) -> Iterator[bytes]:
    batches = table.to_batches(max_chunksize=BATCH_ROWS) if isinstance(table, pa.Table) else table
    with _Written(table.schema) as written:
        for batch in batches:
            yield written.add(batch)
        yield written.end()


def _batch_bytes(batches: Iterable[Any]) -> Iterator[bytes]:
    """Batches as streams, one after the other, each as long as the schema stays the same."""
    written: _Written | None = None
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise InvalidInput(f"expected record batches, got {type(batch).__name__}")
        if written is None or not written.schema.equals(batch.schema, check_metadata=True):
            if written is not None:
                yield written.end()
            written = _Written(batch.schema)
        yield written.add(batch)
    if written is not None:
        yield written.end()


class _Written:
    """A stream of Arrow in the making, which gives its bytes away as they come."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._sink = _Sink()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, "w"), schema)

    def __enter__(self) -> _Written:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def add(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return self._sink.take()

    def end(self) -> bytes:
        self._writer.close()
        return self._sink.take()


class _Sink:
    """What Arrow writes to."""

    closed = False

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: Any) -> int:
        self._data += data
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def take(self) -> bytes:
        found = bytes(self._data)
        self._data.clear()
        return found
