"""Values are compared by type, null by null, bit by bit."""

from __future__ import annotations

import datetime
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.columns import arrow_type
from omnigraph.engine.diff.column_equality import differing
from omnigraph.errors import InvalidInput
from omnigraph.lang.types import PropType, Scalar

NAN = float("nan")
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0001))[0]
VALUES: dict[Scalar, list[Any]] = {
    Scalar.STRING: ["", "a", "b", "é", "a\0"],
    Scalar.BLOB: [{"data": b"", "uri": None}, {"data": b"x", "uri": None}, {"data": None, "uri": "x"}],
    Scalar.BOOL: [True, False],
    Scalar.I32: [0, -1, 2**31 - 1],
    Scalar.I64: [0, 2**62, 2**62 + 1],
    Scalar.U32: [0, 2**32 - 1],
    Scalar.U64: [0, 2**64 - 1, 2**64 - 2],
    Scalar.F32: [0.0, -0.0, NAN, 1.5],
    Scalar.F64: [0.0, -0.0, NAN, OTHER_NAN, float("inf")],
    Scalar.DATETIME: [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 1, 0, 0, 0, 1_000)],  # noqa: DTZ001
    Scalar.DATE: [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)],
    Scalar.VECTOR: [[0.0, 1.0], [-0.0, 1.0], [NAN, 1.0], [1.0, 0.0]],
}
TYPES = [
    PropType(scalar, is_list=is_list, dim=2 if scalar is Scalar.VECTOR else None)
    for scalar in Scalar
    for is_list in (False, True)
]


def key(value: Any) -> Any:
    """What two equal values have in common and different ones do not, in plain Python."""
    if isinstance(value, float):
        return "nan" if value != value else struct.pack("<d", value)
    if isinstance(value, list):
        return ("list", *map(key, value))
    if isinstance(value, dict):
        return tuple(sorted((name, key(item)) for name, item in value.items()))
    return (type(value).__name__, value)


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_every_value_of_every_type_differs_from_every_other(type_: PropType) -> None:
    values = [None, *VALUES[type_.scalar]]
    if type_.is_list:
        one = VALUES[type_.scalar]
        values = [None, [], *([item] for item in one), [one[0], one[1]], [one[1], one[0]], [one[0], None]]
    pairs = [(left, right) for left in values for right in values]
    kind = arrow_type(type_)
    found = differing(
        pa.array([left for left, _ in pairs], kind), pa.array([right for _, right in pairs], kind)
    )
    assert found.tolist() == [key(left) != key(right) for left, right in pairs]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_slices_and_chunks_read_as_their_values(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(TYPES))
    one = st.one_of(st.none(), st.sampled_from(VALUES[type_.scalar]))
    value = st.one_of(st.none(), st.lists(one, max_size=3)) if type_.is_list else one
    rows = data.draw(st.lists(st.tuples(value, value), max_size=12))
    kind = arrow_type(type_)

    def column(values: list[Any]) -> pa.Array | pa.ChunkedArray:
        padding = data.draw(st.lists(value, max_size=3))
        array = pa.array([*padding, *values, *padding], kind).slice(len(padding), len(values))
        cut = data.draw(st.integers(0, len(values)))
        return pa.chunked_array([array[:cut], array[cut:]], kind) if data.draw(st.booleans()) else array

    found = differing(column([left for left, _ in rows]), column([right for _, right in rows]))
    assert found.tolist() == [key(left) != key(right) for left, right in rows]


def test_a_blob_of_two_nulls_is_an_absent_one() -> None:
    kind = arrow_type(PropType(Scalar.BLOB))
    found = differing(pa.array([{"data": None, "uri": None}], kind), pa.array([None], kind))
    assert found.tolist() == [False]


def test_large_types_are_compared_too() -> None:
    texts = [pa.array(["a", None, ""], pa.large_string()), pa.array(["a", "", ""], pa.large_string())]
    assert differing(*texts).tolist() == [False, True, False]
    lists = [
        pa.array([[1], [2], []], pa.large_list(pa.int8())),
        pa.array([[1], [3], None], pa.large_list(pa.int8())),
    ]
    assert differing(*lists).tolist() == [False, True, True]


def test_what_lies_below_a_null_does_not_count() -> None:
    kind = pa.list_(pa.float32(), 2)
    mask = pa.array([True, False])
    left = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4], pa.float32()), 2, mask=mask)
    right = pa.FixedSizeListArray.from_arrays(pa.array([9, 9, 3, 4], pa.float32()), 2, mask=mask)
    assert left.type == kind
    assert differing(left, right).tolist() == [False, False]


def test_nothing_differs_from_nothing() -> None:
    found = differing(pa.chunked_array([], pa.string()), pa.array([], pa.string()))
    assert found.dtype == np.bool_
    assert len(found) == 0


def test_columns_of_two_types_or_lengths_are_refused() -> None:
    with pytest.raises(InvalidInput):
        differing(pa.array([1], pa.int32()), pa.array([1], pa.int64()))
    with pytest.raises(InvalidInput):
        differing(pa.array([1]), pa.array([1, 2]))
