"""Constraint checks of backfilled rows, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, Column, Table
from omnigraph.engine.edge_ids import repeated_values
from omnigraph.graph.transaction import Transaction
from omnigraph.lang.schema import Check, EdgeType, NodeType, Range
from omnigraph.rules.external_blobs import ExternalBlobPolicy
from omnigraph.rules.row_rules import row_violations
from omnigraph.rules.set_rules import entity_of
from omnigraph.rules.violations import Violations, raise_violations
from omnigraph.schema.backfill_values import TableBackfill, backfilled_rows


def check_backfill(transaction: Transaction, catalog: Catalog, filling: TableBackfill) -> None:
    """Raise `ConstraintViolation` if a row breaks a constraint with its backfilled values.

    Row rules are checked first, then `@unique`. A backfill does not accept external URIs of blobs. Memory use does
    not grow with the table.
    """
    if not transaction.base.pin(filling.before.key).rows:
        return
    entity = entity_of(catalog, filling.after)
    narrow, rules = _narrowed(filling, entity)
    raise_violations(
        Violations.merge(
            row_violations(narrow, rules, pa.Table.from_batches([batch]), external_blobs=ExternalBlobPolicy())
            for batch in _rows(transaction, filling, ())
        )
    )
    stored = {item.physical for item in filling.before.columns}
    valued = {item.name for item in filling.after.columns if item.physical in stored} | set(filling.columns)
    for columns in entity.uniques:
        # In a new column without a backfill every value is null, so its tuples are exempt.
        if set(columns) & set(filling.columns) and set(columns) <= valued:
            raise_violations(_repeated(transaction, filling, columns))


def _narrowed(filling: TableBackfill, entity: NodeType | EdgeType) -> tuple[Table, NodeType | EdgeType]:
    """Return the table and the type with the backfilled columns only: the other values are unchanged and valid."""
    new = set(filling.columns)
    columns = tuple(item for item in filling.after.columns if item.name == "id" or item.name in new)
    constraints = tuple(
        item
        for item in entity.effective_constraints
        if isinstance(item, Range | Check) and item.property in new
    )
    properties = tuple(item for item in entity.properties if item.name in new)
    return replace(filling.after, columns=columns), replace(
        entity, constraints=constraints, properties=properties
    )


def _rows(
    transaction: Transaction, filling: TableBackfill, others: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    columns = list(dict.fromkeys([*filling.reads, *(item.physical for item in others)]))
    for batch in transaction.base.scan_batches(filling.before.key, columns):
        yield backfilled_rows(filling, batch, others)


def _repeated(transaction: Transaction, filling: TableBackfill, columns: tuple[str, ...]) -> Violations:
    table = filling.after
    others = [item for item in table.columns if item.name in columns and item.name not in filling.columns]
    return repeated_values(table, columns, _rows(transaction, filling, others))
