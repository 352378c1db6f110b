"""Plan the projection of a query, with one input column for each expression it uses."""

from __future__ import annotations

from dataclasses import dataclass, field

from omnigraph.catalog.columns import arrow_type
from omnigraph.engine.projection.projection_plan import (
    AggregateCall,
    InputRef,
    OutputColumn,
    ProjectionPlan,
    SortKey,
)
from omnigraph.lang import ir


@dataclass
class Columns:
    """The distinct expressions of the input columns, by position."""

    positions: dict[ir.Expr, int] = field(default_factory=dict)

    @property
    def exprs(self) -> tuple[ir.Expr, ...]:
        """The expressions in the order of their positions."""
        return tuple(self.positions)

    def of(self, expr: ir.Expr) -> int:
        """Return the position of an expression; add it if it is new."""
        return self.positions.setdefault(expr, len(self.positions))


def plan_projection(query: ir.ReadQuery) -> tuple[ProjectionPlan, tuple[ir.Expr, ...]]:
    """Return the projection of a query, and the expressions of its input columns by position.

    The caller must first remove rows that a ranking in the order does not contain. Without an order, a limit may
    keep any rows.
    """
    columns = Columns()
    outputs = tuple(
        OutputColumn(item.name, arrow_type(item.type), _value(query, item.expr, columns))
        for item in query.outputs
    )
    folded = query.aggregated or query.distinct
    ties = (
        ()
        if folded or not query.order
        else tuple(
            columns.of(ir.EntityRef(item.name, item.type_name))
            for item in sorted(query.variables, key=lambda item: item.name)
        )
    )
    projection = ProjectionPlan(
        outputs,
        grouped=query.aggregated,
        distinct=query.distinct,
        order=tuple(_key(query, item, columns) for item in query.order),
        ties=ties,
        skip=query.skip or 0,
        limit=query.limit,
    )
    return projection, tuple(columns.exprs)


def is_descending(rank: ir.Rank) -> bool:
    """Return whether the best score of a ranking is the highest one."""
    return not isinstance(rank, ir.Nearest)


def _value(query: ir.ReadQuery, expr: ir.Expr, columns: Columns) -> InputRef | AggregateCall:
    if not isinstance(expr, ir.Aggregate):
        return InputRef(columns.of(expr))
    argument = expr.argument
    if expr.fn == "count" and not expr.distinct and isinstance(argument, ir.EntityRef):
        nullable = next(item.nullable for item in query.variables if item.name == argument.variable)
        if not nullable:
            return AggregateCall("count")
    return AggregateCall(expr.fn, columns.of(argument), expr.distinct)


def _key(query: ir.ReadQuery, item: ir.Order, columns: Columns) -> SortKey:
    expr = item.expr
    if isinstance(expr, ir.OutputRef):
        place = next(place for place, output in enumerate(query.outputs) if output.name == expr.name)
        if query.aggregated or query.distinct:
            return SortKey(place, item.descending, of_output=True)
        expr = query.outputs[place].expr
    if isinstance(item.expr, ir.Rank):
        return SortKey(columns.of(expr), is_descending(item.expr))
    return SortKey(columns.of(expr), item.descending)
