"""Strict reader of graph records, one JSON object per line.

Arrow's JSON parser reads whole blocks of lines where its result provably equals the definition in `graph_records`.
Every other block is read record by record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NoReturn

from omnigraph.catalog.catalog import Catalog
from omnigraph.errors import ErrorLocation, InvalidInput, OmnigraphError
from omnigraph.sources.graph_records import ONE_OBJECT_PER_LINE, BatchBuilder, RecordConverters, is_baseline
from omnigraph.sources.json.line_blocks import LINE_BYTES, LineBlock, line_blocks, line_too_long
from omnigraph.sources.json.ndjson_columns import ColumnarReader
from omnigraph.sources.rejects import OnReject, RejectHandler
from omnigraph.sources.row_batch import InputBatch
from omnigraph.sources.row_operations import RowOperations

BATCH_BYTES = 16 * 1024 * 1024


def read_ndjson(
    stream: BinaryIO | Iterable[bytes],
    catalog: Catalog,
    *,
    source: str | None = None,
    on_reject: OnReject | None = None,
    batch_bytes: int = BATCH_BYTES,
    operations: RowOperations | None = None,
) -> Iterator[InputBatch]:
    """Read the records of a stream as typed rows, in batches of at most about `batch_bytes` of input.

    The first invalid record raises, with its line and `source`; some of the rows before it have been yielded by
    then. With `on_reject` it is passed to the callback and reading continues.

    >>> from omnigraph.catalog.catalog import accept
    >>> from omnigraph.lang.pg.schema_compiler import load_schema
    >>> text = "node Person { name: String @key  age: I32? }"
    >>> catalog = accept(load_schema(text), text)
    >>> (batch,) = read_ndjson([b'{"type":"Person","data":{"name":"Ann","age":30}}'], catalog)
    >>> batch.key, batch.rows.to_pylist()
    ('node:Person', [{'id': 'Ann', 'age': 30, 'name': 'Ann'}])
    """
    converters = RecordConverters(catalog, operations)
    rejects = RejectHandler("line", source, on_reject)
    # Arrow does not tell a missing field from a null, which differ in a patch.
    columnar = ColumnarReader(converters, source) if operations is None else None
    for block in line_blocks(stream, max(1, batch_bytes)):
        # Arrow needs several copies of a block, which is only long if a line of it has a large Blob value.
        is_long = block.too_long or len(block.data) > LINE_BYTES + batch_bytes
        batches = None if is_long or columnar is None else columnar.read(block)
        if batches is None:
            yield from _read_records(block, converters, rejects)
        else:
            yield from batches


def _read_records(
    block: LineBlock, converters: RecordConverters, rejects: RejectHandler
) -> Iterator[InputBatch]:
    if block.too_long:
        rejects.reject(block.first, line_too_long())
        return
    builder = BatchBuilder(rejects.source)
    for place, line in enumerate(block.data.split(b"\n"), block.first):
        if not line or not line.strip(b" \t\r"):
            continue
        record: Any = None
        try:
            record = decode_line(line, place)
            if is_baseline(record):
                continue
            converter, row = converters.convert(record)
        except OmnigraphError as error:
            text = line.decode("utf-8", "backslashreplace").removesuffix("\r")
            rejects.reject(place, error, text, *converters.entity_of(record))
            continue
        yield from builder.add(converter, row, place)
    yield from builder.flush()


def decode_line(line: bytes, place: int) -> Any:
    """Return the value of a line of strict JSON; raise `InvalidInput` with the line number for invalid JSON."""
    try:
        value = _DECODER.decode(line.decode())
        if b"\\ud" in line or b"\\uD" in line:
            # JSON escapes can contain an unpaired surrogate, which is not valid text.
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        # The first line of an array, or of an object that extends over several lines.
        hint = ONE_OBJECT_PER_LINE if line.strip() in (b"[", b"{") else None
        raise _invalid(place, f"{error.msg} at column {error.colno}", hint) from error
    except UnicodeDecodeError as error:
        raise _invalid(place, f"invalid UTF-8 at byte {error.start + 1}") from error
    except UnicodeEncodeError as error:
        raise _invalid(place, "unpaired surrogate in a string") from error
    except RecursionError as error:
        raise _invalid(place, "nested too deeply") from error
    except ValueError as error:
        raise _invalid(place, str(error)) from error
    return value


def decode_value(text: str, position: int) -> tuple[Any, int]:
    """Return the value of strict JSON at a position, and the position behind it.

    Raises the errors of Python's parser, `ValueError` for other violations, and `UnicodeEncodeError` for an
    unpaired surrogate.
    """
    value, end = _DECODER.raw_decode(text, position)
    if text.find("\\ud", position, end) >= 0 or text.find("\\uD", position, end) >= 0:
        json.dumps(value, ensure_ascii=False).encode()
    return value, end


def _invalid(place: int, reason: str, hint: str | None = None) -> InvalidInput:
    return InvalidInput(reason, hint=hint, location=ErrorLocation(line=place, syntax="strict JSON"))


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"duplicate JSON member '{name}'")
            seen.add(name)
    return members


def reject_constant(name: str) -> NoReturn:
    """Reject NaN and Infinity, which Python's parser accepts as numbers."""
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_members, parse_constant=reject_constant)
