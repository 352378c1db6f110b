"""The difference between two versions of a table: row by row, by value, in id order.

Only rows that are stored in one version alone are read. Their ids are paired first. Rows are then fetched by
address in batches, so that memory depends neither on the size of the table nor on the size of the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.arrow_arrays import single_array
from omnigraph.engine.diff.column_equality import Bools, differing
from omnigraph.engine.diff.diff_ids import IdFilter
from omnigraph.engine.diff.diff_pairs import DELETE, INSERT, KEYS, UPDATE, Pairs, open_pairs
from omnigraph.errors import InvalidInput, StorageError
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.row_addresses import (
    Addresses,
    Offsets,
    fragments_of,
    make_addresses,
    offsets_of,
)
from omnigraph.store.tables.table_fragments import TableFragment
from omnigraph.store.tables.tables import Tables
from omnigraph.store.tables.version_diff import (
    KnownFragments,
    Slice,
    VersionDiff,
    compare_versions,
    slice_rows,
    take_addresses,
)

__all__ = ["DELETE", "INSERT", "IN_MEMORY_ROWS", "UPDATE", "ChangeBatch", "Side", "TableDiff"]

ID = "id"
_STORED_KEYS = pa.schema([(ID, pa.string()), ("address", pa.uint64())])

# Up to this many stored rows are paired in memory; for more, a database is imported.
IN_MEMORY_ROWS = 200_000

# Large fetches cost less per row. The first fetches are small, because many callers stop after one page, and
# because the size of rows is not known before.
_FIRST_ROWS = 256
_GROWTH = 4
_FETCHED_ROWS = 65_536
_FETCHED_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Side:
    """One version of a table, and its physical columns by the names that both sides use. ``id`` is always one of
    them.
    """

    tables: Tables
    pin: TablePin
    columns: Mapping[str, str]
    cache: KnownFragments | None = field(default=None, compare=False)

    def field(self, name: str) -> pa.Field | None:
        """Return a column by its common name, as nullable; None if this version does not have it."""
        physical = self.columns.get(name)
        if physical is None:
            return None
        index = self._schema.get_field_index(physical)
        if index < 0:
            # The version file is damaged. `reading` finds out what is wrong with it.
            raise StorageError(
                f"{self.pin.path} has no column {physical}",
                kind="permanent",
                details={"dataset": self.pin.path},
            )
        return pa.field(name, self._schema.field(index).type)

    def keys_in_memory(self, fragment: int, offsets: Offsets | None) -> pa.RecordBatch | None:
        """Return the ids and addresses of rows of a fragment; None if they have to be read."""
        known = self._fragments.get(fragment)
        if known is None or (offsets is None and known.deletions is not None):
            return None
        rows = self._rows_in_memory(known, [self.columns[ID]])
        if rows is None:
            return None
        chosen = np.arange(rows.num_rows, dtype=np.uint32) if offsets is None else offsets
        ids = (
            single_array(rows.column(0))
            if offsets is None
            else single_array(rows.column(0).take(pa.array(chosen)))
        )
        return pa.RecordBatch.from_arrays(
            [ids, pa.array(make_addresses(fragment, chosen))], schema=_STORED_KEYS
        )

    def take(self, addresses: Addresses, columns: Sequence[str]) -> pa.Table:
        """Return the rows at ascending addresses by physical column. Rows in memory are not read."""
        fragments, starts = np.unique(fragments_of(addresses), return_index=True)
        parts = []
        for fragment, part in zip(fragments.tolist(), np.split(addresses, starts[1:]), strict=True):
            known = self._fragments.get(fragment)
            rows = None if known is None else self._rows_in_memory(known, columns)
            if rows is None:
                return take_addresses(self.tables, self.pin, addresses, columns)
            parts.append(rows.take(pa.array(offsets_of(part))))
        return pa.concat_tables(parts)

    @cached_property
    def _fragments(self) -> Mapping[int, TableFragment]:
        if self.cache is None:
            return {}
        return {item.id: item for item in self.cache.fragments(self.tables, self.pin)}

    def _rows_in_memory(self, fragment: TableFragment, columns: Sequence[str]) -> pa.Table | None:
        """Return all rows that were written to a fragment, if they are in memory as storage returns them."""
        rows = None if self.cache is None else self.cache.written_rows(self.pin.path, fragment)
        if rows is None or rows.num_rows != fragment.physical_rows:
            return None
        for name in columns:
            index, stored = rows.schema.get_field_index(name), self._schema.get_field_index(name)
            if index < 0 or stored < 0:
                return None
            # A Blob is written in another form than it is read in.
            type_ = rows.schema.field(index).type
            if type_ != self._schema.field(stored).type or pa.types.is_struct(type_):
                return None
        return rows.select(list(columns))

    @cached_property
    def _schema(self) -> pa.Schema:
        return self.tables.schema(self.pin)


@dataclass(frozen=True, slots=True, eq=False)
class ChangeBatch:
    """Changes of some ids, ascending. Row i of every member belongs to the i-th id.

    `before` and `after` have the same schema. A missing image is a null row with address 0. `changed` holds, for
    each column except the id, where the images differ; a missing image counts as all null.
    """

    ids: pa.Array
    ops: npt.NDArray[np.int8]
    before: pa.Table
    after: pa.Table
    changed: Mapping[str, Bools]
    before_addresses: Addresses
    after_addresses: Addresses

    def __len__(self) -> int:
        return len(self.ids)

    def filter(self, kept: Bools) -> ChangeBatch:
        """Return some of the changes."""
        mask = pa.array(kept)
        return ChangeBatch(
            self.ids.filter(mask),
            self.ops[kept],
            self.before.filter(mask),
            self.after.filter(mask),
            {name: flags[kept] for name, flags in self.changed.items()},
            self.before_addresses[kept],
            self.after_addresses[kept],
        )


@dataclass(frozen=True)
class TableDiff:
    """The difference between two versions of a table in one graph. None is a table that does not exist.

    Rows that both versions share in storage are considered equal, so a column must have the same meaning on both
    sides. A column that only one side has is null on the other, but shared rows do not count as changed for it.
    """

    before: Side | None
    after: Side | None
    in_memory_rows: int = IN_MEMORY_ROWS
    directory: Path | None = None

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of both sides: those after in their order, then those that only before has."""
        sides = [side.columns for side in (self.after, self.before) if side is not None]
        return tuple(dict.fromkeys(name for columns in sides for name in columns))

    @property
    def is_empty(self) -> bool:
        """Whether both versions store the same rows. If not, the rows may still be equal."""
        return self.rows == 0

    @property
    def adds(self) -> bool:
        """Whether some stored row exists only after."""
        return self._stored.added_rows > 0

    @property
    def removes(self) -> bool:
        """Whether some stored row exists only before."""
        return self._stored.removed_rows > 0

    @property
    def rows(self) -> int:
        """The number of rows that only one side stores, which is an upper bound of the number of changes."""
        return self._stored.added_rows + self._stored.removed_rows

    def batches(
        self,
        *,
        ids: pa.Array | None = None,
        after_id: str | None = None,
        columns: Sequence[str] | None = None,
        batch_rows: int = 8_192,
        part: tuple[int, int] | None = None,
    ) -> Iterator[ChangeBatch]:
        """Yield the changes, ascending by the UTF-8 bytes of their ids, at most `batch_rows` at a time.

        `ids` restricts them to these ids, `after_id` to greater ids, and `part` ``(k, n)`` to hash partition k,
        from 0, of n; partitions are disjoint and the same in every process. `columns` are the columns to fetch
        and compare in addition to the id; a row that was rewritten with equal values in them is no change.
        Temporary files are removed when the iteration ends, is closed or fails.
        """
        if batch_rows < 1:
            raise InvalidInput(f"a batch needs at least 1 row, got {batch_rows}")
        chosen = IdFilter.of(ids, after_id, part)
        names = [name for name in self._chosen(columns) if name != ID]
        return self._changes(chosen, names, batch_rows)

    def _changes(self, chosen: IdFilter, names: Sequence[str], batch_rows: int) -> Iterator[ChangeBatch]:
        if self.is_empty or chosen.selects_none:
            return
        fields = [self._field(name) for name in names]
        with open_pairs(self._keys(chosen), self.in_memory_rows, self.directory) as found:
            rows = min(_FIRST_ROWS, batch_rows)
            for pairs in found:
                start = 0
                while start < len(pairs):
                    batch = self._compare(pairs.slice(start, start + rows), fields)
                    start += rows
                    rows = _next_rows(rows, batch)
                    yield from _split(_changed_only(batch), batch_rows)

    def _keys(self, chosen: IdFilter) -> Iterator[pa.RecordBatch]:
        stored = self._stored
        sides = ((self.before, stored.removed, False), (self.after, stored.added, True))
        for side, slices, after in sides:
            if side is None:
                continue
            for keys in _coalesce_keys(side, slices, chosen.batch_ids):
                kept = (
                    keys
                    if chosen.selects_all
                    else keys.filter(pa.array(chosen.mask(keys[ID].combine_chunks())))
                )
                flags = pa.array(np.full(kept.num_rows, after))
                columns = [kept[ID], pa.chunked_array([flags]), kept["address"]]
                yield from pa.Table.from_arrays(columns, schema=KEYS).combine_chunks().to_batches()

    def _compare(self, pairs: Pairs, fields: Sequence[pa.Field]) -> ChangeBatch:
        before = _images(self.before, pairs, pairs.before, pairs.ops != INSERT, fields)
        after = _images(self.after, pairs, pairs.after, pairs.ops != DELETE, fields)
        changed = {field.name: differing(before[field.name], after[field.name]) for field in fields}
        return ChangeBatch(pairs.ids, pairs.ops, before, after, changed, pairs.before, pairs.after)

    def _chosen(self, columns: Sequence[str] | None) -> Sequence[str]:
        if columns is None:
            return self.columns
        for name in columns:
            if name not in self.columns:
                raise InvalidInput(f"unknown column '{name}'", details={"column": name})
        return list(dict.fromkeys(columns))

    def _field(self, name: str) -> pa.Field:
        fields = [side.field(name) for side in (self.after, self.before) if side is not None]
        known = [field for field in fields if field is not None]
        if len({field.type for field in known}) > 1:
            types = " and ".join(str(field.type) for field in known)
            raise InvalidInput(f"column '{name}' has different types: {types}", details={"column": name})
        return known[0]

    @cached_property
    def _stored(self) -> VersionDiff:
        side = self.after or self.before
        if side is None:
            return VersionDiff()
        before, after = (None if found is None else found.pin for found in (self.before, self.after))
        return compare_versions(side.tables, before, after, side.cache)


def _coalesce_keys(side: Side, slices: Sequence[Slice], rows: int) -> Iterator[pa.Table]:
    """Yield the ids and addresses of slices in tables of at least `rows` rows, except for the last."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in _keys_of(side, slices):
        waiting.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield _key_table(waiting)
            waiting, count = [], 0
    if waiting:
        yield _key_table(waiting)


def _keys_of(side: Side, slices: Sequence[Slice]) -> Iterator[pa.RecordBatch]:
    unread = []
    for item in slices:
        known = side.keys_in_memory(item.fragment, item.offsets)
        if known is None:
            unread.append(item)
        else:
            yield known
    if unread:
        for batch in slice_rows(side.tables, side.pin, unread, [side.columns[ID]]):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=_STORED_KEYS)


def _key_table(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, _STORED_KEYS)


def _images(
    side: Side | None, pairs: Pairs, addresses: Addresses, there: Bools, fields: Sequence[pa.Field]
) -> pa.Table:
    """Return the rows of one side with the id first, null where the side has no row."""
    count = int(there.sum())
    present = addresses[there]
    order = np.argsort(present)
    physical = {} if side is None or not count else side.columns
    names = [field.name for field in fields if field.name in physical]
    places = np.zeros(len(pairs), np.int64)
    places[np.flatnonzero(there)[order]] = np.arange(count)
    found = pa.table({})
    if side is not None and names:
        found = side.take(present[order], [side.columns[name] for name in names])
        found = found.rename_columns(names).take(pa.array(places, mask=~there))
    ids = pc.if_else(pa.array(there), pairs.ids, pa.scalar(None, pa.string()))
    columns = [
        found[field.name] if field.name in names else pa.nulls(len(pairs), field.type) for field in fields
    ]
    return pa.Table.from_arrays([ids, *columns], schema=pa.schema([pa.field(ID, pa.string()), *fields]))


def _next_rows(rows: int, batch: ChangeBatch) -> int:
    each: int = max(1, (batch.before.nbytes + batch.after.nbytes) // max(1, len(batch)))
    return max(1, min(rows * _GROWTH, _FETCHED_ROWS, _FETCHED_BYTES // each))


def _changed_only(batch: ChangeBatch) -> ChangeBatch:
    kept = batch.ops != UPDATE
    for flags in batch.changed.values():
        kept |= flags
    return batch if kept.all() else batch.filter(kept)


def _split(batch: ChangeBatch, rows: int) -> Iterator[ChangeBatch]:
    for start in range(0, len(batch), rows):
        part = np.s_[start : start + rows]
        yield ChangeBatch(
            batch.ids.slice(start, rows),
            batch.ops[part],
            batch.before.slice(start, rows),
            batch.after.slice(start, rows),
            {name: flags[part] for name, flags in batch.changed.items()},
            batch.before_addresses[part],
            batch.after_addresses[part],
        )
