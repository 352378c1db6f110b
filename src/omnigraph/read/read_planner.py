"""Plan a read: choose the order in which its pattern is matched, and the variables that each step keeps.

A pattern is a set of conditions. Within a run of steps without an optional match, every order that binds
variables before they are used gives the same rows. The planner tries the variables with the fewest expected rows
as the start, continues greedily from each, and chooses the order with the lowest estimated cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from omnigraph.engine.projection.plan_projection import plan_projection
from omnigraph.lang import ir
from omnigraph.read.cost_model import (
    ANTI_JOIN_SELECTIVITY,
    FLIPPED,
    Statistics,
    fan_out,
    scan_rows,
    selectivity,
)
from omnigraph.read.plan import (
    AntiJoinStep,
    Duplicates,
    ExpandStep,
    FilterStep,
    OptionalStep,
    PlanStep,
    ReadPlan,
    ScanStep,
)
from omnigraph.read.references import pattern_variables, variables_of

_MAX_STARTS = 8
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
        first = run[0]
        if isinstance(first, ir.OptionalMatch):
            planned.append(_plan_optional(first, bound, later, rows, statistics))
            bound |= set(first.introduces)
        else:
            best = _best_order(_Run.of(run, bound), bound, later, rows, statistics)
            planned += best.steps
            rows, bound = best.rows, best.bound
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
        renewed = not negated and not taken.isdisjoint(_bound_by(step))
        if alone or renewed or not runs or isinstance(runs[-1][0], ir.OptionalMatch):
            runs.append([step])
            taken = set()
        else:
            runs[-1].append(step)
        if negated:
            taken.update(_bound_by(step))
    return runs


def _plan_optional(
    step: ir.OptionalMatch, bound: frozenset[str], needed: frozenset[str], rows: float, statistics: Statistics
) -> OptionalStep:
    inner = frozenset(step.introduces) & needed
    outer = tuple(sorted(pattern_variables(step.pattern) & bound))
    steps = _order_steps(step.pattern, bound, inner, statistics)
    matches = steps[-1].estimate if steps else 1.0
    return OptionalStep(steps, outer, step.introduces, needed, max(rows, rows * matches))


def _bound_by(step: ir.Step) -> tuple[str, ...]:
    """Return every variable that a step binds, including anonymous ones and those of inner patterns."""
    match step:
        case ir.NodeScan():
            return () if step.bound else (step.variable,)
        case ir.Expand():
            edge = () if step.edge_variable is None else (step.edge_variable,)
            return edge if step.target_bound else (step.target, *edge)
        case ir.AntiJoin() | ir.OptionalMatch():
            return tuple(name for item in step.pattern for name in _bound_by(item))
        case ir.Filter():
            return ()


@dataclass(frozen=True, slots=True)
class _Run:
    """The steps of a run by kind. `own` holds the predicates on one unbound variable alone."""

    types: Mapping[str, str]
    own: Mapping[str, tuple[ir.Predicate, ...]]
    expands: tuple[ir.Expand, ...]
    filters: tuple[ir.Predicate, ...]
    negations: tuple[ir.AntiJoin, ...]

    @staticmethod
    def of(steps: Iterable[ir.Step], bound: frozenset[str]) -> _Run:
        types: dict[str, str] = {}
        own: dict[str, tuple[ir.Predicate, ...]] = {}
        expands: list[ir.Expand] = []
        filters: list[ir.Predicate] = []
        negations: list[ir.AntiJoin] = []
        for step in steps:
            match step:
                case ir.NodeScan():
                    types[step.variable] = step.type_name
                    own[step.variable] = own.get(step.variable, ()) + step.where
                    if step.variable in bound:
                        # An optional match may have left the variable null, and null is no node of any type.
                        entity = ir.EntityRef(step.variable, step.type_name)
                        own[step.variable] += (ir.IsNull(entity, negated=True),)
                case ir.Expand():
                    types.setdefault(step.target, step.target_type)
                    expands.append(step)
                case ir.Filter():
                    filters.append(step.predicate)
                case ir.AntiJoin():
                    negations.append(step)
                case ir.OptionalMatch():
                    raise AssertionError("an optional match is a run of its own")
        between: list[ir.Predicate] = []
        for predicate in filters:
            names = variables_of(predicate)
            only = next(iter(names)) if len(names) == 1 else None
            if only is not None and only in types and only not in bound:
                own[only] = (*own.get(only, ()), predicate)
            else:
                between.append(predicate)
        for name in list(own):
            # A variable that is bound before the run cannot be filtered while it is bound.
            if name in bound:
                between = [*own.pop(name), *between]
        return _Run(types, own, tuple(expands), tuple(between), tuple(negations))

    def scan_rows(self, name: str, statistics: Statistics) -> float:
        return scan_rows(self.types[name], self.own.get(name, ()), statistics)


def _best_order(
    run: _Run, bound: frozenset[str], needed: frozenset[str], rows: float, statistics: Statistics
) -> _Order:
    free = [name for name in run.types if name not in bound]
    ranked = sorted(free, key=lambda name: run.scan_rows(name, statistics))
    starts: list[str | None] = [*ranked[:_MAX_STARTS]]
    if bound or not starts:
        starts.append(None)
    orders = [_Order(run, bound, needed, rows, statistics).complete(start) for start in starts]
    return min(orders, key=lambda order: order.cost)


class _Order:
    """One order of the steps of a run, built step by step, with its estimated rows and cost."""

    def __init__(
        self, run: _Run, bound: frozenset[str], needed: frozenset[str], rows: float, statistics: Statistics
    ) -> None:
        self.steps: list[PlanStep] = []
        self.bound = bound
        self.rows = rows
        self.cost = 0.0
        self._run = run
        self._needed = needed
        self._statistics = statistics
        self._expands = list(run.expands)
        self._filters = list(run.filters)
        self._negations = list(run.negations)

    def complete(self, start: str | None) -> _Order:
        """Add all steps of the run, with a scan of `start` first, or an expansion if it is None."""
        self._add_filters()
        if start is not None:
            self._scan(start)
        while self._expands or set(self._run.types) - self.bound:
            reachable = [item for item in self._expands if {item.source, item.target} & self.bound]
            if reachable:
                self._expand(min(reachable, key=self._fan_out))
            else:
                free = sorted(set(self._run.types) - self.bound)
                self._scan(min(free, key=lambda name: self._run.scan_rows(name, self._statistics)))
        if self._filters or self._negations:
            # The plan would return rows that do not match.
            raise AssertionError(f"the plan leaves out {[*self._filters, *self._negations]}")
        return self

    def _scan(self, name: str) -> None:
        self.rows *= self._run.scan_rows(name, self._statistics)
        self.cost += self.rows
        self.bound |= {name}
        where = self._run.own.get(name, ())
        self.steps.append(ScanStep(name, self._run.types[name], where, self._keep(), self.rows))
        self._add_filters()

    def _expand(self, expand: ir.Expand) -> None:
        self._expands.remove(expand)
        fan = self._fan_out(expand)
        where: tuple[ir.Predicate, ...] = ()
        if expand.source in self.bound and expand.target in self.bound:
            step = replace(expand, target_bound=True)
        else:
            step = replace(expand, target_bound=False)
            if expand.source not in self.bound:
                step = replace(
                    step,
                    source=expand.target,
                    target=expand.source,
                    target_type=self._run.types[expand.source],
                    direction=FLIPPED[expand.direction],
                )
            where = self._run.own.get(step.target, ())
        before = self.rows
        self.rows *= fan
        edge = frozenset() if step.edge_variable is None else frozenset({step.edge_variable})
        self.bound |= {step.source, step.target} | edge
        keep = self._keep()
        # A target that is not used again is counted without materializing rows.
        self.cost += before if step.target not in keep and not where else before + self.rows
        self.steps.append(ExpandStep(step, where, keep, self.rows))
        self._add_filters()

    def _fan_out(self, expand: ir.Expand) -> float:
        return fan_out(expand, self.bound, self._run.types, self._run.own, self._statistics)

    def _add_filters(self) -> None:
        """Add the filters and anti-joins whose outer variables are all bound."""
        ready = [item for item in self._filters if variables_of(item) <= self.bound]
        if ready:
            self._filters = [item for item in self._filters if item not in ready]
            self.rows *= selectivity(ready)
            self.steps.append(FilterStep(tuple(ready), self._keep(), self.rows))
        for negation in list(self._negations):
            outer = pattern_variables(negation.pattern) - set(_bound_by(negation))
            if outer <= self.bound:
                self._negations.remove(negation)
                steps = _order_steps(negation.pattern, self.bound, frozenset(), self._statistics)
                self.rows *= ANTI_JOIN_SELECTIVITY
                self.cost += self.rows
                self.steps.append(AntiJoinStep(steps, tuple(sorted(outer)), self._keep(), self.rows))

    def _keep(self) -> frozenset[str]:
        """Return the bound variables that the remaining steps, or what follows the run, use."""
        needed = set(self._needed)
        for expand in self._expands:
            needed |= {expand.source, expand.target}
        for predicate in self._filters:
            needed |= variables_of(predicate)
        for negation in self._negations:
            needed |= pattern_variables(negation.pattern)
        return frozenset(needed) & self.bound
