"""The plan of a read: the ordered steps that match its pattern."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from omnigraph.engine.projection.projection_plan import ProjectionPlan
from omnigraph.lang import ir

# What matching does with equal rows: keep each of them, count them, or drop all but one.
Duplicates: TypeAlias = Literal["keep", "count", "drop"]


@dataclass(frozen=True, slots=True)
class ScanStep:
    """Bind a variable to the nodes of a type that satisfy `where`, for every row so far.

    As in all steps, `keep` holds the variables that later steps or the projection use, and `estimate` is the
    expected number of rows after the step.
    """

    variable: str
    type_name: str
    where: tuple[ir.Predicate, ...]
    keep: frozenset[str]
    estimate: float


@dataclass(frozen=True, slots=True)
class ExpandStep:
    """Follow an edge type. `where` holds the predicates on the target alone."""

    expand: ir.Expand
    where: tuple[ir.Predicate, ...]
    keep: frozenset[str]
    estimate: float


@dataclass(frozen=True, slots=True)
class FilterStep:
    """Keep the rows that satisfy all predicates."""

    predicates: tuple[ir.Predicate, ...]
    keep: frozenset[str]
    estimate: float


@dataclass(frozen=True, slots=True)
class AntiJoinStep:
    """Keep the rows for which the inner pattern has no match. `outer` are the variables it shares with them."""

    steps: tuple[PlanStep, ...]
    outer: tuple[str, ...]
    keep: frozenset[str]
    estimate: float


@dataclass(frozen=True, slots=True)
class OptionalStep:
    """Extend each row by the matches of the inner pattern, or by nulls if there are none (left join)."""

    steps: tuple[PlanStep, ...]
    outer: tuple[str, ...]
    introduces: tuple[str, ...]
    keep: frozenset[str]
    estimate: float


PlanStep: TypeAlias = ScanStep | ExpandStep | FilterStep | AntiJoinStep | OptionalStep


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The steps of a read, what they do with equal rows, and the projection of the matched rows.

    `inputs` are the expressions of the projection's input columns, by position.
    """

    query: ir.ReadQuery
    steps: tuple[PlanStep, ...]
    duplicates: Duplicates
    projection: ProjectionPlan
    inputs: tuple[ir.Expr, ...]


def materializes_rows(step: ExpandStep) -> bool:
    """Return whether an expansion must produce its new bindings; otherwise their number is enough."""
    expand = step.expand
    return bool(step.where) or expand.target in step.keep or expand.edge_variable in step.keep
