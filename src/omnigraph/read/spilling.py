"""Sorts and groupings that exceed the memory of their query, through a database on disk.

The matched rows are positions in memory. Their values are written to the database in parts, and DuckDB sorts or
groups them with a part of the memory and temporary files. The result must fit into the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.budget.query_budget import BYTES, QueryBudget, current_budget
from omnigraph.engine.database_limits import DatabaseLimits
from omnigraph.engine.exact_counts import INT64_MAX, total
from omnigraph.engine.projection.projection_plan import InputRef, MatchedRows, OutputColumn, ProjectionPlan
from omnigraph.errors import ResourceLimit
from omnigraph.read.binding_table import BindingTable

PART_ROWS = 65_536
# With less memory DuckDB cannot group or sort in parts.
_MIN_DATABASE_BYTES = 32 << 20
_HINT = "match fewer rows, collect or return fewer values, or raise the limit"


@dataclass(frozen=True)
class Spill:
    """The memory and the disk space for the database of one step. `held` is the memory of the matched rows."""

    budget: QueryBudget
    held: int
    database_bytes: int

    def run(self, projection: ProjectionPlan, parts: Iterable[MatchedRows]) -> pa.Table:
        """Return the rows of a projection. Raises `ResourceLimit` if even the database cannot compute them."""
        tables: list[pa.Table] = []
        size = rows = 0
        for table in self._run(projection, parts):
            size += table.nbytes
            rows += table.num_rows
            self.budget.check_rows(rows)
            # The tables are joined.
            self.budget.require_bytes(self.held + 2 * size)
            tables.append(table)
        schema = pa.schema([(output.name, output.type) for output in projection.outputs])
        return pa.concat_tables(tables).combine_chunks() if tables else schema.empty_table()

    def sort(self, projection: ProjectionPlan, parts: Iterable[MatchedRows]) -> npt.NDArray[np.int64]:
        """Return the numbers of the rows that remain, in order."""
        numbered = _number(parts)
        first = next(numbered)
        place = InputRef(len(first.columns) - 1)
        ordered = replace(projection, outputs=(OutputColumn("row", pa.int64(), place),))
        found: npt.NDArray[np.int64] = self.run(ordered, chain([first], numbered))["row"].to_numpy()
        return found

    def _run(self, projection: ProjectionPlan, parts: Iterable[MatchedRows]) -> Iterator[pa.Table]:
        # DuckDB takes most of the start-up time of a small program, and few reads need it.
        from omnigraph.engine.duckdb import run_spilled_projection

        self.budget.require_bytes(self.held + self.database_bytes)
        limits = DatabaseLimits(
            memory=f"{self.database_bytes}B", threads=1, spill_bytes=self.budget.limits.spilled
        )
        try:
            yield from run_spilled_projection(projection, parts, limits)
        except ResourceLimit as error:
            if "resource" in error.details:
                raise
            limit = self.budget.limits.bytes or 0
            raise ResourceLimit(
                f"the request needs more than {limit:,} bytes of memory, or more disk space than it may use",
                details={"resource": BYTES, "limit": limit, "actual": limit + 1},
                hint=_HINT,
            ) from error


def _number(parts: Iterable[MatchedRows]) -> Iterator[MatchedRows]:
    """Yield the parts with the row number as a further column."""
    done = 0
    for part in parts:
        numbers = pa.array(np.arange(done, done + part.num_rows))
        yield replace(part, columns=(*part.columns, numbers))
        done += part.num_rows


def find_spill(size: int, rows: BindingTable) -> Spill | None:
    """Return how a step that needs `size` bytes can spill; None if it fits into the memory, or cannot spill."""
    budget = current_budget()
    left = None if budget is None else budget.left_bytes()
    if budget is None or left is None or size <= left or budget.limits.spilled == 0:
        return None
    if rows.weights is not None and total(rows.weights) > INT64_MAX:
        return None
    # The other half is for the parts that are written and for the result.
    database = (left - rows.nbytes) // 2
    return Spill(budget, rows.nbytes, database) if database >= _MIN_DATABASE_BYTES else None
