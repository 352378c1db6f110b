"""Pending rows of a mutation in the schema of their table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.mutate.pending_rows import with_schema

SCHEMA = pa.schema([pa.field("c1", pa.string(), nullable=False), pa.field("c2", pa.int32())])


@pytest.mark.parametrize("type_", [pa.int32(), pa.int64()])
def test_rows_with_a_schema_have_its_names_types_and_nullability(type_: pa.DataType) -> None:
    rows = pa.table({"name": ["Ann", "Bo"], "age": pa.array([1, None], type_)})
    found = with_schema(rows, SCHEMA)
    assert found.schema.equals(SCHEMA)
    assert found.to_pydict() == {"c1": ["Ann", "Bo"], "c2": [1, None]}


@pytest.mark.parametrize("type_", [pa.int32(), pa.int64()])
def test_rows_with_a_null_in_a_required_column_are_refused(type_: pa.DataType) -> None:
    rows = pa.table({"name": pa.array(["Ann", None], pa.string()), "age": pa.array([1, 2], type_)})
    with pytest.raises(ValueError, match="null values to non-nullable"):
        with_schema(rows, SCHEMA)
