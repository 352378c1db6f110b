"""A pinned table by the positions of its rows: whole columns from memory where that pays, storage otherwise."""

from __future__ import annotations

from collections.abc import Sequence
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
from omnigraph.engine.memory.id_index import LOOSE_IDS, IdIndex
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.errors import NotFound
from omnigraph.graph.snapshot import Snapshot, reclaimed
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

# A column of a table this small is read whole at its first use; of a larger one when it is used again and again.
SMALL_ROWS = 1 << 18
_USES_UNTIL_HOT = 3
# A guess of a value's size, before any has been seen.
_BYTES_PER_VALUE = 24
_IDS_PER_FILTER = 1_000
_FEW_IDS = 4
_MANY_IDS = 20_000
# Arrow's strings end at two gigabytes an array.
_LARGEST_ARRAY = (1 << 31) - 1

Ordinals = npt.NDArray[Any]


@dataclass(frozen=True)
class ColumnData:
    """A whole column of one version, with the parts that it was put together from."""

    parts: tuple[TableFragment, ...]
    values: pa.Array

    @cached_property
    def nbytes(self) -> int:
        """Memory of the values."""
        return int(self.values.nbytes)


@dataclass(frozen=True)
class CodedColumn:
    """A column of texts as numbers: the place of each row's value among the different values, -1 for null."""

    codes: npt.NDArray[np.int32]
    values: pa.Array

    @property
    def nbytes(self) -> int:
        """Memory of numbers and values."""
        return int(self.codes.nbytes + self.values.nbytes)


@dataclass(frozen=True)
class LiveRows:
    """The places of a part's rows in its files."""

    offsets: npt.NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        """Memory of the places."""
        return int(self.offsets.nbytes)


@dataclass(frozen=True)
class Parts:
    """The parts of one version."""

    items: tuple[TableFragment, ...]

    @property
    def nbytes(self) -> int:
        """A rough size: names and numbers."""
        return 200 * len(self.items) + 64


class Frame:
    """The rows of one table at one commit."""

    def __init__(self, snapshot: Snapshot, key: str, cache: Cache) -> None:
        self.snapshot = snapshot
        self.table: Table = snapshot.table(key)
        self.pin: TablePin = snapshot.pin(key)
        self.cache = cache
        self._by_file: dict[str, tuple[TableFragment, int]] | None = None

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self.pin.rows

    @property
    def version(self) -> tuple[str, int]:
        """What a cached value is valid for."""
        return self.pin.path, self.pin.version

    @cached_property
    def key(self) -> NodeKey | None:
        """What the ids of the rows are derived from; None when they are their own."""
        return node_key(self.snapshot.catalog, self.table.name) if self.table.kind == "node" else None

    # --- columns -----------------------------------------------------------------------------------------

    def column(self, name: str) -> pa.Array:
        """A whole column, by logical name."""
        return self._data(self.table.physical(name)).values

    def held(self, name: str) -> pa.Array | None:
        """The whole column when it is in memory, or small or hot enough to be brought there; else None."""
        physical = self.table.physical(name)
        found = self.cache.get(("column", self.pin.path, physical), self.pin.version)
        if found is not None:
            values: pa.Array = found.values
            return values
        return self.column(name) if self._wants(physical) else None

    def _wants(self, physical: str) -> bool:
        """Whether a column that is not in memory should be brought there."""
        # One value may be larger than all the rest of the table.
        if pa.types.is_struct(self._type(physical)):
            return False
        if not self.cache.fits(self.num_rows * _BYTES_PER_VALUE):
            return False
        if self.num_rows <= SMALL_ROWS:
            return True
        family = ("column", self.pin.path, physical)
        return self.cache.newest(family) is not None or self.cache.asked(family, None) >= _USES_UNTIL_HOT

    def fetch(self, name: str, ordinals: Ordinals) -> pa.Array:
        """Values by ascending position straight from storage, where bringing the column here would not pay."""
        if self.is_held(name):
            return self.column(name).take(pa.array(ordinals))
        return self._take(ordinals.astype(np.int64), name)

    def is_held(self, name: str) -> bool:
        """Whether the whole column is in memory."""
        family = ("column", self.pin.path, self.table.physical(name))
        return self.cache.get(family, self.pin.version) is not None

    def values(self, name: str, ordinals: Ordinals) -> pa.Array:
        """Values by position; a negative position gives null."""
        if not len(ordinals):
            return pa.array([], self._type(self.table.physical(name)))
        held = self.held(name)
        if held is not None:
            if len(ordinals) == 1 and ordinals[0] >= 0:
                return held.slice(int(ordinals[0]), 1)
            return held.take(indices(ordinals))
        distinct, places = np.unique(ordinals, return_inverse=True)
        missing = int(distinct[0] < 0) if len(distinct) else 0
        taken = self._take(distinct[missing:].astype(np.int64), name)
        return taken.take(indices(places - missing))

    def coded(self, name: str) -> CodedColumn | None:
        """A column of texts with every different value once, to group by; None when it is not worth having."""
        physical = self.table.physical(name)
        if not pa.types.is_string(self._type(physical)):
            return None
        held = self.held(name)
        if held is None:
            return None
        return self.cache.make(("coded", self.pin.path, physical), self.pin.version, lambda: _code(held))

    def _type(self, physical: str) -> pa.DataType:
        return arrow_type(next(item.type for item in self.table.columns if item.physical == physical))

    def _take(self, positions: Positions, name: str) -> pa.Array:
        physical = self.table.physical(name)
        try:
            found = take_positions(self.snapshot.tables, self.pin, positions, [physical])
        except NotFound as error:
            raise reclaimed(self.snapshot.commit) from error
        return found[physical].combine_chunks()

    def _data(self, physical: str) -> ColumnData:
        return self.cache.make(
            ("column", self.pin.path, physical), self.pin.version, lambda: self._build(physical)
        )

    def _build(self, physical: str) -> ColumnData:
        """Put a column together from what the newest version in memory shares with this one, and storage."""
        parts = self.parts()
        donor: ColumnData | None = self.cache.newest(("column", self.pin.path, physical))
        shared = [None] * len(parts) if donor is None else self.shared(donor.parts)
        missing = [part for part, rows in zip(parts, shared, strict=True) if rows is None]
        read = iter(self._read(missing, [physical]))
        chunks = []
        for rows in shared:
            if rows is None:
                chunks.append(one_array(next(read)[physical]))
            else:
                assert donor is not None
                chunks.append(_pick(donor.values, rows))
        if not chunks:
            return ColumnData(parts, pa.array([], self._type(physical)))
        if len(chunks) == 1:
            return ColumnData(parts, chunks[0])
        if pa.types.is_string(chunks[0].type) and sum(chunk.nbytes for chunk in chunks) > _LARGEST_ARRAY:
            chunks = [chunk.cast(pa.large_string()) for chunk in chunks]
        return ColumnData(parts, pa.concat_arrays(chunks))

    def shared(self, old: tuple[TableFragment, ...]) -> list[slice | Ordinals | None]:
        """Where the rows of each part stood in an older version of the table; None for a part it did not have."""
        starts = np.cumsum([0, *(part.rows for part in old)])
        before = {part.files: (part, int(start)) for part, start in zip(old, starts, strict=False)}
        found: list[slice | Ordinals | None] = []
        for part in self.parts():
            known, start = before.get(part.files, (None, 0))
            if known is None:
                found.append(None)
            elif known.deletions == part.deletions:
                found.append(slice(start, start + part.rows))
            else:
                found.append(self._survivors(known, part, start))
        return found

    def _survivors(self, known: TableFragment, part: TableFragment, start: int) -> Ordinals | None:
        """Where the rows that more deletions have left stood before."""
        now = self._live(part)
        if known.deletions is None:
            return start + now.astype(np.int64)
        before: LiveRows | None = self.cache.get(("live", known.files), known.deletions)
        if before is None or not np.isin(now, before.offsets).all():
            return None
        return start + np.searchsorted(before.offsets, now)

    def _live(self, part: TableFragment) -> npt.NDArray[np.uint32]:
        if part.deletions is None:
            return np.arange(part.rows, dtype=np.uint32)
        try:
            return self.cache.make(
                ("live", part.files),
                part.deletions,
                lambda: LiveRows(live_offsets(self.snapshot.tables, self.pin, part)),
            ).offsets
        except NotFound as error:
            raise reclaimed(self.snapshot.commit) from error

    def parts(self) -> tuple[TableFragment, ...]:
        """The runs of rows that this version consists of."""
        try:
            return parts_of(self.cache, self.snapshot.tables, self.pin)
        except NotFound as error:
            raise reclaimed(self.snapshot.commit) from error

    def _read(self, parts: Sequence[TableFragment], columns: Sequence[str]) -> list[pa.Table]:
        try:
            return read_fragments(self.snapshot.tables, self.pin, parts, columns)
        except NotFound as error:
            raise reclaimed(self.snapshot.commit) from error

    # --- finding -----------------------------------------------------------------------------------------

    def search(self, where: str, columns: Sequence[str] = ()) -> tuple[Ordinals, pa.Table]:
        """Positions of the rows that a filter of physical columns selects, ascending."""
        try:
            return find_rows(self.snapshot.tables, self.pin, where, columns)
        except NotFound as error:
            raise reclaimed(self.snapshot.commit) from error

    def indexed(self) -> frozenset[str]:
        """The physical columns that storage has an index on."""
        try:
            found = list_indexes(self.snapshot.tables, self.pin)
        except NotFound as error:
            raise reclaimed(self.snapshot.commit) from error
        return frozenset(name for item in found for name in item.columns)

    def position(self, id_: str) -> int:
        """The position of the row with an id, or -1."""
        found = self._spot(id_)
        if found is None:
            rows, _ = self.search(f"id = {quote_string(id_)}")
            return int(rows[0]) if len(rows) else -1
        return found[0]

    def address(self, id_: str) -> int | None:
        """The address in storage of the row with an id, -1 when there is none; None when that is not known here."""
        found = self._spot(id_)
        return None if found is None else found[1]

    def _spot(self, id_: str) -> tuple[int, int] | None:
        """Position and address of a row, or -1 for both; None when the ids are not in memory."""
        index = self._ids()
        if index is None:
            return None
        for number, offset in index.spots(id_):
            place = self._places().get(index.files[number])
            if place is None:
                continue
            part, start = place
            if part.deletions is None:
                return start + offset, (part.id << 32) | offset
            live = self._live(part)
            at = int(np.searchsorted(live, offset))
            if at < len(live) and live[at] == offset:
                return start + at, (part.id << 32) | offset
        return -1, -1

    def _places(self) -> dict[str, tuple[TableFragment, int]]:
        """Each part by its file, with the position of its first row."""
        if self._by_file is None:
            parts = self.parts()
            starts = np.cumsum([0, *(part.rows for part in parts)]).tolist()
            self._by_file = {part.files: (part, start) for part, start in zip(parts, starts, strict=False)}
        return self._by_file

    def _ids(self) -> IdIndex | None:
        """The index of ids that covers every part of this version, when it is worth having."""
        family = ("ids", self.pin.path)
        known: IdIndex | None = self.cache.newest(family)
        if known is not None and self._places().keys() <= known.covered:
            return known
        if known is None and not self._wants("id"):
            return None
        return self.cache.replace(family, lambda old: self._index_ids(old))

    def _index_ids(self, known: IdIndex | None) -> IdIndex:
        parts = self.parts()
        if known is not None:
            added = [part for part in parts if part.files not in known.covered]
            if known.loose_rows + sum(part.rows for part in added) <= LOOSE_IDS:
                return known.extended(self._with_ids(added))
        return IdIndex.build(self._with_ids(parts))

    def _with_ids(self, parts: Sequence[TableFragment]) -> list[tuple[str, npt.NDArray[np.uint32], pa.Array]]:
        """Every row that was ever written into the files: other versions have not deleted the same ones."""
        whole = [part for part in parts if part.deletions is None]
        found = {
            part.files: one_array(rows["id"])
            for part, rows in zip(whole, self._read(whole, ["id"]), strict=True)
        }
        try:
            for part in parts:
                if part.deletions is not None:
                    found[part.files] = physical_ids(self.snapshot.tables, self.pin, part)
        except NotFound as error:
            raise reclaimed(self.snapshot.commit) from error
        return [(file, np.arange(len(ids), dtype=np.uint32), ids) for file, ids in found.items()]

    def positions(self, ids: pa.Array) -> Ordinals:
        """The positions of rows by id, -1 where there is none."""
        if len(ids) <= _FEW_IDS:
            return np.array([-1 if id_ is None else self.position(id_) for id_ in ids.to_pylist()], np.int64)
        # Beyond some number of questions reading all the ids is the cheaper answer.
        held = self.column("id") if len(ids) > _MANY_IDS else self.held("id")
        if held is not None:
            return _index(ids, held, None)
        distinct = pc.unique(ids).drop_null()
        known, places = [], []
        for start in range(0, len(distinct), _IDS_PER_FILTER):
            chunk = distinct.slice(start, _IDS_PER_FILTER).to_pylist()
            where = string_in("id", chunk)
            found, rows = self.search(where, ["id"])
            known.append(one_array(rows["id"]))
            places.append(found)
        return _index(
            ids, pa.concat_arrays(known or [ids.slice(0, 0)]), np.concatenate([*places, np.zeros(0)])
        )


def parts_of(cache: Cache, tables: Tables, pin: TablePin) -> tuple[TableFragment, ...]:
    """The runs of rows that a version of a table consists of."""
    return cache.make(("parts", pin.path), pin.version, lambda: Parts(list_fragments(tables, pin))).items


def _code(values: pa.Array) -> CodedColumn:
    encoded = values.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int32)
    return CodedColumn(codes, encoded.dictionary)


def indices(ordinals: Ordinals) -> pa.Array:
    """Positions as Arrow takes them: a negative one is null."""
    if len(ordinals) and ordinals.min() < 0:
        return pa.array(ordinals, mask=ordinals < 0)
    return pa.array(ordinals)


def _pick(values: pa.Array, rows: slice | Ordinals) -> pa.Array:
    if isinstance(rows, slice):
        return values.slice(rows.start, rows.stop - rows.start)
    return values.take(pa.array(rows))


def _index(wanted: pa.Array, known: pa.Array, places: Ordinals | None) -> Ordinals:
    found = pc.index_in(wanted, value_set=known)
    spots: npt.NDArray[np.int64] = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    return spots if places is None else np.append(places, -1).astype(np.int64)[spots]


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, without copying one that is one already."""
    if column.num_chunks == 1:
        return column.chunk(0)
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) and found.num_chunks else found
