"""What comes after the pattern of a query as a `Tail`, with a column for each expression that it looks at."""

from __future__ import annotations

from dataclasses import dataclass, field

from omnigraph.catalog.columns import arrow_type
from omnigraph.engine.projection.projection import Fold, Key, Projected, Tail, Take
from omnigraph.lang import ir


@dataclass
class Columns:
    """The expressions that a tail takes its columns from, each once, by position."""

    exprs: list[ir.Expr] = field(default_factory=list)

    def of(self, expr: ir.Expr) -> int:
        """The position of an expression."""
        if expr not in self.exprs:
            self.exprs.append(expr)
        return self.exprs.index(expr)


def plan_tail(query: ir.ReadQuery) -> tuple[Tail, tuple[ir.Expr, ...]]:
    """The tail of a query, and the expressions of its input columns in their order.

    Rows that a ranking in the order does not have must be gone before. Without an order any rows may be the ones
    that a limit leaves.
    """
    columns = Columns()
    outputs = tuple(
        Projected(item.name, arrow_type(item.type), _value(query, item.expr, columns))
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
    tail = Tail(
        outputs,
        grouped=query.aggregated,
        distinct=query.distinct,
        order=tuple(_key(query, item, columns) for item in query.order),
        ties=ties,
        skip=query.skip or 0,
        limit=query.limit,
    )
    return tail, tuple(columns.exprs)


def is_descending(rank: ir.Rank) -> bool:
    """Whether the best score is the highest one."""
    return not isinstance(rank, ir.Nearest)


def _value(query: ir.ReadQuery, expr: ir.Expr, columns: Columns) -> Take | Fold:
    if not isinstance(expr, ir.Aggregate):
        return Take(columns.of(expr))
    argument = expr.argument
    if expr.fn == "count" and not expr.distinct and isinstance(argument, ir.EntityRef):
        nullable = next(item.nullable for item in query.variables if item.name == argument.variable)
        if not nullable:
            return Fold("count")
    return Fold(expr.fn, columns.of(argument), expr.distinct)


def _key(query: ir.ReadQuery, item: ir.Order, columns: Columns) -> Key:
    expr = item.expr
    if isinstance(expr, ir.OutputRef):
        place = next(place for place, output in enumerate(query.outputs) if output.name == expr.name)
        if query.aggregated or query.distinct:
            return Key(place, item.descending, of_output=True)
        expr = query.outputs[place].expr
    if isinstance(item.expr, ir.Rank):
        return Key(columns.of(expr), is_descending(item.expr))
    return Key(columns.of(expr), item.descending)
