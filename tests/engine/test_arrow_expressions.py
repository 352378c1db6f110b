"""Predicates over Arrow columns mean what the language says, on every row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.columns import arrow_type
from omnigraph.engine.arrow_expressions import evaluate, matches
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.lang.types import BOOL, F64, I64, NUMERIC, STRING, U64, PropType, Scalar, vector
from tests.engine.predicates import (
    COLUMNS,
    SCHEMA,
    TableRows,
    awkward,
    awkward_rows,
    comparable,
    meaning,
    questions,
    table_of,
)


def ref(name: str) -> ir.PropertyRef:
    return ir.PropertyRef("v", name, COLUMNS[name])


def rows_of(**columns: list[Any]) -> TableRows:
    arrays = [pa.array(items, SCHEMA.field(name).type) for name, items in columns.items()]
    return TableRows(pa.table(arrays, names=list(columns)))


def kept(predicate: ir.Predicate, found: TableRows, **params: ir.Value) -> list[int]:
    chosen = matches(predicate, found, Bindings(params))
    assert (chosen.type, len(chosen), chosen.null_count) == (pa.bool_(), found.num_rows, 0)
    return [int(index) for index in np.flatnonzero(chosen.to_numpy(zero_copy_only=False))]


@settings(max_examples=350, deadline=None)
@given(st.integers(0, 60), st.integers(0, 999), questions(), st.booleans(), st.integers(1, 30))
def test_predicate_keeps_the_rows_of_the_reference(
    count: int, seed: int, question: tuple[ir.Predicate, Bindings], chunked: bool, chunk: int
) -> None:
    predicate, bindings = question
    found = awkward_rows(count, seed)
    table = table_of(found)
    pieces = [table.slice(start, chunk) for start in range(0, len(found), chunk)]
    table = pa.concat_tables(pieces) if pieces else table
    expected = [n for n, row in enumerate(found) if meaning(predicate, row, bindings) is True]
    chosen = matches(predicate, TableRows(table, chunked), bindings)
    assert [n for n, flag in enumerate(chosen.to_pylist()) if flag] == expected


OPS: tuple[ir.CompareOp, ...] = ("=", "!=", "<", "<=", ">", ">=")
NUMBERS = sorted(NUMERIC, key=str)


def holds(op: ir.CompareOp, left: Any, right: Any) -> bool:
    """The truth of a comparison of two exact numbers or a NaN."""
    if left != left or right != right:
        return op == "!="
    return bool({"=": left == right, "<": left < right, ">": left > right}.get(op[0], left != right)) or (
        op in ("<=", ">=") and bool(left == right)
    )


@pytest.mark.parametrize("constant", NUMBERS, ids=lambda scalar: scalar.value)
@pytest.mark.parametrize("column", NUMBERS, ids=lambda scalar: scalar.value)
def test_compare_every_pair_of_numeric_types_by_value(column: Scalar, constant: Scalar) -> None:
    lefts, rights = awkward(column), awkward(constant)
    exact, others = [comparable(item) for item in lefts], [comparable(item) for item in rights]
    pairs = [
        pa.array([left for left in lefts for _ in rights], arrow_type(PropType(column))),
        pa.array(rights * len(lefts), arrow_type(PropType(constant))),
    ]
    all_pairs = TableRows(pa.table(pairs, names=["left", "right"]))
    one = rows_of(**{column.value: lefts})
    for op in OPS:
        truths = [[holds(op, left, right) for right in others] for left in exact]
        sides = ir.ColumnRef("left", PropType(column)), ir.ColumnRef("right", PropType(constant))
        flat = matches(ir.Compare(op, *sides), all_pairs, Bindings()).to_pylist()
        assert flat == [truth for row in truths for truth in row]
        for place, value in enumerate(rights):
            asked = ir.Compare(op, ref(column.value), ir.Const(value, PropType(constant)))
            assert matches(asked, one, Bindings()).to_pylist() == [row[place] for row in truths]


@pytest.mark.parametrize("op", OPS)
def test_compare_with_null_and_its_negation_are_unknown(op: ir.CompareOp) -> None:
    found = rows_of(I32=[1, None])
    same = ir.Compare(op, ref("I32"), ref("I32"))
    assert kept(ir.Or((same, ir.Not(same))), found) == [0]
    nothing = ir.Compare(op, ref("I32"), ir.ParamRef("p", I64.optional))
    assert kept(ir.Or((nothing, ir.Not(nothing))), found, p=None) == []


def test_boolean_of_unknown_and_deciding_operand_is_decided() -> None:
    found = rows_of(I32=[None], Bool=[True])
    unknown = ir.Compare("=", ref("I32"), ir.Const(1, I64))
    true = ir.Compare("=", ref("Bool"), ir.Const(True, BOOL))
    assert kept(ir.Or((unknown, true)), found) == [0]
    assert kept(ir.Not(ir.And((unknown, ir.Not(true)))), found) == [0]
    assert kept(ir.And((unknown, true)), found) == []


def test_empty_and_is_true_and_empty_or_is_false() -> None:
    found = rows_of(I32=[1, None])
    assert kept(ir.And(()), found) == [0, 1]
    assert kept(ir.Or(()), found) == []


def test_compare_integer_with_fraction_by_value() -> None:
    found = rows_of(I32=[2, 3, None])
    assert kept(ir.Compare("=", ref("I32"), ir.Const(2.7, F64)), found) == []
    assert kept(ir.Compare("!=", ref("I32"), ir.Const(2.7, F64)), found) == [0, 1]
    assert kept(ir.Compare("<", ref("I32"), ir.Const(2.7, F64)), found) == [0]


def test_compare_wide_integer_with_float_by_value() -> None:
    found = rows_of(I64=[2**53, 2**53 + 1, 2**63 - 1], F64=[2.0**53, 2.0**53, 2.0**63])
    assert kept(ir.Compare("=", ref("I64"), ref("F64")), found) == [0]
    assert kept(ir.Compare(">", ref("I64"), ref("F64")), found) == [1]
    assert kept(ir.Compare("<", ref("F64"), ref("I64")), found) == [1]
    assert kept(ir.Compare("<", ref("I64"), ref("F64")), found) == [2]
    assert kept(ir.Compare("=", ref("F64"), ir.Const(2**53 + 1, I64)), found) == []
    assert kept(ir.Compare("<", ref("F64"), ir.Const(2**53 + 1, I64)), found) == [0, 1]


def test_compare_signed_with_unsigned_by_value() -> None:
    found = rows_of(I64=[-1, 2**63 - 1, 5], U64=[2**64 - 1, 2**63 - 1, 4])
    assert kept(ir.Compare("=", ref("I64"), ref("U64")), found) == [1]
    assert kept(ir.Compare("<", ref("I64"), ref("U64")), found) == [0]
    assert kept(ir.Compare("<", ref("I64"), ir.Const(2**64 - 1, U64)), found) == [0, 1, 2]


def test_compare_f32_with_f64_by_value() -> None:
    found = rows_of(F32=[0.1, 0.5], F64=[0.1, 0.5])
    assert kept(ir.Compare("=", ref("F32"), ref("F64")), found) == [1]
    assert kept(ir.Compare("=", ref("F32"), ir.Const(0.1, F64)), found) == []
    assert kept(ir.Compare("=", ref("F32"), ir.ParamRef("p", PropType(Scalar.F32))), found, p=0.1) == [0]


def test_compare_with_nan_is_unequal_and_unordered() -> None:
    found = rows_of(F64=[math.nan, 1.0], F642=[math.nan, math.nan], I64=[1, 1])
    for other in (ref("F642"), ref("I64"), ir.Const(1.0, F64), ir.Const(math.nan, F64)):
        assert 0 in kept(ir.Compare("!=", ref("F64"), other), found)
        for op in ("=", "<", "<=", ">", ">="):
            assert 0 not in kept(ir.Compare(op, ref("F64"), other), found)
    assert kept(ir.InSet(ref("F64"), ir.Const((math.nan,), PropType(Scalar.F64, is_list=True))), found) == []


def test_compare_zeros_of_either_sign_is_equal() -> None:
    found = rows_of(F64=[0.0, -0.0], F64s=[[-0.0], [0.0]])
    zero = ir.Const(-0.0, F64)
    assert kept(ir.Compare("=", ref("F64"), zero), found) == [0, 1]
    assert kept(ir.InSet(ref("F64"), ir.Const((-0.0,), PropType(Scalar.F64, is_list=True))), found) == [0, 1]
    assert kept(ir.ListContains(ref("F64s"), zero), found) == [0, 1]
    assert kept(ir.Compare("<", ref("F64"), zero), found) == []


def test_compare_strings_by_code_point() -> None:
    found = rows_of(String=["\uffff", "Z", "é", ""], String2=["𝄞", "a", "z", "\0"])
    assert kept(ir.Compare("<", ref("String"), ref("String2")), found) == [0, 1, 3]


def test_compare_booleans_orders_false_before_true() -> None:
    found = rows_of(Bool=[False, True], Bool2=[True, False])
    assert kept(ir.Compare("<", ref("Bool"), ref("Bool2")), found) == [0]
    assert kept(ir.Compare(">", ref("Bool"), ir.Const(False, BOOL)), found) == [1]


def test_now_returns_the_time_of_the_operation() -> None:
    found = rows_of(DateTime=[4, 5, 6])
    chosen = matches(ir.Compare("<=", ref("DateTime"), ir.Now()), found, Bindings(now=5))
    assert chosen.to_pylist() == [True, True, False]


def test_substring_and_prefix_match_literally_and_by_case() -> None:
    found = rows_of(String=["100%", "1000", "Ab", "ab", None], String2=["%", "", "ab", "b", "a"])
    assert kept(ir.Substring(ref("String"), ir.Const("%", STRING)), found) == [0]
    assert kept(ir.StartsWith(ref("String"), ir.Const("a", STRING)), found) == [3]
    assert kept(ir.Substring(ref("String"), ref("String2")), found) == [0, 1, 3]
    assert kept(ir.StartsWith(ref("String"), ir.Const("", STRING)), found) == [0, 1, 2, 3]


def test_in_set_with_null_item_is_unknown_unless_found() -> None:
    found = rows_of(String=["a", "b", None])
    items = ir.Const(("a", None), PropType(Scalar.STRING, is_list=True))
    assert kept(ir.InSet(ref("String"), items), found) == [0]
    assert kept(ir.InSet(ref("String"), items, negated=True), found) == []


def test_in_set_of_empty_list_is_false_and_of_null_is_unknown() -> None:
    found = rows_of(I32=[1, None], I32s=[[], None])
    nothing = ir.ParamRef("p", PropType(Scalar.I32, nullable=True, is_list=True))
    assert kept(ir.InSet(ref("I32"), nothing), found, p=()) == []
    assert kept(ir.InSet(ref("I32"), nothing, negated=True), found, p=()) == [0, 1]
    assert kept(ir.InSet(ref("I32"), nothing, negated=True), found, p=None) == []
    assert kept(ir.InSet(ref("I32"), ref("I32s"), negated=True), found) == [0]
    # The literal `[]` is a list of any type.
    anything = ir.Const((), PropType(Scalar.STRING, is_list=True))
    assert kept(ir.InSet(ref("I32"), anything, negated=True), found) == [0, 1]


def test_list_contains_compares_by_value_across_types() -> None:
    found = rows_of(I64s=[[2**53 + 1], [1, 2], [], None], F64=[2.0**53, 2.0, 1.0, 1.0])
    assert kept(ir.ListContains(ref("I64s"), ref("F64")), found) == [1]
    assert kept(ir.Not(ir.ListContains(ref("I64s"), ref("F64"))), found) == [0, 2]
    assert kept(ir.ListContains(ref("I64s"), ir.Const(2.5, F64)), found) == []


def test_list_contains_on_sliced_column_reads_its_own_elements() -> None:
    table = rows_of(I32s=[[1], None, [2, 1], [3]]).table.slice(1, 3)
    assert kept(ir.ListContains(ref("I32s"), ir.Const(1, I64)), TableRows(table)) == [1]


def test_compare_nodes_by_their_ids() -> None:
    found = rows_of(String=["x", "x", None], String2=["x", "y", "y"])
    same = ir.Compare("=", ir.EntityRef("a", "T"), ir.EntityRef("b", "T"))
    assert kept(same, found) == [0]
    assert kept(ir.Not(same), found) == [1]


def test_blob_without_bytes_and_uri_is_null() -> None:
    blob = ir.ColumnRef("blob", PropType(Scalar.BLOB, nullable=True))
    kind = pa.struct([("data", pa.large_binary()), ("uri", pa.string())])
    cells = [None, {"data": None, "uri": None}, {"data": b"x", "uri": None}, {"data": None, "uri": "u"}]
    found = TableRows(pa.table([pa.array(cells, kind)], names=["blob"]))
    assert kept(ir.IsNull(blob), found) == [0, 1]
    assert kept(ir.IsNull(blob, negated=True), found) == [2, 3]


def test_evaluate_constant_expression_returns_a_scalar() -> None:
    found = rows_of(I32=[1])
    bindings = Bindings({"p": (1.0, 2.0)}, now=7)
    assert evaluate(ir.Const(7, PropType(Scalar.DATE)), found, bindings) == pa.scalar(7, pa.date32())
    assert evaluate(ir.Now(), found, bindings) == pa.scalar(7, pa.timestamp("ms"))
    assert evaluate(ir.ParamRef("p", vector(2)), found, bindings).type == pa.list_(pa.float32(), 2)
    assert evaluate(ref("I32"), found, bindings).to_pylist() == [1]


def test_compare_with_parameter_outside_the_enum_is_refused() -> None:
    param = ir.ParamRef("p", PropType(Scalar.STRING, enum_values=("a", "b")))
    with pytest.raises(InvalidInput, match="invalid enum value 'c'"):
        kept(ir.Compare("=", ref("String"), param), rows_of(String=["a"]), p="c")


def test_evaluate_text_search_is_refused_with_its_name() -> None:
    search = ir.TextMatch("fuzzy", ref("String"), ir.Const("x", STRING))
    found = rows_of(String=["a"])
    with pytest.raises(InvalidInput, match="`fuzzy` is a text search and has no value row by row"):
        kept(search, found)
    with pytest.raises(InvalidInput, match="`fuzzy` is a text search"):
        kept(ir.Compare("=", search, ir.Const(True, BOOL)), found)


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (ir.Bm25(ir.PropertyRef("v", "String", STRING), ir.Const("x", STRING)), "`bm25` ranks rows"),
        (ir.Aggregate("sum", ir.Const(1, I64), False, F64), "`sum` aggregates a group"),
        (ir.OutputRef("total", I64), "`total` is a result column"),
        (ir.EmbedText(ir.Const("x", STRING), None, vector(2)), "a text to embed"),
    ],
)
def test_evaluate_expression_without_row_value_is_refused(expr: ir.Expr, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        evaluate(expr, rows_of(I32=[1]), Bindings())
