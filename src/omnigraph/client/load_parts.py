"""The input of a load as parts of a form: files as they are, tables as Arrow, rows as JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

from omnigraph.client.arrow_streams import encode_batches, encode_table
from omnigraph.client.multipart_body import FormPart
from omnigraph.errors import InvalidInput, StorageError
from omnigraph.protocol.upload_lines import BATCHES, ROWS, STREAM, TABLE, TYPED_ROWS, write_lines
from omnigraph.sources.dataframes import TypedRows, table_of
from omnigraph.sources.input_files import InputFile, list_files, list_table_files, read_chunks
from omnigraph.sources.mapping.document import read_document
from omnigraph.sources.mapping.type_mapping import FORMATS, Format
from omnigraph.sources.readers import list_records
from omnigraph.spark.engine.spark_load import is_spark_source
from omnigraph.store.storage_options import StorageOptions

# The names of the parts that are not types.
RECORDS: Final = "records"
MAPPING: Final = "mapping"


def list_parts(source: Any, mapping: Any, options: StorageOptions) -> list[FormPart] | None:
    """Return the parts of a load, or None for a source whose error depends on the schema.

    Raises the errors of a local load for missing files. Iterables are consumed while they are sent.
    """
    if mapping is None:
        return _parts(source, {}, options)
    document, base, part = _read_mapping(mapping, options)
    source = _mapped_source(source, document, base)
    parts = None if not isinstance(source, Mapping) else _parts(source, document, options)
    return None if parts is None else [part, *parts]


def _parts(source: Any, document: Mapping[str, Any], options: StorageOptions) -> list[FormPart] | None:
    if is_spark_source(source):
        raise InvalidInput(
            "Spark DataFrames and tables need a graph that is opened by the address of its storage",
            hint="open the graph by the address of its storage, or pass `frame.toArrow()`",
        )
    if isinstance(source, Mapping):
        if {"type", "edge"} & source.keys():
            return None
        parts: list[FormPart] = []
        for name, rows in source.items():
            type_parts = _type_parts(str(name), rows, _format(document, str(name)), options)
            if type_parts is None:
                return None
            parts += type_parts
        return parts
    if isinstance(source, str | Path):
        return [_file_part(RECORDS, file) for file in list_records(source, options)]
    if _is_stream(source):
        name = getattr(source, "name", None)
        file_name = name if isinstance(name, str) else None
        return [FormPart(RECORDS, lambda: _stream_bytes(source, file_name), STREAM, file_name)]
    if table_of(source) is not None or not _is_iterable(source):
        return None
    return [FormPart(RECORDS, lambda: write_lines(source), ROWS)]


def _type_parts(name: str, rows: Any, form: Format | None, options: StorageOptions) -> list[FormPart] | None:
    """Return the parts of the rows of one type."""
    if isinstance(rows, str | Path):
        return [_file_part(name, file) for file, _ in list_table_files(rows, options, form)]
    table = table_of(rows)
    if isinstance(table, TypedRows):
        return [FormPart(name, lambda: write_lines(table), TYPED_ROWS)]
    if table is not None:
        return [FormPart(name, lambda: encode_table(table), TABLE)]
    if not _is_iterable(rows) or isinstance(rows, Mapping) or _is_stream(rows):
        return None
    iterator = iter(rows)
    first = next(iterator, None)
    if first is None or isinstance(first, Mapping):
        return [FormPart(name, lambda: write_lines(_prepend(first, iterator)), ROWS)]
    return [FormPart(name, lambda: encode_batches(_prepend(first, iterator)), BATCHES)]


def _prepend(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    return rest if first is None else chain([first], rest)


def _is_stream(source: Any) -> bool:
    return callable(getattr(source, "read", None))


def _is_iterable(source: Any) -> bool:
    return isinstance(source, Iterable) and not isinstance(source, bytes | bytearray)


# --- mappings ---------------------------------------------------------------------------------------------


def _read_mapping(mapping: Any, options: StorageOptions) -> tuple[Mapping[str, Any], str | None, FormPart]:
    """Return the content of a mapping, the folder that its sources are relative to, and the part to send.

    A file is sent as it is, so that the errors of the server have its line numbers.
    """
    if isinstance(mapping, Mapping):
        return mapping, None, FormPart(MAPPING, lambda: write_lines([dict(mapping)]), ROWS)
    document, base = read_document(mapping, options)
    value = document.value if isinstance(document.value, Mapping) else {}
    (file,) = list_files(mapping, ("",), options)
    return value, base, _file_part(MAPPING, InputFile(str(mapping), file.open, file.version))


def _mapped_source(source: Any, document: Mapping[str, Any], base: str | None) -> Any:
    """Return the source by type, or None if the mapping does not determine it."""
    if isinstance(source, Mapping):
        return source
    if source is not None:
        return {next(iter(document)): source} if len(document) == 1 else None
    sources = {name: _member(document, name, "source") for name in document}
    if not sources or None in sources.values():
        return None
    return {name: _resolve(path, base) for name, path in sources.items() if path is not None}


def _resolve(source: str, base: str | None) -> str:
    if base is None or "://" in source or Path(source).is_absolute():
        return source
    return f"{base}/{source}" if "://" in base else str(Path(base) / source)


def _format(document: Mapping[str, Any], name: str) -> Format | None:
    """Return the format of a type in a mapping, whose key has the type name or the type key."""
    type_name = name.rpartition(":")[2]
    keys = (name, type_name, f"node:{type_name}", f"edge:{type_name}")
    entry = next((key for key in keys if key in document), None)
    text = None if entry is None else _member(document, entry, "format")
    return next((form for form in FORMATS if text is not None and text.lower() == form), None)


def _member(document: Mapping[str, Any], name: str, member: str) -> str | None:
    entry = document[name]
    value = entry.get(member) if isinstance(entry, Mapping) else None
    return value if isinstance(value, str) and value else None


# --- bytes ------------------------------------------------------------------------------------------------


def _file_part(name: str, file: InputFile) -> FormPart:
    return FormPart(name, lambda: read_file(file), file_name=file.name)


def read_file(file: InputFile) -> Iterator[bytes]:
    """Yield the bytes of a file; a compressed file stays compressed."""
    try:
        stream = file.open()
    except OSError as error:
        raise StorageError(f"cannot read `{file.name}`: {error}", details={"source": file.name}) from error
    with stream:
        yield from read_chunks(stream, file.name)


def _stream_bytes(stream: BinaryIO, name: str | None) -> Iterator[bytes]:
    for chunk in read_chunks(stream, name):
        if not isinstance(chunk, bytes | bytearray | memoryview):
            raise InvalidInput(
                f"a binary stream is needed, and this one gives {type(chunk).__name__}",
                hint='open the file with mode "rb"',
            )
        yield bytes(chunk)
