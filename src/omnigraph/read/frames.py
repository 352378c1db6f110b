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
from omnigraph.errors import NotFound
from omnigraph.graph.snapshot import Snapshot, reclaimed
from omnigraph.read.cache import Cache
from omnigraph.store.lance_io import quote_string
from omnigraph.store.parts import (
    Part,
    Positions,
    find_rows,
    indexed_columns,
    list_parts,
    live_rows,
    read_parts,
    take_rows,
)
from omnigraph.store.records import TablePin

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

    parts: tuple[Part, ...]
    values: pa.Array

    @cached_property
    def nbytes(self) -> int:
        """Memory of the values."""
        return int(self.values.nbytes)


@dataclass(frozen=True)
class SortedIds:
    """The ids of a table in order, to find one without looking at all."""

    ids: pa.Array
    order: npt.NDArray[np.uint64]

    @property
    def nbytes(self) -> int:
        """Memory of the order; the ids are a column of their own."""
        return int(self.order.nbytes)

    def find(self, wanted: str) -> int:
        """The position of an id, or -1."""
        ids, order = self.ids, self.order
        low, high = 0, len(order)
        while low < high:
            middle = (low + high) // 2
            if ids[int(order[middle])].as_py() < wanted:
                low = middle + 1
            else:
                high = middle
        found = low < len(order) and ids[int(order[low])].as_py() == wanted
        return int(order[low]) if found else -1


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

    items: tuple[Part, ...]

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

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self.pin.rows

    @property
    def version(self) -> tuple[str, int]:
        """What a cached value is valid for."""
        return self.pin.path, self.pin.version

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
        if not self.cache.fits(self.num_rows * _BYTES_PER_VALUE):
            return None
        if self.num_rows > SMALL_ROWS:
            family = ("column", self.pin.path, physical)
            donor = self.cache.newest(family)
            if donor is None and self.cache.asked(family, None) < _USES_UNTIL_HOT:
                return None
        return self.column(name)

    def is_held(self, name: str) -> bool:
        """Whether the whole column is in memory."""
        family = ("column", self.pin.path, self.table.physical(name))
        return self.cache.get(family, self.pin.version) is not None

    def values(self, name: str, ordinals: Ordinals) -> pa.Array:
        """Values by position; a negative position gives null."""
        held = self.held(name)
        if held is not None:
            return held.take(indices(ordinals))
        if not len(ordinals):
            return pa.array([], self._type(self.table.physical(name)))
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
            found = take_rows(self.snapshot.tables, self.pin, positions, [physical])
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
                chunks.append(_one(next(read)[physical]))
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

    def shared(self, old: tuple[Part, ...]) -> list[slice | Ordinals | None]:
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

    def _survivors(self, known: Part, part: Part, start: int) -> Ordinals | None:
        """Where the rows that more deletions have left stood before."""
        now = self._live(part)
        if known.deletions is None:
            return start + now.astype(np.int64)
        before: LiveRows | None = self.cache.get(("live", known.files), known.deletions)
        if before is None or not np.isin(now, before.offsets).all():
            return None
        return start + np.searchsorted(before.offsets, now)

    def _live(self, part: Part) -> npt.NDArray[np.uint32]:
        if part.deletions is None:
            return np.arange(part.rows, dtype=np.uint32)
        return self.cache.make(
            ("live", part.files),
            part.deletions,
            lambda: LiveRows(live_rows(self.snapshot.tables, self.pin, part)),
        ).offsets

    def parts(self) -> tuple[Part, ...]:
        """The runs of rows that this version consists of."""
        try:
            return self.cache.make(
                ("parts", self.pin.path),
                self.pin.version,
                lambda: Parts(list_parts(self.snapshot.tables, self.pin)),
            ).items
        except NotFound as error:
            raise reclaimed(self.snapshot.commit) from error

    def _read(self, parts: Sequence[Part], columns: Sequence[str]) -> list[pa.Table]:
        try:
            return read_parts(self.snapshot.tables, self.pin, parts, columns)
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
        return indexed_columns(self.snapshot.tables, self.pin)

    def position(self, id_: str) -> int:
        """The position of the row with an id, or -1."""
        ids = self.held("id")
        if ids is None:
            found, _ = self.search(f"id = {quote_string(id_)}")
            return int(found[0]) if len(found) else -1
        return self._sorted(ids).find(id_)

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
            where = "id IN (" + ", ".join(quote_string(item) for item in chunk) + ")"
            found, rows = self.search(where, ["id"])
            known.append(_one(rows["id"]))
            places.append(found)
        return _index(
            ids, pa.concat_arrays(known or [ids.slice(0, 0)]), np.concatenate([*places, np.zeros(0)])
        )

    def _sorted(self, ids: pa.Array) -> SortedIds:
        return self.cache.make(
            ("ids", self.pin.path),
            self.pin.version,
            lambda: SortedIds(ids, pc.sort_indices(ids).to_numpy()),
        )


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


def _one(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) and found.num_chunks else found
