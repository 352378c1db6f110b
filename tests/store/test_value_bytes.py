"""Byte ranges of single values, compared with the values that Lance reads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.catalog.catalog import Column
from omnigraph.catalog.columns import arrow_field, arrow_type
from omnigraph.errors import StorageError
from omnigraph.lang.types import PropType, Scalar
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.lance.page_layout import (
    ConstantPage,
    FileFooter,
    FullZipPage,
    Page,
    UnknownLayout,
    parse_pages,
)
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.fragment_writer import append_rows
from omnigraph.store.tables.tables import Tables
from omnigraph.store.tables.value_bytes import ColumnFile, ValueBytes

BLOB = PropType(Scalar.BLOB, nullable=True)
STORED = arrow_field(Column("b", BLOB, "b"), physical=True)
# The columns of graphs that were created before values were stored as they are.
COMPRESSED = pa.field("b", arrow_type(BLOB))
LARGE = 5 << 20


def blobs(sizes: Sequence[int | None], seed: int = 0) -> list[bytes | None]:
    """Values of these sizes; every second one can be compressed."""
    source = random.Random(seed)
    return [
        None if size is None else bytes([number]) * size if number % 2 else source.randbytes(size)
        for number, size in enumerate(sizes)
    ]


def rows(values: Sequence[bytes | None], field: pa.Field, first: int = 0) -> pa.Table:
    structs = [None if value is None else {"data": value, "uri": None} for value in values]
    ids = [str(first + number) for number in range(len(values))]
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), field])
    return pa.table([pa.array(ids), pa.array(structs, field.type)], schema=schema)


def make(folder: str, parts: Sequence[Sequence[bytes | None]], field: pa.Field) -> tuple[Tables, TablePin]:
    """A table with one fragment for each part."""
    tables = Tables(LanceRoot.from_uri(folder, {}, "os"))
    version = tables.create("nodes/t", rows([], field).schema).version
    pin = TablePin("nodes/t", version, 0, "")
    for part in parts:
        staged = tables.stage(pin, insert=rows(part, field, pin.rows))
        pin = TablePin(pin.path, staged.version, staged.rows, "")
    return tables, pin


def open_value(tables: Tables, pin: TablePin, address: int) -> ValueBytes | None:
    file = ColumnFile(tables, pin, "b", "data", address)
    pages = file.read_pages()
    return None if pages is None else file.open_value(pages)


@pytest.mark.parametrize("field", [STORED, COMPRESSED], ids=["stored", "compressed"])
def test_open_value_of_every_size_returns_its_ranges(tmp_path: Path, field: pa.Field) -> None:
    sizes = [300, None, 0, LARGE, 1, LARGE + 1, None, 70_000, 400]
    values = blobs(sizes)
    tables, pin = make(str(tmp_path), [values, values[::-1]], field)
    expected = [*values, *values[::-1]]
    source = random.Random(1)
    scanned = tables.open(pin.path, pin.version).scanner(columns=["b"], with_row_address=True).to_table()
    for address, value in zip(scanned["_rowaddr"].to_pylist(), expected, strict=True):
        found = open_value(tables, pin, address)
        if value is None:
            assert found is None
            continue
        assert found is not None
        assert found.size == len(value)
        assert found.read(0, len(value)) == value
        for _ in range(5):
            start = source.randint(0, len(value))
            end = source.randint(start, len(value))
            assert found.read(start, end) == value[start:end]


@given(
    st.lists(st.none() | st.integers(0, 2_000), min_size=1, max_size=12),
    st.sampled_from([STORED, COMPRESSED]),
    st.integers(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_open_value_agrees_with_lance_or_refuses_the_layout(
    sizes: list[int | None], field: pa.Field, seed: int
) -> None:
    values = blobs(sizes, seed)
    tables, pin = make(f"memory://values-{uuid4().hex}", [values], field)
    for offset, value in enumerate(values):
        try:
            found = open_value(tables, pin, offset)
        except UnknownLayout:
            # Pages of small values, or of nulls only, are read by Lance.
            assert max(size or 0 for size in sizes) < 300
            continue
        assert (None if found is None else found.read(0, found.size)) == value


def test_open_value_of_added_column_without_values_is_none(tmp_path: Path) -> None:
    tables = Tables(LanceRoot.from_uri(str(tmp_path), {}, "os"))
    schema = pa.schema([pa.field("id", pa.string(), nullable=False)])
    pin = TablePin("nodes/t", tables.create("nodes/t", schema).version, 0, "")
    staged = tables.stage(pin, insert=pa.table([pa.array(["a"])], schema=schema))
    wider = tables.stage_columns(TablePin(pin.path, staged.version, 1, ""), pa.schema([*schema, STORED]))
    assert open_value(tables, TablePin(pin.path, wider.version, 1, ""), 0) is None


def test_append_with_plain_schema_stores_values_as_they_are(tmp_path: Path) -> None:
    """The schema of the table decides, not the schema of the rows."""
    tables, pin = make(str(tmp_path), [], STORED)
    dataset = tables.open(pin.path, pin.version)
    fragments = append_rows(
        dataset, rows([b"z" * LARGE], COMPRESSED).to_batches(), rows([], COMPRESSED).schema
    )
    assert (fragments[0].files[0].file_size_bytes or 0) > LARGE


@pytest.mark.parametrize("field", [STORED, COMPRESSED], ids=["stored", "compressed"])
def test_read_of_truncated_file_raises_storage_error(tmp_path: Path, field: pa.Field) -> None:
    tables, pin = make(str(tmp_path), [blobs([LARGE, 10])], field)
    found = open_value(tables, pin, 0)
    assert found is not None
    data = next((tmp_path / "nodes" / "t" / "data").glob("*.lance"))
    data.write_bytes(data.read_bytes()[: LARGE // 2])
    with pytest.raises(StorageError):
        found.read(0, LARGE)


def test_value_with_altered_length_raises_storage_error(tmp_path: Path) -> None:
    tables, pin = make(str(tmp_path), [blobs([1_000, 1_000])], STORED)
    file = ColumnFile(tables, pin, "b", "data", 0)
    pages = file.read_pages()
    assert pages is not None
    page = pages.pages[0]
    assert isinstance(page, FullZipPage)
    path = tmp_path / "nodes" / "t" / "data" / pages.file
    content = bytearray(path.read_bytes())
    content[page.data_start + page.control_bytes] ^= 1
    path.write_bytes(content)
    with pytest.raises(StorageError, match="damaged"):
        ColumnFile(tables, pin, "b", "data", 0).open_value(pages)


@pytest.mark.parametrize("data", [b"", b"\x12", b"\x12\xff", b"\x12\x02\x08", b"\x13\x00", b"\xff" * 40])
def test_parse_pages_of_other_bytes_raises_or_finds_no_values(data: bytes) -> None:
    with suppress(UnknownLayout):
        assert not any(isinstance(page, FullZipPage) for page in parse_pages(data))


def test_parse_footer_of_other_file_raises() -> None:
    with pytest.raises(UnknownLayout):
        FileFooter.parse(bytes(40))


@pytest.mark.parametrize("field", [STORED, COMPRESSED], ids=["stored", "compressed"])
@pytest.mark.parametrize(("sizes", "kind"), [([LARGE, LARGE], FullZipPage), ([LARGE], ConstantPage)])
def test_layout_of_large_values_is_known(
    tmp_path: Path, field: pa.Field, sizes: list[int], kind: type[Page]
) -> None:
    """A newer Lance that stores large values in another way must fail here, not load whole values silently."""
    tables, pin = make(str(tmp_path), [blobs(sizes)], field)
    pages = ColumnFile(tables, pin, "b", "data", 0).read_pages()
    assert pages is not None
    assert [type(page) for page in pages.pages] == [kind], lance.__version__


@pytest.mark.parametrize("field", [STORED, COMPRESSED], ids=["stored", "compressed"])
@pytest.mark.parametrize(
    "values", [[b"x" * 1_000] * 3, [b"y" * LARGE, None], [None, b"", None], [b"ab"], [None]]
)
def test_open_value_of_page_with_one_value_returns_it(field: pa.Field, values: list[bytes | None]) -> None:
    tables, pin = make(f"memory://values-{uuid4().hex}", [values], field)
    for offset, value in enumerate(values):
        try:
            found = open_value(tables, pin, offset)
        except UnknownLayout:
            assert set(values) == {None}
            continue
        assert (None if found is None else found.read(0, found.size)) == value
