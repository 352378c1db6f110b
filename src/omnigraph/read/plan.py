"""The order in which a pattern is matched, and what each step may forget.

A pattern is a bag of conditions: within a run of steps without an optional part any order that binds variables
before they are used gives the same rows. The order that keeps the intermediate rows few is found by trying every
variable as the start and going on greedily, with sizes of tables and rough selectivities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

from omnigraph.lang import ir
from omnigraph.read.references import pattern_variables, variables_of

# What the rows are for: each of them, their number, or only which there are.
Purpose: TypeAlias = Literal["rows", "counts", "set"]

_SELECTIVITY = {"equal": 0.05, "range": 0.33, "other": 0.5}
_MAX_STARTS = 8
_FLIPPED: dict[ir.Direction, ir.Direction] = {"out": "in", "in": "out", "both": "both"}


class Sizes(Protocol):
    """How large things are, as far as an order of steps depends on it."""

    def nodes(self, type_name: str) -> int:
        """How many nodes a type has."""
        ...

    def edges(self, edge_type: str) -> int:
        """How many edges a type has."""
        ...

    def near_nodes(self, edge_type: str, direction: ir.Direction) -> int:
        """How many nodes there are at the end that an expansion in this direction starts from."""
        ...

    def is_key(self, type_name: str, properties: frozenset[str]) -> bool:
        """Whether values of these properties identify a node."""
        ...


@dataclass(frozen=True, slots=True)
class Scan:
    """Bind a variable to the nodes of a type that satisfy `where`, for every row so far."""

    variable: str
    type_name: str
    where: tuple[ir.Predicate, ...]
    keep: frozenset[str]
    estimate: float


@dataclass(frozen=True, slots=True)
class Walk:
    """Follow an edge type; `where` is what the target has to satisfy by itself."""

    expand: ir.Expand
    where: tuple[ir.Predicate, ...]
    keep: frozenset[str]
    estimate: float


@dataclass(frozen=True, slots=True)
class Check:
    """Keep the rows that satisfy all of the predicates."""

    predicates: tuple[ir.Predicate, ...]
    keep: frozenset[str]
    estimate: float


@dataclass(frozen=True, slots=True)
class Without:
    """Keep the rows for which the pattern has no match; `outer` are the variables it takes from them."""

    steps: tuple[PlannedStep, ...]
    outer: tuple[str, ...]
    keep: frozenset[str]
    estimate: float


@dataclass(frozen=True, slots=True)
class Maybe:
    """Extend each row by the matches of the pattern, or by nulls."""

    steps: tuple[PlannedStep, ...]
    outer: tuple[str, ...]
    introduces: tuple[str, ...]
    keep: frozenset[str]
    estimate: float


PlannedStep: TypeAlias = Scan | Walk | Check | Without | Maybe


@dataclass(frozen=True, slots=True)
class Plan:
    """How a read is run."""

    query: ir.ReadQuery
    steps: tuple[PlannedStep, ...]
    purpose: Purpose


def plan_read(query: ir.ReadQuery, sizes: Sizes) -> Plan:
    """Choose how to run a read."""
    purpose = _purpose(query)
    needed = _needed_by_projection(query)
    steps = _order_steps(query.pattern, frozenset(), needed, sizes)
    return Plan(query, steps, purpose)


def _purpose(query: ir.ReadQuery) -> Purpose:
    folds = [item.expr for item in query.outputs if isinstance(item.expr, ir.Aggregate)]
    if query.aggregated:
        if all(fold.distinct or fold.fn in ("min", "max") for fold in folds):
            return "set"
        weighable = all(fold.fn in ("count", "sum", "avg", "min", "max") or fold.distinct for fold in folds)
        return "counts" if weighable else "rows"
    return "set" if query.distinct else "rows"


def _needed_by_projection(query: ir.ReadQuery) -> frozenset[str]:
    nullable = {item.name for item in query.variables if item.nullable}
    found: set[str] = set()
    for output in query.outputs:
        expr = output.expr
        if (
            isinstance(expr, ir.Aggregate)
            and expr.fn == "count"
            and not expr.distinct
            and isinstance(expr.argument, ir.EntityRef)
            and expr.argument.variable not in nullable
        ):
            # Every row counts, whatever it is bound to.
            continue
        found |= variables_of(expr)
    for order in query.order:
        found |= variables_of(order.expr)
    if query.order and not query.aggregated and not query.distinct:
        found |= {item.name for item in query.variables}
    return frozenset(found)


# --- order -------------------------------------------------------------------------------------------------


def _order_steps(
    pattern: Sequence[ir.Step], bound: frozenset[str], needed: frozenset[str], sizes: Sizes
) -> tuple[PlannedStep, ...]:
    """Plan a pattern whose outer variables are `bound`; `needed` are wanted after it."""
    runs = _runs(pattern)
    after = [needed]
    for run in reversed(runs[1:]):
        after.append(after[-1] | pattern_variables(tuple(run)))
    after.reverse()
    planned: list[PlannedStep] = []
    rows = 1.0
    for run, wanted in zip(runs, after, strict=True):
        first = run[0]
        if isinstance(first, ir.OptionalMatch):
            planned.append(_plan_optional(first, bound, wanted, rows, sizes))
            bound |= set(first.introduces)
        else:
            steps, rows, bound = _best_order(_Run.of(run, bound), bound, wanted, rows, sizes)
            planned += steps
    return tuple(planned)


def _runs(pattern: Sequence[ir.Step]) -> list[list[ir.Step]]:
    """Steps that may change places with each other.

    An optional part stands alone. A name that a negation has for itself is free again after it, so a step that
    binds the same name to something else stays behind the negation.
    """
    runs: list[list[ir.Step]] = []
    taken: set[str] = set()
    for step in pattern:
        alone = isinstance(step, ir.OptionalMatch)
        negated = isinstance(step, ir.AntiJoin)
        renewed = not negated and not taken.isdisjoint(_binds(step))
        if alone or renewed or not runs or isinstance(runs[-1][0], ir.OptionalMatch):
            runs.append([step])
            taken = set()
        else:
            runs[-1].append(step)
        if negated:
            taken.update(_binds(step))
    return runs


def _plan_optional(
    step: ir.OptionalMatch, bound: frozenset[str], wanted: frozenset[str], rows: float, sizes: Sizes
) -> Maybe:
    inner = frozenset(step.introduces) & wanted
    outer = tuple(sorted(pattern_variables(step.pattern) & bound))
    steps = _order_steps(step.pattern, bound, inner, sizes)
    return Maybe(steps, outer, step.introduces, wanted, max(rows, rows * _last_estimate(steps)))


def _last_estimate(steps: tuple[PlannedStep, ...]) -> float:
    return steps[-1].estimate if steps else 1.0


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of steps taken apart."""

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
                        # An optional part may have left it null, and a null is no node of any type.
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
                    raise AssertionError("an optional part stands alone")
        between: list[ir.Predicate] = []
        for predicate in filters:
            names = variables_of(predicate)
            only = next(iter(names)) if len(names) == 1 else None
            if only is not None and only in types and only not in bound:
                own[only] = (*own.get(only, ()), predicate)
            else:
                between.append(predicate)
        for name in list(own):
            # A variable from outside is bound before this run begins: what it has to satisfy is a check.
            if name in bound:
                between = [*own.pop(name), *between]
        return _Run(types, own, tuple(expands), tuple(between), tuple(negations))


@dataclass
class _Order:
    """An order in the making."""

    steps: list[PlannedStep]
    bound: frozenset[str]
    rows: float
    cost: float


def _best_order(
    run: _Run, bound: frozenset[str], wanted: frozenset[str], rows: float, sizes: Sizes
) -> tuple[list[PlannedStep], float, frozenset[str]]:
    free = [name for name in run.types if name not in bound]
    ranked = sorted(free, key=lambda name: _scan_rows(run, name, sizes))
    starts: list[str | None] = [*ranked[:_MAX_STARTS]]
    if bound or not starts:
        starts.append(None)
    orders = [_follow(run, start, bound, wanted, rows, sizes) for start in starts]
    best = min(orders, key=lambda order: order.cost)
    return best.steps, best.rows, best.bound


def _follow(
    run: _Run, start: str | None, bound: frozenset[str], wanted: frozenset[str], rows: float, sizes: Sizes
) -> _Order:
    order = _Order([], bound, rows, 0.0)
    expands = list(run.expands)
    filters = list(run.filters)
    negations = list(run.negations)

    def rest() -> frozenset[str]:
        """What is needed from here on."""
        found = set(wanted)
        for expand in expands:
            found |= {expand.source, expand.target}
        for predicate in filters:
            found |= variables_of(predicate)
        for negation in negations:
            found |= pattern_variables(negation.pattern)
        return frozenset(found)

    def settle() -> None:
        """Apply everything that only looks at what is bound."""
        ready = [item for item in filters if variables_of(item) <= order.bound]
        if ready:
            filters[:] = [item for item in filters if item not in ready]
            order.rows *= _selectivity(ready)
            order.steps.append(Check(tuple(ready), rest() & order.bound, order.rows))
        for negation in list(negations):
            outer = pattern_variables(negation.pattern) - set(_binds(negation))
            if outer <= order.bound:
                negations.remove(negation)
                steps = _order_steps(negation.pattern, order.bound, frozenset(), sizes)
                order.rows *= _SELECTIVITY["other"]
                order.cost += order.rows
                used = tuple(sorted(outer))
                order.steps.append(Without(steps, used, rest() & order.bound, order.rows))

    settle()
    if start is not None:
        _scan(run, order, start, sizes, rest)
        settle()
    while expands or set(run.types) - order.bound:
        nearest = [item for item in expands if {item.source, item.target} & order.bound]
        if nearest:
            chosen = min(nearest, key=lambda item: _fan(run, item, order.bound, sizes))
            expands.remove(chosen)
            _walk(run, order, chosen, sizes, rest)
        else:
            free = sorted(set(run.types) - order.bound)
            _scan(run, order, min(free, key=lambda name: _scan_rows(run, name, sizes)), sizes, rest)
        settle()
    if filters or negations:
        # Without them there would be rows that do not belong to the answer.
        raise AssertionError(f"the plan leaves out {[*filters, *negations]}")
    return order


def _binds(step: ir.Step) -> tuple[str, ...]:
    """Every variable that a step binds itself, the anonymous ones and those of inner patterns included."""
    match step:
        case ir.NodeScan():
            return () if step.bound else (step.variable,)
        case ir.Expand():
            edge = () if step.edge_variable is None else (step.edge_variable,)
            return edge if step.target_bound else (step.target, *edge)
        case ir.AntiJoin() | ir.OptionalMatch():
            return tuple(name for item in step.pattern for name in _binds(item))
        case ir.Filter():
            return ()


class _Rest(Protocol):
    def __call__(self) -> frozenset[str]: ...


def _scan(run: _Run, order: _Order, name: str, sizes: Sizes, rest: _Rest) -> None:
    order.rows *= _scan_rows(run, name, sizes)
    order.cost += order.rows
    order.bound |= {name}
    where = run.own.get(name, ())
    order.steps.append(Scan(name, run.types[name], where, rest() & order.bound, order.rows))


def _walk(run: _Run, order: _Order, expand: ir.Expand, sizes: Sizes, rest: _Rest) -> None:
    fan = _fan(run, expand, order.bound, sizes)
    both = expand.source in order.bound and expand.target in order.bound
    where: tuple[ir.Predicate, ...] = ()
    if both:
        step = replace(expand, target_bound=True)
    else:
        step = replace(expand, target_bound=False)
        if expand.source not in order.bound:
            step = replace(
                step,
                source=expand.target,
                target=expand.source,
                target_type=run.types[expand.source],
                direction=_FLIPPED[expand.direction],
            )
        where = run.own.get(step.target, ())
    before = order.rows
    order.rows *= fan
    edge = frozenset() if step.edge_variable is None else frozenset({step.edge_variable})
    order.bound |= {step.source, step.target} | edge
    keep = rest() & order.bound
    # A target that nobody looks at again is counted, not visited.
    order.cost += before if step.target not in keep and not where else before + order.rows
    order.steps.append(Walk(step, where, keep, order.rows))


def _scan_rows(run: _Run, name: str, sizes: Sizes) -> float:
    rows = float(sizes.nodes(run.types[name]))
    where = run.own.get(name, ())
    equal = frozenset(
        side.property
        for item in where
        if isinstance(item, ir.Compare) and item.op == "="
        for side in (item.left, item.right)
        if isinstance(side, ir.PropertyRef)
    )
    if equal and sizes.is_key(run.types[name], equal):
        return 1.0
    return max(1.0, rows * _selectivity(where))


def _fan(run: _Run, expand: ir.Expand, bound: frozenset[str], sizes: Sizes) -> float:
    """How many rows come of one."""
    outward = expand.source in bound
    direction = expand.direction if outward else _FLIPPED[expand.direction]
    near = max(1, sizes.near_nodes(expand.edge_type, direction))
    degree = sizes.edges(expand.edge_type) / near
    if direction == "both":
        degree *= 2
    target = expand.target if outward else expand.source
    nodes = max(1.0, float(sizes.nodes(run.types.get(target, expand.target_type))))
    reached = sum(degree**hop for hop in range(expand.min, min(expand.max, expand.min + 8) + 1))
    fan = min(reached, nodes) if expand.edge_variable is None else degree
    if expand.source in bound and expand.target in bound:
        return min(1.0, fan / nodes)
    return fan * max(1.0 / nodes, _scan_rows(run, target, sizes) / nodes if target in run.types else 1.0)


def _selectivity(predicates: Sequence[ir.Predicate]) -> float:
    found = 1.0
    for item in predicates:
        kind = "other"
        if isinstance(item, ir.Compare):
            kind = "equal" if item.op == "=" else "other" if item.op == "!=" else "range"
        found *= _SELECTIVITY[kind]
    return found
