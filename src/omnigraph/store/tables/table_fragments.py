"""The fragments of a pinned table, and its rows by fragment, by position and by filter.

The position of a row is its index among the live rows in fragment order. Two versions of a table share the
fragments whose files and deletion file are equal: such fragments hold the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import StorageError
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import get_fragment
from omnigraph.store.lance.version_manifest import StoredFragment
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.row_addresses import ROW_ADDRESS, Addresses, Offsets, offsets_of
from omnigraph.store.tables.tables import Tables

Positions = npt.NDArray[np.int64]


# A fragment of a table. Equal fragments hold the same rows.
TableFragment: TypeAlias = StoredFragment


def list_fragments(
    tables: Tables, pin: TablePin, unchanged: Mapping[int, TableFragment] | None = None
) -> tuple[TableFragment, ...]:
    """Return the fragments of a pinned table in row order.

    `unchanged` has fragments of the version before it that the change neither deleted rows of nor replaced.
    """
    known = {} if unchanged is None else unchanged
    with translate_lance_errors(f"open {pin.path}"):
        stored = tables.stored_fragments(pin.path, pin.version)
        if stored is not None:
            return stored
        if not known:
            return tuple(map(StoredFragment.of, tables.fragments(pin.path, pin.version)))
        dataset = tables.open_metadata(pin.path, pin.version)
        return tuple(
            known.get(id_) or StoredFragment.of(get_fragment(dataset, id_).metadata)
            for id_ in dataset.fragment_ids()
        )


def read_fragments(
    tables: Tables, pin: TablePin, fragments: Sequence[TableFragment], columns: Sequence[str]
) -> list[pa.Table]:
    """Return the live rows of some fragments in order, one table for each fragment."""
    if not fragments:
        return []
    with translate_lance_errors(f"read {pin.path}"):
        dataset = tables.open(pin.path, pin.version)
        scanned = [get_fragment(dataset, item.id) for item in fragments]
        rows = dataset.scanner(columns=list(columns), fragments=scanned, scan_in_order=True).to_table()
    starts = np.cumsum([0, *(item.rows for item in fragments)])
    return [rows.slice(int(start), item.rows) for start, item in zip(starts, fragments, strict=False)]


def take_whole_fragment(
    tables: Tables, pin: TablePin, fragment: TableFragment, columns: Sequence[str]
) -> pa.Table:
    """Return all rows of a small fragment without deleted rows. Taking them costs less than a scan."""
    with translate_lance_errors(f"read {pin.path}"):
        dataset = tables.open(pin.path, pin.version)
        rows = get_fragment(dataset, fragment.id).take(list(range(fragment.rows)), columns=list(columns))
    if rows.num_rows != fragment.rows:
        raise StorageError(
            f"{pin.path}: expected {fragment.rows} rows of fragment {fragment.id}, got {rows.num_rows}"
        )
    return rows


def scan_fragment(tables: Tables, pin: TablePin, fragment: TableFragment) -> Iterator[pa.RecordBatch]:
    """Yield all columns of the live rows of one fragment in batches."""
    with translate_lance_errors(f"read {pin.path}"):
        dataset = tables.open(pin.path, pin.version)
        yield from dataset.scanner(fragments=[get_fragment(dataset, fragment.id)]).to_batches()


def live_offsets(tables: Tables, pin: TablePin, fragment: TableFragment) -> Offsets:
    """Return the offsets of a fragment's live rows, ascending. No data file is read."""
    with translate_lance_errors(f"read {pin.path}"):
        dataset = tables.open(pin.path, pin.version)
        fragments = [get_fragment(dataset, fragment.id)]
        scanner = dataset.scanner(columns=[], fragments=fragments, with_row_address=True, scan_in_order=True)
        return offsets_of(scanner.to_table()[ROW_ADDRESS].to_numpy())


def physical_ids(tables: Tables, pin: TablePin, fragment: TableFragment) -> pa.Array:
    """Return the ids of all rows that were written to a fragment, by offset, deleted rows included."""
    with translate_lance_errors(f"read {pin.path}"):
        dataset = tables.open(pin.path, pin.version)
        scanner = dataset.scanner(
            columns=["id"],
            fragments=[get_fragment(dataset, fragment.id)],
            with_row_id=True,
            include_deleted_rows=True,
            scan_in_order=True,
        )
        return scanner.to_table()["id"].combine_chunks()


def take_positions(tables: Tables, pin: TablePin, positions: Positions, columns: Sequence[str]) -> pa.Table:
    """Return rows by position, in the order of the positions."""
    with translate_lance_errors(f"read {pin.path}"):
        return tables.open(pin.path, pin.version).take(positions.tolist(), columns=list(columns))


def find_rows(
    tables: Tables, pin: TablePin, where: str, columns: Sequence[str] = ()
) -> tuple[Addresses, pa.Table]:
    """Return the addresses of the rows that a filter selects, in no particular order, and some of their columns."""
    dataset = tables.open(pin.path, pin.version)
    rows = tables.indexes.read_table(
        pin.path, dataset, columns=list(columns), filter=where, with_row_address=True, scan_in_order=False
    )
    return rows[ROW_ADDRESS].to_numpy(), rows.select(list(columns))
