"""Parameter values: accepted values of each declared type, and messages for other values."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import InvalidInput
from omnigraph.lang.gq.query_parameters import bind_params
from omnigraph.lang.ir import Param, Value
from omnigraph.lang.types import BASE_TYPES, F32_MAX, INT_RANGES, PropType, Scalar, vector

INTEGERS = sorted(INT_RANGES, key=lambda scalar: scalar.value)


def bind(kind: PropType | Scalar, value: object) -> Value:
    type_ = PropType(kind) if isinstance(kind, Scalar) else kind
    return bind_params([Param("k", type_)], {"k": value})["k"]


def refusal(kind: PropType | Scalar, value: object) -> str:
    with pytest.raises(InvalidInput) as caught:
        bind(kind, value)
    assert caught.value.details["parameter"] == "k"
    return caught.value.message


# --- the document ----------------------------------------------------------------------------------------


def test_bind_params_without_document_returns_empty_values() -> None:
    assert bind_params([], None) == {}


@pytest.mark.parametrize("document", [[], "x", 3, True])
def test_bind_params_of_non_object_is_refused(document: Any) -> None:
    with pytest.raises(InvalidInput, match="parameters must be an object or null"):
        bind_params([], document)


def test_bind_params_ignores_undeclared_keys() -> None:
    assert bind_params([], {"other": {"a": [1]}, "more": None}) == {}


def test_bind_omitted_nullable_parameter_is_null() -> None:
    assert bind_params([Param("x", PropType(Scalar.I32, nullable=True))], {}) == {"x": None}


def test_bind_omitted_required_parameter_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        bind_params([Param("x", PropType(Scalar.I32))], None)
    assert caught.value.message == "parameter 'x' not provided"
    assert caught.value.hint == "pass a value of type I32 for `$x`"


@pytest.mark.parametrize("scalar", BASE_TYPES.values())
def test_bind_null_to_non_nullable_parameter_is_refused(scalar: Scalar) -> None:
    assert bind(PropType(scalar, nullable=True), None) is None
    assert refusal(scalar, None) == "param 'k': null is not accepted for non-nullable parameter"
    assert "null is not accepted" in refusal(PropType(scalar, is_list=True), None)


def test_bind_list_with_null_is_refused() -> None:
    assert (
        refusal(PropType(Scalar.STRING, is_list=True, nullable=True), [None])
        == "param 'k': expected String, got null"
    )


# --- each type -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scalar", [Scalar.STRING, Scalar.BLOB])
def test_bind_string_accepts_only_text(scalar: Scalar) -> None:
    assert bind(scalar, "text") == "text"
    assert bind(scalar, "") == ""
    values: tuple[object, ...] = (1, True, 1.5, ["a"], {})
    for value in values:
        assert refusal(scalar, value).startswith(f"param 'k': expected {scalar.value}, got ")


def test_bind_bool_accepts_only_booleans() -> None:
    assert bind(Scalar.BOOL, True) is True
    assert bind(Scalar.BOOL, False) is False
    for value in (0, 1, "true"):
        assert refusal(Scalar.BOOL, value).startswith("param 'k': expected Bool, got ")


@pytest.mark.parametrize("scalar", INTEGERS)
@given(number=st.integers(-(2**70), 2**70))
def test_bind_integer_in_range_accepts_number_or_decimal_text(scalar: Scalar, number: int) -> None:
    low, high = INT_RANGES[scalar]
    for value in (number, str(number)):
        if low <= number <= high:
            assert bind(scalar, value) == number
        else:
            assert refusal(scalar, value) == f"param 'k': value {number} exceeds {scalar.value}"


@pytest.mark.parametrize("scalar", INTEGERS)
def test_bind_integer_bounds_are_inclusive(scalar: Scalar) -> None:
    low, high = INT_RANGES[scalar]
    assert bind(scalar, low) == low
    assert bind(scalar, high) == high
    assert "exceeds" in refusal(scalar, low - 1)
    assert "exceeds" in refusal(scalar, high + 1)


@pytest.mark.parametrize("value", [3.0, 1e3, 2.5, "3.0", "1e3", "", "x", "٣", "1_000", " 1", True, [1], {}])
def test_bind_integer_to_other_value_is_refused(value: object) -> None:
    assert refusal(Scalar.I64, value).startswith("param 'k': expected I64, got ")


@pytest.mark.parametrize("text", ["3.0", "1e2", "1E2"])
def test_bind_integer_to_fraction_or_exponent_is_refused(text: str) -> None:
    assert "expected I32" in refusal(Scalar.I32, json.loads(text))


def test_bind_very_long_integer_is_refused_with_a_short_message() -> None:
    huge = 10**5000
    assert refusal(Scalar.I64, huge) == f"param 'k': value of {huge.bit_length()} bits exceeds I64"
    assert "exceeds F64" in refusal(Scalar.F64, huge)
    assert len(refusal(Scalar.I64, "9" * 5000)) < 200


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**64), 2**64))
def test_bind_float_accepts_any_finite_number(number: float) -> None:
    found = bind(Scalar.F64, number)
    assert found == float(number)
    assert isinstance(found, float)


@pytest.mark.parametrize("scalar", [Scalar.F32, Scalar.F64])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "1.5", True, None])
def test_bind_float_to_other_value_is_refused(scalar: Scalar, value: object) -> None:
    assert refusal(scalar, value)


def test_bind_f32_over_its_range_is_refused() -> None:
    assert bind(Scalar.F32, F32_MAX) == F32_MAX
    assert bind(Scalar.F64, 1e39) == 1e39
    assert refusal(Scalar.F32, 1e39) == "param 'k': value 1e+39 exceeds F32"
    assert "exceeds F32" in refusal(vector(1), [1e39])


def test_bind_date_accepts_iso_text_or_python_date() -> None:
    assert bind(Scalar.DATE, "1970-01-31") == 30
    assert bind(Scalar.DATE, date(1970, 1, 31)) == 30
    for value in ("1970-01-31T00:00:00Z", "31.1.1970", 30, datetime(1970, 1, 31, tzinfo=UTC)):
        assert refusal(Scalar.DATE, value).startswith("param 'k': expected Date, got ")


def test_bind_datetime_accepts_iso_text_or_python_datetime() -> None:
    one = 1000
    assert bind(Scalar.DATETIME, "1970-01-01T00:00:01Z") == one
    assert bind(Scalar.DATETIME, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == one
    east = timezone(timedelta(hours=2))
    assert bind(Scalar.DATETIME, datetime(1970, 1, 1, 2, 0, 1, tzinfo=east)) == one
    # A time without an offset is UTC, as in text.
    assert bind(Scalar.DATETIME, datetime(1970, 1, 1, 0, 0, 1)) == one  # noqa: DTZ001
    assert bind(Scalar.DATETIME, date(1970, 1, 2)) == 86_400_000
    for value in ("yesterday", 1000, 1.5):
        assert refusal(Scalar.DATETIME, value).startswith("param 'k': expected DateTime, got ")


@pytest.mark.parametrize("value", ["a", 1, {"a": 1}, True])
def test_bind_list_to_other_value_is_refused(value: object) -> None:
    assert "expected [String]" in refusal(PropType(Scalar.STRING, is_list=True), value)


def test_bind_list_items_follow_the_rules_of_single_values() -> None:
    assert bind(PropType(Scalar.I32, is_list=True), [1, "2"]) == (1, 2)
    assert bind(PropType(Scalar.DATE, is_list=True), ["1970-01-02"]) == (1,)
    assert bind(PropType(Scalar.STRING, is_list=True), []) == ()
    assert "value 3000000000 exceeds I32" in refusal(PropType(Scalar.I32, is_list=True), [1, 3_000_000_000])


def test_bind_vector_with_wrong_length_is_refused() -> None:
    assert bind(vector(2), [1, 2.5]) == (1.0, 2.5)
    assert bind(vector(2).optional, None) is None
    assert refusal(vector(2), [1]) == "param 'k': expected Vector(2), got 1 number"
    assert "expected Vector(2), got 5" in refusal(vector(2), 5)
    assert "expected a number" in refusal(vector(2), ["a", "b"])
    assert "expected a number" in refusal(vector(2), [True, False])


# --- values of Python's data libraries -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Scalar.I32, np.int64(7), 7),
        (Scalar.U64, np.uint64(2**64 - 1), 2**64 - 1),
        (Scalar.F64, np.float32(0.5), 0.5),
        (Scalar.F64, np.int8(3), 3.0),
        (Scalar.BOOL, np.bool_(True), True),
        (Scalar.STRING, np.str_("a"), "a"),
        (Scalar.DATE, np.datetime64("1970-01-31"), 30),
        (Scalar.DATETIME, np.datetime64("1970-01-01T00:00:01", "ms"), 1000),
        (Scalar.DATETIME, pd.Timestamp("1970-01-01T00:00:01Z"), 1000),
        (vector(2), np.array([1, 2], dtype=np.float32), (1.0, 2.0)),
        (PropType(Scalar.I64, is_list=True), np.array([1, 2]), (1, 2)),
        (PropType(Scalar.I64, is_list=True), [np.int16(1), 2], (1, 2)),
        (PropType(Scalar.STRING, is_list=True), pd.Series(["a", "b"]), ("a", "b")),
    ],
)
def test_bind_numpy_or_pandas_value_returns_the_python_value(
    kind: PropType | Scalar, value: object, expected: object
) -> None:
    found = bind(kind, value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("value", [pd.NaT, np.datetime64("NaT")])
@pytest.mark.parametrize("scalar", [Scalar.DATE, Scalar.DATETIME])
def test_bind_missing_time_is_refused(scalar: Scalar, value: object) -> None:
    assert refusal(scalar, value)


def test_bind_integer_to_numpy_float_is_refused() -> None:
    assert refusal(Scalar.I64, np.float64(3.0)) == "param 'k': expected I64, got 3.0"


def test_bind_vector_to_matrix_is_refused() -> None:
    assert refusal(vector(2), np.zeros((2, 2)))


@pytest.mark.parametrize(
    "scalar", [Scalar.STRING, Scalar.BLOB, Scalar.DATE, Scalar.I32, Scalar.F64, Scalar.BOOL]
)
@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\ude00\ud83d"])
def test_bind_unpaired_surrogate_is_refused(scalar: Scalar, text: str) -> None:
    assert refusal(scalar, text) == "param 'k': not valid Unicode text"
    assert refusal(PropType(scalar, is_list=True), [text]) == "param 'k': not valid Unicode text"


def test_bind_unpaired_surrogate_to_enum_is_refused() -> None:
    kind = PropType(Scalar.STRING, enum_values=("a",))
    assert refusal(kind, "\ud800") == "param 'k': not valid Unicode text"
    assert bind(Scalar.STRING, "\U0001f600 ü") == "\U0001f600 ü"
