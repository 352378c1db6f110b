"""Loads whose rows fit in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import table_key
from omnigraph.catalog.columns import arrow_schema
from omnigraph.engine.committed_rows import CommittedRows, RowAddressCache
from omnigraph.engine.row_equality import has_same_rows
from omnigraph.engine.table_rows import last_of_each_id
from omnigraph.graph.transaction import Transaction
from omnigraph.lang.schema import EdgeType
from omnigraph.load.load_strategy import Offense, Positions, RecordOrigin, offense_of
from omnigraph.load.operation_quarantine import deletion_offenses
from omnigraph.load.spool import Spool, to_physical
from omnigraph.rules.cardinality_offenders import cardinality_offenders
from omnigraph.rules.delta import TableDelta
from omnigraph.rules.load_mode import WriteMode
from omnigraph.rules.set_rules import (
    committed_tuples,
    complete_tuples,
    count_edges,
    duplicate_tuples,
    entity_of,
    existing_ids,
    missing_endpoints,
    record_identity,
    supersedes,
    unique_violations_of,
)
from omnigraph.rules.validate import set_violations
from omnigraph.rules.violations import MAX_REPORTED, Violation, Violations
from omnigraph.sources.row_batch import PLACE, SOURCE
from omnigraph.store.tables.row_addresses import ROW_ADDRESS

_COMPARED_ROWS = 1_024
_UNBOUNDED = 1 << 62
# A column with the positions of records in the input. No property can have this name.
POSITION = ".position"


class MemoryLoad:
    """A load with all rows in memory. It looks up only the committed rows that its own rows can conflict with.

    `removed` are committed rows to delete, if the operations of the load have been resolved to them.
    """

    def __init__(
        self,
        transaction: Transaction,
        spool: Spool,
        mode: WriteMode,
        removed: Mapping[str, pa.Table] | None = None,
        cache: RowAddressCache | None = None,
    ) -> None:
        self._transaction = transaction
        self._catalog = transaction.base.catalog
        self._spool = spool
        self._mode: WriteMode = mode
        self._removed = removed
        self._cache = cache
        self._committed = CommittedRows(transaction.base, transaction.read, cache)
        self._input: dict[str, pa.Table] = {}
        self._rows: dict[str, pa.Table] = {}
        self._replaced: dict[str, pa.Table] = {}
        self.superseded: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self.unchanged = False
        for key in spool.counts:
            rows = spool.table(key)
            self._select_rows(key, rows.append_column(POSITION, pa.array(np.arange(rows.num_rows))))

    def _select_rows(self, key: str, rows: pa.Table) -> None:
        """Use these records of a table, and find the committed rows that they replace."""
        self._input[key] = rows
        self._rows[key] = last_of_each_id(rows) if self._supersedes(key) else rows
        self.superseded[key] = rows.num_rows - self._rows[key].num_rows
        self._replaced[key] = self._find_replaced(key, self._rows[key])

    def _supersedes(self, key: str) -> bool:
        """Whether a later record of the input replaces an earlier one with the same id."""
        return supersedes(self._mode, entity_of(self._catalog, self._catalog.tables[key]))

    def _find_replaced(self, key: str, rows: pa.Table) -> pa.Table:
        """Return the committed rows that the load replaces or deletes; for an overwrite all committed rows."""
        columns = ["id", "src"] if self._catalog.tables[key].kind == "edge" else ["id"]
        if self._mode == "overwrite":
            parts = list(self._committed.parts(key, columns))
            if parts:
                return pa.concat_tables(parts)
            return self._committed.find(key, "id", pa.array([], pa.string()), columns)
        columns = [*columns, ROW_ADDRESS]
        found = self._committed.find(key, "id", rows["id"].combine_chunks(), columns)
        removed = None if self._removed is None else self._removed.get(key)
        return found if removed is None else pa.concat_tables([found, removed.select(columns)])

    def violations(self) -> Iterator[Violations]:
        """Yield the violations of each stage of checks."""
        yield self._with_origins(Violations.merge(self._repeated_values()), self._input)
        deltas = self._deltas()
        stages = set_violations(self._catalog, deltas, self._committed)
        identities = (part for key in self._rows for part in self._identity_violations(key))
        yield self._with_origins(Violations.merge([*identities, next(stages)]), self._rows)
        yield self._with_origins(next(stages), self._rows)
        yield from stages

    def _deltas(self) -> dict[str, TableDelta]:
        return {key: self._delta(key) for key in self._rows}

    def _repeated_values(
        self, limit: int = MAX_REPORTED, *, stored_first: bool = False
    ) -> Iterator[Violations]:
        """Report records with the unique values of an earlier record, also if a later record supersedes them."""
        for key, rows in self._input.items():
            if self.superseded[key]:
                table = self._catalog.tables[key]
                for columns in entity_of(self._catalog, table).uniques:
                    tuples = complete_tuples(table, columns, rows)
                    stored = (
                        committed_tuples(table, columns, tuples, self._committed) if stored_first else None
                    )
                    yield duplicate_tuples(
                        table, columns, tuples, stored=stored, in_input_order=True, limit=limit
                    )

    def _identity_violations(self, key: str, limit: int = MAX_REPORTED) -> Iterator[Violations]:
        """Report records with the key or id of another record, and appended records whose id exists."""
        table, rows = self._catalog.tables[key], self._rows[key]
        entity = entity_of(self._catalog, table)
        columns = record_identity(entity)
        if not self._supersedes(key) and columns not in entity.uniques:
            tuples = complete_tuples(table, columns, rows)
            yield duplicate_tuples(table, columns, tuples, in_input_order=True, limit=limit)
        if self._mode == "append":
            yield existing_ids(table, rows["id"], self._replaced[key]["id"], limit)

    def _delta(self, key: str) -> TableDelta:
        rows, replaced = self._rows[key], self._replaced[key]
        table = self._catalog.tables[key]
        none = pa.array([], pa.string())
        if self._mode == "append":
            vacated = none if table.kind == "edge" else None
            return TableDelta(table, rows, none, none, vacated, in_input_order=True)
        shadowed = replaced["id"].combine_chunks()
        deleted = shadowed.filter(pc.invert(pc.is_in(shadowed, value_set=rows["id"].combine_chunks())))
        vacated = replaced["src"].combine_chunks() if table.kind == "edge" else None
        # Resolved rows are in no particular order, so a violation is reported for the row with the greater id.
        return TableDelta(table, rows, shadowed, deleted, vacated, in_input_order=self._removed is None)

    def _with_origins(self, violations: Violations, rows: Mapping[str, pa.Table]) -> Violations:
        """Return violations with the origins of the records at their positions in these rows."""

        def with_origin(item: Violation) -> Violation:
            if item.position is None:
                return item
            of_table = rows[item.table_key]
            place, source = (of_table[name][item.position].as_py() for name in (PLACE, SOURCE))
            return item.with_origin(place, self._spool.sources[source])

        return Violations(tuple(map(with_origin, violations)), violations.total)

    def origins(self, key: str, ids: Sequence[str]) -> Mapping[str, RecordOrigin]:
        """Return the origins of the records with these ids."""
        rows = self._rows[key].select(["id", PLACE, SOURCE])
        selected = rows.filter(pc.is_in(rows["id"], value_set=pa.array(ids, pa.string())))
        columns = (column.to_pylist() for column in selected.columns)
        return {
            id_: (place, self._spool.sources[source]) for id_, place, source in zip(*columns, strict=True)
        }

    # --- quarantine --------------------------------------------------------------------------------------

    def offenders(self) -> dict[str, Iterator[Offense]]:
        """Return the records of each table that break a rule of the first stage with violations, by position."""
        deltas = self._deltas()
        if self._removed is not None:
            return self._offending_ids(deltas)
        stages: list[tuple[Mapping[str, pa.Table], Iterable[Violation]]] = [
            (self._input, _each(self._repeated_values(_UNBOUNDED, stored_first=self._mode == "merge"))),
            (self._rows, _each(self._unique_offenders(deltas))),
            (self._rows, _each(self._endpoint_offenders(deltas))),
            (self._rows, self._cardinality_offenders(deltas)),
        ]
        for tables, violations in stages:
            found: dict[str, list[Violation]] = {}
            for item in violations:
                found.setdefault(item.table_key, []).append(item)
            if found:
                return {key: self._offenses(tables[key], of_table) for key, of_table in found.items()}
        return {}

    def _offending_ids(self, deltas: Mapping[str, TableDelta]) -> dict[str, Iterator[Offense]]:
        """Return the offenders of resolved rows, which have no positions in the input."""
        stages = (
            self._as_ids(_each(self._unique_offenders(deltas))),
            self._as_ids(_each(self._endpoint_offenders(deltas))),
            chain(self._as_ids(self._cardinality_offenders(deltas)), self._deletion_offenders(deltas)),
        )
        for stage in stages:
            found: dict[str, list[Offense]] = {}
            for key, item in stage:
                found.setdefault(key, []).append(item)
            if found:
                return {key: iter(items) for key, items in found.items()}
        return {}

    def _as_ids(self, violations: Iterable[Violation]) -> Iterator[tuple[str, Offense]]:
        for item in violations:
            key, at = item.table_key, item.position
            id_ = item.id if at is None else self._rows[key]["id"][at].as_py()
            yield key, offense_of(item, -1, (0, None), id_, self._catalog)

    def _deletion_offenders(self, deltas: Mapping[str, TableDelta]) -> Iterator[tuple[str, Offense]]:
        """Yield the edges whose deletion leaves their source too few, by table."""
        for key, removed in (self._removed or {}).items():
            edge = entity_of(self._catalog, self._catalog.tables[key])
            if isinstance(edge, EdgeType) and not edge.cardinality.is_default:
                nodes = deltas.get(table_key("node", edge.source))
                sources, counts = count_edges(key, deltas[key], nodes, self._committed)
                for offense in deletion_offenses(edge, key, removed, sources, counts):
                    yield key, offense

    def _unique_offenders(self, deltas: Mapping[str, TableDelta]) -> Iterator[Violations]:
        for key, delta in deltas.items():
            yield from self._identity_violations(key, _UNBOUNDED)
            yield from unique_violations_of(
                self._catalog, delta, self._committed, _UNBOUNDED, stored_first=self._mode == "merge"
            )

    def _endpoint_offenders(self, deltas: Mapping[str, TableDelta]) -> Iterator[Violations]:
        for node in self._catalog.schema.nodes:
            yield from missing_endpoints(self._catalog, node.name, deltas, self._committed, _UNBOUNDED)

    def _cardinality_offenders(self, deltas: Mapping[str, TableDelta]) -> Iterator[Violation]:
        for key, delta in deltas.items():
            edge = entity_of(self._catalog, delta.table)
            if isinstance(edge, EdgeType) and not edge.cardinality.is_default:
                nodes = deltas.get(table_key("node", edge.source))
                sources, counts = count_edges(key, delta, nodes, self._committed)
                replaced = self._replaced[key] if self._mode == "merge" else None
                yield from cardinality_offenders(edge, delta, replaced, sources, counts)

    def _offenses(self, rows: pa.Table, violations: Sequence[Violation]) -> Iterator[Offense]:
        ordered = sorted(violations, key=lambda item: item.position or 0)
        at = pa.array([item.position for item in ordered], pa.int64())
        columns = (rows[name].take(at).to_pylist() for name in (POSITION, PLACE, SOURCE, "id"))
        for item, position, place, source, id_ in zip(ordered, *columns, strict=True):
            yield offense_of(item, position, (place, self._spool.sources[source]), id_, self._catalog)

    def leave_out(self, positions: Mapping[str, Positions]) -> None:
        """Continue without the records at these positions."""
        for key, at in positions.items():
            rows = self._input[key]
            left_out = pc.is_in(rows[POSITION], value_set=pa.array(at))
            self._select_rows(key, rows.filter(pc.invert(left_out)))

    def rows_at(self, key: str, positions: Positions) -> Iterator[pa.Table]:
        """Yield the rows of records at these positions."""
        names = [item.name for item in self._catalog.tables[key].columns]
        yield self._spool.table(key).select(names).take(pa.array(positions))

    # --- staging -----------------------------------------------------------------------------------------

    def stage(self, *, dry_run: bool = False) -> dict[str, dict[str, int]]:
        """Stage the rows as detached versions; nothing if all rows are stored already."""
        is_plain = self._removed is None
        self.unchanged = not dry_run and self._mode == "merge" and is_plain and self._changes_nothing()
        affected = {}
        for key, rows in self._rows.items():
            replaced = self._replaced[key]
            if not dry_run and not self.unchanged:
                self._stage_table(key, rows, replaced)
            updated = int(pc.sum(pc.is_in(replaced["id"], value_set=rows["id"])).as_py() or 0)
            deleted = replaced.num_rows - updated
            affected[key] = {"inserted": rows.num_rows - updated, "updated": updated, "deleted": deleted}
        return affected

    def _changes_nothing(self) -> bool:
        """Return whether the committed rows have all rows of the load. A load without rows makes a commit."""
        if any(self._replaced[key].num_rows < rows.num_rows for key, rows in self._rows.items()):
            return False
        filled = [key for key, rows in self._rows.items() if rows.num_rows]
        return bool(filled) and all(map(self._is_stored, filled))

    def _is_stored(self, key: str) -> bool:
        """Return whether the committed rows that the load replaces are equal to its rows.

        They are compared in parts, because the first rows of most loads differ.
        """
        names = [item.name for item in self._catalog.tables[key].columns]
        rows, replaced = self._rows[key].select(names), self._replaced[key]
        for first in range(0, replaced.num_rows, _COMPARED_ROWS):
            part = replaced.slice(first, _COMPARED_ROWS)
            new = rows.take(pc.index_in(part["id"], value_set=rows["id"].combine_chunks()))
            if not has_same_rows(new, self._committed.take(key, part[ROW_ADDRESS].to_numpy())):
                return False
        return True

    def _stage_table(self, key: str, rows: pa.Table, replaced: pa.Table) -> None:
        table, pin = self._catalog.tables[key], self._transaction.pin(key)
        tables = self._transaction.base.tables
        schema = arrow_schema(table, physical=True)
        batches = [to_physical(table, batch) for batch in rows.to_batches()]
        if self._mode == "overwrite" and pin.rows + rows.num_rows:
            self._transaction.write(key, tables.stage_overwrite(pin, batches, schema))
        elif rows.num_rows + replaced.num_rows:
            addresses = replaced[ROW_ADDRESS].to_numpy() if replaced.num_rows else np.empty(0, np.uint64)
            self._transaction.write(key, tables.stage_rows(pin, batches, schema, addresses))
            if self._cache is not None:
                stored = pa.Table.from_batches(batches, schema)
                self._cache.learn(tables, pin, self._transaction.pin(key), addresses.tolist(), stored)


def _each(parts: Iterable[Violations]) -> Iterator[Violation]:
    return (violation for part in parts for violation in part)
