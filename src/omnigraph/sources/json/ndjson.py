"""The strict reader of graph records, one JSON object per line.

Whole blocks of lines go through Arrow's own JSON parser where that provably gives the same rows; every other block
is read record by record, which is what defines the rows and the errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NoReturn

from omnigraph.catalog.catalog import Catalog
from omnigraph.errors import ErrorLocation, InvalidInput, OmnigraphError, ResourceLimit
from omnigraph.sources.graph_records import ONE_A_LINE, Pending, Places, Sheets
from omnigraph.sources.json.line_blocks import LINE_BYTES, Block, blocks
from omnigraph.sources.json.ndjson_columns import ColumnLane
from omnigraph.sources.row_batch import InputBatch, OnReject

BATCH_BYTES = 16 * 1024 * 1024


def read_ndjson(
    stream: BinaryIO | Iterable[bytes],
    catalog: Catalog,
    *,
    source: str | None = None,
    on_reject: OnReject | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[InputBatch]:
    """The records of a stream as typed rows, in batches that `batch_bytes` of input bound.

    The first bad record raises, with its line and `source` in the details, after the rows before it have been given
    out in part; with `on_reject` it is handed over there and reading goes on.

    >>> from omnigraph.catalog.catalog import accept
    >>> from omnigraph.lang.pg.schema_compiler import load_schema
    >>> text = "node Person { name: String @key  age: I32? }"
    >>> catalog = accept(load_schema(text), text)
    >>> (batch,) = read_ndjson([b'{"type":"Person","data":{"name":"Ann","age":30}}'], catalog)
    >>> batch.key, batch.rows.to_pylist()
    ('node:Person', [{'id': 'Ann', 'age': 30, 'name': 'Ann'}])
    """
    sheets = Sheets(catalog)
    places = Places("line", source, on_reject)
    lane = ColumnLane(sheets, source)
    for block in blocks(stream, max(1, batch_bytes)):
        found = None if block.too_long else lane.read(block)
        if found is None:
            yield from _read_records(block, sheets, places)
        else:
            yield from found


def _read_records(block: Block, sheets: Sheets, places: Places) -> Iterator[InputBatch]:
    if block.too_long:
        limit = {"resource": "graph_batch_line_bytes", "limit": LINE_BYTES}
        places.refuse(
            block.first, ResourceLimit(f"the line is longer than {LINE_BYTES:,} bytes", details=limit)
        )
        return
    pending = Pending(places.source)
    for place, line in enumerate(block.data.split(b"\n"), block.first):
        if not line or not line.strip(b" \t\r"):
            continue
        try:
            sheet, row = sheets.read(decode_line(line, place))
        except OmnigraphError as error:
            places.refuse(place, error, line.decode("utf-8", "backslashreplace").removesuffix("\r"))
            continue
        yield from pending.add(sheet, row, place)
    yield from pending.flush()


def decode_line(line: bytes, place: int) -> Any:
    """The value of a line of strict JSON."""
    try:
        found = _DECODER.decode(line.decode())
        if b"\\ud" in line or b"\\uD" in line:
            # Half a surrogate pair is valid JSON but no text.
            json.dumps(found, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        # The first line of an array or of an object that goes over several.
        hint = ONE_A_LINE if line.strip() in (b"[", b"{") else None
        raise _invalid(place, f"{error.msg} at column {error.colno}", hint) from error
    except UnicodeDecodeError as error:
        raise _invalid(place, f"invalid UTF-8 at byte {error.start + 1}") from error
    except UnicodeEncodeError as error:
        raise _invalid(place, "lone surrogate in a string") from error
    except RecursionError as error:
        raise _invalid(place, "nested too deeply") from error
    except ValueError as error:
        raise _invalid(place, str(error)) from error
    return found


def _invalid(place: int, reason: str, hint: str | None = None) -> InvalidInput:
    return InvalidInput(reason, hint=hint, location=ErrorLocation(line=place, syntax="strict JSON"))


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"duplicate JSON member '{name}'")
            seen.add(name)
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_refuse_constant)
