"""What was sent to be loaded, as the source that a load takes. It leads to nothing but what was sent."""

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
from omnigraph.server.uploads.multipart import Part, too_much
from omnigraph.sources.columnar_files import checked_batch
from omnigraph.sources.dataframes import TypedRows
from omnigraph.sources.tabular import arrow_errors, guarded

RECORDS: Final = "records"
MAPPING: Final = "mapping"
# A mapping is read whole.
MAPPING_BYTES: Final = 1 << 20
_ALONE = frozenset({ROWS, TYPED_ROWS, TABLE, BATCHES, STREAM})


@contextmanager
def sent_source(parts: Sequence[Part]) -> Iterator[tuple[Any, Any]]:
    """The source and the mapping of a load, open for as long as the context lasts.

    A source is always given, be it empty, so that a mapping is never asked for sources of its own: those would be
    files of the server.
    """
    named: dict[str, list[Part]] = {}
    for part in parts:
        named.setdefault(part.name, []).append(part)
    mapping = named.pop(MAPPING, None)
    records = named.pop(RECORDS, None)
    if records is not None and named:
        raise InvalidInput(
            f"`{RECORDS}` and tables per type exclude each other", hint="load one after the other"
        )
    with ExitStack() as opened:
        given = None if mapping is None else _mapping(mapping, opened)
        if records is not None:
            yield _source(records, opened), given
        else:
            yield {name: _source(found, opened) for name, found in named.items()}, given


def _source(parts: Sequence[Part], opened: ExitStack) -> Any:
    first = parts[0]
    if len(parts) > 1:
        if any(part.kind in _ALONE for part in parts):
            raise InvalidInput(f"`{first.name}` was sent more than once, and not as files")
        return f"{glob.escape(str(first.path.parent))}/*"
    match first.kind:
        case kind if kind == STREAM:
            return _Named(opened.enter_context(first.path.open("rb")), first.label)
        case kind if kind in (ROWS, TYPED_ROWS):
            rows = read_lines(bounded_lines(opened.enter_context(first.path.open("rb"))))
            return rows if kind == ROWS else TypedRows(rows)
        case kind if kind == TABLE:
            return _table(first, opened)
        case kind if kind == BATCHES:
            return _batches(first)
    return str(first.path)


def _mapping(parts: Sequence[Part], opened: ExitStack) -> Any:
    if len(parts) > 1:
        raise InvalidInput(f"`{MAPPING}` was sent more than once")
    size = parts[0].path.stat().st_size
    if size > MAPPING_BYTES:
        text = f"a mapping of more than {MAPPING_BYTES:,} bytes"
        raise too_much(text, "load_mapping_bytes", MAPPING_BYTES, size)
    if parts[0].kind != ROWS:
        return str(parts[0].path)
    lines = read_lines(bounded_lines(opened.enter_context(parts[0].path.open("rb"))))
    return next(lines, {})


class _Named:
    """A stream of records under the name that its client has for it."""

    def __init__(self, file: BinaryIO | IO[bytes], name: str | None) -> None:
        self.name = name
        self.read = file.read


def _table(part: Part, opened: ExitStack) -> pa.RecordBatchReader:
    file = opened.enter_context(pa.OSFile(str(part.path)))
    reader = opened.enter_context(_stream(file, part.name))
    return pa.RecordBatchReader.from_batches(reader.schema, guarded(map(checked_batch, reader), part.name))


def _batches(part: Part) -> Iterator[pa.RecordBatch]:
    """Batches that may be of several schemas: one stream after the other."""
    with pa.OSFile(str(part.path)) as file:
        size = file.size()
        while file.tell() < size:
            yield from guarded(map(checked_batch, _stream(file, part.name)), part.name)


def _stream(file: pa.NativeFile, name: str) -> pa.RecordBatchStreamReader:
    with arrow_errors(name):
        reader = pa.ipc.open_stream(file)
        # What is no text is found out when it is asked for.
        assert len(reader.schema.names) == len(reader.schema)
    return reader
