"""Invariants of the IR of every checked query."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.lang import ir
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.lint_rules import describe_operation
from tests.golden.ir_rendering import render_ir


def assert_lawful(query: ast.Query, checked: ir.CheckedQuery) -> None:
    """Assert that the IR contains every construct of the query and holds its invariants."""
    assert checked.name == query.name
    assert len(checked.params) == len(query.params)
    assert render_ir(checked).endswith("\n")
    assert set(describe_operation(checked)) == {"result", "reads", "writes"}
    if isinstance(checked, ir.MutationQuery):
        assert isinstance(query.body, ast.MutationBody)
        assert len(checked.statements) == len(query.body.statements)
        return
    assert isinstance(query.body, ast.ReadBody)
    every = [item for item in query.body.projections if isinstance(item.expr, ast.AllProperties)]
    named = [item.alias for item in every if item.alias is not None]
    assert list(dict.fromkeys(item.entity.name for item in checked.outputs if item.entity)) == named
    if not every:
        assert len(checked.outputs) == len(query.body.projections)
    assert len({output.name for output in checked.outputs}) == len(checked.outputs)
    assert len(checked.order) == len(query.body.order)
    assert _pattern(checked.pattern, set()) >= {item.name for item in checked.variables}
    _same_size(query.body.clauses, checked.pattern)


def _same_size(clauses: tuple[ast.Clause, ...], pattern: tuple[ir.Step, ...]) -> None:
    """Assert one step per clause; a traversal without bound variables adds an implicit scan."""
    steps = [step for step in pattern if not (isinstance(step, ir.NodeScan) and step.implicit)]
    assert len(steps) == len(clauses)
    for clause, step in zip(clauses, steps, strict=True):
        if isinstance(step, ir.AntiJoin | ir.OptionalMatch):
            assert isinstance(clause, ast.Negation | ast.Optional)
            _same_size(clause.clauses, step.pattern)


def _pattern(steps: tuple[ir.Step, ...], outer: set[str]) -> set[str]:
    """Return the names bound after the steps; assert that earlier steps bind the inputs of every step."""
    bound = set(outer)
    for step in steps:
        match step:
            case ir.NodeScan():
                assert (step.variable in bound) == step.bound
                bound.add(step.variable)
                _uses(step.where, bound)
            case ir.Expand():
                assert step.source in bound
                assert (step.target in bound) == step.target_bound
                assert 1 <= step.min <= step.max
                bound.add(step.target)
                if step.edge_variable is not None:
                    assert step.edge_variable not in bound
                    assert (step.min, step.max) == (1, 1)
                    bound.add(step.edge_variable)
            case ir.Filter():
                _uses((step.predicate,), bound)
            case ir.AntiJoin():
                _pattern(step.pattern, bound)
            case ir.OptionalMatch():
                inside = _pattern(step.pattern, bound)
                named = {name for name in inside - bound if not name[0].isdigit()}
                assert named == set(step.introduces)
                bound |= named
    return bound


def _uses(predicates: Iterable[ir.Predicate], bound: set[str]) -> None:
    for predicate in predicates:
        for expr in _operands(predicate):
            if isinstance(expr, ir.PropertyRef | ir.EntityRef):
                assert expr.variable in bound


def _operands(predicate: ir.Predicate) -> list[ir.Expr]:
    match predicate:
        case ir.And() | ir.Or():
            return [expr for item in predicate.items for expr in _operands(item)]
        case ir.Not():
            return _operands(predicate.item)
        case ir.Compare():
            return [predicate.left, predicate.right]
        case ir.ListContains():
            return [predicate.items, predicate.item]
        case ir.Substring():
            return [predicate.text, predicate.part]
        case ir.StartsWith():
            return [predicate.text, predicate.prefix]
        case ir.InSet():
            return [predicate.operand, predicate.items]
        case ir.IsNull():
            return [predicate.operand]
        case ir.TextMatch():
            return [predicate.field, predicate.query]
