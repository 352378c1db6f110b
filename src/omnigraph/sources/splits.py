"""An input cut into pieces that can be read apart, in any order and by any process."""

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
from omnigraph.sources.csv_files import cut_csv, read_csv, read_header
from omnigraph.sources.input_files import InputFile, list_files, list_table_files, open_file, read_chunks
from omnigraph.sources.json.json_files import holds_array, read_json_lines
from omnigraph.sources.json.line_blocks import without_bom
from omnigraph.sources.json.ndjson import read_ndjson
from omnigraph.sources.mapping.type_mapping import Format, LoadMapping, TypeMapping, effective_source
from omnigraph.sources.readers import list_records
from omnigraph.sources.row_batch import InputBatch, OnReject
from omnigraph.sources.tabular import TableInput
from omnigraph.sources.typed_files import read_table_file
from omnigraph.store.storage_options import StorageOptions

# Some hundred thousand records: enough that starting a task does not count, little enough to be held in memory.
SPLIT_BYTES = 32 << 20
_SPLIT_ROWS = 500_000
_PIECE = 1 << 20

# Besides the formats of files: lines of JSON, of the graph or of one type; and rows that come from somewhere else.
Form: TypeAlias = Format | Literal["records", "rows"]


@dataclass(frozen=True, slots=True)
class Split:
    """A part of one file: a range of bytes of lines, of row groups or stripes, or a whole file.

    Splits of one input are numbered in its order. `first_row` is the number of rows before it, where that is known
    without reading. `file` is what messages call it, `address` where it is, from wherever one looks. Rows of one
    type have its `key`, and its `mapping` if there is one.
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


def can_split(source: Any, mapping: LoadMapping | None = None) -> bool:
    """Whether a source consists of files alone, which can be read from anywhere."""
    source = effective_source(source, mapping)
    if isinstance(source, Mapping):
        return bool(source) and all(isinstance(part, str | Path) for part in source.values())
    return isinstance(source, str | Path)


def input_bytes(
    source: Any, catalog: Catalog, options: StorageOptions, mapping: LoadMapping | None = None
) -> int:
    """How many bytes the files of a source have, packed or not."""
    source = effective_source(source, mapping)
    if isinstance(source, Mapping):
        tables = [_tables(name, part, catalog, options, mapping) for name, part in source.items()]
        files = [file for _, found, _ in tables for file, _ in found]
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
) -> list[Split]:
    """The splits of graph records in files, or of files per type, in input order."""
    source = effective_source(source, mapping)
    found: list[Split] = []
    if isinstance(source, Mapping):
        for name, part in source.items():
            key, files, own = _tables(name, part, catalog, options, mapping)
            for file, form in files:
                for item in _cut(file, form, split_bytes):
                    found.append(replace(item, number=len(found), key=key, mapping=own))
    else:
        for file in list_records(source, options):
            for item in _cut_lines(file, split_bytes):
                found.append(replace(item, number=len(found)))
    return found


def _tables(
    name: Any, part: Any, catalog: Catalog, options: StorageOptions, mapping: LoadMapping | None
) -> tuple[str, list[tuple[InputFile, Format]], TypeMapping | None]:
    """The table that a name means, its files, and how their columns are mapped."""
    key = find_table(catalog, str(name)).key
    own = None if mapping is None else mapping.types.get(key)
    return key, list_table_files(part, options, None if own is None else own.format), own


def _cut(file: InputFile, form: Format, split_bytes: int) -> list[Split]:
    """The splits of a file with rows of one type."""
    whole = Split(0, form, file.name, _address(file.name))
    if form == "json":
        with open_file(file) as stream:
            is_array = holds_array(stream, file.name)
        return [whole] if is_array else _cut_lines(file, split_bytes)
    if form == "csv":
        # Whether it can be cut takes a look at every byte, which is worth it only where they are near.
        if file.is_compressed or "://" in file.name:
            return [whole]
        with open_file(file) as stream:
            size = stream.seek(0, 2)
            lines = cut_csv(stream, size, split_bytes) if size > split_bytes else None
        return [replace(whole, **asdict(part)) for part in lines or ()] or [whole]
    if form in ("parquet", "orc"):
        pieces = parquet_pieces if form == "parquet" else orc_pieces
        with open_file(file) as stream:
            return [replace(whole, **asdict(part)) for part in pieces(stream, file.name, _SPLIT_ROWS)]
    return [whole]


def _cut_lines(file: InputFile, split_bytes: int) -> list[Split]:
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
    """Reads one split; `lines` tells afterwards how many lines of records it had."""

    def __init__(self, split: Split, catalog: Catalog, options: StorageOptions) -> None:
        self.split = split
        self.lines = 0
        self._catalog = catalog
        self._options = options

    def read(self, on_reject: OnReject | None) -> Iterator[InputBatch]:
        """The rows of the split; places count from its beginning."""
        split = self.split
        (file,) = list_files(split.address, ("",), self._options)
        with open_file(file) as stream:
            if split.key is None:
                pieces = self._counted(_lines(stream, split))
                yield from read_ndjson(pieces, self._catalog, source=split.file, on_reject=on_reject)
            else:
                wanted = TableInput(split.key, self._catalog, split.file, on_reject, split.mapping)
                yield from self._read_table(stream, wanted)

    def _read_table(self, stream: BinaryIO, file: TableInput) -> Iterator[InputBatch]:
        split = self.split
        assert split.form != "rows", "rows of elsewhere are in no file"
        pieces = None if split.stop is None else PieceRange(split.start, split.stop, split.first_row)
        match split.form:
            case "records":
                return read_json_lines(self._counted(_lines(stream, split)), file)
            case "csv" if split.stop is not None:
                header = read_header(stream)
                assert header is not None, "a file without a header line is not cut"
                rows = _Stream(chain([header], _range(stream, split)))
                return read_csv(cast(BinaryIO, rows), file)
            case "parquet":
                return read_parquet(stream, file, pieces)
            case "orc":
                return read_orc(stream, file, pieces)
            case "csv" | "json" | "avro" | "arrow":
                return read_table_file(stream, split.form, file)

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        last = b"\n"
        for piece in pieces:
            self.lines += piece.count(b"\n")
            last = piece[-1:]
            yield piece
        self.lines += last != b"\n"


def _lines(stream: BinaryIO, split: Split) -> Iterator[bytes]:
    found = _range(stream, split)
    return without_bom(found) if split.start == 0 else found


def _range(stream: BinaryIO, split: Split) -> Iterator[bytes]:
    """The lines that begin in the range of a split: the one that crosses its start belongs to the one before."""
    if split.stop is None:
        yield from read_chunks(stream, split.file)
        return
    position = max(0, split.start - 1)
    stream.seek(position)
    begun = split.start == 0
    for piece in _pieces(stream, split.file):
        found = piece
        if not begun:
            end = found.find(b"\n")
            position += len(found) if end < 0 else end + 1
            if end < 0:
                continue
            found, begun = found[end + 1 :], True
            if position >= split.stop:
                return
        if position + len(found) < split.stop:
            position += len(found)
            yield found
            continue
        # The last line is the one that the byte before the stop is in.
        end = found.find(b"\n", max(0, split.stop - 1 - position))
        if end >= 0:
            yield found[: end + 1]
            return
        position += len(found)
        yield found


def _pieces(stream: BinaryIO, name: str) -> Iterator[bytes]:
    return (piece for piece in read_chunks(stream, name) if piece)


class _Stream(io.RawIOBase):
    """Pieces of bytes as a stream."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._held = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            found = next(self._pieces, None)
            if found is None:
                return 0
            self._held = found
        count = min(len(buffer), len(self._held))
        buffer[:count] = self._held[:count]
        self._held = self._held[count:]
        return count
