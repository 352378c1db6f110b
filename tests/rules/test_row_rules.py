"""Each rule that a row keeps or breaks on its own, with the message that people read."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph.catalog.catalog import Catalog
from omnigraph.errors import InvalidInput
from omnigraph.lang.schema import Range
from omnigraph.lang.types import INT_RANGES, PropType, Scalar
from omnigraph.rules.row_rules import row_violations
from omnigraph.rules.set_rules import entity_of
from omnigraph.rules.violations import MAX_REPORTED, Violations
from tests.catalog.test_identity import catalog_of
from tests.rules.states import WORKED, Row, rows_of


def check(catalog: Catalog, rows: pa.Table, key: str = "node:T") -> Violations:
    table = catalog.tables[key]
    return row_violations(table, entity_of(catalog, table), rows)


def violations(catalog: Catalog, rows: list[Row], key: str = "node:T") -> Violations:
    return check(catalog, rows_of(catalog.tables[key], rows), key)


def messages(text: str, **values: Any) -> list[str]:
    return [item.message for item in violations(catalog_of(f"node T {{ {text} }}"), [{"id": "t", **values}])]


def with_column(text: str, values: pa.Array) -> Violations:
    """The violations of rows t0, t1, … whose column `v` is an array that need not have the stored type."""
    ids = pa.array([f"t{position}" for position in range(len(values))], pa.string())
    return check(catalog_of(f"node T {{ {text} }}"), pa.table({"id": ids, "v": values}))


# --- required -----------------------------------------------------------------------------------------------


def test_null_in_required_property_is_refused() -> None:
    catalog = catalog_of("node T { a: String  b: I32? }")
    (found,) = violations(catalog, [{"id": "fine", "a": ""}, {"id": "bad", "a": None}])
    assert found.to_json() == {
        "rule": "required",
        "type": "node:T",
        "message": "non-nullable property 'a' has null or invalid values",
        "id": "bad",
        "property": "a",
        "value": None,
    }


def test_missing_column_of_required_property_is_refused_in_every_row() -> None:
    catalog = catalog_of("node T { a: String }")
    found = check(catalog, pa.table({"id": ["x", "y"]}))
    assert [item.id for item in found] == ["x", "y"]


def test_edge_without_endpoint_value_is_refused() -> None:
    found = violations(WORKED, [{"id": "k", "src": "Ann", "dst": None}], "edge:Knows")
    assert [(item.rule, item.property) for item in found] == [("required", "dst")]


@pytest.mark.parametrize("blob", [None, {"data": None, "uri": None}])
def test_blob_without_bytes_and_uri_is_null(blob: Row | None) -> None:
    assert messages("v: Blob", v=blob) == ["non-nullable property 'v' has null or invalid values"]


@pytest.mark.parametrize("blob", [{"data": b"", "uri": None}, {"data": None, "uri": "s3://b/x"}])
def test_blob_with_bytes_or_uri_is_accepted(blob: Row) -> None:
    assert messages("v: Blob", v=blob) == []


def test_value_out_of_the_type_raises_invalid_input() -> None:
    with pytest.raises(InvalidInput, match="property 'v': expected I32"):
        with_column("v: I32", pa.array([2**31]))
    with pytest.raises(InvalidInput, match=r"property 'v': expected Vector\(2\)"):
        with_column("v: Vector(2)", pa.array(["a"]))


def test_range_of_u64_stored_as_decimal_is_checked() -> None:
    # Spark has no unsigned types, so a U64 travels as a decimal there.
    found = with_column("v: U64\n @range(v, ..5)", pa.array([5, 2**64 - 1], pa.decimal128(20, 0)))
    assert [item.message for item in found] == ["@range violation on T.v: value 18446744073709551615 > max 5"]


# --- enum ---------------------------------------------------------------------------------------------------


def test_enum_value_outside_its_set_is_refused() -> None:
    (found,) = violations(WORKED, [{"id": "X", "name": "X", "kind": "private"}], "node:Company")
    assert found.message == "invalid enum value 'private' for Company.kind (expected: public, startup)"
    assert (found.rule, found.id, found.property, found.value) == ("enum", "X", "kind", "private")


@pytest.mark.parametrize("kind", ["public", "startup", None])
def test_enum_value_of_its_set_or_null_is_accepted(kind: str | None) -> None:
    assert not violations(WORKED, [{"id": "X", "name": "X", "kind": kind}], "node:Company")


# --- @range -------------------------------------------------------------------------------------------------


def test_range_value_below_minimum_is_refused() -> None:
    (found,) = violations(WORKED, [{"id": "Ann", "name": "Ann", "age": -1}], "node:Person")
    assert found.message == "@range violation on Person.age: value -1 < min 0"
    assert found.value == -1


@pytest.mark.parametrize(
    ("scalar", "bounds", "value", "broken"),
    [
        ("I32", "0..150", 151, "151 > max 150"),
        ("I32", "0..150", 0, None),
        ("I32", "0..150", 150, None),
        ("I32", "0..150", None, None),
        ("I32", "..10", 11, "11 > max 10"),
        ("I32", "..10", -(2**31), None),
        ("I32", "0.5..1.5", 0, "0 < min 0.5"),
        ("I32", "0.5..1.5", 2, "2 > max 1.5"),
        ("I32", "0.5..1.5", 1, None),
        ("I64", "..9223372036854775806", 2**63 - 1, "9223372036854775807 > max 9223372036854775806"),
        ("I64", "..9223372036854775807", 2**63 - 1, None),
        ("U64", "18446744073709551615..", 2**64 - 2, "18446744073709551614 < min 18446744073709551615"),
        ("U64", "18446744073709551615..", 2**64 - 1, None),
        ("I64", "18446744073709551615..", 2**63 - 1, "9223372036854775807 < min 18446744073709551615"),
        ("F64", "0..1", -0.5, "-0.5 < min 0"),
        ("F64", "0..1", 1.0000000000000002, "1.0000000000000002 > max 1"),
        ("F64", "0..1", -0.0, None),
        ("F64", "0..1", math.inf, "Infinity > max 1"),
        ("F64", "0..1", -math.inf, "-Infinity < min 0"),
        ("F64", "9007199254740993..", 9007199254740992.0, "9007199254740992.0 < min 9007199254740993"),
        ("F64", "..9007199254740993", 9007199254740994.0, "9007199254740994.0 > max 9007199254740993"),
        ("F64", "..9007199254740993", 9007199254740992.0, None),
        ("F64", "0..1", math.nan, "is NaN"),
        ("F32", "0..", math.nan, "is NaN"),
        ("F32", "..0.5", 0.6, "0.6 > max 0.5"),
        # The nearest F32 lies above a tenth; the message must not say 0.1 > 0.1.
        ("F32", "..0.1", 0.1, "0.10000000149011612 > max 0.1"),
    ],
)  # fmt: skip
def test_range_bounds_are_inclusive_and_exact(
    scalar: str, bounds: str, value: Any, broken: str | None
) -> None:
    expected = [] if broken is None else [f"@range violation on T.v: value {broken}"]
    assert messages(f"v: {scalar}?\n @range(v, {bounds})", v=value) == expected


NUMBERS = (
    st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.sampled_from([10**400, -(10**400), 2**63])
)


@given(scalar=st.sampled_from([*INT_RANGES, Scalar.F32, Scalar.F64]), bound=NUMBERS, data=st.data())
@example(scalar=Scalar.I64, bound=float(2**63), data=None)
def test_range_bounds_compare_by_value_at_every_width(
    scalar: Scalar, bound: int | float, data: st.DataObject | None
) -> None:
    near = (
        [] if bound in (math.inf, -math.inf) or abs(bound) > 10**300 else [int(bound) + d for d in (-1, 0, 1)]
    )
    if scalar in INT_RANGES:
        low, high = INT_RANGES[scalar]
        values: list[Any] = [low, high, *(item for item in near if low <= item <= high)]
    else:
        width: Literal[32, 64] = 32 if scalar is Scalar.F32 else 64
        drawn = (
            [] if data is None else data.draw(st.lists(st.floats(width=width, allow_nan=False), max_size=3))
        )
        kept = np.float32 if width == 32 else np.float64
        with np.errstate(over="ignore"):
            values = [math.inf, -math.inf, *drawn, *(float(kept(item)) for item in near)]
    declared = catalog_of(f"node T {{ v: {scalar.value} }}")
    table = declared.tables["node:T"]
    rows = rows_of(table, [{"id": str(position), "v": value} for position, value in enumerate(values)])
    node = declared.schema.nodes[0]
    for rule in (Range("v", bound, None), Range("v", None, bound)):
        found = row_violations(table, type(node)(node.name, node.properties, (rule,)), rows)
        # Python compares integers and floats by value.
        beyond = {str(i) for i, v in enumerate(values) if (v < bound if rule.max is None else v > bound)}
        assert {item.id for item in found} == beyond


# --- @check -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "value", "matches"),
    [
        ("@", "a@b", True),
        ("b", "abc", True),
        ("^b", "abc", False),
        ("^[a-z]+$", "abc", True),
        # Python's `$` would also match before a final newline.
        ("^[a-z]+$", "abc\\n", False),
        ("(?i)urgent", "very URGENT", True),
        ("^.$", "é", True),
        ("", "", True),
        ("x", "", False),
    ],
)
def test_check_pattern_is_searched_unanchored(pattern: str, value: str, matches: bool) -> None:
    value = value.replace("\\n", "\n")
    expected = f"@check violation on T.v: value '{value}' does not match pattern '{pattern}'"
    assert messages(f'v: String?\n @check(v, "{pattern}")', v=value) == ([] if matches else [expected])
    assert messages(f'v: String?\n @check(v, "{pattern}")', v=None) == []


# --- vectors and lists --------------------------------------------------------------------------------------


def test_vector_of_other_dimension_is_refused() -> None:
    found = with_column("v: Vector(3)", pa.array([[1.0, 2.0, 3.0], [1.0, 2.0], []]))
    assert [(item.id, item.message, item.value) for item in found] == [
        ("t1", "vector property 'v' expects 3 dimensions, got 2", 2),
        ("t2", "vector property 'v' expects 3 dimensions, got 0", 0),
    ]


def test_column_of_vectors_of_other_dimension_is_refused() -> None:
    found = with_column("v: Vector(3)?", pa.array([[1, 2], None], pa.list_(pa.float32(), 2)))
    assert [item.message for item in found] == ["vector property 'v' expects 3 dimensions, got 2"]


@pytest.mark.parametrize(
    ("element", "value"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_vector_with_nan_or_infinity_is_refused(element: float, value: str) -> None:
    stored = pa.array([None, [0, 1], [element, element], None], pa.list_(pa.float32(), 2))
    (found,) = with_column("v: Vector(2)?", stored)
    assert (found.id, found.rule, found.value) == ("t2", "vector", value)
    assert found.message == "vector property 'v' elements must be finite"
    assert [item.id for item in with_column("v: Vector(2)?", stored.slice(1, 2))] == ["t1"]


def test_vector_with_double_beyond_f32_is_refused() -> None:
    assert [item.message for item in with_column("v: Vector(1)", pa.array([[1e300]]))] == [
        "vector property 'v' elements must be finite"
    ]


def test_vector_or_list_with_null_element_is_refused() -> None:
    (found,) = with_column("v: Vector(2)", pa.array([[1, 2], [1, None]], pa.list_(pa.float32(), 2)))
    assert (found.id, found.message) == ("t1", "vector property 'v' elements must be numeric, got null")
    (found,) = with_column("v: [String]?", pa.array([None, [], ["a"], ["a", None, None]]))
    assert (found.id, found.rule, found.message) == (
        "t3",
        "list",
        "list property 'v' elements must not be null",
    )


# --- values, order, bounds ----------------------------------------------------------------------------------


def test_violations_are_ordered_by_id_and_property() -> None:
    rows: list[Row] = [{"id": "b", "name": None, "age": -1}, {"id": "a", "name": "a", "age": 200}]
    found = violations(WORKED, rows, "node:Person")
    assert [(item.id, item.property) for item in found] == [("a", "age"), ("b", "age"), ("b", "name")]


def test_many_violations_are_counted_and_the_first_by_id_listed() -> None:
    rows = [{"id": f"{number:04}", "name": "x", "age": -number} for number in range(1000, 0, -1)]
    stored = rows_of(WORKED.tables["node:Person"], rows)
    for table in (stored, pa.concat_tables(stored.slice(at, 300) for at in range(0, 1000, 300))):
        found = check(WORKED, table, "node:Person")
        assert found.total == 1000
        assert [item.id for item in found] == [f"{number:04}" for number in range(1, MAX_REPORTED + 1)]


def test_rules_and_violations_can_be_pickled() -> None:
    table = WORKED.tables["node:Person"]
    rows = rows_of(table, [{"id": "Ann", "name": "Ann", "age": -1}])
    # A copy of the type has not cached anything yet; what it caches is only for the process that it is in.
    sent = pickle.loads(pickle.dumps((table, replace(entity_of(WORKED, table)), rows)))
    found = row_violations(*sent)
    assert pickle.loads(pickle.dumps(found)) == found == check(WORKED, rows, "node:Person")


def test_no_rows_have_no_violations() -> None:
    assert not violations(WORKED, [], "node:Person")
    assert list(Violations.merge([])) == []


def test_valid_rows_of_every_property_type_are_accepted() -> None:
    catalog = catalog_of("node T { " + "  ".join(f"p{i}: {t}" for i, t in enumerate(SAMPLES)) + " }")
    assert not violations(catalog, [{"id": "t", **{f"p{i}": v for i, v in enumerate(SAMPLES.values())}}])


SAMPLES: dict[PropType, Any] = {
    **{PropType(scalar): 1 for scalar in (*INT_RANGES, Scalar.F32, Scalar.F64, Scalar.DATE, Scalar.DATETIME)},
    **{PropType(scalar, is_list=True): [1] for scalar in (*INT_RANGES, Scalar.F32, Scalar.F64)},
    PropType(Scalar.STRING): "x",
    PropType(Scalar.BOOL): True,
    PropType(Scalar.BLOB): {"data": b"x", "uri": None},
    PropType(Scalar.VECTOR, dim=2): [1, 2],
    PropType(Scalar.STRING, enum_values=("a", "b")): "a",
}
