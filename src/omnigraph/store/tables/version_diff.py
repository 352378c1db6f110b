"""Comparison of two versions of a table, and the rows that only one of them has.

Versions are detached, so two branches may give the same id to different fragments. A fragment is therefore
identified by its data files, and its live rows by its deletion file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import StorageError
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import get_fragment
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.row_addresses import (
    ROW_ADDRESS,
    Addresses,
    Offsets,
    fragments_of,
    make_addresses,
    offsets_of,
)
from omnigraph.store.tables.table_fragments import TableFragment, list_fragments, live_offsets
from omnigraph.store.tables.tables import Tables

# Taking one row by address costs about as much as scanning this many rows.
_SCANNED_PER_TAKEN = 32
_TAKEN_ROWS = 65_536
# Up to this many rows of whole fragments are taken instead of scanned.
_FEW_ROWS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """Rows of one fragment by their offsets, ascending; None means every live row."""

    fragment: int
    offsets: Offsets | None = None


@dataclass(frozen=True, slots=True)
class VersionDiff:
    """The stored rows that only one of two versions has.

    Stored rows are compared, not values: a row that was written again with equal values is both removed and added.
    The counts are therefore upper bounds of the changed rows.
    """

    removed: tuple[Slice, ...] = ()
    added: tuple[Slice, ...] = ()
    removed_rows: int = 0
    added_rows: int = 0


class KnownFragments(Protocol):
    """Optional cache of fragments, of their deleted rows, and of the rows of small fragments."""

    def fragments(self, tables: Tables, pin: TablePin) -> Sequence[TableFragment]:
        """Return the fragments of a version in row order."""
        ...

    def deleted_offsets(self, fragment: TableFragment) -> Offsets | None:
        """Return the offsets of the deleted rows of a fragment, ascending; None if they are not in memory."""
        ...

    def written_rows(self, path: str, fragment: TableFragment) -> pa.Table | None:
        """Return all rows that were written to a fragment, by offset; None if they are not in memory."""
        ...


def compare_versions(
    tables: Tables, before: TablePin | None, after: TablePin | None, cache: KnownFragments | None = None
) -> VersionDiff:
    """Return what two versions do not share; `None` is a table that does not exist. No data file is read."""
    if before is not None and after is not None and before.path == after.path:
        if before.version == after.version:
            return VersionDiff()
        return _compare(tables, before, after, cache)
    removed, removed_rows = _all_rows(() if before is None else _fragments(tables, before, cache))
    added, added_rows = _all_rows(() if after is None else _fragments(tables, after, cache))
    return VersionDiff(removed, added, removed_rows, added_rows)


def translate_addresses(
    tables: Tables,
    before: TablePin,
    after: TablePin,
    addresses: Addresses,
    cache: KnownFragments | None = None,
) -> tuple[Addresses, npt.NDArray[np.bool_]]:
    """Return the addresses in one version of rows with known addresses in another, and a mask of those that exist.

    A row that was stored again in another fragment counts as missing. No data file is read.
    """
    translated = np.zeros(len(addresses), np.uint64)
    exists = np.zeros(len(addresses), bool)
    if before.path != after.path:
        return translated, exists
    new_by_files = {item.files: item for item in _fragments(tables, after, cache)}
    fragment_ids = fragments_of(addresses)
    for old in _fragments(tables, before, cache):
        indexes = np.flatnonzero(fragment_ids == np.uint64(old.id))
        new = new_by_files.get(old.files)
        if not len(indexes) or new is None:
            continue
        offsets = offsets_of(addresses[indexes])
        if new.deletions != old.deletions and new.deletions is not None:
            alive = np.isin(offsets, live_offsets(tables, after, new))
            indexes, offsets = indexes[alive], offsets[alive]
        translated[indexes] = make_addresses(new.id, offsets)
        exists[indexes] = True
    return translated, exists


def slice_rows(
    tables: Tables, pin: TablePin, slices: Sequence[Slice], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of slices in no particular order: the given columns, then the row address."""
    with translate_lance_errors(f"read {pin.path}"):
        dataset = tables.open(pin.path, pin.version)
        whole = [item.fragment for item in slices if item.offsets is None]
        few = _few_addresses(tables, pin, whole)
        if few is not None:
            yield from _take_batches(dataset, few, columns)
        elif whole:
            yield from _scan(dataset, [get_fragment(dataset, id_) for id_ in whole], columns)
        sparse: list[Addresses] = []
        for item in slices:
            if item.offsets is None:
                continue
            fragment = get_fragment(dataset, item.fragment)
            if len(item.offsets) * _SCANNED_PER_TAKEN < fragment.physical_rows:
                sparse.append(make_addresses(item.fragment, item.offsets))
                continue
            selected = np.zeros(fragment.physical_rows, bool)
            selected[item.offsets] = True
            for batch in _scan(dataset, [fragment], columns):
                yield batch.filter(pa.array(selected[offsets_of(batch.column(ROW_ADDRESS).to_numpy())]))
        if sparse:
            yield from _take_batches(dataset, np.concatenate(sparse), columns)


def take_addresses(tables: Tables, pin: TablePin, addresses: Addresses, columns: Sequence[str]) -> pa.Table:
    """Return live rows of a version by address, in the order of the addresses; ascending addresses are faster."""
    with translate_lance_errors(f"read {pin.path}"):
        return _take(tables.open(pin.path, pin.version), addresses, columns)


def _fragments(tables: Tables, pin: TablePin, cache: KnownFragments | None) -> Sequence[TableFragment]:
    return list_fragments(tables, pin) if cache is None else cache.fragments(tables, pin)


def _compare(tables: Tables, before: TablePin, after: TablePin, cache: KnownFragments | None) -> VersionDiff:
    old, new = _fragments(tables, before, cache), _fragments(tables, after, cache)
    old_by_files = {item.files: item for item in old}
    new_by_files = {item.files: item for item in new}
    removed, removed_rows = _all_rows([item for item in old if item.files not in new_by_files])
    added, added_rows = _all_rows([item for item in new if item.files not in old_by_files])
    for fragment in new:
        other = old_by_files.get(fragment.files)
        if other is None or other.deletions == fragment.deletions:
            continue
        old_deleted = None if cache is None else cache.deleted_offsets(other)
        new_deleted = None if cache is None else cache.deleted_offsets(fragment)
        if old_deleted is not None and new_deleted is not None:
            lost, gained = _difference(new_deleted, old_deleted), _difference(old_deleted, new_deleted)
        else:
            old_offsets = _live_offsets(tables, before, other)
            new_offsets = _live_offsets(tables, after, fragment)
            lost, gained = _difference(old_offsets, new_offsets), _difference(new_offsets, old_offsets)
        if len(lost):
            removed = (*removed, Slice(other.id, lost))
        if len(gained):
            added = (*added, Slice(fragment.id, gained))
        removed_rows += len(lost)
        added_rows += len(gained)
    return VersionDiff(removed, added, removed_rows, added_rows)


def _all_rows(fragments: Sequence[TableFragment]) -> tuple[tuple[Slice, ...], int]:
    slices = tuple(Slice(item.id) for item in fragments if item.rows)
    return slices, sum(item.rows for item in fragments)


def _live_offsets(tables: Tables, pin: TablePin, fragment: TableFragment) -> Offsets:
    if fragment.deletions is None:
        return np.arange(fragment.rows, dtype=np.uint32)
    return live_offsets(tables, pin, fragment)


def _difference(offsets: Offsets, others: Offsets) -> Offsets:
    """Return the ascending offsets that are not among the others."""
    if not len(offsets):
        return offsets
    is_other = np.zeros(int(offsets[-1]) + 1, bool)
    is_other[others[others < len(is_other)]] = True
    return offsets[~is_other[offsets]]


def _few_addresses(tables: Tables, pin: TablePin, whole: Sequence[int]) -> Addresses | None:
    """Return the addresses of the rows of whole fragments if they are few, as in the newest fragments of a table.

    Taking them costs a fraction of preparing a scan. None if a scan is as good.
    """
    stored = tables.stored_fragments(pin.path, pin.version)
    if not whole or stored is None or len(whole) > _FEW_ROWS:
        return None
    chosen = [item for item in stored if item.id in whole]
    if sum(item.rows for item in chosen) > _FEW_ROWS or any(item.deletions for item in chosen):
        return None
    return np.concatenate([make_addresses(item.id, np.arange(item.rows, dtype=np.uint32)) for item in chosen])


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
        rows = pa.table({ROW_ADDRESS: part})
        if columns:
            # `_take` returns the fields as they are stored, so that taken and scanned rows have the same schema.
            rows = _take(dataset, part, columns).append_column(ROW_ADDRESS, rows[ROW_ADDRESS])
        yield from rows.to_batches()


def _take(dataset: lance.LanceDataset, addresses: Addresses, columns: Sequence[str]) -> pa.Table:
    # Tables have no stable row ids, so the row id is the address. No public method of Lance takes addresses:
    # `take` expects positions among live rows, which need the deletions of every earlier fragment.
    rows = dataset._take_rows(pa.array(addresses), columns=list(columns))  # noqa: SLF001
    if rows.num_rows != len(addresses):
        raise StorageError(
            f"{dataset.uri} at version {dataset.version}: expected {len(addresses)} rows by address,"
            f" got {rows.num_rows}"
        )
    return rows
