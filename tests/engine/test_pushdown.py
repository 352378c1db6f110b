"""Filters that run inside a Lance scan never lose a row, and are exact where they say so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.arrow_expressions import matches
from omnigraph.engine.parameters import Bindings
from omnigraph.engine.pushdown import PushedFilter, push_down
from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.lang.types import BOOL, DATE, DATETIME, F64, I64, NUMERIC, STRING, PropType, Scalar
from tests.engine.predicates import (
    COLUMNS,
    SCALARS,
    TableRows,
    awkward_rows,
    column_name,
    questions,
    table_of,
    values,
)

OPS: tuple[ir.CompareOp, ...] = ("=", "!=", "<", "<=", ">", ">=")
EVERY, NONE, OPEN = PushedFilter(None, True), PushedFilter("false", True), PushedFilter(None, False)


def physical(ref: ir.PropertyRef | ir.ColumnRef) -> str:
    return f"{column_name(ref)}_7"


def ref(name: str) -> ir.PropertyRef:
    return ir.PropertyRef("v", name, COLUMNS[name])


def pushed(predicate: ir.Predicate, **params: ir.Value) -> PushedFilter:
    return push_down(predicate, physical, Bindings(params))


def listed(scalar: Scalar, *items: ir.Value) -> ir.Const:
    return ir.Const(items, PropType(scalar, is_list=True))


@dataclass(frozen=True)
class Stored:
    """A table in Lance: every scalar column indexed, the last rows newer than the indexes."""

    dataset: lance.LanceDataset
    table: pa.Table

    def select(self, sql: str | None, indexed: bool) -> list[int]:
        scanner = self.dataset.scanner(columns=["n"], filter=sql, use_scalar_index=indexed)
        return sorted(scanner.to_table()["n"].to_pylist())

    def plan(self, sql: str | None) -> str:
        return str(self.dataset.scanner(columns=["n"], filter=sql).explain_plan())


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    place: Path = tmp_path_factory.mktemp("pushdown")
    table = table_of(awkward_rows(400, seed=7))
    named = table.rename_columns([f"{name}_7" for name in table.column_names])
    named = named.append_column("n", pa.array(range(len(table))))
    dataset = lance.write_dataset(named.slice(0, 330), str(place / "t.lance"), max_rows_per_file=200)
    for scalar in SCALARS:
        dataset.create_scalar_index(f"{scalar.value}_7", "BTREE")
    for scalar in (Scalar.STRING, Scalar.I32):
        dataset.create_scalar_index(f"{scalar.value}s_7", "LABEL_LIST")
    dataset = lance.write_dataset(named.slice(330), str(place / "t.lance"), mode="append")
    return Stored(dataset, table)


@settings(max_examples=250, deadline=None)
@given(question=questions(), indexed=st.booleans())
def test_a_pushed_filter_loses_no_row_and_is_exact_where_it_says_so(
    stored: Stored, question: tuple[ir.Predicate, Bindings], indexed: bool
) -> None:
    predicate, bindings = question
    found = push_down(predicate, physical, bindings)
    chosen = matches(predicate, TableRows(stored.table), bindings).to_pylist()
    expected = [n for n, flag in enumerate(chosen) if flag]
    selected = stored.select(found.sql, indexed)
    assert [n for n in selected if chosen[n]] == expected
    if found.exact:
        assert selected == expected


@settings(max_examples=250, deadline=None)
@given(data=st.data(), indexed=st.booleans())
def test_every_comparison_of_a_column_with_a_constant_is_exact(
    stored: Stored, data: st.DataObject, indexed: bool
) -> None:
    scalar = data.draw(st.sampled_from(SCALARS))
    op = data.draw(st.sampled_from(OPS))
    like = data.draw(st.sampled_from(sorted(NUMERIC, key=str))) if scalar in NUMERIC else scalar
    constant = ir.Const(data.draw(values(like)), PropType(like))
    predicate: ir.Predicate = ir.Compare(op, ref(scalar.value), constant)
    if data.draw(st.booleans()):
        predicate = ir.Not(predicate)
    found = pushed(predicate)
    assert found.exact
    chosen = matches(predicate, TableRows(stored.table), Bindings()).to_pylist()
    assert stored.select(found.sql, indexed) == [n for n, flag in enumerate(chosen) if flag]


EXTREMES: dict[Scalar, tuple[ir.Value, ...]] = {
    Scalar.STRING: ("", "it's", "\0", "𝄞"),
    Scalar.BOOL: (True, False),
    Scalar.I32: (-(2**31), 5, 2**31 - 1),
    Scalar.I64: (-(2**63), 5, 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**63, 2**64 - 1),
    Scalar.F32: (0.5, -0.0, 2.0**100, float("inf")),
    Scalar.F64: (0.1, 5e-324, 1e22, float("-inf")),
    Scalar.DATE: (-(2**31), 0, 19_000, 2**31 - 1),
    Scalar.DATETIME: (-(2**63), -1, 253_402_300_799_999, 2**63 - 1),
}
INDEXED = [(scalar, value) for scalar in SCALARS for value in EXTREMES[scalar]]


@pytest.mark.parametrize(
    ("scalar", "value"), INDEXED, ids=lambda item: str(item).encode("unicode_escape").decode()
)
def test_an_index_answers_comparisons_and_sets_in_the_type_of_its_column(
    stored: Stored, scalar: Scalar, value: ir.Value
) -> None:
    column, constant = ref(scalar.value), ir.Const(value, PropType(scalar))
    asked: list[ir.Predicate] = [ir.Compare(op, column, constant) for op in OPS]
    asked += [ir.InSet(column, listed(scalar, value, *EXTREMES[scalar])), ir.IsNull(column)]
    for predicate in asked:
        found = pushed(predicate)
        plan = stored.plan(found.sql)
        assert found.exact
        # Nothing is left to check on the rows that the index gives.
        assert "ScalarIndexQuery" in plan, found.sql
        assert "refine_filter=--" in plan, found.sql


def test_a_prefix_is_a_range_that_an_index_answers(stored: Stored) -> None:
    found = pushed(ir.StartsWith(ref("String"), ir.Const("a%", STRING)))
    assert found == PushedFilter("(`String_7` >= 'a%') AND (`String_7` < 'a&')", True)
    assert "ScalarIndexQuery" in stored.plan(found.sql)


@pytest.mark.parametrize(("name", "value"), [("Strings", "a"), ("I32s", 2)])
def test_a_list_is_asked_in_the_type_of_its_elements_so_that_an_index_answers(
    stored: Stored, name: str, value: ir.Value
) -> None:
    found = pushed(ir.ListContains(ref(name), ir.Const(value, STRING if name == "Strings" else I64)))
    assert found.exact
    assert "ScalarIndexQuery" in stored.plan(found.sql), found.sql


SENTENCES: list[tuple[ir.Predicate, str | None]] = [
    (ir.Compare("=", ref("I32"), ir.Const(2.7, F64)), "false"),
    (ir.Compare("!=", ref("I32"), ir.Const(2.7, F64)), "`I32_7` IS NOT NULL"),
    (ir.Not(ir.Compare("=", ref("I32"), ir.Const(2.7, F64))), "`I32_7` IS NOT NULL"),
    (ir.Compare("<", ref("I32"), ir.Const(2.7, F64)), "`I32_7` <= 2"),
    (ir.Compare(">", ir.Const(2.7, F64), ref("I32")), "`I32_7` <= 2"),
    (ir.Compare(">", ref("I32"), ir.Const(3_000_000_000, I64)), "false"),
    (ir.Compare(">=", ref("U64"), ir.Const(-1, I64)), "`U64_7` IS NOT NULL"),
    (
        ir.Compare("=", ref("I64"), ir.Const(-(2**63), I64)),
        "`I64_7` = cast('-9223372036854775808' as bigint)",
    ),
    (ir.Compare("=", ref("F32"), ir.Const(0.1, F64)), "false"),
    (ir.Compare("=", ref("String"), ir.Const("a'b\\", STRING)), "`String_7` = 'a''b\\'"),
    (ir.Compare("=", ref("Date"), ir.Const(19_000, DATE)), "`Date_7` = date '2022-01-08'"),
    (
        ir.Compare("<", ref("DateTime"), ir.Const(1500, DATETIME)),
        "`DateTime_7` < timestamp '1970-01-01T00:00:01.500'",
    ),
    (ir.Compare("=", ref("Bool"), ir.Const(True, BOOL)), "`Bool_7` = true"),
    (ir.Compare("=", ref("String"), ir.Const(None, STRING.optional)), "false"),
    (ir.Compare("<", ref("I64"), ref("U64")), "`I64_7` < `U64_7`"),
    (ir.InSet(ref("I32"), listed(Scalar.F64, 1.0, 2.5, 1.0)), "`I32_7` IN (1)"),
    (ir.InSet(ref("I32"), listed(Scalar.F64, 2.5), negated=True), "`I32_7` IS NOT NULL"),
    (ir.InSet(ref("I32"), listed(Scalar.I64, 1, None), negated=True), "false"),
    (ir.InSet(ref("I32"), listed(Scalar.STRING)), "false"),
    (ir.InSet(ref("I32"), listed(Scalar.STRING), negated=True), None),
    (ir.InSet(ref("F64"), listed(Scalar.F64, 0.0)), "`F64_7` IN (-0.0, 0.0)"),
    (ir.Substring(ref("String"), ir.Const("%", STRING)), "contains(`String_7`, '%')"),
    (ir.StartsWith(ref("String"), ir.Const("\U0010ffff", STRING)), "`String_7` >= '\U0010ffff'"),
    (
        ir.StartsWith(ref("String"), ir.Const("a\ud7ff", STRING)),
        "(`String_7` >= 'a\ud7ff') AND (`String_7` < 'a\ue000')",
    ),
    (ir.StartsWith(ref("String"), ir.Const("", STRING)), "`String_7` IS NOT NULL"),
    (ir.ListContains(ref("I64s"), ir.Const(2.5, F64)), "false"),
    (ir.Compare("=", ir.Const(1, I64), ir.Const(1.0, F64)), None),
    (ir.Compare("=", ir.Const(1, I64), ir.Const(1.5, F64)), "false"),
]


@pytest.mark.parametrize(("predicate", "sql"), SENTENCES, ids=lambda item: str(item) if item else "all")
def test_a_predicate_is_written_exactly(predicate: ir.Predicate, sql: str | None) -> None:
    assert pushed(predicate) == PushedFilter(sql, True)


SEARCH = ir.TextMatch("search", ir.PropertyRef("v", "String", STRING), ir.Const("x", STRING))
ADULT = ir.Compare(">=", ref("I32"), ir.Const(18, I64))
NEVER = ir.InSet(ref("I32"), listed(Scalar.STRING))


@pytest.mark.parametrize(
    "predicate",
    [
        SEARCH,
        ir.Not(SEARCH),
        ir.Compare("=", SEARCH, ir.Const(True, BOOL)),
        ir.Compare("<", ref("F64"), ref("F642")),
        ir.Compare("=", ref("I64"), ref("F64")),
        ir.Compare("=", ir.EntityRef("a", "T"), ir.EntityRef("b", "T")),
        ir.InSet(ref("I32"), ref("I64s")),
        ir.Substring(ref("String"), ref("String2")),
        ir.IsNull(ir.ColumnRef("Blob", PropType(Scalar.BLOB, nullable=True))),
    ],
    ids=lambda item: type(item).__name__,
)
def test_what_sql_would_answer_otherwise_is_left_to_the_evaluator(predicate: ir.Predicate) -> None:
    assert push_down(predicate, lambda ref: f"{ref}_7", Bindings()) == OPEN


def test_a_conjunction_pushes_the_parts_it_can() -> None:
    assert pushed(ir.And((ADULT, SEARCH))) == PushedFilter("`I32_7` >= 18", False)
    assert pushed(ir.And((SEARCH, NEVER))) == NONE


def test_a_disjunction_is_pushed_whole_or_not_at_all() -> None:
    assert pushed(ir.Or((ADULT, SEARCH))) == OPEN
    assert pushed(ir.Or((ADULT, NEVER))) == PushedFilter("`I32_7` >= 18", True)
    assert pushed(ir.Or((SEARCH, ir.Not(ir.Or(()))))) == EVERY


def test_a_negation_reaches_the_single_tests() -> None:
    assert pushed(ir.Not(ir.Or((ADULT, SEARCH)))) == PushedFilter("`I32_7` < 18", False)
    assert pushed(ir.Not(ir.And((ADULT, SEARCH)))) == OPEN
    assert pushed(ir.Not(ir.Not(ADULT))) == PushedFilter("`I32_7` >= 18", True)


def test_what_nests_deeper_than_the_parser_reads_is_left_to_the_evaluator(stored: Stored) -> None:
    half = ir.Compare("<", ref("F64"), ir.Const(0.5, F64))
    nested: ir.Predicate = half
    for _ in range(60):
        nested = ir.And((half, ir.Or((nested, NEVER, half))))
    found = pushed(nested)
    assert found.sql is not None
    assert not found.exact
    assert set(stored.select(pushed(half).sql, True)) <= set(stored.select(found.sql, True))


def test_columns_of_other_tables_are_left_out() -> None:
    both = ir.And((ADULT, ir.Compare("=", ref("String"), ir.Const("x", STRING))))
    only_ages = {"I32": "age_7"}
    found = push_down(both, lambda ref: only_ages.get(column_name(ref)), Bindings())
    assert found == PushedFilter("`age_7` >= 18", False)


def test_a_parameter_outside_the_enum_it_meets_is_refused() -> None:
    param = ir.ParamRef("p", PropType(Scalar.STRING, enum_values=("a", "b")))
    with pytest.raises(InvalidInput, match="invalid enum value 'c'"):
        pushed(ir.Compare("=", ref("String"), param), p="c")
