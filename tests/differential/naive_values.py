"""What an expression is worth and whether a predicate holds on one row, in three-valued logic."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from omnigraph.lang import ir
from omnigraph.lang.temporal import format_date, format_datetime
from omnigraph.lang.types import PropType, Scalar
from tests.differential.naive_graph import Edge, NaiveGraph, Node, single
from tests.differential.naive_text import (
    any_similar_token,
    any_word,
    bm25,
    matches_query,
    mock_embedding,
    parse,
    vector_distance,
)

# What each variable stands for; None where an optional pattern had no match.
Row: TypeAlias = Mapping[str, Node | Edge | None]
Truth: TypeAlias = bool | None

_OPERATORS: Mapping[ir.CompareOp, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Setting:
    """What a query runs with: the graph, its parameters and its one point in time."""

    graph: NaiveGraph
    params: Mapping[str, ir.Value]
    now: int


def value_of(expr: ir.Expr, row: Row, setting: Setting) -> Any:
    """The value of an expression; None is null."""
    match expr:
        case ir.Const():
            return _of_type(expr.value, expr.type)
        case ir.ParamRef():
            return _of_type(setting.params[expr.name], expr.type)
        case ir.Now():
            return setting.now
        case ir.PropertyRef():
            entity = row[expr.variable]
            return None if entity is None else entity.properties[expr.property]
        case ir.EntityRef():
            entity = row[expr.variable]
            return None if entity is None else entity.id
        case ir.TextMatch():
            return _text_match(expr, row, setting)
        case ir.EmbedText():
            text = value_of(expr.text, row, setting)
            return None if text is None else mock_embedding(text, expr.type.dim or 0)
        case ir.Nearest():
            vector, query = value_of(expr.field, row, setting), value_of(expr.query, row, setting)
            return None if vector is None or query is None else vector_distance(vector, query, expr.metric)
        case ir.Bm25():
            return _bm25(expr, row, setting)
        case _:
            raise TypeError(f"{type(expr).__name__} has no value of its own on a row")


def _of_type(value: ir.Value, type_: PropType) -> ir.Value:
    """A 32-bit float holds no more than 32 bits, wherever it comes from."""
    if type_.scalar not in (Scalar.F32, Scalar.VECTOR):
        return value
    if isinstance(value, tuple):
        return tuple(_of_type(item, type_) for item in value)
    return single(value) if isinstance(value, float) else value


def _text_match(call: ir.TextMatch, row: Row, setting: Setting) -> Truth:
    texts = [value_of(field.ref, row, setting) for field in call.fields]
    query = value_of(call.query, row, setting)
    if query is None or all(text is None for text in texts):
        return None
    analyses = [field.analysis for field in call.fields]
    if call.max_edits is None:
        if isinstance(call.query, ir.PropertyRef):
            return any_word(texts, query, analyses)
        return matches_query(texts, parse(query), analyses)
    max_edits = value_of(call.max_edits, row, setting)
    if max_edits is None:
        return None
    return any(
        text is not None and any_similar_token(text, query, max_edits, analysis)
        for text, analysis in zip(texts, analyses, strict=True)
    )


def _bm25(call: ir.Bm25, row: Row, setting: Setting) -> float | None:
    entity, query = row[call.field.variable], value_of(call.query, row, setting)
    texts = [value_of(field.ref, row, setting) for field in call.fields]
    if entity is None or query is None or all(text is None for text in texts):
        return None
    everything = setting.graph.nodes[entity.type_name].values()
    columns = [
        [str(found) for node in everything if (found := node.properties[field.ref.property]) is not None]
        for field in call.fields
    ]
    return bm25(texts, query, columns, [(field.analysis, field.boost) for field in call.fields])


def truth_of(predicate: ir.Predicate, row: Row, setting: Setting) -> Truth:
    """True, false, or None for unknown."""

    def value(expr: ir.Expr) -> Any:
        return value_of(expr, row, setting)

    match predicate:
        case ir.Compare():
            return _compare(predicate.op, value(predicate.left), value(predicate.right))
        case ir.ListContains():
            return _is_member(value(predicate.item), value(predicate.items))
        case ir.InSet():
            found = _is_member(value(predicate.operand), value(predicate.items))
            return _not(found) if predicate.negated else found
        case ir.Substring():
            text, part = value(predicate.text), value(predicate.part)
            return None if text is None or part is None else part in text
        case ir.StartsWith():
            text, prefix = value(predicate.text), value(predicate.prefix)
            return None if text is None or prefix is None else str(text).startswith(prefix)
        case ir.IsNull():
            return (value(predicate.operand) is None) != predicate.negated
        case ir.TextMatch():
            return _text_match(predicate, row, setting)
        case ir.And():
            return _not(_any(_not(truth_of(item, row, setting)) for item in predicate.items))
        case ir.Or():
            return _any(truth_of(item, row, setting) for item in predicate.items)
        case ir.Not():
            return _not(truth_of(predicate.item, row, setting))


def _compare(op: ir.CompareOp, left: Any, right: Any) -> Truth:
    # Python compares integers and floats by their exact values, and strings by code point.
    return None if left is None or right is None else _OPERATORS[op](left, right)


def _is_member(item: Any, items: Iterable[Any] | None) -> Truth:
    return None if items is None else _any(_compare("=", item, other) for other in items)


def _any(truths: Iterable[Truth]) -> Truth:
    found = list(truths)
    if True in found:
        return True
    return None if None in found else False


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def compare_in_order(left: Any, right: Any) -> int:
    """Below, at or above zero as sorting has it: null before everything, NaN after every number.

    >>> from functools import cmp_to_key
    >>> sorted([math.nan, 2, None, -0.5], key=cmp_to_key(compare_in_order))
    [None, -0.5, 2, nan]
    """
    one, other = _place(left), _place(right)
    if one != other or one != 1:
        return one - other
    return int(left > right) - int(left < right)


def _place(value: Any) -> int:
    if value is None:
        return 0
    return 2 if is_nan(value) else 1


def is_nan(value: Any) -> bool:
    """Whether it is the number that equals nothing."""
    return isinstance(value, float) and math.isnan(value)


def identity(value: Any) -> Any:
    """What stands for a value where equal ones are one: two NaNs are equal, and so are the two zeros."""
    if isinstance(value, tuple | list):
        return tuple(identity(item) for item in value)
    if is_nan(value):
        return ("NaN",)
    return 0.0 if value == 0.0 and isinstance(value, float) else value


def as_json(value: Any, type_: PropType) -> Any:
    """A value as a result row shows it.

    >>> as_json(0, PropType(Scalar.DATE)), as_json((math.inf, 1.0), PropType(Scalar.F64, is_list=True))
    ('1970-01-01', ['Infinity', 1.0])
    """
    if value is None:
        return None
    if isinstance(value, tuple | list):
        return [as_json(item, type_.item) for item in value]
    if type_.scalar is Scalar.DATE:
        return format_date(value)
    if type_.scalar is Scalar.DATETIME:
        return format_datetime(value)
    if is_nan(value):
        return "NaN"
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value
