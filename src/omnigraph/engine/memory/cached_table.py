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
from omnigraph.catalog.keys import NodeKey, node_key
from omnigraph.engine.arrow_arrays import single_array
from omnigraph.engine.memory.id_index import MAX_UNSORTED_IDS, IdIndex
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.graph.snapshot import Snapshot
from omnigraph.store.lance.lance_filters import quote_string, string_in
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.table_fragments import (
    Positions,
    TableFragment,
    find_rows,
    list_fragments,
    live_offsets,
    physical_ids,
    read_fragments,
    take_positions,
)
from omnigraph.store.tables.table_indexes import list_indexes
from omnigraph.store.tables.tables import Tables

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
# The size limit of an Arrow string array with 32-bit offsets.
_MAX_STRING_BYTES = (1 << 31) - 1

# Positions of rows in a table.
Ordinals = npt.NDArray[Any]
NO_ROWS: Ordinals = np.zeros(0, np.int64)


@dataclass(frozen=True)
class ColumnData:
    """A whole column of one version, with the fragments that it was assembled from."""

    fragments: tuple[TableFragment, ...]
    values: pa.Array

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return int(self.values.nbytes)


@dataclass(frozen=True)
class DictionaryColumn:
    """A dictionary-encoded text column: for each row the index of its value in `values`, -1 for null."""

    codes: npt.NDArray[np.int32]
    values: pa.Array

    @property
    def nbytes(self) -> int:
        """Bytes of codes and values."""
        return int(self.codes.nbytes + self.values.nbytes)


@dataclass(frozen=True)
class LiveRows:
    """The offsets of a fragment's live rows in its files."""

    offsets: npt.NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        """Bytes of the offsets."""
        return int(self.offsets.nbytes)


@dataclass(frozen=True)
class Fragments:
    """The fragments of one version."""

    items: tuple[TableFragment, ...]

    @property
    def nbytes(self) -> int:
        """Estimated bytes."""
        return 200 * len(self.items) + 64


class CachedTable:
    """The rows of one table at one commit, read through a cache.

    Reads raise the errors of `Snapshot.reading`.
    """

    def __init__(self, snapshot: Snapshot, key: str, cache: Cache) -> None:
        self.snapshot = snapshot
        self.layout: Table = snapshot.table(key)
        self.pin: TablePin = snapshot.pin(key)
        self.cache = cache
        self._by_file: dict[str, tuple[TableFragment, int]] | None = None

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self.pin.rows

    @property
    def version(self) -> tuple[str, int]:
        """The version of the table that cached values belong to."""
        return self.pin.path, self.pin.version

    @cached_property
    def key(self) -> NodeKey | None:
        """The key that ids of rows are derived from; None if ids are independent of properties."""
        return node_key(self.snapshot.catalog, self.layout.name) if self.layout.kind == "node" else None

    # --- columns -----------------------------------------------------------------------------------------

    def column(self, name: str) -> pa.Array:
        """Return a whole column by logical name."""
        return self._data(self.layout.physical(name)).values

    def cached_column(self, name: str) -> pa.Array | None:
        """Return a whole column if it is cached, or small or used often enough to be cached; otherwise None."""
        physical = self.layout.physical(name)
        found = self.cache.get(("column", self.pin.path, physical), self.pin.version)
        if found is not None:
            values: pa.Array = found.values
            return values
        return self.column(name) if self._should_cache(physical) else None

    def _should_cache(self, physical: str) -> bool:
        """Return whether to cache a column that is not cached."""
        # A single Blob may be larger than the rest of the table.
        if pa.types.is_struct(self._type(physical)):
            return False
        if not self.cache.fits(self.num_rows * _BYTES_PER_VALUE):
            return False
        if self.num_rows <= SMALL_ROWS:
            return True
        family = ("column", self.pin.path, physical)
        return (
            self.cache.latest(family) is not None or self.cache.count_use(family, None) >= _USES_UNTIL_CACHED
        )

    def fetch(self, name: str, ordinals: Ordinals) -> pa.Array:
        """Return values by ascending position. Does not cache the column."""
        if self.is_cached(name):
            return self.column(name).take(pa.array(ordinals))
        return self._take(ordinals.astype(np.int64), name)

    def is_cached(self, name: str) -> bool:
        """Return whether the whole column is cached."""
        family = ("column", self.pin.path, self.layout.physical(name))
        return self.cache.get(family, self.pin.version) is not None

    def values(self, name: str, ordinals: Ordinals) -> pa.Array:
        """Return values by position. A negative position gives null."""
        if not len(ordinals):
            return pa.array([], self._type(self.layout.physical(name)))
        cached = self.cached_column(name)
        if cached is not None:
            if len(ordinals) == 1 and ordinals[0] >= 0:
                return cached.slice(int(ordinals[0]), 1)
            return cached.take(to_indices(ordinals))
        distinct, places = np.unique(ordinals, return_inverse=True)
        missing = int(distinct[0] < 0) if len(distinct) else 0
        taken = self._take(distinct[missing:].astype(np.int64), name)
        return taken.take(to_indices(places - missing))

    def dictionary_column(self, name: str) -> DictionaryColumn | None:
        """Return a text column with each distinct value once, for grouping; None if the column is not cached."""
        physical = self.layout.physical(name)
        if not pa.types.is_string(self._type(physical)):
            return None
        cached = self.cached_column(name)
        if cached is None:
            return None
        family = ("dictionary", self.pin.path, physical)
        return self.cache.get_or_build(family, self.pin.version, lambda: _dictionary_encode(cached))

    def _type(self, physical: str) -> pa.DataType:
        return arrow_type(next(item.type for item in self.layout.columns if item.physical == physical))

    def _take(self, positions: Positions, name: str) -> pa.Array:
        physical = self.layout.physical(name)
        with self._reading():
            found = take_positions(self.snapshot.tables, self.pin, positions, [physical])
        return found[physical].combine_chunks()

    def _data(self, physical: str) -> ColumnData:
        return self.cache.get_or_build(
            ("column", self.pin.path, physical), self.pin.version, lambda: self._build(physical)
        )

    def _build(self, physical: str) -> ColumnData:
        """Assemble a column: reuse the rows of the latest cached version, and read the others from storage."""
        fragments = self.fragments()
        donor: ColumnData | None = self.cache.latest(("column", self.pin.path, physical))
        reusable = [None] * len(fragments) if donor is None else self.reusable_rows(donor.fragments)
        missing = [fragment for fragment, rows in zip(fragments, reusable, strict=True) if rows is None]
        read = iter(self._read(missing, [physical]))
        chunks = []
        for rows in reusable:
            if rows is None:
                chunks.append(single_array(next(read)[physical]))
            else:
                assert donor is not None
                chunks.append(_pick(donor.values, rows))
        if not chunks:
            return ColumnData(fragments, pa.array([], self._type(physical)))
        if len(chunks) == 1:
            return ColumnData(fragments, chunks[0])
        if pa.types.is_string(chunks[0].type) and sum(chunk.nbytes for chunk in chunks) > _MAX_STRING_BYTES:
            chunks = [chunk.cast(pa.large_string()) for chunk in chunks]
        return ColumnData(fragments, pa.concat_arrays(chunks))

    def reusable_rows(self, old: tuple[TableFragment, ...]) -> list[slice | Ordinals | None]:
        """Return the positions of each fragment's rows in an older version; None if that version lacks them."""
        starts = np.cumsum([0, *(fragment.rows for fragment in old)])
        before = {
            fragment.files: (fragment, int(start)) for fragment, start in zip(old, starts, strict=False)
        }
        found: list[slice | Ordinals | None] = []
        for fragment in self.fragments():
            known, start = before.get(fragment.files, (None, 0))
            if known is None:
                found.append(None)
            elif known.deletions == fragment.deletions:
                found.append(slice(start, start + fragment.rows))
            else:
                found.append(self._surviving_rows(known, fragment, start))
        return found

    def _surviving_rows(self, known: TableFragment, fragment: TableFragment, start: int) -> Ordinals | None:
        """Return the older positions of the rows that later deletions left; None if rows were not only deleted."""
        now = self._live(fragment)
        if known.deletions is None:
            return start + now.astype(np.int64)
        before: LiveRows | None = self.cache.get(("live", known.files), known.deletions)
        if before is None or not np.isin(now, before.offsets).all():
            return None
        return start + np.searchsorted(before.offsets, now)

    def _live(self, fragment: TableFragment) -> npt.NDArray[np.uint32]:
        if fragment.deletions is None:
            return np.arange(fragment.rows, dtype=np.uint32)
        with self._reading():
            return self.cache.get_or_build(
                ("live", fragment.files),
                fragment.deletions,
                lambda: LiveRows(live_offsets(self.snapshot.tables, self.pin, fragment)),
            ).offsets

    def fragments(self) -> tuple[TableFragment, ...]:
        """Return the fragments of this version, in row order."""
        with self._reading():
            return table_fragments(self.cache, self.snapshot.tables, self.pin)

    def _read(self, fragments: Sequence[TableFragment], columns: Sequence[str]) -> list[pa.Table]:
        with self._reading():
            return read_fragments(self.snapshot.tables, self.pin, fragments, columns)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Report data that is missing or damaged. See `Snapshot.reading`."""
        with self.snapshot.reading():
            yield

    # --- lookups -----------------------------------------------------------------------------------------

    def find_rows(self, where: str, columns: Sequence[str] = ()) -> tuple[Ordinals, pa.Table]:
        """Return the positions of the rows that a filter over physical columns selects, ascending, and columns."""
        with self._reading():
            return find_rows(self.snapshot.tables, self.pin, where, columns)

    def indexed_columns(self) -> frozenset[str]:
        """Return the physical columns that have an index in storage."""
        with self._reading():
            indexes = list_indexes(self.snapshot.tables, self.pin)
        return frozenset(name for item in indexes for name in item.columns)

    def position(self, id_: str) -> int:
        """Return the position of the row with an id, or -1."""
        found = self._locate(id_)
        if found is None:
            rows, _ = self.find_rows(f"id = {quote_string(id_)}")
            return int(rows[0]) if len(rows) else -1
        return found[0]

    def address(self, id_: str) -> int | None:
        """Return the storage address of the row with an id, -1 if there is none, None if ids are not cached."""
        found = self._locate(id_)
        return None if found is None else found[1]

    def _locate(self, id_: str) -> tuple[int, int] | None:
        """Return position and address of a row, -1 for both if there is none, None if ids are not cached."""
        index = self._id_index()
        if index is None:
            return None
        for number, offset in index.locations(id_):
            place = self._fragments_by_file().get(index.files[number])
            if place is None:
                continue
            fragment, start = place
            if fragment.deletions is None:
                return start + offset, (fragment.id << 32) | offset
            live = self._live(fragment)
            at = int(np.searchsorted(live, offset))
            if at < len(live) and live[at] == offset:
                return start + at, (fragment.id << 32) | offset
        return -1, -1

    def _fragments_by_file(self) -> dict[str, tuple[TableFragment, int]]:
        """Return each fragment by its file, with the position of its first row."""
        if self._by_file is None:
            fragments = self.fragments()
            starts = np.cumsum([0, *(fragment.rows for fragment in fragments)]).tolist()
            self._by_file = {
                fragment.files: (fragment, start) for fragment, start in zip(fragments, starts, strict=False)
            }
        return self._by_file

    def _id_index(self) -> IdIndex | None:
        """Return the id index that covers every fragment of this version; None if ids are not cached."""
        family = ("ids", self.pin.path)
        known: IdIndex | None = self.cache.latest(family)
        if known is not None and self._fragments_by_file().keys() <= known.covered:
            return known
        if known is None and not self._should_cache("id"):
            return None
        return self.cache.update(family, lambda old: self._index_ids(old))

    def _index_ids(self, known: IdIndex | None) -> IdIndex:
        fragments = self.fragments()
        if known is not None:
            added = [fragment for fragment in fragments if fragment.files not in known.covered]
            if known.unsorted_rows + sum(fragment.rows for fragment in added) <= MAX_UNSORTED_IDS:
                return known.extended(self._with_ids(added))
        return IdIndex.build(self._with_ids(fragments))

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
        cached = self.column("id") if len(ids) > _MANY_IDS else self.cached_column("id")
        if cached is not None:
            return _index_in(ids, cached, None)
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


def table_fragments(cache: Cache, tables: Tables, pin: TablePin) -> tuple[TableFragment, ...]:
    """Return the fragments of a table version, in row order."""
    return cache.get_or_build(
        ("fragments", pin.path), pin.version, lambda: Fragments(list_fragments(tables, pin))
    ).items


def _dictionary_encode(values: pa.Array) -> DictionaryColumn:
    encoded = values.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int32)
    return DictionaryColumn(codes, encoded.dictionary)


def to_indices(ordinals: Ordinals) -> pa.Array:
    """Convert positions to Arrow indices. A negative position becomes null."""
    if len(ordinals) and ordinals.min() < 0:
        return pa.array(ordinals, mask=ordinals < 0)
    return pa.array(ordinals)


def _pick(values: pa.Array, rows: slice | Ordinals) -> pa.Array:
    if isinstance(rows, slice):
        return values.slice(rows.start, rows.stop - rows.start)
    return values.take(pa.array(rows))


def _index_in(ids: pa.Array, known: pa.Array, places: Ordinals | None) -> Ordinals:
    found = pc.index_in(ids, value_set=known)
    spots: npt.NDArray[np.int64] = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    return spots if places is None else np.append(places, -1).astype(np.int64)[spots]
