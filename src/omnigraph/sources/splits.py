"""Splits of a load input, which any process can read independently and in any order."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, cast

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.table_lookup import find_table
from omnigraph.sources.columnar_files import PieceRange, orc_pieces, parquet_pieces, read_orc, read_parquet
from omnigraph.sources.csv_files import read_csv, read_header, split_csv
from omnigraph.sources.input_files import InputFile, list_files, list_table_files, open_file, read_chunks
from omnigraph.sources.json.json_files import read_json_lines, starts_with_array
from omnigraph.sources.json.line_blocks import without_bom
from omnigraph.sources.json.ndjson import read_ndjson
from omnigraph.sources.mapping.type_mapping import (
    Format,
    LoadMapping,
    TypeMapping,
    effective_source,
    with_operations,
)
from omnigraph.sources.readers import list_records
from omnigraph.sources.rejects import OnReject
from omnigraph.sources.row_batch import InputBatch
from omnigraph.sources.row_operations import RowOperations
from omnigraph.sources.table_reader import TableInput
from omnigraph.sources.typed_files import read_table_file
from omnigraph.store.storage_options import StorageOptions

# Some hundred thousand records: large compared with the start of a task, small enough for memory.
SPLIT_BYTES = 32 << 20
_SPLIT_ROWS = 500_000

# Besides file formats: JSON lines, of graph records or of one type, and rows that do not come from a file.
Form: TypeAlias = Format | Literal["records", "rows"]


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a file: a byte range of lines, a range of row groups or stripes, or the whole file.

    Splits are numbered in input order. `first_row` is the number of rows before the split, where it is known
    without reading. `file` is the name in errors, `address` an absolute path or a URI. A split with rows of one
    type has its `key`, its `mapping` if there is one, and the text for null in CSV. `operations` are those of
    graph records.
    """

    number: int
    form: Form
    file: str
    address: str
    key: str | None = None
    start: int = 0
    stop: int | None = None
    first_row: int = 0
    mapping: TypeMapping | None = None
    csv_null: str = ""
    operations: RowOperations | None = None


def can_split(source: Any, mapping: LoadMapping | None = None) -> bool:
    """Return whether a source consists of files only, which other processes can read."""
    source = effective_source(source, mapping)
    if isinstance(source, Mapping):
        return bool(source) and all(isinstance(part, str | Path) for part in source.values())
    return isinstance(source, str | Path)


def input_bytes(
    source: Any, catalog: Catalog, options: StorageOptions, mapping: LoadMapping | None = None
) -> int:
    """Return the size of the files of a source, as stored."""
    source = effective_source(source, mapping)
    if isinstance(source, Mapping):
        tables = [_table_files(name, part, catalog, options, mapping) for name, part in source.items()]
        files = [file for _, table_files, _ in tables for file, _ in table_files]
    else:
        files = list_records(source, options)
    total = 0
    for file in files:
        with file.open() as stream:
            total += stream.seek(0, 2)
    return total


def plan_splits(
    source: Any,
    catalog: Catalog,
    options: StorageOptions,
    split_bytes: int = SPLIT_BYTES,
    mapping: LoadMapping | None = None,
    csv_null: str = "",
    operations: RowOperations | None = None,
) -> list[Split]:
    """Return the splits of files with graph records, or of files per type, in input order."""
    source = effective_source(source, mapping)
    splits: list[Split] = []
    if isinstance(source, Mapping):
        for name, part in source.items():
            key, files, own = _table_files(name, part, catalog, options, mapping)
            own = with_operations(key, own, operations)
            for file, form in files:
                for item in split_file(file, form, split_bytes):
                    splits.append(replace(item, number=len(splits), key=key, mapping=own, csv_null=csv_null))
    else:
        for file in list_records(source, options):
            for item in _split_lines(file, split_bytes):
                splits.append(replace(item, number=len(splits), operations=operations))
    return splits


def _table_files(
    name: Any, part: Any, catalog: Catalog, options: StorageOptions, mapping: LoadMapping | None
) -> tuple[str, list[tuple[InputFile, Format]], TypeMapping | None]:
    """Return the table key of a type name, its files and its mapping."""
    key = find_table(catalog, str(name)).key
    own = None if mapping is None else mapping.types.get(key)
    return key, list_table_files(part, options, None if own is None else own.format), own


def split_file(file: InputFile, form: Format, split_bytes: int) -> list[Split]:
    """Return the splits of a file with rows of one type or of none. JSON lines have the form `records`."""
    whole = Split(0, form, file.name, _address(file.name))
    if form == "json":
        with open_file(file) as stream:
            is_array = starts_with_array(stream, file.name)
        return [whole] if is_array else _split_lines(file, split_bytes)
    if form == "csv":
        # The check whether a file can be split reads every byte, which only pays for local files.
        if file.is_compressed or "://" in file.name:
            return [whole]
        with open_file(file) as stream:
            size = stream.seek(0, 2)
            parts = split_csv(stream, size, split_bytes) if size > split_bytes else None
        return [replace(whole, **asdict(part)) for part in parts or ()] or [whole]
    if form in ("parquet", "orc"):
        pieces = parquet_pieces if form == "parquet" else orc_pieces
        with open_file(file) as stream:
            return [replace(whole, **asdict(part)) for part in pieces(stream, file.name, _SPLIT_ROWS)]
    return [whole]


def _split_lines(file: InputFile, split_bytes: int) -> list[Split]:
    with open_file(file) as stream:
        size = None if file.is_compressed else stream.seek(0, 2)
    stops = [*range(split_bytes, size or 0, split_bytes), size]
    starts = [0, *(stop for stop in stops[:-1] if stop is not None)]
    return [
        Split(0, "records", file.name, _address(file.name), start=start, stop=stop)
        for start, stop in zip(starts, stops, strict=True)
    ]


def _address(name: str) -> str:
    return name if "://" in name else str(Path(name).absolute())


class SplitReader:
    """Reads one split. After reading, `lines` is its number of lines of JSON."""

    def __init__(self, split: Split, catalog: Catalog, options: StorageOptions) -> None:
        self.split = split
        self.lines = 0
        self._catalog = catalog
        self._options = options

    def read(self, on_reject: OnReject | None) -> Iterator[InputBatch]:
        """Read the rows of the split; places count from its start."""
        split = self.split
        (file,) = list_files(split.address, ("",), self._options)
        with open_file(file) as stream:
            if split.key is None:
                chunks = self._count_lines(split_lines(stream, split))
                yield from read_ndjson(
                    chunks,
                    self._catalog,
                    source=split.file,
                    on_reject=on_reject,
                    operations=split.operations,
                )
            else:
                table = TableInput(
                    split.key, self._catalog, split.file, on_reject, split.mapping, split.csv_null
                )
                yield from self._read_table(stream, table)

    def _read_table(self, stream: BinaryIO, file: TableInput) -> Iterator[InputBatch]:
        split = self.split
        assert split.form != "rows", "the rows of the split are not in a file"
        pieces = None if split.stop is None else PieceRange(split.start, split.stop, split.first_row)
        match split.form:
            case "records":
                return read_json_lines(self._count_lines(split_lines(stream, split)), file)
            case "csv" if split.stop is not None:
                header = read_header(stream)
                assert header is not None, "a file without a header line is not split"
                rows = ChunkStream(chain([header], split_range(stream, split)))
                return read_csv(cast(BinaryIO, rows), file)
            case "parquet":
                return read_parquet(stream, file, pieces)
            case "orc":
                return read_orc(stream, file, pieces)
            case "csv" | "json" | "avro" | "arrow":
                return read_table_file(stream, split.form, file)

    def _count_lines(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        last = b"\n"
        for chunk in chunks:
            self.lines += chunk.count(b"\n")
            last = chunk[-1:]
            yield chunk
        self.lines += last != b"\n"


def split_lines(stream: BinaryIO, split: Split) -> Iterator[bytes]:
    """Yield the lines of a split, without a byte-order mark."""
    chunks = split_range(stream, split)
    return without_bom(chunks) if split.start == 0 else chunks


def split_range(stream: BinaryIO, split: Split) -> Iterator[bytes]:
    """Yield the lines that start in the range of a split; a line across its start is in the previous split."""
    if split.stop is None:
        yield from read_chunks(stream, split.file)
        return
    position = max(0, split.start - 1)
    stream.seek(position)
    started = split.start == 0
    for chunk in read_chunks(stream, split.file):
        part = chunk
        if not started:
            end = part.find(b"\n")
            position += len(part) if end < 0 else end + 1
            if end < 0:
                continue
            part, started = part[end + 1 :], True
            if position >= split.stop:
                return
        if position + len(part) < split.stop:
            position += len(part)
            yield part
            continue
        # The last line is the one with the byte before the stop.
        end = part.find(b"\n", max(0, split.stop - 1 - position))
        if end >= 0:
            yield part[: end + 1]
            return
        position += len(part)
        yield part


class ChunkStream(io.RawIOBase):
    """A readable stream of chunks of bytes."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._buffer = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._buffer:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._buffer = chunk
        count = min(len(buffer), len(self._buffer))
        buffer[:count] = self._buffer[:count]
        self._buffer = self._buffer[count:]
        return count
