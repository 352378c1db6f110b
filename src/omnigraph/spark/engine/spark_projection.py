"""Projections on Spark, with the same SQL as on DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from omnigraph.catalog.columns import arrow_type, spark_type
from omnigraph.engine.projection.projection_plan import InputRef, ProjectionPlan
from omnigraph.engine.projection.sql_projection import ROW, TABLE, column_name, projection_query
from omnigraph.lang import ir
from omnigraph.read.plan import ReadPlan
from omnigraph.spark.engine.binding_frames import BindingFrame, Names
from omnigraph.spark.engine.pattern_joins import TableFrames
from omnigraph.spark.engine.spark_expressions import ColumnCompiler
from omnigraph.spark.engine.spark_ranking import Constants, SparkRanking

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Spark limits have 32 bits.
_MAX_LIMIT = 2**31 - 1
# A placeholder for the DataFrame of the rows.
_FRAME = "omnigraph_rows"


def project(tables: TableFrames, plan: ReadPlan, constants: Constants, rows: BindingFrame) -> DataFrame:
    """Group, order and project the rows that a pattern matched. Lazy.

    Columns have the names of the outputs and the Spark types of their types. Rows are ordered only if the query
    orders them.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the conventional name

    query = plan.query
    names = Names("s")
    ranking = SparkRanking(tables, query, constants, names)
    projection, exprs = plan.projection, plan.inputs
    scores: dict[ir.Expr, str] = {}
    ordered = [item.expr for item in query.order if isinstance(item.expr, ir.Rank)]
    returned = [expr for expr in exprs if isinstance(expr, ir.Rank) and expr not in ordered]
    # A returned fusion depends on all rows, so it comes before an ordering leaves rows out.
    for rank in dict.fromkeys([*returned, *ordered]):
        scores[rank] = names.take()
        rows = ranking.add(rank, rows, scores[rank])
        if rank in ordered:
            rows = rows.with_frame(rows.frame.where(F.col(scores[rank]).isNotNull()))
    scope = ColumnCompiler(rows.columns, constants.bindings)
    columns = [F.col(scores[expr]) if expr in scores else scope.value(expr) for expr in exprs]
    if max(projection.skip, projection.limit or 0) > _MAX_LIMIT:
        frame = _cut(_finish(replace(projection, skip=0, limit=None), rows.frame, columns, exprs), projection)
    else:
        frame = _finish(projection, rows.frame, columns, exprs)
    return frame.select(
        *(
            F.col(f"o{place}").cast(spark_type(output.type)).alias(output.name)
            for place, output in enumerate(query.outputs)
        )
    )


def _finish(
    projection: ProjectionPlan, frame: DataFrame, columns: Sequence[Column], exprs: Sequence[ir.Expr]
) -> DataFrame:
    """Return the rows of a projection, with a column ``o0``, ``o1``, … for each output."""
    from pyspark.sql import functions as F  # noqa: N812

    if not (projection.grouped or projection.distinct or projection.order):
        taken = [output.value.column for output in projection.outputs if isinstance(output.value, InputRef)]
        found = frame.select(*(columns[at].alias(f"o{place}") for place, at in enumerate(taken)))
        found = found.offset(projection.skip) if projection.skip else found
        return found if projection.limit is None else found.limit(projection.limit)
    named = [column.alias(column_name(at)) for at, column in enumerate(columns)]
    numbered = frame.select(*named, F.monotonically_increasing_id().alias(ROW))
    schema = pa.schema(
        [*((column_name(at), arrow_type(expr.type)) for at, expr in enumerate(exprs)), (ROW, pa.int64())]
    )
    return frame.sparkSession.sql(_sql(projection, schema), rows=numbered)


def _cut(frame: DataFrame, projection: ProjectionPlan) -> DataFrame:
    """Apply skip and limit by row number, for values of any size."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    # The ids ascend in the order of the rows, with gaps.
    numbered = frame.withColumn("id", F.monotonically_increasing_id())
    counted = numbered.withColumn("number", F.row_number().over(Window.orderBy("id")).cast("bigint"))
    last = F.lit(True) if projection.limit is None else F.col("number") <= projection.skip + projection.limit
    return counted.where((F.col("number") > projection.skip) & last).orderBy("number").drop("id", "number")


def _sql(projection: ProjectionPlan, schema: pa.Schema) -> str:
    query = projection_query(projection, schema, "spark")
    if not projection.order:
        # Row numbers are arbitrary, so ordering by them would be wasted.
        query.set("order", None)
    for table in list(query.find_all(exp.Table)):
        if table.name == TABLE:
            table.replace(exp.alias_(exp.to_table(_FRAME), TABLE, table=True))
    return query.sql("spark").replace(_FRAME, "{rows}")
