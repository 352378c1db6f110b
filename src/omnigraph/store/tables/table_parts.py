"""A pinned table as a sequence of rows: which parts it consists of, and its rows by position.

The position of a row is its place among the live rows in the order of the fragments. Parts are what two versions
of a table have in common: a part with the same identity holds the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import FragmentMetadata

from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.lance_io import fragment_of, translate_lance_errors
from omnigraph.store.tables.tables import Tables

ROW_POSITION = "_rowoffset"

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """A run of rows that never changes: what is in its files, less what its deletions leave out."""

    files: str
    deletions: str | None
    fragment_id: int
    rows: int


def list_parts(tables: Tables, pin: TablePin) -> tuple[Part, ...]:
    """The parts of a pinned table in the order of its rows."""
    with translate_lance_errors(f"open {pin.path}"):
        dataset = tables.open(pin.path, pin.version)
        return tuple(_part(fragment.metadata) for fragment in dataset.get_fragments())


def read_parts(
    tables: Tables, pin: TablePin, parts: Sequence[Part], columns: Sequence[str]
) -> list[pa.Table]:
    """The live rows of some parts, in order, one table a part."""
    if not parts:
        return []
    with translate_lance_errors(f"read {pin.path}"):
        dataset = tables.open(pin.path, pin.version)
        fragments = [fragment_of(dataset, part.fragment_id) for part in parts]
        found = dataset.scanner(columns=list(columns), fragments=fragments, scan_in_order=True).to_table()
    starts = np.cumsum([0, *(part.rows for part in parts)])
    return [found.slice(int(start), part.rows) for start, part in zip(starts, parts, strict=False)]


def live_rows(tables: Tables, pin: TablePin, part: Part) -> npt.NDArray[np.uint32]:
    """The places of a part's rows in its files, ascending; no data is read for it."""
    with translate_lance_errors(f"read {pin.path}"):
        dataset = tables.open(pin.path, pin.version)
        fragments = [fragment_of(dataset, part.fragment_id)]
        scanner = dataset.scanner(columns=[], fragments=fragments, with_row_address=True, scan_in_order=True)
        addresses: npt.NDArray[np.uint64] = scanner.to_table()["_rowaddr"].to_numpy()
    return (addresses & 0xFFFFFFFF).astype(np.uint32)


def written_ids(tables: Tables, pin: TablePin, part: Part) -> pa.Array:
    """The ids in the files of a part, by place, those of deleted rows among them."""
    with translate_lance_errors(f"read {pin.path}"):
        dataset = tables.open(pin.path, pin.version)
        scanner = dataset.scanner(
            columns=["id"],
            fragments=[fragment_of(dataset, part.fragment_id)],
            with_row_id=True,
            include_deleted_rows=True,
            scan_in_order=True,
        )
        return scanner.to_table()["id"].combine_chunks()


def take_rows(tables: Tables, pin: TablePin, positions: Positions, columns: Sequence[str]) -> pa.Table:
    """Rows by position, in the order asked for."""
    with translate_lance_errors(f"read {pin.path}"):
        return tables.open(pin.path, pin.version).take(positions.tolist(), columns=list(columns))


def find_rows(
    tables: Tables, pin: TablePin, where: str, columns: Sequence[str] = ()
) -> tuple[Positions, pa.Table]:
    """Positions of the rows that a filter selects, ascending, with some of their columns."""
    with translate_lance_errors(f"read {pin.path}"):
        scanner = tables.open(pin.path, pin.version).scanner(
            columns=[*columns, ROW_POSITION], filter=where, scan_in_order=False
        )
        found = scanner.to_table()
    positions: Positions = found[ROW_POSITION].to_numpy().astype(np.int64)
    order = np.argsort(positions)
    return positions[order], found.select(list(columns)).take(pa.array(order))


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """An index of a table's columns, and how many of its rows are in it; the others are looked through."""

    name: str
    columns: tuple[str, ...]
    kind: str
    rows: int


def list_indexes(tables: Tables, pin: TablePin) -> list[IndexInfo]:
    """The indexes of a pinned table."""
    with translate_lance_errors(f"open {pin.path}"):
        found = tables.open(pin.path, pin.version).describe_indices()
    return [
        IndexInfo(item.name, tuple(item.field_names), str(item.index_type), int(item.num_rows_indexed))
        for item in found
    ]


def _part(fragment: FragmentMetadata) -> Part:
    deletions: Any = fragment.deletion_file
    return Part(
        # The public property makes a class for every call, which is most of the time that a small write takes.
        files="|".join(item._path for item in fragment.files),  # noqa: SLF001
        deletions=None if deletions is None else deletions.path(fragment.id),
        fragment_id=fragment.id,
        rows=fragment.num_rows,
    )
