"""Two versions of a table compared by what they consist of, and the rows that only one of them has.

Versions are detached, so that two branches give the same number to different fragments: what tells fragments
apart is the files that they are in, and what tells their rows apart is the file of their deletions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import StorageError
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.lance_io import fragment_of, translate_lance_errors
from omnigraph.store.tables.table_parts import Part, list_parts, live_rows
from omnigraph.store.tables.tables import Tables

ADDRESS = "_rowaddr"

Addresses: TypeAlias = npt.NDArray[np.uint64]
Offsets: TypeAlias = npt.NDArray[np.uint32]

# A row that is taken costs as much as so many that are scanned.
_SCANNED_PER_TAKEN = 32
_TAKEN_ROWS = 65_536
_FRAGMENT_BITS = np.uint64(32)


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """Rows of one fragment by their places in its files, ascending; without any it is every live row."""

    fragment: int
    offsets: Offsets | None = None


@dataclass(frozen=True, slots=True)
class VersionDiff:
    """What is in one of two versions alone, in rows that are stored, not in values.

    A row that was written again with equal values is among both, so that the counts are upper bounds of what
    has changed.
    """

    removed: tuple[Slice, ...] = ()
    added: tuple[Slice, ...] = ()
    removed_rows: int = 0
    added_rows: int = 0


def compare_versions(tables: Tables, before: TablePin | None, after: TablePin | None) -> VersionDiff:
    """What two versions do not share; `None` is a table that is not there. No data file is read for it."""
    if before is not None and after is not None and before.path == after.path:
        if before.version == after.version:
            return VersionDiff()
        return _compare(tables, before, after)
    removed, removed_rows = _whole(() if before is None else list_parts(tables, before))
    added, added_rows = _whole(() if after is None else list_parts(tables, after))
    return VersionDiff(removed, added, removed_rows, added_rows)


def slice_rows(
    tables: Tables, pin: TablePin, slices: Sequence[Slice], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of slices as a stream, in no order: the columns asked for, and last their addresses."""
    with translate_lance_errors(f"read {pin.path}"):
        dataset = tables.open(pin.path, pin.version)
        whole = [fragment_of(dataset, item.fragment) for item in slices if item.offsets is None]
        if whole:
            yield from _scan(dataset, whole, columns)
        sparse: list[Addresses] = []
        for item in slices:
            if item.offsets is None:
                continue
            fragment = fragment_of(dataset, item.fragment)
            if len(item.offsets) * _SCANNED_PER_TAKEN < fragment.physical_rows:
                sparse.append(_addresses(item.fragment, item.offsets))
                continue
            wanted = np.zeros(fragment.physical_rows, bool)
            wanted[item.offsets] = True
            for batch in _scan(dataset, [fragment], columns):
                yield batch.filter(pa.array(wanted[_places(batch.column(ADDRESS).to_numpy())]))
        if sparse:
            yield from _take_batches(dataset, np.concatenate(sparse), columns)


def take_rows(tables: Tables, pin: TablePin, addresses: Addresses, columns: Sequence[str]) -> pa.Table:
    """Live rows of a version by address, in the order of the addresses; ascending ones are found sooner."""
    with translate_lance_errors(f"read {pin.path}"):
        return _take(tables.open(pin.path, pin.version), addresses, columns)


def _compare(tables: Tables, before: TablePin, after: TablePin) -> VersionDiff:
    old, new = list_parts(tables, before), list_parts(tables, after)
    old_by_files = {part.files: part for part in old}
    new_by_files = {part.files: part for part in new}
    removed, removed_rows = _whole([part for part in old if part.files not in new_by_files])
    added, added_rows = _whole([part for part in new if part.files not in old_by_files])
    for part in new:
        other = old_by_files.get(part.files)
        if other is None or other.deletions == part.deletions:
            continue
        was, is_ = _live(tables, before, other), _live(tables, after, part)
        lost, gained = _without(was, is_), _without(is_, was)
        if len(lost):
            removed = (*removed, Slice(other.fragment_id, lost))
        if len(gained):
            added = (*added, Slice(part.fragment_id, gained))
        removed_rows += len(lost)
        added_rows += len(gained)
    return VersionDiff(removed, added, removed_rows, added_rows)


def _whole(parts: Sequence[Part]) -> tuple[tuple[Slice, ...], int]:
    slices = tuple(Slice(part.fragment_id) for part in parts if part.rows)
    return slices, sum(part.rows for part in parts)


def _live(tables: Tables, pin: TablePin, part: Part) -> Offsets:
    if part.deletions is None:
        return np.arange(part.rows, dtype=np.uint32)
    return live_rows(tables, pin, part)


def _without(rows: Offsets, others: Offsets) -> Offsets:
    """The places among the first that are not among the second, in their order."""
    if not len(rows):
        return rows
    there = np.zeros(int(rows[-1]) + 1, bool)
    there[others[others < len(there)]] = True
    return rows[~there[rows]]


def _scan(
    dataset: lance.LanceDataset, fragments: list[lance.LanceFragment], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    scanner = dataset.scanner(
        columns=list(columns), fragments=fragments, with_row_address=True, scan_in_order=False
    )
    yield from scanner.to_batches()


def _take_batches(
    dataset: lance.LanceDataset, addresses: Addresses, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(addresses), _TAKEN_ROWS):
        part = addresses[start : start + _TAKEN_ROWS]
        rows = pa.table({ADDRESS: part})
        if columns:
            # With fields as they are stored: what is taken and what is scanned has to fit into one table.
            rows = _take(dataset, part, columns).append_column(ADDRESS, rows[ADDRESS])
        yield from rows.to_batches()


def _take(dataset: lance.LanceDataset, addresses: Addresses, columns: Sequence[str]) -> pa.Table:
    # Tables keep no stable row ids, so that the id of a row is its address. Nothing else that Lance offers takes
    # addresses: places among live rows would need the deletions of every fragment before.
    found = dataset._take_rows(pa.array(addresses), columns=list(columns))  # noqa: SLF001
    if found.num_rows != len(addresses):
        missing = len(addresses) - found.num_rows
        raise StorageError(
            f"{dataset.uri} at version {dataset.version} lacks {missing} rows that it should have"
        )
    return found


def _addresses(fragment: int, offsets: Offsets) -> Addresses:
    return (np.uint64(fragment) << _FRAGMENT_BITS) | offsets.astype(np.uint64)


def _places(addresses: Addresses) -> npt.NDArray[np.int64]:
    return (addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)
