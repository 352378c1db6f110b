"""Pending rows: what one operation has inserted, updated and deleted in a table and has not staged yet."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import arrow_schema, logical_schema
from omnigraph.engine.row_equality import has_same_rows
from omnigraph.engine.table_rows import last_of_each_id
from omnigraph.rules.delta import TableDelta


class PendingRows:
    """The pending changes of one table, by logical column.

    `shadowed` are the ids whose committed rows no longer count, `deleted` those of them without a pending row, and
    `vacated` the sources of deleted edges, each in the order of the statements.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.shadowed: dict[str, None] = {}
        self.deleted: dict[str, None] = {}
        self.vacated: dict[str, None] = {}
        self._parts: list[pa.Table] = []
        # Committed rows that statements updated or deleted, as they were before the first of them.
        self._originals: list[pa.Table] = []
        self._put: set[str] = set()
        # Ids that this operation generated: no committed row has them.
        self._fresh: set[str] = set()

    @property
    def rows(self) -> pa.Table:
        """The pending rows; of two rows with one id the later one counts.

        Parts are joined when they are read, so that many statements do not copy all earlier rows each time.
        """
        if not self._parts:
            self._parts = [logical_schema(self.table).empty_table()]
        elif len(self._parts) > 1:
            self._parts = [last_of_each_id(pa.concat_tables(self._parts).combine_chunks())]
        return self._parts[0]

    def put(self, rows: pa.Table, *, fresh: bool = False) -> None:
        """Insert rows, replacing rows with the same ids. The ids of `fresh` rows were generated just now."""
        ids = rows["id"].to_pylist()
        if fresh:
            self._fresh.update(ids)
        self._parts.append(rows)
        self._put.update(ids)
        for id_ in ids:
            self.shadowed[id_] = None
            self.deleted.pop(id_, None)

    def replace(self, rows: pa.Table, updated: pa.Table) -> None:
        """Put updated rows in the place of rows that a statement selected, committed or pending."""
        self._originals.append(without_ids(rows, self.shadowed))
        self.put(updated.combine_chunks())

    def remove(self, rows: pa.Table) -> None:
        """Delete rows that a statement selected, committed or pending."""
        self._originals.append(without_ids(rows, self.shadowed))
        ids = dict.fromkeys(rows["id"].to_pylist())
        self._parts = [without_ids(self.rows, ids)]
        self.shadowed.update(ids)
        self.deleted.update(ids)
        if "src" in rows.column_names:
            # A fresh edge has no committed row, so its source loses nothing.
            ends = zip(rows["id"].to_pylist(), rows["src"].to_pylist(), strict=True)
            self.vacated.update(dict.fromkeys(source for id_, source in ends if id_ not in self._fresh))

    @property
    def replaceable_ids(self) -> list[str]:
        """The ids whose committed rows, if there are any, are deleted or replaced."""
        return [id_ for id_ in self.shadowed if id_ not in self._fresh]

    @property
    def rewritten_ids(self) -> list[str]:
        """The ids of put rows that a committed row may have."""
        return list(self._put - self._fresh)

    @property
    def deleted_committed_ids(self) -> list[str]:
        """The deleted ids that a committed row has: a statement deletes only rows that it has selected."""
        return [id_ for id_ in self.deleted if id_ not in self._put]

    @property
    def deleted_pending_ids(self) -> list[str]:
        """The deleted ids that this operation had put, so that a committed row may or may not exist."""
        return [id_ for id_ in self.deleted if id_ in self._put and id_ not in self._fresh]

    def unread_ids(self) -> list[str] | None:
        """Return the ids whose committed rows decide whether the changes have an effect, and were not read yet.

        None if they have one: a row is new, a committed row is deleted, or a row differs from what it was before
        the first statement.
        """
        known: set[str] = set()
        ids = self.rows["id"].to_pylist()
        if not self._fresh.isdisjoint(ids):
            return None
        if self._originals:
            originals = pa.concat_tables(self._originals)
            known.update(originals["id"].to_pylist())
            rows = self.rows.filter(pa.array([id_ in known for id_ in ids], pa.bool_()))
            if not (known.isdisjoint(self.deleted) and has_same_rows(rows, originals)):
                return None
        return [id_ for id_ in self.shadowed if id_ not in known and id_ not in self._fresh]

    def delta(self, vacated: Iterable[str]) -> TableDelta:
        """Return the change of the table; `vacated` are the sources of edges that were deleted or moved."""
        return TableDelta(
            self.table,
            self.rows,
            pa.array(list(self.shadowed), pa.string()),
            pa.array(list(self.deleted), pa.string()),
            pa.array(list(vacated), pa.string()) if self.table.kind == "edge" else None,
        )

    def stored_rows(self) -> pa.Table:
        """Return the pending rows in the physical schema of the table."""
        return with_schema(self.rows, arrow_schema(self.table, physical=True))


def with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the names, types and nullability of a schema, column by column.

    Raises `pa.ArrowInvalid` for a null in a field that is not nullable.
    """
    for column, item in zip(rows.columns, schema, strict=True):
        if column.type != item.type or (column.null_count and not item.nullable):
            return rows.rename_columns(schema.names).cast(schema)
    # A cast of equal types copies nothing, and takes ten times as long.
    return pa.Table.from_arrays(rows.columns, schema=schema)


def without_ids(rows: pa.Table, ids: Iterable[str]) -> pa.Table:
    """Return the rows that have none of the ids."""
    excluded = pa.array(list(ids), pa.string())
    if not len(excluded) or not rows.num_rows:
        return rows
    return rows.filter(pc.invert(pc.is_in(rows["id"], excluded)))
