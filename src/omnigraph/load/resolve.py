"""Resolution of the operations of a load: the stored rows are looked up, and final rows and deletions remain.

After that a patch, a delete or a change log is a merge of whole rows with some deletions, and every check runs on
the resulting state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog, Table, table_key
from omnigraph.engine.arrow_arrays import single_array
from omnigraph.engine.committed_rows import CommittedRows, RowAddressCache
from omnigraph.graph.transaction import Transaction
from omnigraph.lang.schema import EdgeType
from omnigraph.load.fold import FoldCounts, Folded, fold_operations
from omnigraph.load.id_hash import part_numbers
from omnigraph.load.load_strategy import Offense
from omnigraph.load.operation_quarantine import OpenLines, fold_offenses, rejected_lines, split_rejected
from omnigraph.load.operation_rules import OperationRules
from omnigraph.load.spool import Spool
from omnigraph.rules.blob_ingress import BlobIngress
from omnigraph.rules.row_rules import row_violations
from omnigraph.rules.set_rules import absent_id_violation, entity_of, existing_id_violation
from omnigraph.rules.violations import MAX_REPORTED, Violations, raise_violations
from omnigraph.sources.row_batch import PLACE, SOURCE
from omnigraph.store.tables.row_addresses import ROW_ADDRESS


@dataclass(frozen=True)
class ResolvedLoad:
    """The final rows of a load, the stored rows that it deletes, and the input rows without an effect, by table.

    `removed` has ids, for edges endpoints, and addresses. It includes the edges of deleted nodes, and `deleted`
    does not. `left_out` are the input rows with rejected ids. With `offenses` the load needs another resolution.
    """

    spool: Spool
    removed: Mapping[str, pa.Table] = field(default_factory=dict)
    counts: Mapping[str, FoldCounts] = field(default_factory=dict)
    deleted: Mapping[str, pa.Table] = field(default_factory=dict)
    left_out: Mapping[str, list[OpenLines]] = field(default_factory=dict)
    offenses: Mapping[str, list[Offense]] = field(default_factory=dict)


@contextmanager
def resolve_operations(
    transaction: Transaction,
    spool: Spool,
    rules: OperationRules,
    rejected: Mapping[str, pa.Array] | None = None,
    cache: RowAddressCache | None = None,
) -> Iterator[ResolvedLoad]:
    """Fold the operations of a spool on the base of a transaction. Files of the result end with the context.

    Raises `ConstraintViolation` for inserts of existing ids and for final rows that break a row rule. With
    `rejected` they are the `offenses` of the result instead, and the rows with these ids are left out.
    """
    committed = CommittedRows(transaction.base, transaction.read, cache)
    removed: dict[str, pa.Table] = {}
    counts: dict[str, FoldCounts] = {}
    found: list[Violations] = []
    offenses: dict[str, list[Offense]] = {}
    left_out: dict[str, list[OpenLines]] = {}
    with Spool(spool.catalog, spool.limits, BlobIngress()) as resolved:
        resolved.sources = spool.sources
        # Nodes come first: whether an unchanged edge must be checked depends on the deleted nodes.
        for key in sorted(spool.counts, key=lambda item: not item.startswith("node:")):
            table = spool.catalog.tables[key]
            keep_unchanged = has_removed_ends(spool.catalog, table, removed)
            resolved.name_table(key)
            for number, part in enumerate(_parts(spool, key)):
                changes, without = split_rejected(part, None if rejected is None else rejected.get(key))
                if without is not None:
                    file = resolved.directory() / f"rejected-{table.id}-{number}.ndjson"
                    with file.open("wb") as lines:
                        lines.writelines(rejected_lines(spool.catalog, table, without, rules))
                    left_out.setdefault(key, []).append(partial(_open_file, file))
                folded = fold_part(committed, table, changes, rules, keep_unchanged=keep_unchanged)
                if rejected is None:
                    found.append(fold_violations(spool.catalog, table, folded, rules, spool.sources))
                elif of_part := fold_offenses(spool.catalog, table, folded, rules):
                    offenses.setdefault(key, []).extend(of_part)
                counts[key] = counts.get(key, FoldCounts()) + folded.counts
                for batch in folded.rows.cast(resolved.schema(key)).to_batches():
                    resolved.add(key, batch)
                if folded.removed.num_rows:
                    removed[key] = joined(removed.get(key), folded.removed)
        resolved.finish()
        raise_violations(Violations.merge(found))
        written = {key: _ids(resolved, key) for key in resolved.counts if key.startswith("edge:")}
        everything = add_incident_edges(spool.catalog, committed, removed, written)
        for key in everything:
            resolved.name_table(key)
        yield ResolvedLoad(resolved, everything, counts, removed, left_out, offenses)


def _open_file(path: Path) -> BinaryIO:
    return path.open("rb")


def _ids(spool: Spool, key: str) -> pa.ChunkedArray:
    return pa.chunked_array([batch.column("id") for batch in spool.batches(key, ["id"])], pa.string())


# --- one part of the ids ------------------------------------------------------------------------------------


def _parts(spool: Spool, key: str) -> Iterator[pa.Table]:
    """Yield the rows of a table in parts that fit in memory, each with all rows of its ids, in input order."""
    count = spool.counts[key]
    parts = -(-count // max(1, spool.limits.rows)) if spool.is_bulk else 1
    if parts <= 1:
        yield spool.table(key)
        return
    directory = spool.directory() / f"parts-{spool.catalog.tables[key].id}"
    directory.mkdir(exist_ok=True)
    files = [directory / f"{number}.arrow" for number in range(parts)]
    writers: dict[int, pa.ipc.RecordBatchFileWriter] = {}
    try:
        for batch in spool.batches(key):
            numbers = part_numbers(batch.column("id"), parts)
            for number in np.unique(numbers).tolist():
                if number not in writers:
                    writers[number] = pa.ipc.new_file(str(files[number]), batch.schema)
                writers[number].write_batch(batch.filter(pa.array(numbers == number)))
    finally:
        for writer in writers.values():
            writer.close()
    for number in sorted(writers):
        with pa.memory_map(str(files[number])) as source, pa.ipc.open_file(source) as reader:
            yield reader.read_all()
        files[number].unlink()


def fold_part(
    committed: CommittedRows,
    table: Table,
    changes: pa.Table,
    rules: OperationRules,
    *,
    keep_unchanged: bool,
) -> Folded:
    """Look up the stored rows of some changes and fold them."""
    ids = pc.unique(single_array(changes["id"]))
    stored = find_stored(committed, table, ids)
    return fold_operations(table, changes, stored, rules.order_by, keep_unchanged=keep_unchanged)


def find_stored(committed: CommittedRows, table: Table, ids: pa.Array) -> pa.Table:
    """Return the stored rows with these ids, with all columns and their addresses."""
    found = committed.find(table.key, "id", ids, ["id", ROW_ADDRESS])
    addresses = np.sort(single_array(found[ROW_ADDRESS]).to_numpy())
    rows = committed.take(table.key, addresses)
    return rows.append_column(ROW_ADDRESS, pa.array(addresses, pa.uint64()))


def fold_violations(
    catalog: Catalog, table: Table, folded: Folded, rules: OperationRules, sources: Any
) -> Violations:
    """Return the violations of a fold: inserts of existing ids, rows that break a row rule, absent deletes."""
    origins = folded.rows.select(["id", PLACE, SOURCE])
    of_rows = row_violations(table, entity_of(catalog, table), folded.rows)
    parts = [_with_origins(of_rows, origins, sources)]
    parts.append(_located(folded.existing, lambda id_: existing_id_violation(table, id_), sources))
    if rules.require_existing:
        parts.append(_located(folded.absent, lambda id_: absent_id_violation(table, id_), sources))
    return Violations.merge(parts)


def _located(rows: pa.Table, describe: Any, sources: Any) -> Violations:
    total = rows.num_rows
    first = rows.sort_by("id").slice(0, MAX_REPORTED).to_pylist()
    return Violations(
        tuple(describe(row["id"]).with_origin(row[PLACE], sources[row[SOURCE]]) for row in first), total
    )


def _with_origins(violations: Violations, origins: pa.Table, sources: Any) -> Violations:
    if not violations:
        return violations
    wanted = pa.array([item.id for item in violations], pa.string())
    rows = origins.filter(pc.is_in(origins["id"], value_set=wanted)).to_pylist()
    by_id = {row["id"]: (row[PLACE], sources[row[SOURCE]]) for row in rows}
    located = (item.with_origin(*by_id[item.id]) if item.id in by_id else item for item in violations)
    return Violations(tuple(located), violations.total)


def joined(first: pa.Table | None, second: pa.Table) -> pa.Table:
    """Return the rows of both tables."""
    return second if first is None else pa.concat_tables([first, second])


# --- edges of deleted nodes ---------------------------------------------------------------------------------


def has_removed_ends(catalog: Catalog, table: Table, removed: Mapping[str, pa.Table]) -> bool:
    """Return whether nodes at an end of an edge type are deleted; edges of the load must be checked then."""
    entity = entity_of(catalog, table)
    if not isinstance(entity, EdgeType):
        return False
    return any(table_key("node", name) in removed for name in (entity.source, entity.target))


def add_incident_edges(
    catalog: Catalog,
    committed: CommittedRows,
    removed: Mapping[str, pa.Table],
    written: Mapping[str, pa.ChunkedArray],
) -> dict[str, pa.Table]:
    """Return the deleted rows with the stored edges of deleted nodes, as a mutation deletes them.

    An edge that the load writes, by the ids of `written`, is not deleted: it may have other ends now, and the
    rules check it.
    """
    everything = dict(removed)
    for edge in catalog.schema.edges:
        table = catalog.table("edge", edge.name)
        ends = [
            (end, single_array(removed[node]["id"]))
            for end, node in (
                ("src", table_key("node", edge.source)),
                ("dst", table_key("node", edge.target)),
            )
            if node in removed
        ]
        names = ["id", "src", "dst", ROW_ADDRESS]
        for end, nodes in ends:
            edges = committed.find(table.key, end, nodes, names)
            for known in (written.get(table.key), everything.get(table.key, {"id": None})["id"]):
                if known is not None and len(known) and edges.num_rows:
                    edges = edges.filter(pc.invert(pc.is_in(edges["id"], value_set=single_array(known))))
            if edges.num_rows:
                everything[table.key] = joined(everything.get(table.key), edges)
    return everything
