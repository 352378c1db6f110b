"""A pinned table by row position: whole columns from the cache where that pays off, otherwise from storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import arrow_type
from omnigraph.catalog.keys import TypeKey, table_id_key
from omnigraph.engine.arrow_arrays import single_array
from omnigraph.engine.memory.column_chunks import ColumnChunks, concatenate, to_indices
from omnigraph.engine.memory.id_index import IdIndex
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.engine.memory.row_numbers import NumberedFragment, RowNumbers
from omnigraph.engine.memory.table_versions import (
    deleted_rows,
    is_small,
    keep_written_rows,
    row_numbers,
    table_fragments,
    written_rows,
)
from omnigraph.graph.snapshot import Snapshot
from omnigraph.store.lance.lance_filters import quote_string, string_in
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.row_addresses import fragment_and_offset, make_addresses
from omnigraph.store.tables.table_fragments import (
    TableFragment,
    find_rows,
    physical_ids,
    read_fragments,
    take_whole_fragment,
)
from omnigraph.store.tables.table_indexes import list_indexes
from omnigraph.store.tables.version_diff import take_addresses
from omnigraph.store.text.text_index_names import is_text_index

# A column of a table with at most this many rows is cached at its first use; of a larger table, after repeated use.
SMALL_ROWS = 1 << 18
_USES_UNTIL_CACHED = 3
# Estimated size of a value that has not been read yet.
_BYTES_PER_VALUE = 24
_IDS_PER_FILTER = 1_000
# Up to this many ids are looked up one by one.
_FEW_IDS = 4
# From this many ids on, reading all ids is cheaper than looking them up.
_MANY_IDS = 20_000
# The new fragments of a version, at most, whose columns are read together.
_FEW_FRAGMENTS = 8
# Up to this many rows of new fragments are taken by address.
_MAX_TAKEN_ROWS = 64
# Copying a column costs as much as looking up one in this many of its values.
_FEW_READS = 64
# Looking up one id costs as much as hashing this many ids.
_ROWS_PER_LOOKUP = 200

# Positions of rows in a table.
Ordinals = npt.NDArray[Any]
NO_ROWS: Ordinals = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class ColumnData:
    """A whole column of one version by position. Unused positions have no particular value."""

    numbers: RowNumbers
    column: ColumnChunks

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return sum(int(chunk.nbytes) for chunk in self.column.chunks)

    @property
    def parts(self) -> tuple[pa.Array, ...]:
        """The chunks, which versions share."""
        return self.column.chunks


@dataclass(frozen=True)
class DictionaryColumn:
    """A dictionary-encoded text column: for each row the index of its value in `values`, -1 for null."""

    codes: npt.NDArray[np.int32]
    values: pa.Array

    @property
    def nbytes(self) -> int:
        """Bytes of codes and values."""
        return int(self.codes.nbytes + self.values.nbytes)


class CachedTable:
    """The rows of one table at one commit, read through a cache.

    Reads raise the errors of `Snapshot.reading`.
    """

    def __init__(self, snapshot: Snapshot, key: str, cache: Cache) -> None:
        self.snapshot = snapshot
        self.layout: Table = snapshot.table(key)
        self.pin: TablePin = snapshot.pin(key)
        self.cache = cache

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self.pin.rows

    @cached_property
    def numbers(self) -> RowNumbers:
        """The positions of the rows."""
        with self._reading():
            return row_numbers(self.cache, self.snapshot.tables, self.pin)

    def all_rows(self) -> Ordinals:
        """Return the positions of all rows, ascending."""
        return self.numbers.all_rows()

    @cached_property
    def key(self) -> TypeKey | None:
        """The key that ids of rows are derived from; None if ids are independent of properties."""
        return table_id_key(self.snapshot.catalog, self.layout)

    # --- columns -----------------------------------------------------------------------------------------

    def column(self, name: str) -> pa.Array:
        """Return a whole column by logical name and position, as one array."""
        physical = self.layout.physical(name)
        return self._combined(physical, self._data(physical))

    def column_chunks(self, name: str) -> ColumnChunks:
        """Return a whole column by logical name and position."""
        return self._data(self.layout.physical(name)).column

    def cached_column(self, name: str, reads: int | None = None) -> pa.Array | None:
        """Return a whole column as one array if it is cached, or small or used often enough to be cached; otherwise
        None.

        `reads` is the number of values that are used of it, by default all. For few of them, a column in several
        chunks is not made one array, and the result is None.
        """
        physical = self.layout.physical(name)
        found = self._cached(physical)
        if found is None:
            return None
        if reads is not None and len(found.column.chunks) > 1 and reads * _FEW_READS < self.numbers.size:
            return None
        return self._combined(physical, found)

    def cached_vectors(self, name: str, reads: int) -> pa.Array | None:
        """Return a whole vector column as one array if it is cached, or if so many reads may cache it."""
        physical = self.layout.physical(name)
        found = self._cached(physical) if self._pays_off(physical, reads) else self._known(physical)
        if found is None or (len(found.column.chunks) > 1 and reads * _FEW_READS < self.numbers.size):
            return None
        return self._combined(physical, found)

    def vector_dimension(self, name: str) -> int:
        """Return the dimension of a vector column."""
        dimension: int = self._type(self.layout.physical(name)).list_size
        return dimension

    def _cached(self, physical: str) -> ColumnData | None:
        found = self._known(physical)
        if found is not None:
            return found
        return self._data(physical) if self._should_cache(physical) else None

    def _known(self, physical: str) -> ColumnData | None:
        found: ColumnData | None = self.cache.get(self._family(physical), self.numbers.serial)
        return found

    def _pays_off(self, physical: str, reads: int) -> bool:
        """Return whether reading so many values may cache a column. Few vectors are read without the others."""
        is_vector = pa.types.is_fixed_size_list(self._type(physical))
        return not is_vector or reads * _FEW_READS >= self.num_rows

    def _family(self, physical: str) -> tuple[str, str, str, int]:
        return ("column", self.pin.path, physical, self.numbers.lineage)

    def _combined(self, physical: str, data: ColumnData) -> pa.Array:
        """Return a column as one array. A read of all values pays for the copy; later versions start with it."""
        if len(data.column.chunks) > 1:
            data = ColumnData(data.numbers, data.column.combined())
            self.cache.put(self._family(physical), self.numbers.serial, data)
        return data.column.chunks[0]

    def _should_cache(self, physical: str) -> bool:
        """Return whether to cache a column that is not cached."""
        # A single Blob may be larger than the rest of the table.
        if not self._is_plain(physical):
            return False
        size = self.num_rows * max(float(_BYTES_PER_VALUE), type_bytes(self._type(physical)))
        if not self.cache.fits(int(size)):
            return False
        if size <= SMALL_ROWS * _BYTES_PER_VALUE:
            return True
        if self.cache.latest(self._family(physical)) is not None:
            return True
        return self.cache.count_use(("column", self.pin.path, physical), None) >= _USES_UNTIL_CACHED

    def fetch(self, name: str, ordinals: Ordinals) -> pa.Array:
        """Return values of rows by position. Does not cache the column."""
        physical = self.layout.physical(name)
        cached: ColumnData | None = self.cache.get(self._family(physical), self.numbers.serial)
        if cached is not None:
            return cached.column.take(ordinals)
        return self._take(ordinals.astype(np.int64), name)

    def is_cached(self, name: str) -> bool:
        """Return whether the whole column is cached."""
        return self.cache.get(self._family(self.layout.physical(name)), self.numbers.serial) is not None

    def value_bytes(self, name: str) -> float:
        """Return the mean size of a value, or an estimate if the column is not cached."""
        physical = self.layout.physical(name)
        cached: ColumnData | None = self.cache.get(self._family(physical), self.numbers.serial)
        if cached is not None and len(cached.column):
            return max(1.0, cached.nbytes / len(cached.column))
        return type_bytes(self._type(physical))

    def values(self, name: str, ordinals: Ordinals) -> pa.Array:
        """Return values by position. A negative position gives null."""
        physical = self.layout.physical(name)
        if not len(ordinals):
            return pa.array([], self._type(physical))
        cached = self._cached(physical) if self._pays_off(physical, len(ordinals)) else self._known(physical)
        if cached is not None:
            return cached.column.take(ordinals)
        distinct, places = np.unique(ordinals, return_inverse=True)
        missing = int(distinct[0] < 0) if len(distinct) else 0
        taken = self._take(distinct[missing:].astype(np.int64), name)
        return taken.take(to_indices(places - missing))

    def dictionary_column(self, name: str, reads: int | None = None) -> DictionaryColumn | None:
        """Return a text column with each distinct value once, for grouping; None if the column is not cached.

        `reads` is as in `cached_column`.
        """
        physical = self.layout.physical(name)
        if not pa.types.is_string(self._type(physical)):
            return None
        family = ("dictionary", self.pin.path, physical)
        known: DictionaryColumn | None = self.cache.get(family, self.numbers.token)
        if known is not None:
            return known
        if reads is not None and reads * _FEW_READS < self.numbers.size:
            return None
        cached = self.cached_column(name)
        if cached is None:
            return None
        return self.cache.get_or_build(family, self.numbers.token, lambda: _dictionary_encode(cached))

    def _type(self, physical: str) -> pa.DataType:
        return arrow_type(next(item.type for item in self.layout.columns if item.physical == physical))

    def _take(self, positions: Ordinals, name: str) -> pa.Array:
        physical = self.layout.physical(name)
        return self.take_rows(positions, [physical])[physical].combine_chunks()

    def take_rows(self, positions: Ordinals, columns: Sequence[str]) -> pa.Table:
        """Return physical columns of rows by position, from storage."""
        with self._reading():
            addresses = self.numbers.addresses(positions)
            return take_addresses(self.snapshot.tables, self.pin, addresses, columns)

    def _data(self, physical: str) -> ColumnData:
        return self.cache.get_or_build(
            self._family(physical), self.numbers.serial, lambda: self._build(physical)
        )

    def _build(self, physical: str) -> ColumnData:
        """Extend the column of the version before by the rows behind it, or read the whole column."""
        donor: ColumnData | None = max(
            (
                item
                for item in self.cache.versions(self._family(physical))
                if self.numbers.continues(item.numbers)
            ),
            key=lambda item: item.numbers.serial,
            default=None,
        )
        known = ColumnChunks.of(pa.array([], self._type(physical))) if donor is None else donor.column
        return ColumnData(self.numbers, known.appended(self._values_from(physical, len(known))))

    def rows_from(self, name: str, start: int) -> pa.Array:
        """Return a column from a position on, which no fragment spans. Does not cache the column."""
        physical = self.layout.physical(name)
        cached: ColumnData | None = self.cache.get(self._family(physical), self.numbers.serial)
        if cached is not None:
            return cached.column.values_from(start)
        return self._values_from(physical, start) if start else self._data(physical).column.values_from(0)

    def old_ids(self, numbers: RowNumbers, positions: Ordinals) -> pa.Array:
        """Return the ids of rows of an older version by position, from storage."""
        addresses = numbers.addresses(positions)
        return single_array(take_addresses(self.snapshot.tables, numbers.pin, addresses, ["id"])["id"])

    def _values_from(self, physical: str, start: int) -> pa.Array:
        """Return a column from a position on, which no fragment spans. Unused positions are null."""
        items = [item for item in self.numbers.items if item.start >= start]
        read = self._read([item.fragment for item in items], [physical])
        chunks = []
        for item, rows in zip(items, read, strict=True):
            if item.start > start:
                chunks.append(pa.nulls(item.start - start, self._type(physical)))
            chunks.append(_spread(single_array(rows[physical]), item))
            start = item.start + item.fragment.physical_rows
        if start < self.numbers.size:
            chunks.append(pa.nulls(self.numbers.size - start, self._type(physical)))
        return concatenate(chunks) if chunks else pa.array([], self._type(physical))

    def fragment_values(self, name: str, item: NumberedFragment) -> pa.Array:
        """Return a column of one fragment by offset, null for deleted rows. Does not cache the column."""
        physical = self.layout.physical(name)
        cached: ColumnData | None = self.cache.get(self._family(physical), self.numbers.serial)
        if cached is not None:
            return cached.column.take(np.arange(item.start, item.start + item.fragment.physical_rows))
        [rows] = self._read([item.fragment], [physical])
        return _spread(single_array(rows[physical]), item)

    def small_fragment_values(self, name: str, fragments: Sequence[TableFragment]) -> Iterator[pa.Array]:
        """Yield a column of small fragments without deleted rows, one array each. They are kept in memory."""
        physical = self.layout.physical(name)
        for start in range(0, len(fragments), _FEW_FRAGMENTS):
            for rows in self._read(fragments[start : start + _FEW_FRAGMENTS], [physical]):
                yield single_array(rows[physical])

    def fragments(self) -> tuple[TableFragment, ...]:
        """Return the fragments of this version, in row order."""
        with self._reading():
            return table_fragments(self.cache, self.snapshot.tables, self.pin)

    def rows_in_memory(self, addresses: Sequence[int]) -> pa.Table | None:
        """Return rows by address with all physical columns; None unless all of them are in memory."""
        columns = [item.physical for item in self.layout.columns]
        by_id = {fragment.id: fragment for fragment in self.fragments()}
        parts = []
        for address in addresses:
            fragment_id, offset = fragment_and_offset(address)
            fragment = by_id.get(fragment_id)
            rows = None if fragment is None else written_rows(self.cache, self.pin.path, fragment)
            if rows is None or not self._has_columns(rows, columns):
                return None
            parts.append(rows.slice(offset, 1).select(columns))
        return pa.concat_tables(parts) if parts else None

    def _read(self, fragments: Sequence[TableFragment], columns: Sequence[str]) -> list[pa.Table]:
        """Return the live rows of fragments. Rows of small new fragments are in memory."""
        known = [written_rows(self.cache, self.pin.path, fragment) for fragment in fragments]
        unknown = [
            fragment
            for fragment, rows in zip(fragments, known, strict=True)
            if rows is None or fragment.deletions is not None or not self._has_columns(rows, columns)
        ]
        if not unknown:
            return [rows for rows in known if rows is not None]
        wanted = list(columns)
        if len(unknown) <= _FEW_FRAGMENTS and all(is_small(fragment) for fragment in unknown):
            # One scan of the fragments of a commit reads all columns that its readers will ask for.
            wanted = [item.physical for item in self.layout.columns if self._is_plain(item.physical)]
            wanted += [name for name in columns if name not in wanted]
        with self._reading():
            found = self._read_whole(unknown, wanted)
        read = {fragment.id: rows for fragment, rows in zip(unknown, found, strict=True)}
        if len(wanted) > len(columns):
            for fragment, rows in zip(unknown, found, strict=True):
                keep_written_rows(self.cache, self.pin.path, fragment, rows)
        return [read.get(fragment.id, rows) for fragment, rows in zip(fragments, known, strict=True)]

    def _read_whole(self, fragments: Sequence[TableFragment], columns: Sequence[str]) -> list[pa.Table]:
        """Return the live rows of fragments from storage. Few rows are taken, which starts no scan."""
        rows = sum(fragment.rows for fragment in fragments)
        if rows > _MAX_TAKEN_ROWS or any(fragment.deletions is not None for fragment in fragments):
            return read_fragments(self.snapshot.tables, self.pin, fragments, columns)
        if len(fragments) == 1:
            return [take_whole_fragment(self.snapshot.tables, self.pin, fragments[0], columns)]
        addresses = np.concatenate(
            [make_addresses(item.id, np.arange(item.rows, dtype=np.uint32)) for item in fragments]
        )
        taken = take_addresses(self.snapshot.tables, self.pin, addresses, columns)
        starts = np.cumsum([0, *(item.rows for item in fragments)]).tolist()
        return [taken.slice(start, item.rows) for start, item in zip(starts, fragments, strict=False)]

    def _has_columns(self, rows: pa.Table, columns: Sequence[str]) -> bool:
        """Return whether rows have columns as storage returns them, which writes of Blobs do not."""
        return all(
            name in rows.column_names
            and rows.schema.field(name).type == self._type(name)
            and self._is_plain(name)
            for name in columns
        )

    def _is_plain(self, physical: str) -> bool:
        """Return whether a column is not of Blobs."""
        return not pa.types.is_struct(self._type(physical))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Report data that is missing or damaged. See `Snapshot.reading`."""
        with self.snapshot.reading():
            yield

    # --- lookups -----------------------------------------------------------------------------------------

    def find_rows(self, where: str, columns: Sequence[str] = ()) -> tuple[Ordinals, pa.Table]:
        """Return the positions of the rows that a filter over physical columns selects, ascending, and columns."""
        with self._reading():
            addresses, rows = find_rows(self.snapshot.tables, self.pin, where, columns)
            positions = self.numbers.positions(addresses)
        order = np.argsort(positions)
        return positions[order], rows.take(pa.array(order))

    def indexed_columns(self) -> frozenset[str]:
        """Return the physical columns that have an index in storage which filters can use."""
        with self._reading():
            indexes = list_indexes(self.snapshot.tables, self.pin)
        return frozenset(
            name for item in indexes for name in item.columns if not is_text_index(name, item.name)
        )

    def position(self, id_: str) -> int:
        """Return the position of the row with an id, or -1."""
        index = self._id_index()
        if index is None:
            rows, _ = self.find_rows(f"id = {quote_string(id_)}")
            return int(rows[0]) if len(rows) else -1
        found = self._locate(index, id_)
        return -1 if found is None else self.numbers.by_file[found[0].files].start + found[1]

    def address(self, id_: str) -> int | None:
        """Return the storage address of the row with an id, -1 if there is none, None if ids are not cached."""
        index = self._id_index()
        if index is None:
            return None
        found = self._locate(index, id_)
        return -1 if found is None else (found[0].id << 32) | found[1]

    def _locate(self, index: IdIndex, id_: str) -> tuple[TableFragment, int] | None:
        """Return the fragment and the offset of a row by the id index; None if there is no such row.

        Reads the deletions of no other fragment.
        """
        for file, offset in index.locations(id_):
            fragment = self._by_file.get(file)
            if fragment is not None and not self._is_deleted(fragment, offset):
                return fragment, offset
        return None

    def _is_deleted(self, fragment: TableFragment, offset: int) -> bool:
        if fragment.deletions is None:
            return False
        with self._reading():
            deleted = deleted_rows(self.cache, self.snapshot.tables, self.pin, fragment)
        at = int(np.searchsorted(deleted, offset))
        return at < len(deleted) and int(deleted[at]) == offset

    @cached_property
    def _by_file(self) -> dict[str, TableFragment]:
        return {fragment.files: fragment for fragment in self.fragments()}

    def _id_index(self) -> IdIndex | None:
        """Return the id index that covers every fragment of this version; None if ids are not cached."""
        family = ("ids", self.pin.path)
        known: IdIndex | None = self.cache.latest(family)
        if known is not None and known.covers(self._by_file):
            return known
        if known is None and not self._should_cache("id"):
            return None
        return self.cache.update(family, lambda old: self._index_ids(old))

    def _index_ids(self, known: IdIndex | None) -> IdIndex:
        files = self._by_file
        fragments = list(files.values())
        if known is None:
            return IdIndex.build(self._with_ids(fragments))
        added = [fragment for fragment in fragments if not known.covers([fragment.files])]
        return known.extended(self._with_ids(added), files.__contains__)

    def _with_ids(
        self, fragments: Sequence[TableFragment]
    ) -> list[tuple[str, npt.NDArray[np.uint32], pa.Array]]:
        """Return the ids of all rows ever written into the files, because versions differ in their deletions."""
        complete = [fragment for fragment in fragments if fragment.deletions is None]
        found = {
            fragment.files: single_array(rows["id"])
            for fragment, rows in zip(complete, self._read(complete, ["id"]), strict=True)
        }
        with self._reading():
            for fragment in fragments:
                if fragment.deletions is not None:
                    found[fragment.files] = physical_ids(self.snapshot.tables, self.pin, fragment)
        return [(file, np.arange(len(ids), dtype=np.uint32), ids) for file, ids in found.items()]

    def positions(self, ids: pa.Array) -> Ordinals:
        """Return the positions of rows by id, -1 where there is none."""
        if len(ids) <= _FEW_IDS:
            return np.array([-1 if id_ is None else self.position(id_) for id_ in ids.to_pylist()], np.int64)
        if len(ids) * _ROWS_PER_LOOKUP <= self.num_rows and self._id_index() is not None:
            return np.array([-1 if id_ is None else self.position(id_) for id_ in ids.to_pylist()], np.int64)
        cached = self.column("id") if len(ids) > _MANY_IDS else self.cached_column("id")
        if cached is not None:
            if self.numbers.is_dense:
                return _index_in(ids, cached, None)
            rows = self.all_rows()
            return _index_in(ids, cached.take(pa.array(rows)), rows)
        distinct = pc.unique(ids).drop_null()
        known, places = [], []
        for start in range(0, len(distinct), _IDS_PER_FILTER):
            chunk = distinct.slice(start, _IDS_PER_FILTER).to_pylist()
            where = string_in("id", chunk)
            found, rows = self.find_rows(where, ["id"])
            known.append(single_array(rows["id"]))
            places.append(found)
        return _index_in(
            ids, pa.concat_arrays(known or [ids.slice(0, 0)]), np.concatenate([*places, np.zeros(0)])
        )


def type_bytes(kind: pa.DataType) -> float:
    """Return the estimated size of a value of an Arrow type.

    >>> type_bytes(pa.int32()), type_bytes(pa.list_(pa.float32(), 3)), type_bytes(pa.string())
    (4.0, 12.0, 24.0)
    """
    if pa.types.is_fixed_size_list(kind):
        return float(kind.list_size * type_bytes(kind.value_type))
    if pa.types.is_primitive(kind):
        return float(max(1.0, kind.bit_width / 8))
    return float(_BYTES_PER_VALUE)


def _dictionary_encode(values: pa.Array) -> DictionaryColumn:
    encoded = values.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int32)
    return DictionaryColumn(codes, encoded.dictionary)


def _spread(values: pa.Array, item: NumberedFragment) -> pa.Array:
    """Return the values of a fragment's live rows by offset, null for deleted rows."""
    if not item.num_deleted:
        return values
    places = np.full(item.fragment.physical_rows, -1, np.int64)
    places[item.rows() - item.start] = np.arange(len(values))
    return values.take(to_indices(places))


def _index_in(ids: pa.Array, known: pa.Array, places: Ordinals | None) -> Ordinals:
    found = pc.index_in(ids, value_set=known)
    spots: npt.NDArray[np.int64] = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    return spots if places is None else np.append(places, -1).astype(np.int64)[spots]
