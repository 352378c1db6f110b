"""Ids derived from columns equal ids derived from single values, including errors."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from omnigraph.catalog.columns import arrow_type
from omnigraph.catalog.key_arrays import derive_ids
from omnigraph.catalog.keys import TypeKey, derive_id
from omnigraph.errors import InvalidInput
from omnigraph.lang.types import INT_RANGES, PropType, Scalar
from tests.catalog.test_keys import key_of

VALUES: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.STRING: st.text(st.characters(codec="utf-8"), max_size=6)
    | st.text('\\"\n\x00\x1f\x7fé', max_size=4),
    Scalar.BOOL: st.booleans(),
    Scalar.F32: st.floats(width=32, allow_nan=False, allow_infinity=False),
    Scalar.F64: st.floats(allow_nan=False, allow_infinity=False),
    Scalar.DATE: st.integers(-(2**31), 2**31 - 1),
    Scalar.DATETIME: st.integers(-(2**63), 2**63 - 1),
    **{scalar: st.integers(*bounds) | st.sampled_from(bounds) for scalar, bounds in INT_RANGES.items()},
}


@st.composite
def keyed_rows(draw: st.DrawFn) -> tuple[TypeKey, list[dict[str, Any]]]:
    scalars = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    names = [f"k{position}" for position in range(len(scalars))]
    declared = "  ".join(f"{name}: {scalar.value}" for name, scalar in zip(names, scalars, strict=True))
    key = key_of(f"node T {{ {declared}\n @key({', '.join(names)}) }}")
    row = st.fixed_dictionaries({name: VALUES[s] for name, s in zip(names, scalars, strict=True)})
    return key, draw(st.lists(row, max_size=5))


def columns_of(key: TypeKey, rows: list[dict[str, Any]]) -> dict[str, pa.Array]:
    return {
        column.name: pa.array([row[column.name] for row in rows], arrow_type(column.type))
        for column in key.columns
    }


@settings(max_examples=150, deadline=None)
@given(keyed_rows())
def test_columns_of_ids_equal_single_ids(case: tuple[TypeKey, list[dict[str, Any]]]) -> None:
    key, rows = case
    found = derive_ids(key, columns_of(key, rows))
    assert found.type == pa.string()
    assert found.to_pylist() == [derive_id(key, row) for row in rows]


@given(st.text(st.characters(max_codepoint=0x7F), max_size=8))
@example("".join(map(chr, range(0x80))))
def test_every_control_character_is_escaped_alike(text: str) -> None:
    key = key_of("node T { a: String  b: I32\n @key(a, b) }")
    rows = [{"a": text, "b": 1}, {"a": "plain", "b": 2}]
    assert derive_ids(key, columns_of(key, rows)).to_pylist() == [derive_id(key, row) for row in rows]


def test_dates_may_be_dates() -> None:
    key = key_of("node T { day: Date @key }")
    days = [date(1969, 12, 31), date(2020, 1, 31)]
    assert derive_ids(key, {"day": pa.array(days)}).to_pylist() == [derive_id(key, {"day": d}) for d in days]


def test_tables_chunks_and_neighbouring_types_are_accepted() -> None:
    key = key_of("node T { a: String  n: U64\n @key(a, n) }")
    table = pa.table(
        {
            "n": pa.chunked_array([pa.array([1], pa.int32()), pa.array([2], pa.int32())]),
            "a": pa.array(["x", "y"], pa.large_string()),
        }
    )
    assert derive_ids(key, table).to_pylist() == ['["x","1"]', '["y","2"]']


@pytest.mark.parametrize(
    ("declared", "column", "message"),
    [
        ("k: String", pa.array(["a", None]), "^node T is missing a non-null @key value$"),
        ("k: F64", pa.array([1.0, float("nan")]), "key property 'k' must be a finite F64"),
        ("k: F32", pa.array([1e39], pa.float64()), "key property 'k' must be a finite F32"),
        ("k: U64", pa.array([-1], pa.int64()), "key property 'k' expects U64"),
        ("k: I32", pa.array([2**31], pa.int64()), "key property 'k' expects I32"),
    ],
)
def test_refusals_are_the_same(declared: str, column: pa.Array, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        derive_ids(key_of(f"node T {{ {declared} @key }}"), {"k": column})


def test_the_types_tried_are_all_that_can_be_keys() -> None:
    assert set(VALUES) == set(Scalar) - {Scalar.BLOB, Scalar.VECTOR}
    assert all(arrow_type(PropType(scalar)) for scalar in VALUES)
