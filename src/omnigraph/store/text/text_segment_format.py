"""The files of a segment of a full-text index.

==================  ================================================================================================
``index.lance``     one row for each block of the dictionary: its first term, where its postings begin, a checksum;
                    the header with the covered fragments is in the metadata of the schema
``terms.lance``     the dictionary in code point order, with the number of postings and sums over them
``postings.lance``  for each term the rows with it: differences of places, occurrences, tokens of the row
``positions.lance`` for each occurrence the difference from the position before; only with positions
``sizes.lance``     for each row 0 without a text, otherwise 1 more than its number of tokens
==================  ================================================================================================

The place of a row is its number in the covered fragments, deleted rows included. Lance packs the numbers. A reader
compares the sums and checksums, so a damaged file gives an error and no other rows or scores.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

INDEX, TERMS, POSTINGS, POSITIONS, SIZES = (
    f"{name}.lance" for name in ("index", "terms", "postings", "positions", "sizes")
)
BLOCK_TERMS: Final = 256
"""The terms of a block of the dictionary. A lookup reads one block."""

HEADER: Final = b"omnigraph.text"
CHECKSUM: Final = b"omnigraph.text.crc32"
_REVISION: Final = 1

INDEX_SCHEMA: Final = pa.schema(
    [
        ("first", pa.large_string()),
        ("postings", pa.uint64()),
        ("positions", pa.uint64()),
        ("checksum", pa.uint32()),
    ]
)
# `last` is the last place, the others are sums over the postings of the term.
TERMS_SCHEMA: Final = pa.schema(
    [
        ("term", pa.large_string()),
        ("rows", pa.uint32()),
        ("last", pa.uint32()),
        ("tokens", pa.uint64()),
        ("lengths", pa.uint64()),
        ("positions", pa.uint64()),
    ]
)
POSTINGS_SCHEMA: Final = pa.schema([("place", pa.uint32()), ("count", pa.uint32()), ("length", pa.uint32())])
POSITIONS_SCHEMA: Final = pa.schema([("position", pa.uint32())])
SIZES_SCHEMA: Final = pa.schema([("size", pa.uint32())])

SCHEMAS: Final = {
    INDEX: INDEX_SCHEMA,
    TERMS: TERMS_SCHEMA,
    POSTINGS: POSTINGS_SCHEMA,
    POSITIONS: POSITIONS_SCHEMA,
    SIZES: SIZES_SCHEMA,
}

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class CoveredFragment:
    """A fragment of a segment: its rows, deleted ones included, those with a text, and the tokens of these."""

    id: int
    rows: int
    texts: int
    tokens: int


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What a segment covers. The places of a fragment follow those of the fragment before it."""

    fragments: tuple[CoveredFragment, ...]
    terms: int
    with_positions: bool

    def metadata(self, blocks: pa.RecordBatch) -> dict[bytes, bytes]:
        """Return the header as metadata of the schema, with a checksum over it and the rows of the file."""
        text = json.dumps({"revision": _REVISION, **asdict(self)}).encode()
        return {HEADER: text, CHECKSUM: str(checksum(blocks.columns, zlib.crc32(text))).encode()}

    @classmethod
    def parse(cls, blocks: pa.Table) -> SegmentHeader:
        """Return the header of an index file; raise `ValueError` if it or the rows differ from the checksum."""
        metadata = blocks.schema.metadata or {}
        text = metadata.get(HEADER, b"")
        columns = [column.combine_chunks() for column in blocks.columns]
        if str(checksum(columns, zlib.crc32(text))).encode() != metadata.get(CHECKSUM):
            raise ValueError("its checksum differs")
        found = json.loads(text)
        if found["revision"] != _REVISION:
            raise ValueError(f"it has revision {found['revision']}, and this release reads {_REVISION}")
        fragments = tuple(CoveredFragment(**item) for item in found["fragments"])
        return cls(fragments, found["terms"], found["with_positions"])


def checksum(columns: Sequence[pa.Array], start: int = 0) -> int:
    """Return the CRC-32 of the values of columns without nulls."""
    for column in columns:
        if pa.types.is_large_string(column.type):
            values = column.to_pylist()
            start = zlib.crc32("\0".join(values).encode(), start)
        else:
            start = zlib.crc32(np.ascontiguousarray(column.to_numpy()).data, start)
    return start


def to_differences(values: Numbers, firsts: Numbers) -> npt.NDArray[np.uint32]:
    """Return each value less the one before it; the values at `firsts` begin a run and stay.

    >>> to_differences(np.array([2, 5, 9, 1, 4], np.uint32), np.array([0, 3]))
    array([2, 3, 4, 1, 3], dtype=uint32)
    """
    found = values.astype(np.int64)
    found[1:] -= values[:-1]
    found[firsts] = values[firsts]
    return found.astype(np.uint32)


def from_differences(differences: Numbers, firsts: Numbers) -> npt.NDArray[np.int64]:
    """Return the values that `to_differences` was given.

    >>> from_differences(np.array([2, 3, 4, 1, 3], np.uint32), np.array([0, 3]))
    array([2, 5, 9, 1, 4])
    """
    found: npt.NDArray[np.int64] = np.cumsum(differences, dtype=np.int64)
    if len(firsts) > 1:
        before = np.where(firsts > 0, found[firsts - 1], 0)
        found -= np.repeat(before, np.diff(np.append(firsts, len(found))))
    return found
