"""New ids of existing edges, for a schema change or a merge that gives their type a key.

The edges are read twice in batches: to find edges with the same key, and to write them with their derived ids.
Nothing refers to an edge by its id, so that no other table changes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp
from sqlglot.expressions import condition, func, select

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import INDEXED_COLUMNS, arrow_type
from omnigraph.catalog.key_arrays import derive_ids
from omnigraph.catalog.keys import TypeKey
from omnigraph.catalog.row_json import json_values
from omnigraph.rules import set_queries as queries
from omnigraph.rules.set_rules import column_types, comparable, duplicate_violation
from omnigraph.rules.violations import Violation, Violations, raise_violations
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.staged_table import StagedTable
from omnigraph.store.tables.tables import Tables


@dataclass(frozen=True)
class EdgeRekeying:
    """Derives the ids of the edges of one table version from a key. `table` is in the schema with the key."""

    tables: Tables
    table: Table
    key: TypeKey

    def check(self, pin: TablePin) -> None:
        """Raise `ConstraintViolation` with the first edges that have the key of another edge."""
        raise_violations(self.violations(pin), self._hint)

    def violations(self, pin: TablePin) -> Violations:
        """Return the edges that have the key of another edge."""
        if not pin.rows:
            return Violations()
        columns = tuple(column.name for column in self.key.columns)
        return repeated_values(self.table, columns, self._keys(pin))

    def stage(self, pin: TablePin, *, leave_out_repeated: bool = False) -> StagedTable:
        """Write all edges with their new ids, and index them. `leave_out_repeated` leaves out those of one key."""
        schema = self.tables.schema(pin)
        rows = self._rows(pin, schema)
        if leave_out_repeated and pin.rows:
            repeated = self._repeated_ids(pin)
            rows = (batch.filter(pc.invert(pc.is_in(batch.column("id"), repeated))) for batch in rows)
        staged = StagedTable.unchanged(pin).followed_by(self.tables.stage_overwrite(pin, rows, schema))
        for name in INDEXED_COLUMNS["edge"]:
            index = self.tables.stage_index(staged.pin(pin.content), self.table.physical(name), "BTREE")
            staged = staged.followed_by(index)
        return staged

    def _repeated_ids(self, pin: TablePin) -> pa.Array:
        """Return the new ids that several edges would have."""
        from omnigraph.engine.duckdb import Workspace

        def ids() -> Iterator[pa.RecordBatch]:
            for batch in self._keys(pin):
                columns = {column.name: batch.column(column.name) for column in self.key.columns}
                yield pa.RecordBatch.from_arrays([derive_ids(self.key, columns)], ["id"])

        query = select("id").from_("derived").group_by("id").having(condition(func("COUNT", exp.Star())) > 1)
        with Workspace(Path(tempfile.gettempdir())) as workspace:
            workspace.append("derived", ids())
            found = [batch.column(0) for batch in workspace.stream(query)]
        return (
            pa.concat_arrays([item.cast(pa.string()) for item in found])
            if found
            else pa.array([], pa.string())
        )

    def _keys(self, pin: TablePin) -> Iterator[pa.RecordBatch]:
        names = [column.name for column in self.key.columns]
        physical = [column.physical for column in self.key.columns]
        for batch in self.tables.scan_batches(pin, ["id", *physical]):
            yield pa.RecordBatch.from_arrays(batch.columns, ["id", *names])

    def _rows(self, pin: TablePin, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        place = schema.get_field_index("id")
        for batch in self.tables.scan_batches(pin, schema.names):
            parts = {column.name: batch.column(column.physical) for column in self.key.columns}
            arrays = batch.columns
            arrays[place] = derive_ids(self.key, parts).cast(schema.field(place).type)
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _hint(self, _: Violation) -> str:
        return (
            f"delete all but one of the edges of each key of {self.table.name}, "
            "or add a property to the key that tells them apart; then apply the schema again"
        )


def repeated_values(table: Table, columns: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Violations:
    """Return the rows that have the values of another row in these columns, in the order of their ids.

    Each batch has the id and these columns by logical name. Memory use does not grow with the table.
    """
    from omnigraph.engine.duckdb import Workspace

    types = column_types(table)
    names = [f"key{number}" for number in range(len(columns))]

    def keys() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            values = [comparable(rows[name], types[name]).combine_chunks() for name in columns]
            yield pa.RecordBatch.from_arrays([batch.column("id"), *values], ["id", *names])

    query = queries.duplicate_values(table.id, tuple(names), kept=False, by_id=True)
    with Workspace(Path(tempfile.gettempdir())) as workspace:
        workspace.append(queries.new_keys(table.id), keys())
        total = sum(batch.column(0)[0].as_py() for batch in workspace.stream(queries.count_query(query)))
        if not total:
            return Violations()
        found = pa.Table.from_batches(workspace.stream(query))
    members = zip(
        *(
            json_values(found[f"{queries.VALUE}{number}"].cast(arrow_type(types[name])), types[name])
            for number, name in enumerate(columns)
        ),
        strict=True,
    )
    rows = zip(found["id"].to_pylist(), found[queries.HOLDER].to_pylist(), members, strict=True)
    return Violations(
        tuple(
            duplicate_violation(table, tuple(columns), values, other, this) for this, other, values in rows
        ),
        total,
    )
