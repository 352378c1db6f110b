"""The permissive reader: a stream of JSON values, read for what can be used of them.

Unknown fields are ignored and a value of the wrong type counts as null. What would silently become another value is
still refused: an integer out of range, a vector of another length, an id that does not belong to its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.columns import ENDPOINT_COLUMNS
from omnigraph.catalog.id_aliases import IdAliases, accepts_id
from omnigraph.catalog.keys import derive_id
from omnigraph.errors import InvalidInput
from omnigraph.sources.graph_records import Pending, Places, Row, Sheet, Sheets, wrong_id
from omnigraph.sources.json.json_stream import json_values
from omnigraph.sources.json.json_values import MISMATCH, check_unicode, display_value
from omnigraph.sources.row_batch import InputBatch, OnReject


def read_permissive(
    stream: BinaryIO | Iterable[bytes],
    catalog: Catalog,
    *,
    source: str | None = None,
    on_reject: OnReject | None = None,
) -> Iterator[InputBatch]:
    """The records of a stream of JSON values, which may be laid out over lines; places count records.

    Edges come after all nodes, and are held until then: a node may be given another spelling of its id, and edges
    of the same input may use it. The first bad record raises; with `on_reject` it is handed over and reading goes
    on, except after text that is no JSON, where nobody knows where the next record begins.
    """
    reader = _Reader(catalog, Places("record", source, on_reject))
    edges = []
    for batch in reader.batches(json_values(stream, source)):
        if batch.key.startswith("edge:"):
            edges.append(batch)
        else:
            yield batch
    for batch in edges:
        yield reader.rewrite(batch)


class _Reader:
    def __init__(self, catalog: Catalog, places: Places) -> None:
        self.catalog = catalog
        self.places = places
        self.sheets = Sheets(catalog)
        self.aliases = IdAliases()

    def batches(self, values: Iterable[Any]) -> Iterator[InputBatch]:
        pending = Pending(self.places.source)
        for place, value in enumerate(values, 1):
            try:
                sheet, row = self.read(value)
            except InvalidInput as error:
                self.places.refuse(place, error, value)
                continue
            yield from pending.add(sheet, row, place)
        yield from pending.flush()

    def read(self, value: Any) -> tuple[Sheet, Row]:
        record = value if isinstance(value, dict) else {}
        tag = next((tag for tag in ("type", "edge") if isinstance(record.get(tag), str)), None)
        if tag is None:
            raise InvalidInput("expected 'type' or 'edge' field")
        sheet = self.sheets.find(tag, record[tag])
        if sheet is None:
            raise self.sheets.unknown(tag, record[tag])
        data = {} if record.get("data") is None else record["data"]
        if not isinstance(data, dict):
            raise InvalidInput(f"field 'data' must be an object, got {display_value(data)}")
        row = _row(sheet, data)
        if tag == "edge":
            for end, column in ENDPOINT_COLUMNS.items():
                if not isinstance(record.get(end), str):
                    raise InvalidInput(f"edge missing '{end}'")
                check_unicode(end, record[end])
                row[column] = record[end]
        elif sheet.key is not None:
            given = row.pop("id", None)
            derived = derive_id(sheet.key, row)
            if given is not None and not accepts_id(sheet.key, row, given):
                raise wrong_id(sheet.table.name, given, derived)
            self.aliases.add(sheet.table.name, derived, given)
        return sheet, row

    def rewrite(self, batch: InputBatch) -> InputBatch:
        """Edges with the ids that their endpoints mean; an ambiguous one is refused."""
        edge = self.catalog.schema.edge(batch.key.removeprefix("edge:"))
        assert edge is not None, "the batch was made for a type of this catalog"
        rows = batch.rows
        refused: dict[int, InvalidInput] = {}
        for column, end in (("src", edge.source), ("dst", edge.target)):
            encoded = rows[column].combine_chunks().dictionary_encode()
            found: list[str] = []
            for index, text in enumerate(encoded.dictionary.to_pylist()):
                try:
                    found.append(self.aliases.resolve(end, text))
                except InvalidInput as error:
                    found.append(text)
                    hits = pc.indices_nonzero(pc.equal(encoded.indices, index)).to_pylist()
                    refused.update({hit: error for hit in hits if hit not in refused})
            position = rows.schema.get_field_index(column)
            resolved = pa.array(found, pa.string()).take(encoded.indices)
            rows = rows.set_column(position, rows.schema.field(position), resolved)
        for hit in sorted(refused):
            ends = rows.slice(hit, 1).select(["src", "dst"]).to_pylist()[0]
            record = {"edge": edge.name, "from": ends["src"], "to": ends["dst"]}
            self.places.refuse(batch.places[hit].as_py(), refused[hit], record)
        if not refused:
            return InputBatch(batch.key, rows, batch.places, batch.source)
        kept = pa.array([index not in refused for index in range(rows.num_rows)])
        return InputBatch(batch.key, rows.filter(kept), batch.places.filter(kept), batch.source)


def _row(sheet: Sheet, data: dict[str, Any]) -> Row:
    row: Row = {}
    for name, convert in sheet.converters.items():
        value = data.get(name)
        if value is not None:
            found = convert(value)
            if found is not MISMATCH:
                row[name] = found
    if data.get("id") is not None:
        row["id"] = sheet.explicit_id(data["id"])
    sheet.check_complete(row)
    return row
