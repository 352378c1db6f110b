"""The order of the steps of one run of a pattern.

An order is built greedily: after each step the reachable expansion with the smallest fan-out is next. The state is
updated for the variables that a step binds, so the time is near-linear in the number of steps.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from omnigraph.budget.deadline import check_deadline
from omnigraph.lang import ir
from omnigraph.read.cost_model import (
    ANTI_JOIN_SELECTIVITY,
    FLIPPED,
    Statistics,
    fan_out,
    scan_rows,
    selectivity,
)
from omnigraph.read.plan import AntiJoinStep, ExpandStep, FilterStep, PlanStep, ScanStep
from omnigraph.read.references import pattern_variables, variables_of

# Starts that are tried. Of a run with many steps, only the most selective one is.
_MAX_STARTS = 8
_MANY_STEPS = 100

# Plans a pattern whose outer variables are bound, with the variables that are used after it.
PlanPattern: TypeAlias = Callable[
    [Sequence[ir.Step], frozenset[str], frozenset[str], Statistics], tuple[PlanStep, ...]
]


def bound_by(step: ir.Step) -> tuple[str, ...]:
    """Return every variable that a step binds, including anonymous ones and those of inner patterns."""
    match step:
        case ir.NodeScan():
            return () if step.bound else (step.variable,)
        case ir.Expand():
            edge = () if step.edge_variable is None else (step.edge_variable,)
            return edge if step.target_bound else (step.target, *edge)
        case ir.AntiJoin() | ir.OptionalMatch():
            return tuple(name for item in step.pattern for name in bound_by(item))
        case ir.Filter():
            return ()


@dataclass(frozen=True)
class Run:
    """The steps of a run by kind. `own` holds the predicates on one unbound variable alone."""

    types: Mapping[str, str]
    own: Mapping[str, tuple[ir.Predicate, ...]]
    expands: tuple[ir.Expand, ...]
    filters: tuple[ir.Predicate, ...]
    negations: tuple[ir.AntiJoin, ...]

    @staticmethod
    def of(steps: Iterable[ir.Step], bound: frozenset[str]) -> Run:
        """Sort the steps of a run by kind. `bound` are the variables that are bound before it."""
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
        return Run(types, own, tuple(expands), tuple(between), tuple(negations))

    @cached_property
    def incident(self) -> Mapping[str, list[int]]:
        """The expansions of each variable, by number."""
        found: dict[str, list[int]] = {}
        for number, expand in enumerate(self.expands):
            for name in dict.fromkeys((expand.source, expand.target)):
                found.setdefault(name, []).append(number)
        return found

    @cached_property
    def conditions(self) -> tuple[tuple[frozenset[str], frozenset[str]], ...]:
        """For each filter, then each anti-join: the variables that it needs, and all of its variables."""
        filters = [(names, names) for names in map(variables_of, self.filters)]
        negations = [
            (names - frozenset(bound_by(item)), names)
            for item in self.negations
            for names in (pattern_variables(item.pattern),)
        ]
        return (*filters, *negations)

    @cached_property
    def awaited(self) -> Mapping[str, list[int]]:
        """The conditions that need each variable, by number."""
        found: dict[str, list[int]] = {}
        for number, (outer, _) in enumerate(self.conditions):
            for name in outer:
                found.setdefault(name, []).append(number)
        return found

    @cached_property
    def uses(self) -> Counter[str]:
        """How many expansions and conditions use each variable."""
        found: Counter[str] = Counter()
        for expand in self.expands:
            found.update({expand.source, expand.target})
        for _, names in self.conditions:
            found.update(names)
        return found

    def ranked(self, statistics: Statistics) -> list[tuple[float, str]]:
        """Return the variables by the rows of their scans, in the order of the pattern if these are equal."""
        rows = (
            (scan_rows(type_, self.own.get(name, ()), statistics), name) for name, type_ in self.types.items()
        )
        return sorted(rows, key=lambda item: item[0])


def best_order(
    run: Run,
    bound: frozenset[str],
    needed: frozenset[str],
    rows: float,
    statistics: Statistics,
    plan_pattern: PlanPattern,
) -> Order:
    """Return the cheapest of the orders that start with one of the most selective variables."""
    ranked = run.ranked(statistics)
    count = _MAX_STARTS if len(run.types) + len(run.expands) <= _MANY_STEPS else 1
    free = [name for _, name in ranked if name not in bound]
    starts: list[str | None] = [*free[:count]]
    if bound or not starts:
        starts.append(None)
    orders = [
        Order(run, bound, needed, rows, statistics, ranked, plan_pattern).complete(start) for start in starts
    ]
    return min(orders, key=lambda order: order.cost)


class Order:
    """One order of the steps of a run, built step by step, with its estimated rows and cost."""

    def __init__(
        self,
        run: Run,
        bound: frozenset[str],
        needed: frozenset[str],
        rows: float,
        statistics: Statistics,
        ranked: Sequence[tuple[float, str]],
        plan_pattern: PlanPattern,
    ) -> None:
        self.steps: list[PlanStep] = []
        self.bound = set(bound)
        self.rows = rows
        self.cost = 0.0
        self._run = run
        self._needed = needed
        self._statistics = statistics
        self._plan_pattern = plan_pattern
        self._scan_rows = {name: estimate for estimate, name in ranked}
        # The unbound variables, the most selective last.
        self._free = [name for _, name in sorted(ranked, reverse=True)]
        self._uses = Counter(run.uses)
        # Bound variables that later steps use.
        self._kept = {*(needed & bound), *(name for name in self._uses if name in bound)}
        # Reachable expansions by fan-out. An entry is outdated if `_fans` has another value.
        self._reachable: list[tuple[float, int]] = []
        self._fans: dict[int, float] = {}
        self._left = len(run.expands)
        self._added: set[int] = set()
        # The number of unbound variables that each condition needs, and the conditions that need no more.
        self._missing = [len(outer - self.bound) for outer, _ in run.conditions]
        self._ready = [number for number, count in enumerate(self._missing) if not count]
        self._pending = len(run.conditions)
        for name in run.incident:
            if name in self.bound:
                self._reach(name)

    def complete(self, start: str | None) -> Order:
        """Add all steps of the run, with a scan of `start` first, or an expansion if it is None."""
        self._add_conditions()
        if start is not None:
            self._scan(start)
        while True:
            check_deadline()
            number = self._next_expand()
            if number is not None:
                end = self._other_end(number)
                if end is not None:
                    self._scan(end)
                self._expand(number)
            elif (name := self._next_free()) is not None:
                self._scan(name)
            else:
                break
        if self._left or self._pending:
            # The plan would return rows that do not match.
            raise AssertionError(f"the plan leaves out {self._left} expansions, {self._pending} conditions")
        return self

    def _next_expand(self) -> int | None:
        while self._reachable:
            fan, number = heapq.heappop(self._reachable)
            if self._fans.get(number) == fan:
                return number
        return None

    def _other_end(self, number: int) -> str | None:
        """Return the unbound end of an expansion if it is one node, and the edge between two nodes is looked up."""
        expand = self._run.expands[number]
        end = expand.target if expand.source in self.bound else expand.source
        if end in self.bound or expand.max > 1 or not self._statistics.has_pair_key(expand.edge_type):
            return None
        return end if self._scan_rows.get(end, math.inf) <= 1 else None

    def _next_free(self) -> str | None:
        while self._free:
            name = self._free.pop()
            if name not in self.bound:
                return name
        return None

    def _scan(self, name: str) -> None:
        self.rows *= self._scan_rows[name]
        self.cost += self.rows
        self._bind(name)
        where = self._run.own.get(name, ())
        self.steps.append(ScanStep(name, self._run.types[name], where, frozenset(self._kept), self.rows))
        self._add_conditions()

    def _expand(self, number: int) -> None:
        expand = self._run.expands[number]
        fan = self._fans.pop(number)
        self._left -= 1
        self._added.add(number)
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
        self._release({expand.source, expand.target})
        self._bind(step.source, step.target, *(() if step.edge_variable is None else (step.edge_variable,)))
        keep = frozenset(self._kept)
        # A target that is not used again is counted without materializing rows.
        self.cost += before if step.target not in keep and not where else before + self.rows
        self.steps.append(ExpandStep(step, where, keep, self.rows))
        self._add_conditions()

    def _bind(self, *names: str) -> None:
        """Bind variables: expansions from them become reachable, and conditions may become ready."""
        new = [name for name in dict.fromkeys(names) if name not in self.bound]
        self.bound.update(new)
        for name in new:
            if name in self._needed or self._uses[name]:
                self._kept.add(name)
            self._reach(name)
            for number in self._run.awaited.get(name, ()):
                self._missing[number] -= 1
                if not self._missing[number]:
                    self._ready.append(number)

    def _reach(self, name: str) -> None:
        for number in self._run.incident.get(name, ()):
            if number in self._added:
                continue
            expand = self._run.expands[number]
            fan = fan_out(expand, self.bound, self._run.types, self._run.own, self._statistics)
            self._fans[number] = fan
            heapq.heappush(self._reachable, (fan, number))

    def _release(self, names: Iterable[str]) -> None:
        """Count a use of variables as done. A variable without further uses is not kept."""
        for name in names:
            self._uses[name] -= 1
            if not self._uses[name] and name not in self._needed:
                self._kept.discard(name)

    def _add_conditions(self) -> None:
        """Add the filters and anti-joins whose outer variables are all bound."""
        ready, self._ready = sorted(self._ready), []
        if not ready:
            return
        self._pending -= len(ready)
        count = len(self._run.filters)
        filters = [number for number in ready if number < count]
        for number in filters:
            self._release(self._run.conditions[number][1])
        if filters:
            predicates = tuple(self._run.filters[number] for number in filters)
            self.rows *= selectivity(predicates)
            self.steps.append(FilterStep(predicates, frozenset(self._kept), self.rows))
        for number in ready[len(filters) :]:
            outer, names = self._run.conditions[number]
            self._release(names)
            pattern = self._run.negations[number - count].pattern
            steps = self._plan_pattern(pattern, frozenset(self.bound), frozenset(), self._statistics)
            self.rows *= ANTI_JOIN_SELECTIVITY
            self.cost += self.rows
            self.steps.append(AntiJoinStep(steps, tuple(sorted(outer)), frozenset(self._kept), self.rows))
