"""Run a read on Spark: its plan as joins of DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.columns import arrow_type
from omnigraph.graph.snapshot import Snapshot
from omnigraph.lang import ir
from omnigraph.read.plan import (
    AntiJoinStep,
    ExpandStep,
    FilterStep,
    OptionalStep,
    PlanStep,
    ReadPlan,
    ScanStep,
)
from omnigraph.read.read_session import ReadSession, conjunction
from omnigraph.spark.engine.arrow_columns import as_stored
from omnigraph.spark.engine.pattern_joins import match_pattern
from omnigraph.spark.engine.spark_projection import project
from omnigraph.spark.engine.table_frame import SMALL_ROWS, table_frame
from omnigraph.spark.engine.table_read import ROWS_PER_PARTITION, TableRead

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class GraphAccess:
    """The location of the graph for tasks. Tables of at most `small_rows` rows are part of the plan instead."""

    uri: str
    options: Mapping[str, str]
    small_rows: int = SMALL_ROWS


def read_on_spark(
    session: ReadSession, plan: ReadPlan, spark: SparkSession, access: GraphAccess
) -> DataFrame:
    """Return the rows of a read as a lazy DataFrame. It always reads the session's snapshot."""
    tables = SnapshotFrames(spark, session.snapshot, access)
    rows = match_pattern(tables, plan.query, ordered_steps(plan.steps), session.bindings)
    return project(tables, plan, session, rows)


def collect(frame: DataFrame, query: ir.ReadQuery) -> pa.Table:
    """Collect the rows of a DataFrame from `read_on_spark` as an Arrow table with the types of the local engine."""
    found = frame.toArrow()
    schema = pa.schema([(output.name, arrow_type(output.type)) for output in query.outputs])
    columns = [
        as_stored(column, output.type) for column, output in zip(found.columns, query.outputs, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class SnapshotFrames:
    """The tables of one snapshot as DataFrames."""

    spark: SparkSession
    snapshot: Snapshot
    access: GraphAccess

    @property
    def catalog(self) -> Catalog:
        """The catalog of the tables."""
        return self.snapshot.catalog

    def nothing(self) -> DataFrame:
        """Return a DataFrame of one row."""
        return self.spark.range(1)

    def scan(self, key: str, columns: Sequence[str], where: str | None = None) -> DataFrame:
        """Return columns of a table; see `TableFrames.scan`."""
        table = self.snapshot.table(key)
        known = {column.name: column for column in table.columns}
        read = TableRead(
            self.access.uri,
            self.snapshot.commit,
            table,
            self.snapshot.pin(key),
            tuple(known[name] for name in columns),
            ROWS_PER_PARTITION,
            self.access.options,
            where,
        )
        return table_frame(self.spark, read, self.access.small_rows)


def ordered_steps(steps: Sequence[PlanStep]) -> tuple[ir.Step, ...]:
    """Return the steps of a plan as IR steps, in plan order."""
    return tuple(found for step in steps for found in _ir_steps(step))


def _ir_steps(step: PlanStep) -> Iterator[ir.Step]:
    match step:
        case ScanStep():
            yield ir.NodeScan(step.variable, step.type_name, step.where)
        case ExpandStep():
            yield step.expand
            if step.where:
                yield ir.NodeScan(step.expand.target, step.expand.target_type, step.where, bound=True)
        case FilterStep():
            yield ir.Filter(conjunction(step.predicates))
        case AntiJoinStep():
            yield ir.AntiJoin(ordered_steps(step.steps))
        case OptionalStep():
            yield ir.OptionalMatch(ordered_steps(step.steps), step.introduces)
