"""Quarantine of loads with operations: the records of an id are left out together.

The final row of an id is the result of all its records and of the stored row, so no single record is at fault. The
records of the ids that break a rule are left out, the operations of the others are resolved anew, and the checks
begin again. The last resolution is therefore that of a load without the rejected records.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.engine.arrow_arrays import single_array
from omnigraph.lang.schema import EdgeType
from omnigraph.load.change_records import change_records
from omnigraph.load.fold import Folded
from omnigraph.load.load_strategy import LoadStrategy, Offense
from omnigraph.load.operation_rules import OperationRules
from omnigraph.load.quarantine import Quarantine
from omnigraph.rules.row_rules import broken_rows
from omnigraph.rules.set_rules import (
    absent_id_violation,
    cardinality_violation,
    entity_of,
    existing_id_violation,
)
from omnigraph.rules.violations import Violation
from omnigraph.sources.rejects import Reject
from omnigraph.sources.row_batch import PLACE, SOURCE

# Opens lines with the source number, the place, the id and the JSON record of rejected rows, in input order.
OpenLines: TypeAlias = Callable[[], AbstractContextManager[Iterable[bytes]]]


class RejectedIds:
    """The ids of each table whose records a load leaves out, with the rule and the reason."""

    def __init__(self, catalog: Catalog, quarantine: Quarantine) -> None:
        self.quarantine = quarantine
        self._catalog = catalog
        self._log = quarantine.log
        # A load that is prepared again rejects records anew.
        self._log.restart()
        self._reasons: dict[str, dict[str, tuple[str, str]]] = {}

    @property
    def arrays(self) -> dict[str, pa.Array]:
        """The ids by table."""
        return {key: pa.array(list(of_table), pa.string()) for key, of_table in self._reasons.items()}

    def add(self, offenses: Mapping[str, Iterable[Offense]]) -> bool:
        """Add the ids of some offenses; return whether there are new ones."""
        found: dict[str, dict[str, list[Offense]]] = {}
        for key, of_table in offenses.items():
            for item in of_table:
                if item.id is not None:
                    found.setdefault(key, {}).setdefault(item.id, []).append(item)
        is_new = False
        for key, by_id in found.items():
            table, known = self._catalog.tables[key], self._reasons.setdefault(key, {})
            for id_, items in by_id.items():
                is_new = is_new or id_ not in known
                # The order of the rules of an id must not depend on the engine.
                ordered = sorted(items, key=lambda item: (item.rule, item.reason))
                reason = "; ".join(dict.fromkeys(map(self._reason, ordered)))
                known[id_] = ordered[0].rule, reason
                if table.kind == "node":
                    self._log.add_node(table.name, id_)
        return is_new

    def _reason(self, offense: Offense) -> str:
        if offense.missing is not None and self._log.has_node(*offense.missing):
            return f"{offense.reason}: its record was rejected"
        return offense.reason

    def log_records(
        self, left_out: Mapping[str, Sequence[OpenLines]], source: Callable[[int], str | None]
    ) -> None:
        """Log the records that the last resolution left out, by table and in input order.

        `source` returns the name of a source by its number.
        """
        for key in (key for key in self._catalog.tables if key in left_out):
            name, reasons = self._catalog.tables[key].name, self._reasons[key]
            lines = heapq.merge(*map(_read, left_out[key]), key=itemgetter(0, 1))
            for number, place, id_, record in lines:
                rule, reason = reasons[id_]
                reject = Reject(place, reason, record, source(number), rule=rule, type=name, id=id_)
                self._log.add_between(reject)


def _read(open_lines: OpenLines) -> Iterator[Any]:
    with open_lines() as lines:
        yield from map(json.loads, lines)


def split_rejected(changes: pa.Table, rejected: pa.Array | None) -> tuple[pa.Table, pa.Table | None]:
    """Return the rows without those with a rejected id, and the latter; None if there are none."""
    if rejected is None or not len(rejected):
        return changes, None
    chosen = pc.is_in(single_array(changes["id"]), value_set=rejected)
    left_out = changes.filter(chosen)
    return changes.filter(pc.invert(chosen)), left_out if left_out.num_rows else None


def rejected_lines(catalog: Catalog, table: Table, rows: pa.Table, rules: OperationRules) -> Iterator[bytes]:
    """Yield the lines of `OpenLines` for rows with operations."""
    rows = rows.take(pa.array(np.lexsort((rows[PLACE].to_numpy(), rows[SOURCE].to_numpy()))))
    records = change_records(entity_of(catalog, table), table, rows, rules)
    columns = (rows[name].to_pylist() for name in (SOURCE, PLACE, "id"))
    for source, place, id_, record in zip(*columns, records, strict=True):
        yield json.dumps([source, place, id_, record]).encode() + b"\n"


def fold_offenses(catalog: Catalog, table: Table, folded: Folded, rules: OperationRules) -> list[Offense]:
    """Return the ids of a fold that break a rule: inserts of existing ids, invalid rows, absent deletes."""
    found: list[Violation] = []
    entity = entity_of(catalog, table)
    for batch in folded.rows.to_batches():
        for of_row in broken_rows(table, entity, batch).values():
            found += of_row
    found += [existing_id_violation(table, id_) for id_ in folded.existing["id"].to_pylist()]
    if rules.require_existing:
        found += [absent_id_violation(table, id_) for id_ in folded.absent["id"].to_pylist()]
    return [Offense(-1, (0, None), item.id, item.rule, item.message) for item in found]


def deletion_offenses(
    edge: EdgeType, key: str, removed: pa.Table, sources: pa.Array, counts: np.ndarray[Any, Any]
) -> Iterator[Offense]:
    """Yield the deleted edges of sources that have too few edges then.

    `counts` has the number of edges of each of the `sources`.
    """
    least = edge.cardinality.min
    few = counts < least
    if not few.any():
        return
    known = dict(zip(sources.filter(pa.array(few)).to_pylist(), counts[few].tolist(), strict=True))
    rows = removed.filter(pc.is_in(removed["src"], value_set=pa.array(list(known), pa.string())))
    for id_, source in zip(rows["id"].to_pylist(), rows["src"].to_pylist(), strict=True):
        found = cardinality_violation(key, edge.name, source, known[source], "min", least)
        yield Offense(-1, (0, None), id_, found.rule, found.message, is_deleted=True)


@dataclass(frozen=True)
class Resolution:
    """One resolution of a load with operations, without the rejected ids so far.

    `deleted` are the stored rows that records of the input delete: an edge that is deleted with its node has no
    record. `left_out` are the records with rejected ids, and `records` is the number of all records.
    """

    rejected: RejectedIds
    deleted: Mapping[str, pa.Table]
    left_out: Mapping[str, Sequence[OpenLines]]
    source: Callable[[int], str | None]
    records: int

    def take_offenders(self, load: LoadStrategy) -> bool:
        """Reject the ids that break a rule of the first stage with violations; return whether there are any."""
        found = {}
        for key, offenses in load.offenders().items():
            ids = set(self.deleted[key]["id"].to_pylist()) if key in self.deleted else set()
            found[key] = [item for item in offenses if not item.is_deleted or item.id in ids]
        return self.rejected.add(found)

    def hint(self, violation: Violation) -> str | None:
        """Return the hint for a violation without records at fault."""
        if violation.rule != "card":
            return None
        return "deletes of nodes took its edges: delete the source too, or load another edge of it"

    def accept(self) -> None:
        """Log the rejected records; raise `ConstraintViolation` if there are too many."""
        self.rejected.log_records(self.left_out, self.source)
        quarantine = self.rejected.quarantine
        quarantine.check(self.records + quarantine.log.read_count)
