"""Graph records that are Python objects already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from omnigraph.catalog.catalog import Catalog, Column
from omnigraph.catalog.columns import ENDPOINT_COLUMNS
from omnigraph.catalog.keys import canonical_text, endpoint_key, integer_key
from omnigraph.errors import InvalidInput
from omnigraph.sources.graph_records import Pending, Places, Row, Sheet, Sheets
from omnigraph.sources.json.json_values import check_unicode, display_value
from omnigraph.sources.row_batch import InputBatch, OnReject

_FINER = frozenset({"ns", "ps", "fs", "as"})


def read_dicts(
    records: Iterable[Mapping[str, Any]],
    catalog: Catalog,
    *,
    source: str | None = None,
    on_reject: OnReject | None = None,
) -> Iterator[InputBatch]:
    """Records of the same shape as lines of NDJSON, read as strictly; messages count records from 1.

    Besides JSON values there may be dates and datetimes (a naive one is UTC), bytes of a Blob, and numpy values.
    """
    sheets = Sheets(catalog)
    places = Places("record", source, on_reject)
    pending = Pending(source)
    for place, record in enumerate(records, 1):
        try:
            sheet, row = sheets.read(_plain_record(record))
        except InvalidInput as error:
            places.refuse(place, error, record)
            continue
        yield from pending.add(sheet, row, place)
    yield from pending.flush()


def read_rows(
    key: str,
    rows: Iterable[Mapping[str, Any]],
    catalog: Catalog,
    *,
    source: str | None = None,
    on_reject: OnReject | None = None,
) -> Iterator[InputBatch]:
    """Properties of one type as dicts, an edge with its ends beside them; messages count rows from 1."""
    sheet = Sheet.of(catalog, catalog.tables[key])
    places = Places("row", source, on_reject)
    pending = Pending(source)
    ends = {
        column: integer_key(endpoint_key(catalog, sheet.table.name, column))
        for column in ENDPOINT_COLUMNS.values()
        if sheet.table.kind == "edge"
    }
    for place, given in enumerate(rows, 1):
        try:
            row = _row(sheet, given, ends)
        except InvalidInput as error:
            places.refuse(place, error, given)
            continue
        yield from pending.add(sheet, row, place)
    yield from pending.flush()


def _row(sheet: Sheet, given: Any, integers: Mapping[str, Column | None]) -> Row:
    if not isinstance(given, Mapping):
        raise InvalidInput(f"a row is a dict, got {type(given).__name__}")
    data = {name: plain(value) for name, value in given.items()}
    ends: Row = {}
    for end, column in ENDPOINT_COLUMNS.items() if sheet.table.kind == "edge" else ():
        value = data.pop(end) if end in data else data.pop(column, None)
        integer = integers[column]
        if integer is not None and type(value) is int:
            value = canonical_text(value, integer.type, end)
        if not isinstance(value, str):
            raise InvalidInput(f"an edge needs the id of a node under '{end}', got {display_value(value)}")
        check_unicode(end, value)
        ends[column] = value
    row = sheet.row(data)
    sheet.check_id(row)
    return {**row, **ends}


def _plain_record(record: Any) -> Any:
    if not isinstance(record, Mapping):
        return record
    found = dict(record)
    if isinstance(found.get("data"), Mapping):
        found["data"] = {name: plain(value) for name, value in found["data"].items()}
    return found


def plain(value: Any) -> Any:
    """A numpy value as the Python value it stands for; any other as it is."""
    if not isinstance(value, np.generic | np.ndarray):
        return value
    if value.dtype.kind in "mM" and np.datetime_data(value.dtype.str)[0] in _FINER:
        # Python has nothing finer than microseconds: numpy would give a number, which means something else.
        value = value.astype(f"{value.dtype.kind}8[us]")
    return value.tolist()
