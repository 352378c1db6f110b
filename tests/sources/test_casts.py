"""Casts of a mapping: each is defined for one value, and a column at once gives the same."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.catalog import Column
from omnigraph.errors import InvalidInput
from omnigraph.lang.types import PropType, Scalar, vector
from omnigraph.sources.mapping import casts
from omnigraph.sources.mapping.casts import apply_cast, read_cast


def column(scalar: Scalar, *, is_list: bool = False) -> Column:
    return Column("p", PropType(scalar, nullable=True, is_list=is_list), "p1")


def cast(text: str, to: Column, values: Any) -> tuple[list[Any], dict[int, str]]:
    array, errors = apply_cast(read_cast(text, to), to, values)
    return array.to_pylist(), {position: error.message for position, error in errors.items()}


STRING, I32, F64, BOOL = (column(item) for item in (Scalar.STRING, Scalar.I32, Scalar.F64, Scalar.BOOL))
DATE, DATETIME, BLOB = column(Scalar.DATE), column(Scalar.DATETIME), column(Scalar.BLOB)
TEXTS, NUMBERS = column(Scalar.STRING, is_list=True), column(Scalar.I32, is_list=True)


def moment(millis: int) -> datetime:
    # Arrow gives naive datetimes, which stand for UTC.
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)).replace(tzinfo=None)


@pytest.mark.parametrize(
    ("text", "to", "values", "expected"),
    [
        ("I32", I32, ["7", " 8 ", 9, 10.0, None], [7, 8, 9, 10, None]),
        ("F64", F64, ["1.5", "2", "1e3", 4], [1.5, 2.0, 1000.0, 4.0]),
        ("String", STRING, [1, 2.0, 0.1, True, "x", Decimal("1.50")], ["1", "2", "0.1", "true", "x", "1.50"]),
        ("String", STRING, [date(2020, 1, 31), moment(1500)], ["2020-01-31", "1970-01-01T00:00:01.500Z"]),
        ("String", STRING, [[1, "é"], {"a": None}], ['[1,"é"]', '{"a":null}']),
        (
            "Bool",
            BOOL,
            ["yes", "F", " 1 ", "FALSE", 0, 1, True],
            [True, False, True, False, False, True, True],
        ),
        ("Date", DATE, ["2020-01-31", 0], [date(2020, 1, 31), date(1970, 1, 1)]),
        ("%d.%m.%Y", DATE, ["31.01.2020", "1.2.2020"], [date(2020, 1, 31), date(2020, 2, 1)]),
        ("%Y%m%d", DATE, [20200131, "20200201"], [date(2020, 1, 31), date(2020, 2, 1)]),
        ("%d/%m/%y %H:%M", DATETIME, ["01/01/70 00:01"], [moment(60_000)]),
        ("%Y-%m-%dT%H:%M:%S%z", DATETIME, ["1970-01-01T01:00:02+0100"], [moment(2000)]),
        (
            "epoch_seconds",
            DATETIME,
            [1.001, "2", -1, 3],
            [moment(1001), moment(2000), moment(-1000), moment(3000)],
        ),
        ("epoch_millis", DATETIME, [1.0, -5], [moment(1), moment(-5)]),
        ("epoch_micros", DATETIME, [1_000, -2_000], [moment(1), moment(-2)]),
        ("truncate:epoch_millis", DATETIME, [1.9, -0.5], [moment(1), moment(-1)]),
        ("truncate:epoch_micros", DATETIME, [1_999, -1], [moment(1), moment(-1)]),
        ("truncate:DateTime", DATETIME, ["1970-01-01T00:00:00.0019Z", 7], [moment(1), moment(7)]),
        (
            "truncate:DateTime",
            DATETIME,
            [datetime(1970, 1, 1, 0, 0, 0, 1_999), None],  # noqa: DTZ001
            [moment(1), None],
        ),
        ("truncate:%Y-%m-%d %S.%f", DATETIME, ["1970-01-01 00.001999"], [moment(1)]),
        ("String", STRING, [datetime(1970, 1, 1, 0, 0, 0, 1_999)], ["1970-01-01T00:00:00.001999Z"]),  # noqa: DTZ001
        ("epoch_nanos", DATE, [-1], [date(1969, 12, 31)]),
        ("json", TEXTS, ['["a","b"]', ["c"], "null"], [["a", "b"], ["c"], None]),
        ("[I32]", NUMBERS, ["[1, 2]"], [[1, 2]]),
        ("split:;", TEXTS, ["a;b", "", "c"], [["a", "b"], [], ["c"]]),
        ("split:, ", NUMBERS, ["1, 2"], [[1, 2]]),
        ("base64", BLOB, ["eA=="], [{"data": b"x", "uri": None}]),
    ],
)
def test_values_are_cast(text: str, to: Column, values: list[Any], expected: list[Any]) -> None:
    assert cast(text, to, values) == (expected, {})


@pytest.mark.parametrize(
    ("text", "to", "value", "fault"),
    [
        ("I32", I32, "7x", 'expected I32, got "7x"'),
        ("I32", I32, "2147483648", "value 2147483648 exceeds I32"),
        ("String", STRING, float("nan"), "expected String, got NaN"),
        ("Bool", BOOL, "maybe", 'expected Bool, got "maybe"'),
        ("Bool", BOOL, 2, "expected Bool, got 2"),
        ("%d.%m.%Y", DATE, "31.02.2020", 'expected Date, got "31.02.2020"'),
        ("%d.%m.%Y", DATE, "31.01.2020x", 'expected Date, got "31.01.2020x"'),
        ("epoch_seconds", DATETIME, "soon", 'expected DateTime, got "soon"'),
        ("epoch_seconds", DATETIME, True, "expected DateTime, got true"),
        ("epoch_seconds", DATETIME, 10**30, f"value {10**30} exceeds DateTime"),
        ("epoch_seconds", DATETIME, 253402300800, "value 253402300800 exceeds DateTime"),
        ("epoch_millis", DATETIME, "-62135596800001", 'value "-62135596800001" exceeds DateTime'),
        (
            "epoch_seconds",
            DATETIME,
            0.0015,
            'DateTime has milliseconds, got "0.0015"; round it to milliseconds',
        ),
        ("epoch_micros", DATETIME, -1, 'DateTime has milliseconds, got "-1"; round it to milliseconds'),
        (
            "%Y-%m-%d %S.%f",
            DATETIME,
            "1970-01-01 00.001999",
            'DateTime has milliseconds, got "1970-01-01T00:00:00.001999"; round it to milliseconds',
        ),
        ("epoch_seconds", DATE, 253402300800, "value 253402300800 exceeds Date"),
        ("json", TEXTS, "[1]", 'expected [String], got "[1]"'),
        ("json", TEXTS, "[", 'expected [String], got "["'),
        ("split:;", NUMBERS, "1;x", 'expected [I32], got "1;x"'),
        ("base64", BLOB, "?", 'expected Blob, got "?"'),
    ],
)
def test_a_value_that_cannot_be_cast_is_a_fault_of_its_row(
    text: str, to: Column, value: Any, fault: str
) -> None:
    assert cast(text, to, [None, value]) == ([None, None], {1: f"column 'p': {fault}"})


@pytest.mark.parametrize(
    ("text", "to", "message"),
    [
        ("I64", I32, "cast to I64, but property 'p' has type I32"),
        ("%Y", I32, "cast '%Y' cannot produce I32 for property 'p'"),
        ("epoch_seconds", TEXTS, "cast 'epoch_seconds' cannot produce [String] for property 'p'"),
        ("split:;", STRING, "cast ';' cannot produce String for property 'p'"),
        ("base64", STRING, "cast 'base64' cannot produce String for property 'p'"),
        ("%Q", DATE, "invalid date format '%Q': 'Q' is a bad directive in format '%Q'"),
        ("epoch_second", DATE, "unknown cast 'epoch_second'"),
        ("split:", TEXTS, "unknown cast 'split:'"),
        (7, I32, "expected a cast as text, got 7"),
    ],
)
def test_a_cast_that_does_not_exist_or_gives_something_else_is_refused(
    text: Any, to: Column, message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_cast(text, to)
    assert caught.value.message == message


def test_an_unknown_cast_has_a_near_name_and_a_vector_is_read_from_json() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_cast("epoch_second", DATE)
    assert caught.value.hint == "did you mean `epoch_seconds`?"
    assert cast("Vector(2)", Column("p", vector(2), "p1"), ["[0.5, 1]"]) == ([[0.5, 1.0]], {})


texts = st.sampled_from(
    ["", "1", "-7", "007", " 5", "1.5", "x", "a;b", ";", "2020-01-31", "2020-02-30", "0900-01-01", "20:30"]
)
stamps = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)).map(  # noqa: DTZ001
    lambda found: found.strftime("%Y-%m-%d").rjust(10, "0")
)
arrays = st.one_of(
    st.lists(st.one_of(st.none(), texts, stamps), max_size=6).map(lambda items: pa.array(items, pa.string())),
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=6).map(
        lambda items: pa.array(items, pa.int64())
    ),
    st.lists(st.one_of(st.none(), st.integers(-(10**5), 10**5)), max_size=6).map(
        lambda items: pa.array(items, pa.int32())
    ),
    st.lists(st.one_of(st.none(), st.floats(), st.integers(-(10**10), 10**10).map(float)), max_size=6).map(
        lambda items: pa.array(items, pa.float64())
    ),
    st.lists(st.one_of(st.none(), st.booleans()), max_size=6).map(lambda items: pa.array(items, pa.bool_())),
)
named = st.sampled_from(
    [
        ("String", STRING),
        ("I32", I32),
        ("F64", F64),
        ("Date", DATE),
        ("%Y-%m-%d", DATE),
        ("%Y-%m-%d", DATETIME),
        ("%H:%M", DATETIME),
        ("epoch_seconds", DATETIME),
        ("epoch_seconds", DATE),
        ("epoch_millis", DATETIME),
        ("epoch_micros", DATETIME),
        ("truncate:epoch_micros", DATETIME),
        ("epoch_nanos", DATE),
        ("split:;", TEXTS),
    ]
)


@settings(max_examples=150, deadline=None)
@given(values=arrays, named=named)
def test_a_column_at_once_is_its_values_one_by_one(values: pa.Array, named: tuple[str, Column]) -> None:
    text, to = named
    array, errors = apply_cast(read_cast(text, to), to, values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(casts, "_cast_array", lambda *_: None)
        expected, expected_errors = apply_cast(read_cast(text, to), to, values)
    assert array.type == expected.type
    # Compared as text, because NaN is not equal to itself.
    assert str(array) == str(expected)
    assert {at: str(error) for at, error in errors.items()} == {
        at: str(error) for at, error in expected_errors.items()
    }


@pytest.mark.parametrize("text", ["2020-02-30", "2020-13-01", "20200-1-01", "2020-01-01 ", "0000-01-01"])
def test_a_day_that_is_none_is_refused_in_a_column_too(text: str) -> None:
    found = cast("%Y-%m-%d", DATE, pa.array(["2020-01-31", text]))
    assert found == cast("%Y-%m-%d", DATE, ["2020-01-31", text])


def test_whole_columns_are_cast_at_once() -> None:
    at_once = [
        ("%d.%m.%Y", DATE, pa.array(["31.01.2020", None])),
        ("epoch_seconds", DATETIME, pa.array([1, None])),
        ("epoch_seconds", DATETIME, pa.array([1.0, None])),
        ("split:|", TEXTS, pa.array(["a|b", None])),
        ("String", STRING, pa.array([1, None])),
        ("I32", I32, pa.array(["1", None])),
    ]
    for text, to, values in at_once:
        assert casts._cast_array(read_cast(text, to), to, values) is not None, text
