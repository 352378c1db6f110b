"""Compressed Arrow batches and ORC stripes: their decoded size is known and limited before they are decoded."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as po
import pytest

from omnigraph.budget.query_budget import QueryLimits, limit_query
from omnigraph.errors import ResourceLimit
from omnigraph.sources.arrow_messages import file_sizes, next_size
from omnigraph.sources.decoded_sizes import (
    BATCH_BYTES,
    arrow_file_batches,
    arrow_stream_batches,
    bounded_batches,
    orc_batches,
)
from omnigraph.sources.row_batch import BATCH_ROWS

COMPRESSIONS = [None, "zstd", "lz4"]
ROWS = 5_000
Write = Callable[[pa.Table, str | None], io.BytesIO]


def write_file(table: pa.Table, compression: str | None) -> io.BytesIO:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as out:
        out.write_table(table, max_chunksize=2_000)
    return io.BytesIO(sink.getvalue())


def write_stream(table: pa.Table, compression: str | None) -> io.BytesIO:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as out:
        out.write_table(table, max_chunksize=2_000)
    return io.BytesIO(sink.getvalue())


def read_batches(stream: io.BytesIO) -> list[pa.RecordBatch]:
    if stream.getvalue().startswith(b"ARROW1"):
        return list(arrow_file_batches(stream, pa.ipc.open_file(stream)))
    return list(arrow_stream_batches(stream, pa.ipc.open_stream(stream)))


def sample() -> pa.Table:
    names = pa.array([f"name {number % 7}" if number % 5 else None for number in range(ROWS)])
    return pa.table(
        {
            "name": names,
            "kind": names.dictionary_encode(),
            "tags": pa.array([[number, number] for number in range(ROWS)]),
            "nothing": pa.nulls(ROWS),
        }
    )


@pytest.mark.parametrize("write", [write_file, write_stream])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_arrow_batches_of_any_compression_are_read_whole(write: Write, compression: str | None) -> None:
    found = pa.Table.from_batches(read_batches(write(sample(), compression)))
    assert found.equals(sample())


def test_decoded_size_of_compressed_batches_is_that_of_plain_ones() -> None:
    plain_dictionaries, plain = file_sizes(write_file(sample(), None))
    for compression in ("zstd", "lz4"):
        dictionaries, batches = file_sizes(write_file(sample(), compression))
        assert [item.rows for item in batches] == [2_000, 2_000, 1_000]
        # Plain buffers are padded to 64 bytes.
        for packed, unpacked in zip([dictionaries, *batches], [plain_dictionaries, *plain], strict=True):
            assert packed.size <= unpacked.size <= packed.size + 64 * 16
        first = next_size(write_stream_at_first_batch(compression))
        assert first is not None
        assert first.size == batches[0].size + dictionaries.size


def write_stream_at_first_batch(compression: str) -> io.BytesIO:
    stream = write_stream(sample(), compression)
    pa.ipc.open_stream(stream)
    return stream


@pytest.mark.parametrize("write", [write_file, write_stream])
@pytest.mark.parametrize("limits", [QueryLimits(bytes=1 << 30), QueryLimits(decoded=1 << 30)])
def test_compressed_batch_of_a_terabyte_is_refused_before_it_is_decoded(
    write: Write, limits: QueryLimits
) -> None:
    table = pa.table({"number": pa.array(range(2_000), pa.int64())})
    data = write(table, "zstd").getvalue()
    stated = struct.pack("<q", 16_000)
    assert data.count(stated) == 1
    bomb = io.BytesIO(data.replace(stated, struct.pack("<q", 1 << 40)))
    with limit_query(limits), pytest.raises(ResourceLimit) as caught:
        read_batches(bomb)
    assert caught.value.details["actual"] >= 1 << 40


@pytest.mark.parametrize("write", [write_file, write_stream])
def test_damaged_arrow_headers_raise_arrow_errors_only(write: Write) -> None:
    table = pa.table({"number": pa.array(range(200), pa.int64()), "text": pa.array(["x"] * 200)})
    data = write(table, "zstd").getvalue()
    for at in range(8, len(data), 3):
        for value in (0x00, 0x7F, 0xFF):
            damaged = io.BytesIO(data[:at] + bytes([value]) + data[at + 1 :])
            with limit_query(QueryLimits(bytes=1 << 20)):
                try:
                    read_batches(damaged)
                except (pa.ArrowException, ResourceLimit, OSError, UnicodeDecodeError):
                    continue


def test_rows_without_data_are_cut_and_counted() -> None:
    batch = pa.record_batch({"nothing": pa.nulls(10 * BATCH_ROWS)})
    sizes = [item.num_rows for item in bounded_batches([batch])]
    assert sizes == [BATCH_ROWS] * 10
    with limit_query(QueryLimits(decoded=BATCH_ROWS)), pytest.raises(ResourceLimit):
        list(bounded_batches([batch]))


def test_orc_stripe_of_one_repeated_value_is_read_in_bounded_batches(tmp_path: Path) -> None:
    path = tmp_path / "bomb.orc"
    rows, value = 4_000, "x" * 50_000
    table = pa.table(
        {"text": pa.chunked_array([pa.array([value] * 500)] * 8), "number": pa.array(range(rows))}
    )
    po.write_table(table, path, compression="zlib", dictionary_key_size_threshold=1.0, stripe_size=1 << 30)
    assert path.stat().st_size < 100_000
    assert po.ORCFile(path).nstripes == 1
    with path.open("rb") as stream:
        batches = list(orc_batches(stream, BATCH_ROWS))
    assert [number for batch in batches for number in batch["number"].to_pylist()] == list(range(rows))
    assert len(batches) > 1
    assert max(batch.nbytes for batch in batches) <= BATCH_BYTES + 256 * (len(value) + 16)
    with path.open("rb") as stream, limit_query(QueryLimits(bytes=32 << 20)):
        with pytest.raises(ResourceLimit) as caught:
            list(orc_batches(stream, BATCH_ROWS))
        assert caught.value.details["actual"] < 64 << 20


def test_orc_batches_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "plain.orc"
    table = pa.table({"number": pa.array(range(ROWS)), "text": [f"t{number}" for number in range(ROWS)]})
    po.write_table(table, path)
    with path.open("rb") as stream:
        batches = list(orc_batches(stream, 2_048))
    assert [batch.num_rows for batch in batches] == [2_048, 2_048, ROWS - 4_096]
    assert pa.Table.from_batches(batches).equals(table)
