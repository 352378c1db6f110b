"""Ids derived from key values."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph.catalog.keys import TypeKey, canonical_text, derive_id, float_text, node_key
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.lang.types import PropType, Scalar
from tests.catalog.test_identity import catalog_of, changed


def key_of(text: str, name: str = "T") -> TypeKey:
    key = node_key(catalog_of(text), name)
    assert key is not None
    return key


@pytest.mark.parametrize(
    ("scalar", "value", "expected"),
    [
        (Scalar.STRING, " Mixed Case ", " Mixed Case "),
        (Scalar.STRING, "", ""),
        (Scalar.STRING, 'say "hi"\n', 'say "hi"\n'),
        (Scalar.I32, -(2**31), "-2147483648"),
        (Scalar.U64, 2**64 - 1, "18446744073709551615"),
        (Scalar.BOOL, True, "true"),
        (Scalar.BOOL, False, "false"),
        (Scalar.DATE, date(1970, 1, 31), "30"),
        (Scalar.DATE, date(1969, 12, 31), "-1"),
        (Scalar.DATE, 30, "30"),
        (Scalar.DATETIME, datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC), "1500"),
        (Scalar.DATETIME, -1, "-1"),
        (Scalar.F64, 0.0, "0"),
        (Scalar.F64, -0.0, "0"),
        (Scalar.F64, 1, "1"),
        (Scalar.F64, 100.0, "100"),
        (Scalar.F64, -2.5, "-2.5"),
        (Scalar.F64, 0.1, "0.1"),
        (Scalar.F64, 1e22, "1" + 22 * "0"),
        (Scalar.F64, 1e-7, "0.0000001"),
        (Scalar.F64, 5e-324, "0." + 323 * "0" + "5"),
        (Scalar.F32, 0.1, "0.1"),
        (Scalar.F32, 16777216.0, "16777216"),
        (Scalar.F32, 3.4028234663852886e38, "34028235" + 31 * "0"),
        (Scalar.F32, 1e-45, "0." + 44 * "0" + "1"),
        (Scalar.F32, -0.0, "0"),
    ],
)
def test_canonical_strings(scalar: Scalar, value: Any, expected: str) -> None:
    assert canonical_text(value, PropType(scalar)) == expected


def test_a_moment_between_two_milliseconds_is_no_key() -> None:
    moment = datetime(1970, 1, 1, 0, 0, 1, 500_999, tzinfo=UTC)
    with pytest.raises(InvalidInput, match=r"DateTime has milliseconds, got .*01\.500999"):
        canonical_text(moment, PropType(Scalar.DATETIME))


def test_an_enum_value_is_its_text() -> None:
    assert canonical_text("b", PropType(Scalar.STRING, enum_values=("a", "b"))) == "b"


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        (Scalar.F64, math.nan),
        (Scalar.F64, math.inf),
        (Scalar.F32, -math.inf),
        (Scalar.F32, 1e39),
        (Scalar.F64, 10**400),
        (Scalar.I32, 2**31),
        (Scalar.U64, -1),
        (Scalar.DATE, 2**31),
        (Scalar.I32, True),
        (Scalar.F64, True),
        (Scalar.I32, 1.0),
        (Scalar.I32, "1"),
        (Scalar.STRING, 1),
        (Scalar.BOOL, 1),
        (Scalar.DATE, "1970-01-01"),
        (Scalar.DATE, datetime(1970, 1, 1, tzinfo=UTC)),
        (Scalar.STRING, "\ud800"),
    ],
)
def test_values_that_are_no_key_are_refused(scalar: Scalar, value: Any) -> None:
    with pytest.raises(InvalidInput, match="key property 'k'"):
        canonical_text(value, PropType(scalar), "k")


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@example(float(np.float32(2.0**-149)))
@example(float(np.float32(1.17549435e-38)))
@example(float(np.float32(9007199254740992.0)))
def test_a_float32_is_spelled_as_numpy_spells_it(value: float) -> None:
    expected = np.format_float_positional(np.float32(value), unique=True, trim="-")
    assert float_text(value, Scalar.F32) == ("0" if value == 0 else expected)


def test_float32_powers_of_two_where_the_spacing_changes_are_shortest_too() -> None:
    for exponent in range(-149, 128):
        value = np.float32(2.0**exponent)
        expected = np.format_float_positional(value, unique=True, trim="-")
        assert float_text(float(value), Scalar.F32) == expected


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float64_reads_back_without_an_exponent(value: float) -> None:
    text = float_text(value, Scalar.F64)
    assert float(text) == value
    assert set(text) <= set("-.0123456789")
    assert not text.endswith((".0", "."))
    if value:
        shortest = Decimal(repr(value)).normalize().as_tuple().digits
        assert Decimal(text).normalize().as_tuple().digits == shortest


def test_one_key_property_is_its_canonical_string() -> None:
    assert derive_id(key_of("node T { n: I64 @key }"), {"n": -7}) == "-7"


def test_several_are_a_compact_array_in_the_order_of_their_stable_ids() -> None:
    key = key_of("node T { tenant: String  slot: I32\n @key(tenant, slot) }")
    assert derive_id(key, {"tenant": "acme", "slot": 7}) == '["7","acme"]'


def test_text_in_an_array_is_escaped_as_json_and_otherwise_unchanged() -> None:
    key = key_of("node T { a: String  b: String\n @key(a, b) }")
    values = {"a": 'q"\\', "b": "é\u2028\x7f\x00\n\t"}
    assert derive_id(key, values) == '["q\\"\\\\","é\u2028\x7f\\u0000\\n\\t"]'


def test_a_renamed_key_property_keeps_its_place_in_the_id() -> None:
    before = catalog_of("node T { a: String  b: String\n @key(a, b) }")
    after = changed(before, 'node T { z: String @rename_from("a")  b: String\n @key(z, b) }')
    key = node_key(after, "T")
    assert key is not None
    assert derive_id(key, {"z": "1", "b": "2"}) == '["1","2"]'


@pytest.mark.parametrize("values", [{}, {"a": None, "b": "x"}, {"a": "x"}])
def test_a_missing_key_value_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"^node T is missing a non-null @key value$"):
        derive_id(key_of("node T { a: String  b: String\n @key(a, b) }"), values)


def test_a_keyless_node_has_no_key_and_an_unknown_one_is_an_error() -> None:
    catalog = catalog_of("node T { a: String }")
    assert node_key(catalog, "T") is None
    with pytest.raises(NotFound, match="unknown node type 'U'"):
        node_key(catalog, "U")


def test_derive_id_of_datetime_below_milliseconds_names_type_and_property() -> None:
    key = key_of("node T { name: String  at: DateTime  @key(name, at) }")
    with pytest.raises(InvalidInput, match=r"^T, property 'at': DateTime has milliseconds, got") as caught:
        derive_id(key, {"name": "a", "at": datetime(2020, 1, 1, 0, 0, 0, 1, tzinfo=UTC)})
    assert (caught.value.details["type"], caught.value.details["property"]) == ("T", "at")
