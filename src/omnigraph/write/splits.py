"""An input cut into pieces that can be read apart, in any order and by any process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.catalog.catalog import Catalog
from omnigraph.errors import InvalidInput
from omnigraph.store.options import StorageOptions
from omnigraph.write.input import InputBatch, Rejecting
from omnigraph.write.ndjson import read_ndjson
from omnigraph.write.sources import (
    RECORD_SUFFIXES,
    TABLE_SUFFIXES,
    bytes_of,
    has_suffix,
    list_files,
    named_key,
    opened_file,
)
from omnigraph.write.tabular import arrow_errors, guarded, read_csv, read_table

# Some hundred thousand records: enough that starting a task does not count, little enough to be held in memory.
SPLIT_BYTES = 32 << 20
_SPLIT_ROWS = 500_000
_PIECE = 1 << 20

Form: TypeAlias = Literal["records", "parquet", "csv"]


@dataclass(frozen=True, slots=True)
class Split:
    """A part of one file: a range of bytes of records, of row groups of Parquet, or a whole file.

    Splits of one input are numbered in its order. `first_row` is the number of rows before it, where that is known
    without reading. `file` is what messages call it, `address` where it is, from wherever one looks.
    """

    number: int
    form: Form
    file: str
    address: str
    key: str | None = None
    start: int = 0
    stop: int | None = None
    first_row: int = 0


def can_split(source: Any) -> bool:
    """Whether a source consists of files alone, which can be read from anywhere."""
    if isinstance(source, Mapping):
        return bool(source) and all(isinstance(part, str | Path) for part in source.values())
    return isinstance(source, str | Path)


def input_bytes(source: Any, catalog: Catalog, options: StorageOptions) -> int:
    """How many bytes the files of a source have, packed or not."""
    for name in source if isinstance(source, Mapping) else ():
        named_key(name, catalog)
    parts = list(source.values()) if isinstance(source, Mapping) else [source]
    suffixes = TABLE_SUFFIXES if isinstance(source, Mapping) else RECORD_SUFFIXES
    total = 0
    for part in parts:
        for file in list_files(part, suffixes, options):
            with file.open() as stream:
                total += stream.seek(0, 2)
    return total


def plan_splits(
    source: Any, catalog: Catalog, options: StorageOptions, split_bytes: int = SPLIT_BYTES
) -> list[Split]:
    """The splits of graph records in files, or of CSV and Parquet files per type, in input order."""
    found: list[Split] = []
    if isinstance(source, Mapping):
        for name, part in source.items():
            _plan_tables(found, named_key(name, catalog), part, options)
    else:
        for file in list_files(source, RECORD_SUFFIXES, options):
            if has_suffix(file.name, TABLE_SUFFIXES):
                raise InvalidInput(
                    f"`{file.name}` does not say what type its rows have", hint="give files per type"
                )
            with opened_file(file) as stream:
                size = _size(file.name, stream)
            stops = [*range(split_bytes, size or 0, split_bytes), size]
            starts = [0, *(stop for stop in stops[:-1] if stop is not None)]
            found += [
                Split(len(found) + place, "records", file.name, _address(file.name), start=start, stop=stop)
                for place, (start, stop) in enumerate(zip(starts, stops, strict=True))
            ]
    return found


def _plan_tables(found: list[Split], key: str, part: str | Path, options: StorageOptions) -> None:
    for file in list_files(part, TABLE_SUFFIXES, options):
        if not has_suffix(file.name, TABLE_SUFFIXES):
            raise InvalidInput(f"`{file.name}` is neither CSV nor Parquet")
        if has_suffix(file.name, (".csv",)):
            # A line end may stand inside a quoted cell: only a reader from the beginning knows.
            found.append(Split(len(found), "csv", file.name, _address(file.name), key))
            continue
        address = _address(file.name)
        with opened_file(file) as stream, arrow_errors(file.name):
            metadata = pq.ParquetFile(stream).metadata
        start = rows = before = 0
        for group in range(metadata.num_row_groups):
            rows += metadata.row_group(group).num_rows
            if rows >= _SPLIT_ROWS or group + 1 == metadata.num_row_groups:
                found.append(Split(len(found), "parquet", file.name, address, key, start, group + 1, before))
                start, before, rows = group + 1, before + rows, 0


def _address(name: str) -> str:
    return name if "://" in name else str(Path(name).absolute())


def _size(name: str, stream: BinaryIO) -> int | None:
    """The size of a file that can be begun anywhere; None for a packed one."""
    return None if name.lower().endswith(".gz") else stream.seek(0, 2)


class SplitReader:
    """Reads one split; `lines` tells afterwards how many lines of records it had."""

    def __init__(self, split: Split, catalog: Catalog, options: StorageOptions) -> None:
        self.split = split
        self.lines = 0
        self._catalog = catalog
        self._options = options

    def read(self, rejecting: Rejecting | None) -> Iterator[InputBatch]:
        """The rows of the split; places count from its beginning."""
        split = self.split
        suffixes = RECORD_SUFFIXES if split.form == "records" else TABLE_SUFFIXES
        (file,) = list_files(split.address, suffixes, self._options)
        with opened_file(file) as stream:
            match split.form:
                case "records":
                    pieces = self._counted(_range(stream, split))
                    yield from read_ndjson(pieces, self._catalog, source=split.file, rejecting=rejecting)
                case "csv":
                    assert split.key is not None
                    yield from read_csv(
                        stream, split.key, self._catalog, source=split.file, rejecting=rejecting
                    )
                case "parquet":
                    yield from self._read_groups(stream, rejecting)

    def _read_groups(self, stream: BinaryIO, rejecting: Rejecting | None) -> Iterator[InputBatch]:
        split = self.split
        assert split.key is not None
        with arrow_errors(split.file):
            opened = pq.ParquetFile(stream)
        with opened:
            groups = list(range(split.start, split.stop or 0))
            batches = guarded(opened.iter_batches(row_groups=groups), split.file)
            reader = pa.RecordBatchReader.from_batches(opened.schema_arrow, batches)
            yield from read_table(split.key, reader, self._catalog, source=split.file, rejecting=rejecting)

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        last = b"\n"
        for piece in pieces:
            self.lines += piece.count(b"\n")
            last = piece[-1:]
            yield piece
        self.lines += last != b"\n"


def _range(stream: BinaryIO, split: Split) -> Iterator[bytes]:
    """The lines that begin in the range of a split: the one that crosses its start belongs to the one before."""
    if split.stop is None:
        yield from bytes_of(stream, split.file)
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
    return (piece for piece in bytes_of(stream, name) if piece)
