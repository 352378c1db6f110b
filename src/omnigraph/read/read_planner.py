"""Plan a read: choose the order in which its pattern is matched, and the variables that each step keeps.

A pattern is a set of conditions. Within a run of steps without an optional match, every order that binds
variables before they are used gives the same rows. The planner tries the variables with the fewest expected rows
as the start, continues greedily from each, and chooses the order with the lowest estimated cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.budget.deadline import check_deadline
from omnigraph.engine.projection.plan_projection import plan_projection
from omnigraph.lang import ir
from omnigraph.read.cost_model import Statistics
from omnigraph.read.plan import Duplicates, OptionalStep, PlanStep, ReadPlan
from omnigraph.read.references import pattern_variables, variables_of
from omnigraph.read.step_order import Run, best_order, bound_by

_WEIGHTED_FUNCTIONS = ("count", "sum", "avg", "min", "max")


def plan_read(query: ir.ReadQuery, statistics: Statistics) -> ReadPlan:
    """Plan a read."""
    needed = _used_by_projection(query)
    steps = _order_steps(query.pattern, frozenset(), needed, statistics)
    return ReadPlan(query, steps, _duplicates(query), *plan_projection(query))


def _duplicates(query: ir.ReadQuery) -> Duplicates:
    calls = [item.expr for item in query.outputs if isinstance(item.expr, ir.Aggregate)]
    if query.aggregated:
        if all(call.distinct or call.fn in ("min", "max") for call in calls):
            return "drop"
        return "count" if all(call.distinct or call.fn in _WEIGHTED_FUNCTIONS for call in calls) else "keep"
    return "drop" if query.distinct else "keep"


def _used_by_projection(query: ir.ReadQuery) -> frozenset[str]:
    nullable = {item.name for item in query.variables if item.nullable}
    used: set[str] = set()
    for output in query.outputs:
        expr = output.expr
        if (
            isinstance(expr, ir.Aggregate)
            and expr.fn == "count"
            and not expr.distinct
            and isinstance(expr.argument, ir.EntityRef)
            and expr.argument.variable not in nullable
        ):
            # A variable that is never null is counted once per row, whatever it is bound to.
            continue
        used |= variables_of(expr)
    for order in query.order:
        used |= variables_of(order.expr)
    if query.order and not query.aggregated and not query.distinct:
        # Ids of all variables break ties.
        used |= {item.name for item in query.variables}
    return frozenset(used)


def _order_steps(
    pattern: Sequence[ir.Step], bound: frozenset[str], needed: frozenset[str], statistics: Statistics
) -> tuple[PlanStep, ...]:
    """Plan a pattern whose outer variables are `bound`. `needed` are the variables used after it."""
    runs = _split_runs(pattern)
    needed_after = [needed]
    for run in reversed(runs[1:]):
        needed_after.append(needed_after[-1] | pattern_variables(tuple(run)))
    needed_after.reverse()
    planned: list[PlanStep] = []
    rows = 1.0
    for run, later in zip(runs, needed_after, strict=True):
        check_deadline()
        first = run[0]
        if isinstance(first, ir.OptionalMatch):
            planned.append(_plan_optional(first, bound, later, rows, statistics))
            bound |= set(first.introduces)
        else:
            best = best_order(Run.of(run, bound), bound, later, rows, statistics, _order_steps)
            planned += best.steps
            rows, bound = best.rows, frozenset(best.bound)
    return tuple(planned)


def _split_runs(pattern: Sequence[ir.Step]) -> list[list[ir.Step]]:
    """Split a pattern into runs of steps that may be reordered.

    An optional match is a run of its own. A variable that an anti-join binds internally is free again after it,
    so a later step that binds the same name starts a new run.
    """
    runs: list[list[ir.Step]] = []
    taken: set[str] = set()
    for step in pattern:
        alone = isinstance(step, ir.OptionalMatch)
        negated = isinstance(step, ir.AntiJoin)
        renewed = not negated and not taken.isdisjoint(bound_by(step))
        if alone or renewed or not runs or isinstance(runs[-1][0], ir.OptionalMatch):
            runs.append([step])
            taken = set()
        else:
            runs[-1].append(step)
        if negated:
            taken.update(bound_by(step))
    return runs


def _plan_optional(
    step: ir.OptionalMatch, bound: frozenset[str], needed: frozenset[str], rows: float, statistics: Statistics
) -> OptionalStep:
    inner = frozenset(step.introduces) & needed
    outer = tuple(sorted(pattern_variables(step.pattern) & bound))
    steps = _order_steps(step.pattern, bound, inner, statistics)
    matches = steps[-1].estimate if steps else 1.0
    return OptionalStep(steps, outer, step.introduces, needed, max(rows, rows * matches))
