"""The rest of a query on Spark, by the SQL that other engines run too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from omnigraph.catalog.columns import arrow_type, spark_type
from omnigraph.engine.projection.plan_projection import plan_projection
from omnigraph.engine.projection.projection_plan import InputRef, ProjectionPlan
from omnigraph.engine.projection.sql_projection import ROW, TABLE, column_name, projection_query
from omnigraph.lang import ir
from omnigraph.spark.engine.binding_frames import Names, Rows
from omnigraph.spark.engine.pattern_joins import Tables
from omnigraph.spark.engine.spark_expressions import Scope
from omnigraph.spark.engine.spark_ranking import Constants, Ranking

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Spark counts the rows of a limit in 32 bits.
_MOST_ROWS = 2**31 - 1
# Stands where Spark puts in the frame of the rows.
_FRAME = "omnigraph_rows"


def project(tables: Tables, query: ir.ReadQuery, constants: Constants, rows: Rows) -> DataFrame:
    """Order, group and project the rows that the query's pattern matched; lazy.

    Columns have the names of the outputs and the exact types that their types have in Spark. Rows are in order
    where the query orders them, else in none.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows it by

    names = Names("s")
    ranking = Ranking(tables, query, constants, names)
    projection, exprs = plan_projection(query)
    scores: dict[ir.Expr, str] = {}
    ordered = [item.expr for item in query.order if isinstance(item.expr, ir.Rank)]
    for rank in dict.fromkeys([*ordered, *(expr for expr in exprs if isinstance(expr, ir.Rank))]):
        scores[rank] = names.take()
        rows = ranking.add(rank, rows, scores[rank])
        if rank in ordered:
            rows = rows.with_frame(rows.frame.where(F.col(scores[rank]).isNotNull()))
    scope = Scope(rows.columns, constants.bindings)
    columns = [F.col(scores[expr]) if expr in scores else scope.value(expr) for expr in exprs]
    if max(projection.skip, projection.limit or 0) > _MOST_ROWS:
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
    """The rows of a projection, with a column ``o0``, ``o1``, … for each output."""
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
    """Skip and limit rows by their number, however large."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    # The ids grow in the order of the rows, with gaps.
    numbered = frame.withColumn("id", F.monotonically_increasing_id())
    counted = numbered.withColumn("number", F.row_number().over(Window.orderBy("id")).cast("bigint"))
    last = F.lit(True) if projection.limit is None else F.col("number") <= projection.skip + projection.limit
    return counted.where((F.col("number") > projection.skip) & last).orderBy("number").drop("id", "number")


def _sql(projection: ProjectionPlan, schema: pa.Schema) -> str:
    query = projection_query(projection, schema, "spark")
    if not projection.order:
        # Rows are numbered as they happen to come, so an order by number would be work for nothing.
        query.set("order", None)
    for table in list(query.find_all(exp.Table)):
        if table.name == TABLE:
            table.replace(exp.alias_(exp.to_table(_FRAME), TABLE, table=True))
    return query.sql("spark").replace(_FRAME, "{rows}")
