"""Rows of Python values as lines of JSON."""

from __future__ import annotations

import io
import uuid
from collections import OrderedDict
from datetime import UTC, date, timedelta, timezone
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.errors import InvalidInput, ResourceLimit
from omnigraph.protocol.upload_lines import bounded_lines, read_lines, write_lines

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.dates()
    | st.datetimes(timezones=st.none() | st.just(UTC) | st.just(timezone(timedelta(hours=5, minutes=30))))
    | st.binary()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


def sent(*rows: Any) -> list[Any]:
    return list(read_lines(io.BytesIO(b"".join(write_lines(rows)))))


# The first drawn character builds a table of Unicode, which takes seconds on a busy machine.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(VALUES, max_size=4))
def test_rows_round_trip(rows: list[Any]) -> None:
    assert sent(*rows) == rows


def test_numpy_values_keep_type_and_shape() -> None:
    values = [np.float32(0.1), np.int8(-1), np.bool_(True), np.datetime64("2024-01-31", "ns"), np.str_("ä")]
    for found, value in zip(sent(*values), values, strict=True):
        assert found == value
        assert isinstance(value, str) or type(found) is type(value)
    for array in (np.arange(6, dtype=">i4").reshape(2, 3), np.array([], np.float16), np.array(1.5)):
        (found,) = sent(array)
        np.testing.assert_array_equal(found, array)
        assert np.shape(found) == array.shape
    assert sent(np.array([1, "a", None], object)) == [[1, "a", None]]
    assert sent(np.array(["a", "ä"])) == [["a", "ä"]]


def test_numpy_unicode_array_is_rejected() -> None:
    line = b'{"tag": "numpy", "t": "<U1", "s": [1], "v": "////fw=="}'
    with pytest.raises(InvalidInput, match="row 1"):
        list(read_lines([b'"tag"\n', line]))


def test_mappings_become_dicts_and_lone_surrogates_are_kept() -> None:
    assert sent(MappingProxyType({"a": OrderedDict(b=1)}), {"\ud800": "\udfff"}) == [
        {"a": {"b": 1}},
        {"\ud800": "\udfff"},
    ]


def test_unsupported_value_becomes_placeholder() -> None:
    (found,) = sent({"id": uuid.UUID(int=7)})
    assert (type(found["id"]).__name__, str(found["id"])) == ("UUID", str(uuid.UUID(int=7)))


def test_caller_cannot_forge_marker() -> None:
    head, line = write_lines([date(2024, 1, 1)])
    tag = next(read_lines([b'""\n', line]))
    assert sent(tag) == [tag]
    assert list(read_lines([head, line])) == [date(2024, 1, 1)]
    assert head != next(write_lines([]))


@pytest.mark.parametrize("row", [{("a", 1): 2}, {"a": [{1, 2}, {frozenset(): 1}]}])
def test_row_without_json_form_raises_invalid_input(row: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot be sent"):
        sent(row)


def test_recursive_row_raises_invalid_input() -> None:
    row: dict[str, Any] = {}
    row["self"] = row
    with pytest.raises(InvalidInput, match="cannot be sent"):
        sent(row)


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"\xff",
        b'{"t": "date", "v": "soon"}',
        b'{"t": "date"}',
        b'{"t": "unknown"}',
        b'{"t": "bytes", "v": "!"}',
        b'{"t": "numpy", "t2": 1}',
        b"[" * 100_000,
    ],
)
def test_foreign_lines_raise_invalid_input(line: bytes) -> None:
    with pytest.raises(InvalidInput, match="row 1"):
        list(read_lines([b'"t"\n', line]))


def test_line_over_limit_raises_resource_limit() -> None:
    assert list(bounded_lines(io.BytesIO(b"abc\nde"), 4)) == [b"abc\n", b"de"]
    with pytest.raises(ResourceLimit):
        list(bounded_lines(io.BytesIO(b"abc\ndefgh\n"), 4))
