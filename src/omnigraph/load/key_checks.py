"""The rules between the rows of a load, as queries over key tables.

Key tables are temporary and on the disk of this machine or on Spark. Subclasses fill them with the keys of their
records and stage the rows.
"""

from __future__ import annotations

import heapq
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot.expressions import Query, Select

from omnigraph.catalog.catalog import Table, table_key
from omnigraph.catalog.columns import INDEXED_COLUMNS, arrow_type
from omnigraph.catalog.row_json import json_values
from omnigraph.engine.arrow_arrays import single_array
from omnigraph.engine.committed_rows import physical_columns
from omnigraph.engine.diff.table_diff import Side, TableDiff
from omnigraph.graph.transaction import Transaction
from omnigraph.lang.schema import EdgeType
from omnigraph.load.keys import (
    committed_key_columns,
    committed_key_rows,
    edge_ends,
    empty_committed_keys,
    key_column,
    without_ids,
)
from omnigraph.load.load_strategy import Offense, Positions, RecordOrigin, offense_of
from omnigraph.load.operation_quarantine import deletion_offenses
from omnigraph.rules import offender_queries
from omnigraph.rules import set_queries as queries
from omnigraph.rules.load_mode import WriteMode
from omnigraph.rules.set_rules import (
    cardinality_violation,
    column_types,
    duplicate_violation,
    entity_of,
    existing_id_violation,
    missing_node_violation,
    record_identity,
    supersedes,
)
from omnigraph.rules.violations import Violation, Violations
from omnigraph.store.tables.row_addresses import ROW_ADDRESS
from omnigraph.store.tables.staged_table import StagedTable

# Converts the result of a rule to violations.
Describe: TypeAlias = Callable[[pa.Table], list[Violation]]


class KeyTables(Protocol):
    """Key tables and queries over them, such as `engine.duckdb.Workspace`."""

    def append(self, name: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Add rows to a table. The first batch, which may be empty, defines its columns."""
        ...

    def derive(self, name: str, expression: Query) -> None:
        """Create a table from a query."""
        ...

    def replace(self, name: str, expression: Query) -> None:
        """Create a table from a query in the place of a table that the query may read."""
        ...

    def stream(self, expression: Select) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query in batches."""
        ...


@dataclass(frozen=True)
class KeyRule:
    """A rule as a query for its first violations, by id, in records of a table.

    `keys` is the key table of the records that the violations are about. It is None for violations of committed
    rows and of sources. `offenders` returns the query for the records at fault, given a table with all violations.
    By default they are the records of the violations.
    """

    table: Table
    query: Select
    describe: Describe
    keys: str | None = None
    offenders: Callable[[str], Select] | None = None


class KeyCheckedLoad(ABC):
    """A load whose rules are queries over key tables.

    `loaded` are the tables that the input names, `generated_ids` those of them whose ids were all generated, so
    that no two can be equal. `removed` are committed rows to delete, if the operations of the load have been
    resolved to them; the committed keys are those of the other rows. Before `violations` runs, a subclass fills
    `queries.new_keys` and the committed keys, and sets `superseded`.
    """

    def __init__(
        self,
        transaction: Transaction,
        mode: WriteMode,
        keys: KeyTables,
        loaded: Sequence[str],
        generated_ids: Collection[str] = (),
        removed: Mapping[str, pa.Table] | None = None,
    ) -> None:
        self._transaction = transaction
        self._catalog = transaction.base.catalog
        self._mode: WriteMode = mode
        self._removed = removed
        self._keys = keys
        self._loaded = {key: self._catalog.tables[key] for key in loaded}
        self._generated_ids = frozenset(generated_ids)
        self._sources: Sequence[str | None] = ()
        self._names = itertools.count()
        self._offenders: Mapping[str, Sequence[str]] = {}
        self._rejected: dict[str, Positions] = {}
        self._superseded: dict[str, Positions] = {}
        self.superseded: dict[str, int] = dict.fromkeys(loaded, 0)
        self.seconds: dict[str, float] = {}
        self.unchanged = False

    # --- committed keys ----------------------------------------------------------------------------------

    def _fill_committed_keys(self) -> None:
        """Fill tables with the committed keys that the rules read, and add their tables to the read set."""
        needed = committed_key_columns(self._catalog, self._mode, self._loaded, self._generated_ids)
        for key, columns in needed.items():
            self._transaction.read(key)
            self._fill_committed_table(self._catalog.tables[key], columns)
        for key in self._removed or ():
            vacated = self._vacated_sources(self._catalog.tables[key])
            if vacated is not None:
                self._keys.append(queries.vacated_sources(self._catalog.tables[key].id), [vacated])

    def _removed_ids(self, table: Table) -> pa.Array | None:
        """Return the ids of the rows of a table that the load deletes."""
        removed = None if self._removed is None else self._removed.get(table.key)
        return None if removed is None else single_array(removed["id"])

    def _vacated_sources(self, table: Table) -> pa.RecordBatch | None:
        """Return the sources of deleted edges that remain, if their number of edges is limited; else None."""
        edge = entity_of(self._catalog, table)
        if not isinstance(edge, EdgeType) or edge.cardinality.is_default or self._removed is None:
            return None
        sources = single_array(self._removed[table.key]["src"])
        nodes = self._removed_ids(self._catalog.table("node", edge.source))
        if nodes is not None:
            sources = sources.filter(pc.invert(pc.is_in(sources, value_set=nodes)))
        return pa.RecordBatch.from_arrays([sources], ["src"])

    def _fill_committed_table(self, table: Table, columns: Sequence[str]) -> None:
        def keys() -> Iterator[pa.RecordBatch]:
            yield empty_committed_keys(table, columns)
            removed = self._removed_ids(table)
            for batch in self._transaction.base.scan_batches(table.key, physical_columns(table, columns)):
                yield without_ids(committed_key_rows(table, columns, batch), removed)

        self._keys.append(queries.committed_keys(table.id), keys())

    # --- rules -------------------------------------------------------------------------------------------

    def violations(self) -> Iterator[Violations]:
        """Yield the violations of each stage of checks."""
        for rules in self._stages():
            yield Violations.merge(map(self._run, rules))

    def _stages(self) -> Iterator[Iterator[KeyRule]]:
        """Yield the rules of each stage of checks."""
        yield self._repeated_values()
        yield self._unique_rules()
        yield self._endpoint_rules()
        yield self._cardinality_rules()

    def _supersedes(self, table: Table) -> bool:
        """Whether a later record of the input may replace an earlier one with the same id."""
        return table.key not in self._generated_ids and supersedes(
            self._mode, entity_of(self._catalog, table)
        )

    def _repeated_values(self) -> Iterator[KeyRule]:
        """Find records with the unique values of an earlier record, also if a later record supersedes them."""
        for table in self._loaded.values():
            if self.superseded[table.key]:
                for columns in entity_of(self._catalog, table).uniques:
                    yield self._duplicates(table, columns, kept=False, superseded=True)

    def _unique_rules(self) -> Iterator[KeyRule]:
        for table in self._loaded.values():
            entity = entity_of(self._catalog, table)
            identity = record_identity(entity)
            generated = table.key in self._generated_ids
            if (
                not supersedes(self._mode, entity)
                and identity not in entity.uniques
                and not (generated and identity == ("id",))
            ):
                yield self._duplicates(table, identity, kept=False)
            if self._mode == "append" and not generated:
                query = queries.existing_ids(table.id)
                yield KeyRule(table, query, _existing_ids(table), queries.new_keys(table.id))
            for columns in entity.uniques:
                yield self._duplicates(table, columns, kept=self._mode != "overwrite")

    def _duplicates(
        self, table: Table, columns: tuple[str, ...], *, kept: bool, superseded: bool = False
    ) -> KeyRule:
        names = tuple(key_column(table, name) for name in columns)
        # Resolved rows are in no particular order, so a violation is reported for the row with the greater id.
        by_id = self._removed is not None
        query = partial(
            queries.duplicate_values, table.id, names, kept=kept, superseded=superseded, by_id=by_id
        )
        keys = queries.input_keys(table.id) if superseded else queries.new_keys(table.id)
        # A stored row returns only in a merge. The records of one key have one stored row.
        is_merged = self._mode == "merge" and columns in entity_of(self._catalog, table).uniques
        return KeyRule(
            table,
            query(),
            _duplicate_values(table, columns, by_id=by_id),
            keys,
            (lambda wrong: query(wrong=wrong)) if is_merged else None,
        )

    def _endpoint_rules(self) -> Iterator[KeyRule]:
        for key, end, node in edge_ends(self._catalog):
            edges, nodes = self._catalog.tables[key], self._catalog.tables[node]
            if key in self._loaded:
                node_keys = [queries.new_keys(nodes.id)] if node in self._loaded else []
                node_keys += [] if self._is_overwritten(node) else [queries.committed_keys(nodes.id)]
                query = queries.missing_endpoints(edges.id, end, tuple(node_keys))
                describe = _missing_nodes("endpoint", key, nodes.name, end)
                yield KeyRule(edges, query, describe, queries.new_keys(edges.id))
            elif self._is_overwritten(node):
                query = queries.orphaned_endpoints(edges.id, end, nodes.id)
                yield KeyRule(edges, query, _missing_nodes("orphan", key, nodes.name, end))

    def _cardinality_rules(self) -> Iterator[KeyRule]:
        for key, table in self._loaded.items():
            edge = entity_of(self._catalog, table)
            if not isinstance(edge, EdgeType) or edge.cardinality.is_default:
                continue
            node = table_key("node", edge.source)
            replaced = self._catalog.tables[node].id if self._is_overwritten(node) else None
            least, most = edge.cardinality.min, edge.cardinality.max
            query = queries.cardinality_violations(
                table.id, self._mode, replaced, least, most, has_vacated=key in (self._removed or ())
            )
            at_fault = partial(self._cardinality_offenders, table, least, most)
            yield KeyRule(table, query, _wrong_cardinalities(key, edge), offenders=at_fault)

    def _cardinality_offenders(self, table: Table, least: int, most: int | None, wrong: str) -> Select:
        return offender_queries.cardinality_offenders(
            table.id, wrong, self._mode, least, most, by_id=self._removed is not None
        )

    def _is_overwritten(self, key: str) -> bool:
        return self._mode == "overwrite" and key in self._loaded

    def _run(self, rule: KeyRule) -> Violations:
        total = int(self._query_column(queries.count_query(rule.query))[0])
        if not total:
            return Violations()
        rows = pa.Table.from_batches(self._keys.stream(rule.query))
        found = Violations.merge([Violations(tuple(rule.describe(rows)), total)])
        return found if rule.keys is None else self._with_origins(found, rule.keys)

    # --- quarantine --------------------------------------------------------------------------------------

    def offenders(self) -> dict[str, Iterator[Offense]]:
        """Return the records of each table that break a rule of the first stage with violations, by position."""
        if self._removed is not None:
            return self._offending_ids()
        for rules in self._stages():
            found: dict[str, list[tuple[KeyRule, str]]] = {}
            for rule in rules:
                name = self._store_offenders(rule)
                if name is not None:
                    found.setdefault(rule.table.key, []).append((rule, name))
            if found:
                self._offenders = {key: [name for _, name in of_table] for key, of_table in found.items()}
                return {key: self._offenses(of_table) for key, of_table in found.items()}
        return {}

    def _offending_ids(self) -> dict[str, Iterator[Offense]]:
        """Return the offenders of resolved rows, which have no positions in the input."""
        for rules in self._stages():
            found: dict[str, list[Offense]] = {}
            for rule in rules:
                found.setdefault(rule.table.key, []).extend(self._ids_of(rule))
            if any(found.values()):
                return {key: iter(items) for key, items in found.items()}
        return {}

    def _ids_of(self, rule: KeyRule) -> Iterator[Offense]:
        if not self._query_column(queries.count_query(rule.query))[0]:
            return
        name = f"offenders_{next(self._names)}"
        self._keys.derive(name, queries.all_violations(rule.query))
        if rule.offenders is not None:
            wrong, name = name, f"offenders_{next(self._names)}"
            if rule.keys is None:
                yield from self._deletions(rule.table, wrong)
            self._keys.derive(name, rule.offenders(wrong))
        for batch in self._keys.stream(offender_queries.everything(name)):
            rows = pa.Table.from_batches([batch])
            for id_, violation in zip(rows["id"].to_pylist(), rule.describe(rows), strict=True):
                yield offense_of(violation, -1, (0, None), id_, self._catalog)

    def _deletions(self, table: Table, wrong: str) -> Iterator[Offense]:
        """Yield the edges whose deletion leaves their source too few. `wrong` is the table of wrong sources."""
        edge, removed = entity_of(self._catalog, table), (self._removed or {}).get(table.key)
        if isinstance(edge, EdgeType) and removed is not None:
            for batch in self._keys.stream(offender_queries.everything(wrong)):
                counts = batch.column(queries.VALUE).to_numpy(zero_copy_only=False)
                yield from deletion_offenses(edge, table.key, removed, batch.column("id"), counts)

    def _store_offenders(self, rule: KeyRule) -> str | None:
        """Store the records that break a rule as a table and return its name, or None if there are none."""
        if rule.keys is None and rule.offenders is None:
            return None
        if not self._query_column(queries.count_query(rule.query))[0]:
            return None
        name = f"offenders_{next(self._names)}"
        self._keys.derive(name, queries.all_violations(rule.query))
        if rule.offenders is not None:
            wrong, name = name, f"offenders_{next(self._names)}"
            self._keys.derive(name, rule.offenders(wrong))
            if not self._query_column(offender_queries.count(name))[0]:
                return None
        return name

    def _offenses(self, rules: Sequence[tuple[KeyRule, str]]) -> Iterator[Offense]:
        """Yield the records that break rules of a stage, by position."""
        return heapq.merge(
            *(self._offenses_of(rule, name) for rule, name in rules), key=lambda item: item.position
        )

    def _offenses_of(self, rule: KeyRule, name: str) -> Iterator[Offense]:
        keys = rule.keys or queries.new_keys(rule.table.id)
        for batch in self._keys.stream(offender_queries.located(name, keys)):
            rows = pa.Table.from_batches([batch])
            for row, violation in zip(rows.to_pylist(), rule.describe(rows), strict=True):
                origin = self._origin(row[queries.SOURCE], row[queries.PLACE])
                yield offense_of(violation, row[queries.POSITION], origin, row["id"], self._catalog)

    def leave_out(self, positions: Mapping[str, Positions]) -> None:
        """Continue without the records that the last call of `offenders` returned."""
        for key, at in positions.items():
            table = self._loaded[key]
            rejected = [self._rejected.get(key, np.empty(0, np.int64)), at]
            self._rejected[key] = np.sort(np.concatenate(rejected))
            self._leave_out_keys(table, self._offenders[key])

    @abstractmethod
    def _leave_out_keys(self, table: Table, offenders: Sequence[str]) -> None:
        """Remove offenders from the keys of a table, and find the superseded records anew."""

    def _remove_keys(self, keys: str, offenders: Sequence[str]) -> None:
        for name in offenders:
            self._keys.replace(keys, offender_queries.without(keys, name))

    def _excluded(self, key: str) -> Positions:
        """Return the positions of the records that do not become rows: rejected and superseded ones."""
        rejected, superseded = self._rejected.get(key), self._superseded[key]
        return superseded if rejected is None else np.union1d(superseded, rejected)

    # --- origins -----------------------------------------------------------------------------------------

    def _with_origins(self, violations: Violations, keys: str) -> Violations:
        """Return violations with the origins of the records at their positions in a key table."""
        positions = [item.position for item in violations if item.position is not None]
        if not positions:
            return violations
        origins: dict[int, RecordOrigin] = {}
        for batch in self._keys.stream(queries.origins_at(keys, positions)):
            for row in batch.to_pylist():
                origins[row[queries.POSITION]] = self._origin(row[queries.SOURCE], row[queries.PLACE])
        located = (
            item if item.position is None else item.with_origin(*origins[item.position])
            for item in violations
        )
        return Violations(tuple(located), violations.total)

    def origins(self, key: str, ids: Sequence[str]) -> Mapping[str, RecordOrigin]:
        """Return the origin of the last record with each of these ids."""
        origins: dict[str, RecordOrigin] = {}
        for batch in self._keys.stream(queries.origins(self._loaded[key].id, ids)):
            for row in batch.to_pylist():
                origins[row["id"]] = self._origin(row[queries.SOURCE], row[queries.PLACE])
        return origins

    def _origin(self, source: int, place: int) -> RecordOrigin:
        """Return the origin of a record from the columns of its key."""
        return place, self._sources[source]

    # --- staging -----------------------------------------------------------------------------------------

    def _affected(self, table: Table, records: int) -> tuple[dict[str, int], np.ndarray[Any, Any]]:
        """Return the counts of a load of so many records, and the addresses of the rows that they replace."""
        rows = self._transaction.pin(table.key).rows
        updated, deleted = 0, 0
        replaced: np.ndarray[Any, Any] = np.empty(0, np.uint64)
        if self._mode == "overwrite":
            if table.key not in self._generated_ids:
                updated = int(self._query_column(queries.count_replaced(table.id))[0])
            deleted = rows - updated
        elif self._mode == "merge" and records and table.key not in self._generated_ids:
            replaced = self._query_column(queries.replaced_addresses(table.id)).astype(np.uint64)
            updated = len(replaced)
        removed = None if self._removed is None else self._removed.get(table.key)
        if removed is not None:
            addresses = single_array(removed[ROW_ADDRESS]).to_numpy()
            replaced, deleted = np.concatenate([replaced, addresses]), len(addresses)
        return {"inserted": records - updated, "updated": updated, "deleted": deleted}, replaced

    def _changes_nothing(self, affected: Mapping[str, Mapping[str, int]]) -> bool:
        """Return whether the staged versions of a merge have the rows of the base. A load without rows has changes.

        Rows are compared only if each one replaces another, up to the first that differs.
        """
        counts = affected.values()
        is_plain = self._mode == "merge" and self._removed is None
        if not is_plain or any(of_table["inserted"] for of_table in counts):
            return False
        replaced = [key for key, of_table in affected.items() if of_table["updated"]]
        return bool(replaced) and not any(map(self._has_changes, replaced))

    def _has_changes(self, key: str) -> bool:
        base = self._transaction.base
        columns = {item.name: item.physical for item in self._loaded[key].columns}
        before, after = (
            Side(base.tables, pin, columns) for pin in (base.pin(key), self._transaction.pin(key))
        )
        return any(len(batch) for batch in TableDiff(before, after).batches())

    def _write_indexed(self, table: Table, staged: StagedTable) -> None:
        """Add a staged version to the transaction, and index its new rows."""
        tables = self._transaction.base.tables
        self._transaction.write(table.key, staged)
        if staged.inserted:
            for column in INDEXED_COLUMNS[table.kind]:
                pin = self._transaction.pin(table.key)
                self._transaction.write(table.key, tables.stage_index(pin, table.physical(column), "BTREE"))

    # --- key tables --------------------------------------------------------------------------------------

    def _query_column(self, query: Select) -> np.ndarray[Any, Any]:
        """Return the first column of a query."""
        parts = [batch.column(0).to_numpy(zero_copy_only=False) for batch in self._keys.stream(query)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)


# --- results of rules as violations -------------------------------------------------------------------------


def _existing_ids(table: Table) -> Describe:
    return lambda rows: [
        replace(existing_id_violation(table, row["id"]), position=row[queries.POSITION])
        for row in rows.to_pylist()
    ]


def _duplicate_values(table: Table, columns: tuple[str, ...], *, by_id: bool = False) -> Describe:
    types = column_types(table)

    def describe(rows: pa.Table) -> list[Violation]:
        members = zip(
            *(
                json_values(rows[f"{queries.VALUE}{number}"].cast(arrow_type(types[name])), types[name])
                for number, name in enumerate(columns)
            ),
            strict=True,
        )
        ids, holders, positions = (
            rows[name].to_pylist() for name in ("id", queries.HOLDER, queries.POSITION)
        )
        return [
            replace(
                duplicate_violation(table, columns, values, holder, id_), position=None if by_id else position
            )
            for id_, holder, position, values in zip(ids, holders, positions, members, strict=True)
        ]

    return describe


def _missing_nodes(rule: str, key: str, node: str, end: str) -> Describe:
    def describe(rows: pa.Table) -> list[Violation]:
        return [
            replace(
                missing_node_violation(rule, key, node, end, row["id"], row[queries.VALUE]),
                position=row.get(queries.POSITION),
            )
            for row in rows.to_pylist()
        ]

    return describe


def _wrong_cardinalities(key: str, edge: EdgeType) -> Describe:
    least, most = edge.cardinality.min, edge.cardinality.max

    def violation(row: dict[str, Any]) -> Violation:
        # The row of a record at fault has the source beside its own id.
        source, count = row.get(queries.HOLDER, row["id"]), row[queries.VALUE]
        if count < least or most is None:
            return cardinality_violation(key, edge.name, source, count, "min", least)
        return cardinality_violation(key, edge.name, source, count, "max", most)

    return lambda rows: [violation(row) for row in rows.to_pylist()]
