"""Reads on Spark: the plan of a read as ordered steps, its tables as DataFrames, its result as either."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
from omnigraph.spark.engine.binding_frames import Frame, Session
from omnigraph.spark.engine.pattern_joins import match_pattern
from omnigraph.spark.engine.spark_projection import project
from omnigraph.spark.engine.table_frame import SMALL_ROWS, table_frame
from omnigraph.spark.engine.table_read import ROWS_PER_PARTITION, TableRead


@dataclass(frozen=True)
class Place:
    """Where the tasks find the graph. `small_rows` is how many rows of a table travel in the plan instead."""

    uri: str
    options: Mapping[str, str]
    small_rows: int = SMALL_ROWS


def read_on_spark(session: ReadSession, plan: ReadPlan, spark: Session, place: Place) -> Frame:
    """The rows of a read as a DataFrame that is not computed yet, of the session's snapshot whenever it is."""
    tables = SnapshotFrames(spark, session.snapshot, place)
    rows = match_pattern(tables, plan.query, ordered_steps(plan.steps), session.bindings)
    return project(tables, plan.query, session, rows)


def collect(frame: Frame, query: ir.ReadQuery) -> pa.Table:
    """The rows of a frame that `read_on_spark` made, as the table that other engines give."""
    found = frame.toArrow()
    schema = pa.schema([(output.name, arrow_type(output.type)) for output in query.outputs])
    columns = [
        as_stored(column, output.type) for column, output in zip(found.columns, query.outputs, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class SnapshotFrames:
    """The tables of one snapshot, as the engine asks for them."""

    spark: Session
    snapshot: Snapshot
    place: Place

    @property
    def catalog(self) -> Catalog:
        """What the tables are."""
        return self.snapshot.catalog

    def nothing(self) -> Frame:
        """A frame of one row."""
        return self.spark.range(1)

    def scan(self, key: str, columns: Sequence[str], where: str | None = None) -> Frame:
        """Some columns of a table; see `engine.spark.Tables`."""
        table = self.snapshot.table(key)
        known = {column.name: column for column in table.columns}
        read = TableRead(
            self.place.uri,
            self.snapshot.commit,
            table,
            self.snapshot.pin(key),
            tuple(known[name] for name in columns),
            ROWS_PER_PARTITION,
            self.place.options,
            where,
        )
        return table_frame(self.spark, read, self.place.small_rows)


def ordered_steps(steps: Sequence[PlanStep]) -> tuple[ir.Step, ...]:
    """The steps of a plan in the words of the language, in the order that was planned."""
    return tuple(found for step in steps for found in _in_words(step))


def _in_words(step: PlanStep) -> Iterator[ir.Step]:
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
