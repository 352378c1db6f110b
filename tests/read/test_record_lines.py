"""Records put together by columns are the records put together one by one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import arrow_schema, arrow_type
from omnigraph.catalog.row_json import json_values
from omnigraph.lang.types import INT_RANGES, PropType, Scalar
from omnigraph.read.export.record_lines import encode_records, json_texts
from tests.catalog.test_identity import catalog_of
from tests.read.exports import SCHEMA

CATALOG = catalog_of(SCHEMA)
TEXT = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\n\r\t\x00\x1f\x7f'), max_size=8
)
FLOATS = {Scalar.F32: 32, Scalar.F64: 64}


def scalars(kind: Scalar, finite: bool = False) -> st.SearchStrategy[Any]:
    if kind in INT_RANGES:
        return st.integers(*INT_RANGES[kind])
    if kind in FLOATS:
        odd = {} if not finite else {"allow_nan": False, "allow_infinity": False}
        return st.floats(width=FLOATS[kind], **odd)  # type: ignore[arg-type]
    if kind is Scalar.DATE:
        return st.integers(-(2**31), 2**31 - 1)
    if kind is Scalar.DATETIME:
        return st.integers(-(2**63), 2**63 - 1)
    if kind is Scalar.BLOB:
        return st.fixed_dictionaries(
            {"data": st.binary(max_size=4), "uri": st.none()}
        ) | st.fixed_dictionaries({"data": st.none(), "uri": TEXT})
    return st.booleans() if kind is Scalar.BOOL else TEXT


def values(kind: PropType) -> st.SearchStrategy[Any]:
    if kind.scalar is Scalar.VECTOR:
        return st.lists(scalars(Scalar.F32, finite=True), min_size=kind.dim or 0, max_size=kind.dim)
    if kind.is_list:
        return st.lists(scalars(kind.scalar), max_size=3)
    return scalars(kind.scalar)


def array_of(items: list[Any], kind: PropType) -> pa.Array:
    numbers = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}.get(kind.scalar)
    if numbers is None:
        return pa.array(items, arrow_type(kind))
    return pa.array(items, pa.list_(numbers) if kind.is_list else numbers).cast(arrow_type(kind))


def one_by_one(table: Table, rows: pa.Table) -> bytes:
    """The records row by row, as the contract says it."""
    columns: dict[str, list[Any]] = {}
    for column in table.columns:
        found = rows[column.physical].combine_chunks()
        if column.type.scalar in (Scalar.DATE, Scalar.DATETIME):
            number = pa.int32() if column.type.scalar is Scalar.DATE else pa.int64()
            columns[column.name] = found.cast(pa.list_(number) if column.type.is_list else number).to_pylist()
        else:
            columns[column.name] = json_values(found, column.type)
    lines = []
    for place in range(rows.num_rows):
        data = {name: items[place] for name, items in columns.items()}
        record: dict[str, Any] = {"type": table.name}
        if table.kind == "edge":
            record = {"edge": table.name, "from": data.pop("src"), "to": data.pop("dst")}
        record["data"] = data
        lines.append(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
    return "".join(lines).encode()


@pytest.mark.parametrize("key", ["node:Thing", "edge:Likes", "node:Note", "edge:About"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_lines_are_those_of_records_written_one_by_one(key: str, data: st.DataObject) -> None:
    table = CATALOG.tables[key]
    count = data.draw(st.integers(0, 6))
    columns = []
    for column in table.columns:
        kind = values(column.type)
        item = st.none() | kind if column.type.nullable else kind
        columns.append(array_of(data.draw(st.lists(item, min_size=count, max_size=count)), column.type))
    rows = pa.Table.from_arrays(columns, schema=arrow_schema(table, physical=True))
    assert encode_records(table, rows) == one_by_one(table, rows)
    # Slices share their buffers with what is not in them.
    start = data.draw(st.integers(0, count))
    cut = rows.slice(start, 3)
    assert encode_records(table, cut) == one_by_one(table, cut)
    for batch in cut.to_batches():
        assert encode_records(table, batch) == one_by_one(table, cut)


def test_every_width_of_float_is_written_in_the_shortest_way_that_reads_back() -> None:
    bits = np.random.default_rng(7).integers(0, 2**32, 20_000, dtype=np.uint64).astype(np.uint32)
    numbers = pa.array(bits.view(np.float32))
    kind = PropType(Scalar.F32)
    assert json_texts(numbers, kind).to_pylist() == [json.dumps(item) for item in json_values(numbers, kind)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_signs_are_looked_for_in_the_rows_of_a_slice_alone(kind: pa.DataType) -> None:
    texts = pa.array(["plain", "plain", 'a"b', "\x01", None], kind)
    for start, end, found in (
        (0, 2, ['"plain"'] * 2),
        (2, 3, ['"a\\"b"']),
        (3, 5, ['"\\u0001"', None]),
        (4, 4, []),
    ):
        assert json_texts(texts.slice(start, end - start), PropType(Scalar.STRING)).to_pylist() == found
