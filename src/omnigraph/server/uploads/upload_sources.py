"""The source and the mapping of a load, built from the parts of an upload. Only uploaded files are read."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any, BinaryIO, Final

import pyarrow as pa

from omnigraph.errors import InvalidInput
from omnigraph.protocol.upload_lines import (
    BATCHES,
    ROWS,
    STREAM,
    TABLE,
    TYPED_ROWS,
    bounded_lines,
    read_lines,
)
from omnigraph.server.uploads.multipart import UploadPart, load_limit
from omnigraph.sources.arrow_errors import translate_arrow_errors, validated_batches
from omnigraph.sources.dataframes import TypedRows

RECORDS: Final = "records"
MAPPING: Final = "mapping"
# A mapping is read into memory as a whole.
MAPPING_BYTES: Final = 1 << 20
# Media types of data that cannot be split over several parts.
_SINGLE_PART = frozenset({ROWS, TYPED_ROWS, TABLE, BATCHES, STREAM})


@contextmanager
def open_source(parts: Sequence[UploadPart]) -> Iterator[tuple[Any, Any]]:
    """Return the source and the mapping of a load, open while the context is open.

    The source is never None, because a load without a source reads the files that its mapping names, and these
    would be files of the server.
    """
    by_name: dict[str, list[UploadPart]] = {}
    for part in parts:
        by_name.setdefault(part.name, []).append(part)
    mapping_parts = by_name.pop(MAPPING, None)
    records = by_name.pop(RECORDS, None)
    if records is not None and by_name:
        raise InvalidInput(
            f"`{RECORDS}` and files by type are mutually exclusive", hint="use one load for each"
        )
    with ExitStack() as opened:
        mapping = None if mapping_parts is None else _read_mapping(mapping_parts, opened)
        if records is not None:
            yield _open_parts(records, opened), mapping
        else:
            yield {name: _open_parts(named, opened) for name, named in by_name.items()}, mapping


def _open_parts(parts: Sequence[UploadPart], opened: ExitStack) -> Any:
    first = parts[0]
    if len(parts) > 1:
        if any(part.media_type in _SINGLE_PART for part in parts):
            raise InvalidInput(f"`{first.name}` was sent more than once, and not as files")
        return f"{glob.escape(str(first.path.parent))}/*"
    match first.media_type:
        case kind if kind == STREAM:
            return _NamedStream(opened.enter_context(first.path.open("rb")), first.filename)
        case kind if kind in (ROWS, TYPED_ROWS):
            rows = read_lines(bounded_lines(opened.enter_context(first.path.open("rb"))))
            return rows if kind == ROWS else TypedRows(rows)
        case kind if kind == TABLE:
            return _open_table(first, opened)
        case kind if kind == BATCHES:
            return _read_batches(first)
    return str(first.path)


def _read_mapping(parts: Sequence[UploadPart], opened: ExitStack) -> Any:
    if len(parts) > 1:
        raise InvalidInput(f"`{MAPPING}` was sent more than once")
    size = parts[0].path.stat().st_size
    if size > MAPPING_BYTES:
        text = f"a mapping of more than {MAPPING_BYTES:,} bytes"
        raise load_limit(text, "load_mapping_bytes", MAPPING_BYTES, size)
    if parts[0].media_type != ROWS:
        return str(parts[0].path)
    lines = read_lines(bounded_lines(opened.enter_context(parts[0].path.open("rb"))))
    return next(lines, {})


class _NamedStream:
    """A binary stream with the name that the client has sent, for messages."""

    def __init__(self, file: BinaryIO | IO[bytes], name: str | None) -> None:
        self.name = name
        self.read = file.read


def _open_table(part: UploadPart, opened: ExitStack) -> pa.RecordBatchReader:
    file = opened.enter_context(pa.OSFile(str(part.path)))
    reader = opened.enter_context(_open_ipc_stream(file, part.name))
    return pa.RecordBatchReader.from_batches(reader.schema, validated_batches(reader, part.name))


def _read_batches(part: UploadPart) -> Iterator[pa.RecordBatch]:
    """Yield the batches of consecutive IPC streams, which can have different schemas."""
    with pa.OSFile(str(part.path)) as file:
        size = file.size()
        while file.tell() < size:
            yield from validated_batches(_open_ipc_stream(file, part.name), part.name)


def _open_ipc_stream(file: pa.NativeFile, name: str) -> pa.RecordBatchStreamReader:
    with translate_arrow_errors(name):
        reader = pa.ipc.open_stream(file)
        # Arrow decodes column names lazily. Decode them here, where errors are handled.
        assert len(reader.schema.names) == len(reader.schema)
    return reader
