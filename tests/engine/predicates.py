"""Random tables and predicates with the awkward values of every type, and what a predicate means row by row."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from omnigraph.catalog.columns import arrow_type
from omnigraph.engine.arrow_expressions import RowRef
from omnigraph.engine.parameters import Bindings
from omnigraph.lang import ir
from omnigraph.lang.types import F32_MAX, FLOATS, INT_RANGES, NUMERIC, PropType, Scalar

Row: TypeAlias = Mapping[str, ir.Value]

SCALARS = tuple(scalar for scalar in Scalar if scalar not in (Scalar.BLOB, Scalar.VECTOR))
# A second column of each type that nothing else compares with, so that columns meet there too.
TWINS = (Scalar.STRING, Scalar.BOOL, Scalar.DATE, Scalar.DATETIME, Scalar.F64)


def _optional(scalar: Scalar, is_list: bool = False) -> PropType:
    return PropType(scalar, nullable=True, is_list=is_list)


COLUMNS: dict[str, PropType] = {
    **{scalar.value: _optional(scalar) for scalar in SCALARS},
    **{f"{scalar.value}2": _optional(scalar) for scalar in TWINS},
    **{f"{scalar.value}s": _optional(scalar, is_list=True) for scalar in SCALARS},
}
SCHEMA = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in COLUMNS.items()])

WHOLE = sorted(
    {0, 1, 2, 3, 19_000}
    | {
        sign * 2**power + step
        for sign in (1, -1)
        for power in (24, 31, 32, 53, 62, 63, 64)
        for step in (-1, 0, 1)
    }
)
BROKEN = [0.5, -0.5, 2.7, 0.1, 5e-324, 1e-45, 1e22, F32_MAX, 1e300, 1.7976931348623157e308, 2.0**31 - 0.5]
ODD = [math.inf, -math.inf, math.nan, -math.nan, 0.0, -0.0]
_BOUNDS = {**INT_RANGES, Scalar.DATE: INT_RANGES[Scalar.I32], Scalar.DATETIME: INT_RANGES[Scalar.I64]}
TEXTS = [
    "", "a", "ab", "aB", "a%", "a_", "%", "'", "''", '"', "`", "\\", "\\n", "\n", "\0", "a\0", "é", "e\u0301", "𝄞",
    "a𝄞", "\ud7ff", "\ue000", "\uffff", "\U0010ffff", "a\U0010ffff", "\U0010ffff\U0010ffff", "-- ", "日本",
]  # fmt: skip


def single(value: float) -> float:
    """The nearest F32."""
    try:
        found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return found


def awkward(scalar: Scalar) -> list[Any]:
    """The values of a type at which something changes."""
    if scalar is Scalar.STRING:
        return TEXTS
    if scalar is Scalar.BOOL:
        return [False, True]
    if scalar in FLOATS:
        found = [*map(float, WHOLE), *BROKEN, *(-value for value in BROKEN), *ODD]
        return [single(value) for value in found] if scalar is Scalar.F32 else found
    low, high = _BOUNDS[scalar]
    return [value for value in WHOLE if low <= value <= high]


def values(scalar: Scalar) -> st.SearchStrategy[Any]:
    """Values of a type, mostly awkward ones."""
    found = st.sampled_from(awkward(scalar))
    if scalar is Scalar.STRING:
        return found | st.text(alphabet="ab%_'\\\0é𝄞", max_size=4)
    if scalar is Scalar.BOOL:
        return found
    if scalar in FLOATS:
        return found | st.floats(width=32 if scalar is Scalar.F32 else 64)
    return found | st.integers(*_BOUNDS[scalar])


def _cells(kind: PropType) -> st.SearchStrategy[Any]:
    found = values(kind.scalar)
    if kind.is_list:
        found = st.lists(found, max_size=3).map(tuple)
    return found | st.none()


def awkward_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Rows of `SCHEMA` with awkward values, as the IR has them; the same ones for the same seed."""
    chance = random.Random(seed)
    pools: dict[Scalar, list[Any]] = {scalar: awkward(scalar) for scalar in SCALARS}

    def cell(kind: PropType) -> Any:
        if chance.random() < 0.15:
            return None
        pool = pools[kind.scalar]
        return tuple(chance.choices(pool, k=chance.randrange(4))) if kind.is_list else chance.choice(pool)

    return [{name: cell(kind) for name, kind in COLUMNS.items()} for _ in range(count)]


def table_of(found: list[dict[str, Any]]) -> pa.Table:
    """The rows in Arrow."""
    return pa.table([pa.array([row[f.name] for row in found], f.type) for f in SCHEMA], schema=SCHEMA)


def column_name(ref: RowRef) -> str:
    """The column of `SCHEMA` that a reference means; nodes `a` and `b` have strings for ids."""
    match ref:
        case ir.PropertyRef():
            return ref.property
        case ir.ColumnRef():
            return ref.name
        case ir.EntityRef():
            return {"a": "String", "b": "String2"}[ref.variable]


@dataclass(frozen=True)
class TableRows:
    """The rows of a table, in its chunks or each column in one piece."""

    table: pa.Table
    chunked: bool = True

    @property
    def num_rows(self) -> int:
        return int(self.table.num_rows)

    def column(self, ref: RowRef) -> pa.ChunkedArray | pa.Array:
        found = self.table.column(column_name(ref))
        return found if self.chunked else found.combine_chunks()


# --- random predicates ----------------------------------------------------------------------------------------


@dataclass
class _Drawer:
    draw: Callable[[st.SearchStrategy[Any]], Any]
    params: dict[str, ir.Value] = field(default_factory=dict)

    def one_of(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def scalar_like(self, scalar: Scalar) -> Scalar:
        found: Scalar = self.one_of(*sorted(NUMERIC, key=str)) if scalar in NUMERIC else scalar
        return found

    def constant(self, kind: PropType) -> ir.Expr:
        value = self.draw(_cells(kind) if self.one_of(True, False, False) else _cells(kind).filter(_present))
        if kind.is_list and isinstance(value, tuple) and self.one_of(True, False, False, False):
            value = (*value, None)
        if self.one_of(True, False):
            return ir.Const(value, kind)
        name = f"p{len(self.params)}"
        self.params[name] = value
        return ir.ParamRef(name, kind)

    def column(self, kind: PropType) -> ir.Expr:
        name = self.one_of(*(name for name, found in COLUMNS.items() if found == kind))
        return ir.ColumnRef(name, kind) if self.one_of(True, False) else ir.PropertyRef("v", name, kind)

    def operand(self, scalar: Scalar, is_list: bool = False) -> ir.Expr:
        kind = _optional(scalar, is_list)
        found: ir.Expr = self.one_of(self.column, self.column, self.constant)(kind)
        return found

    def predicate(self, depth: int) -> ir.Predicate:
        if depth and self.one_of(True, True, False):
            size = self.draw(st.integers(0, 3))
            match self.one_of("and", "or", "not"):
                case "and":
                    return ir.And(tuple(self.predicate(depth - 1) for _ in range(size)))
                case "or":
                    return ir.Or(tuple(self.predicate(depth - 1) for _ in range(size)))
                case _:
                    return ir.Not(self.predicate(depth - 1))
        return self.leaf()

    def leaf(self) -> ir.Predicate:
        scalar = self.one_of(*SCALARS)
        like = self.scalar_like(scalar)
        match self.one_of("compare", "compare", "compare", "in", "contains", "text", "null", "identity"):
            case "compare":
                op = self.one_of("=", "!=", "<", "<=", ">", ">=")
                return ir.Compare(op, self.operand(scalar), self.operand(like))
            case "in":
                return ir.InSet(self.operand(scalar), self.operand(like, True), self.one_of(True, False))
            case "contains":
                return ir.ListContains(self.operand(scalar, True), self.operand(like))
            case "text":
                sides = self.operand(Scalar.STRING), self.operand(Scalar.STRING)
                return ir.Substring(*sides) if self.one_of(True, False) else ir.StartsWith(*sides)
            case "null":
                return ir.IsNull(self.operand(scalar, self.one_of(True, False)), self.one_of(True, False))
            case _:
                sides = ir.EntityRef("a", "T"), ir.EntityRef(self.one_of("a", "b"), "T")
                return ir.Compare(self.one_of("=", "!="), *sides)


def _present(value: object) -> bool:
    return value is not None


@st.composite
def questions(draw: Callable[[st.SearchStrategy[Any]], Any]) -> tuple[ir.Predicate, Bindings]:
    """A predicate over `SCHEMA` and what it runs with."""
    drawer = _Drawer(draw)
    predicate = drawer.predicate(draw(st.integers(0, 2)))
    return predicate, Bindings(drawer.params)


# --- meaning, row by row --------------------------------------------------------------------------------------


def meaning(predicate: ir.Predicate, row: Row, bindings: Bindings) -> bool | None:
    """The truth of a predicate on one row; None is unknown."""

    def value(expr: ir.Expr) -> Any:
        if isinstance(expr, ir.PropertyRef | ir.ColumnRef | ir.EntityRef):
            return row[column_name(expr)]
        assert isinstance(expr, ir.Const | ir.ParamRef | ir.Now)
        return _rounded(bindings.value(expr), expr.type.scalar)

    match predicate:
        case ir.And():
            return _every([meaning(item, row, bindings) for item in predicate.items])
        case ir.Or():
            return _some([meaning(item, row, bindings) for item in predicate.items])
        case ir.Not():
            return _opposite(meaning(predicate.item, row, bindings))
        case ir.Compare():
            return _compared(predicate.op, value(predicate.left), value(predicate.right))
        case ir.IsNull():
            return (value(predicate.operand) is None) != predicate.negated
        case ir.InSet():
            found = _among(value(predicate.operand), value(predicate.items))
            return _opposite(found) if predicate.negated else found
        case ir.ListContains():
            return _among(value(predicate.item), value(predicate.items))
        case ir.Substring():
            text, part = value(predicate.text), value(predicate.part)
            return None if text is None or part is None else part in text
        case ir.StartsWith():
            text, part = value(predicate.text), value(predicate.prefix)
            return None if text is None or part is None else text[: len(part)] == part
        case ir.TextMatch():
            raise AssertionError("a search has no meaning row by row")


def _rounded(value: Any, scalar: Scalar) -> Any:
    if isinstance(value, tuple):
        return tuple(_rounded(item, scalar) for item in value)
    return single(value) if scalar is Scalar.F32 and value is not None else value


def _every(truths: list[bool | None]) -> bool | None:
    return False if False in truths else None if None in truths else True


def _some(truths: list[bool | None]) -> bool | None:
    return True if True in truths else None if None in truths else False


def _opposite(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def _among(value: Any, items: tuple[Any, ...] | None) -> bool | None:
    return None if items is None else _some([_compared("=", value, item) for item in items])


def _compared(op: ir.CompareOp, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    a, b = comparable(left), comparable(right)
    if a != a or b != b:
        return op == "!="
    found = {"=": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]
    return bool(found)


def comparable(value: Any) -> Any:
    """A value that Python compares as the language does, except that a NaN must be told apart first."""
    if isinstance(value, str):
        return value.encode()
    return Fraction(value) if isinstance(value, int) or math.isfinite(value) else value
