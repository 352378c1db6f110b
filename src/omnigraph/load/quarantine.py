"""Quarantine: a load leaves out the records that break rules between rows, and loads the others.

The checks run in stages. The records that break a rule of the first stage with violations are left out, and the
checks begin again, until none is violated: an edge of a node that was left out is left out too. The records of a
stage are chosen together, so the result does not depend on the order in which an engine finds them.
"""

from __future__ import annotations

import heapq
import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import IO, Any, TypeAlias

import numpy as np

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.errors import ConstraintViolation
from omnigraph.load.load_strategy import LoadStrategy, Offense, Positions
from omnigraph.load.reject_limit import RejectLimit
from omnigraph.load.reject_log import MAX_LISTED, RejectLog
from omnigraph.load.spool import reject_records
from omnigraph.rules.set_rules import entity_of
from omnigraph.rules.violations import Violations
from omnigraph.sources.rejects import Reject

# Position, place, source, id, rule and reason of a record.
_Line: TypeAlias = tuple[int, int, str | None, str | None, str, str]
_MEMORY_BYTES = 1 << 20
# The members of a rejected record that an error repeats.
_REPORTED = ("source", "line", "type", "id", "rule")


@dataclass(frozen=True)
class Quarantine:
    """The rejected records of a load, and how many of them there may be."""

    log: RejectLog
    limit: RejectLimit | None = None

    def check(self, records: int) -> None:
        """Raise `ConstraintViolation` if more than the limit of `records` are rejected."""
        if self.limit is not None and self.limit.is_exceeded(self.log.count, records):
            first = self.log.first()
            raise ConstraintViolation(
                f"{self.log.count:,} of {records:,} records rejected, more than max_rejects {self.limit}",
                [{"message": line["error"], **{name: line[name] for name in _REPORTED}} for line in first],
                details={
                    "violations": self.log.count,
                    "limit": MAX_LISTED,
                    "records": records,
                    "rejected": self.log.counts,
                    "max_rejects": str(self.limit),
                },
                hint="the rejected records have the reasons; correct the input, or raise max_rejects",
            )


class LeftOut:
    """Leaves out the records of a load that break rules between rows, and logs them with their rows."""

    def __init__(
        self, load: LoadStrategy, catalog: Catalog, log: RejectLog, generated_ids: Iterable[str]
    ) -> None:
        self._load = load
        self._catalog = catalog
        self._log = log
        self._generated_ids = frozenset(generated_ids)
        self._files: dict[str, list[IO[str]]] = {}
        self._positions: dict[str, list[Positions]] = {}

    def settle(self) -> tuple[dict[str, int], Violations]:
        """Leave out records until no rule is violated, and log them.

        Return the number of records of each table that were left out, and the violations for which no record of the
        input is at fault.
        """
        with ExitStack() as stack:
            remaining = self._leave_out(stack)
            for key in self._catalog.tables:
                if key in self._files:
                    self._log_records(self._catalog.tables[key])
            return {key: sum(map(len, parts)) for key, parts in self._positions.items()}, remaining

    def _leave_out(self, stack: ExitStack) -> Violations:
        """Leave out records round by round, and return the violations that remain.

        In a merge the stored row of a record that is left out counts again, so there can be as many rounds as
        records. Each round leaves out at least one record, so the rounds end.
        """
        while True:
            violations = next((item for item in self._load.violations() if item), Violations())
            if not violations:
                return violations
            found = {
                key: self._write(stack, self._catalog.tables[key], offenses)
                for key, offenses in self._load.offenders().items()
            }
            if not any(map(len, found.values())):
                return violations
            for key, positions in found.items():
                self._positions.setdefault(key, []).append(positions)
            self._load.leave_out(found)

    def _write(self, stack: ExitStack, table: Table, offenses: Iterator[Offense]) -> Positions:
        """Write the reasons of records to a temporary file, and return the positions of the records."""
        # The reasons of many records must not fill the memory. A small file needs no file descriptor.
        made = tempfile.SpooledTemporaryFile(_MEMORY_BYTES, "w+", encoding="utf-8")  # noqa: SIM115
        file = stack.enter_context(made)
        self._files.setdefault(table.key, []).append(file)
        positions: list[int] = []
        for position, group in groupby(offenses, key=lambda item: item.position):
            # The order of the rules of a record must not depend on the engine.
            of_record = sorted(group, key=lambda item: (item.rule, item.reason))
            first = of_record[0]
            reasons = dict.fromkeys(map(self._reason, of_record))
            place, source = first.origin
            line: _Line = (position, place, source, first.id, first.rule, "; ".join(reasons))
            file.write(json.dumps(line) + "\n")
            positions.append(position)
            if table.kind == "node" and first.id is not None:
                self._log.add_node(table.name, first.id)
        return np.array(positions, np.int64)

    def _reason(self, offense: Offense) -> str:
        if offense.missing is not None and self._log.has_node(*offense.missing):
            return f"{offense.reason}: its record was rejected"
        return offense.reason

    def _log_records(self, table: Table) -> None:
        """Log the records of a table that were left out, in input order."""
        positions = np.sort(np.concatenate(self._positions[table.key]))
        with_ids = entity_of(self._catalog, table).key is None and table.key not in self._generated_ids
        rows = self._load.rows_at(table.key, positions)
        records = (record for part in rows for record in reject_records(table, part, with_ids=with_ids))
        lines = heapq.merge(*map(_read, self._files[table.key]), key=itemgetter(0))
        for (_, place, source, id_, rule, reason), record in zip(lines, records, strict=True):
            known = None if table.key in self._generated_ids else id_
            self._log.add_between(Reject(place, reason, record, source, rule=rule, type=table.name, id=known))


def _read(file: IO[str]) -> Iterator[Any]:
    file.seek(0)
    return map(json.loads, file)
