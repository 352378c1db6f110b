"""Permissive reader of graph records: a stream of JSON values with lenient rules.

Unknown fields are dropped, and a value of the wrong type becomes null; a `WarningCollector` receives each of them.
Values that would silently change are still rejected: an integer out of range, a datetime below a millisecond, an id
that does not match its key, and any value of a list or vector property that is not an array of its items.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.columns import ENDPOINT_COLUMNS
from omnigraph.catalog.id_aliases import IdAliases, accepts_id, typed_id
from omnigraph.catalog.key_arrays import derive_ids
from omnigraph.catalog.keys import TypeKey, derive_id, table_id_key
from omnigraph.errors import ErrorLocation, InvalidInput
from omnigraph.lang.suggestions import suggestion
from omnigraph.lang.types import Scalar
from omnigraph.sources.graph_records import (
    RECORD_FIELDS,
    BatchBuilder,
    RecordConverter,
    RecordConverters,
    Row,
    is_baseline,
    wrong_id,
)
from omnigraph.sources.input_warnings import InputWarning, WarningCollector, WarningKind
from omnigraph.sources.json.json_stream import RepeatedMembers, parse_json_stream
from omnigraph.sources.json.json_values import MISMATCH, check_unicode, display_value, mismatch_error
from omnigraph.sources.rejects import OnReject, RejectHandler
from omnigraph.sources.row_batch import InputBatch


def read_permissive(
    stream: BinaryIO | Iterable[bytes],
    catalog: Catalog,
    *,
    source: str | None = None,
    on_reject: OnReject | None = None,
    warnings: WarningCollector | None = None,
) -> Iterator[InputBatch]:
    """Read the records of a stream of JSON values, in any layout; errors count records.

    Edges are kept in memory and yielded after all nodes, because they may refer to nodes by the explicit ids of
    the same input. The first invalid record raises. With `on_reject` it is passed to the callback and reading
    continues, except after invalid JSON, where the start of the next record is unknown. Only accepted records give
    warnings.
    """
    reader = _PermissiveReader(
        catalog, RejectHandler("record", source, on_reject), warnings or WarningCollector()
    )
    edges = []
    for batch in reader.batches(parse_json_stream(stream, source)):
        if batch.key.startswith("edge:"):
            edges.append(batch)
        else:
            yield batch
    for batch in edges:
        yield reader.resolve_endpoints(batch)


class _PermissiveReader:
    def __init__(self, catalog: Catalog, rejects: RejectHandler, warnings: WarningCollector) -> None:
        self.catalog = catalog
        self.rejects = rejects
        self.warnings = warnings
        self.converters = RecordConverters(catalog)
        self.aliases = IdAliases()
        # Explicit ids of keyed edges, by place, to compare after the endpoints are resolved.
        self.edge_ids: dict[int, str] = {}

    def batches(self, values: Iterable[Any]) -> Iterator[InputBatch]:
        builder = BatchBuilder(self.rejects.source)
        for place, value in enumerate(values, 1):
            if is_baseline(value):
                continue
            try:
                converter, row, nulled, edge_id = self.convert(value)
            except InvalidInput as error:
                self.rejects.reject(place, error, value)
                continue
            if edge_id is not None:
                self.edge_ids[place] = edge_id
            self._warn(converter, value, nulled, place)
            yield from builder.add(converter, row, place)
        yield from builder.flush()

    def _warn(
        self, converter: RecordConverter, record: dict[str, Any], nulled: Sequence[str], place: int
    ) -> None:
        """Report the values of an accepted record that became null, and the fields that were dropped."""
        data = record.get("data") or {}
        for name in nulled:
            error = mismatch_error(converter.columns[name], data[name])
            self._add(converter, "nulled", name, place, f"{error.reason}; stored as null")
        fields = RECORD_FIELDS["type" if converter.table.kind == "node" else "edge"]
        known = {"id": None, **converter.columns}
        for members, names in ((record, fields), (data, known)):
            for name in members:
                if name not in names:
                    self._add(converter, "dropped", name, place, "unknown field dropped", names)
            for name in members.repeated if isinstance(members, RepeatedMembers) else ():
                self._add(converter, "dropped", name, place, "repeated field: all but the last value dropped")

    def _add(
        self,
        converter: RecordConverter,
        kind: WarningKind,
        name: str,
        place: int,
        message: str,
        names: Iterable[str] = (),
    ) -> None:
        def describe() -> InputWarning:
            hint = suggestion(name, names)
            text = message if hint is None else f"{message}; {hint}"
            shown = name.encode("utf-8", "backslashreplace").decode()
            return InputWarning(kind, text, converter.table.name, shown, place, self.rejects.source)

        self.warnings.add(kind, describe)

    def convert(self, value: Any) -> tuple[RecordConverter, Row, list[str], str | None]:
        """Return the converter and the row of a record, and the properties whose values became null.

        The last value is the explicit id of a keyed edge that differs from the id that its record gives.
        """
        record = value if isinstance(value, dict) else {}
        tag = next((tag for tag in ("type", "edge") if isinstance(record.get(tag), str)), None)
        if tag is None:
            raise InvalidInput("expected 'type' or 'edge' field")
        converter = self.converters.find(tag, record[tag])
        if converter is None:
            raise self.converters.unknown_type(tag, record[tag])
        data = {} if record.get("data") is None else record["data"]
        if not isinstance(data, dict):
            raise InvalidInput(f"field 'data' must be an object, got {display_value(data)}")
        row, nulled = _row(converter, data)
        if tag == "edge":
            for end, column in ENDPOINT_COLUMNS.items():
                if not isinstance(record.get(end), str):
                    raise InvalidInput(f"edge missing '{end}'")
                check_unicode(end, record[end])
                row[column] = record[end]
        if converter.key is not None:
            explicit = row.pop("id", None)
            derived = derive_id(converter.key, row)
            if tag == "edge":
                # Its endpoints may be resolved to other ids after all nodes are read, and the id with them.
                return converter, row, nulled, None if explicit == derived else explicit
            if explicit is not None and not accepts_id(converter.key, row, explicit):
                raise wrong_id(converter.key, explicit, derived)
            self.aliases.add(converter.table.name, derived, explicit)
        return converter, row, nulled, None

    def resolve_endpoints(self, batch: InputBatch) -> InputBatch:
        """Return edges with resolved endpoint ids, and the ids derived from them.

        Edges with an ambiguous endpoint are rejected, and those with another explicit id than the derived one.
        """
        edge = self.catalog.schema.edge(batch.key.removeprefix("edge:"))
        assert edge is not None, "the batch has a type of this catalog"
        rows = batch.rows
        errors: dict[int, InvalidInput] = {}
        for column, type_name in (("src", edge.source), ("dst", edge.target)):
            encoded = rows[column].combine_chunks().dictionary_encode()
            ids: list[str] = []
            for index, text in enumerate(encoded.dictionary.to_pylist()):
                try:
                    ids.append(self.aliases.resolve(type_name, text))
                except InvalidInput as error:
                    ids.append(text)
                    ambiguous = pc.indices_nonzero(pc.equal(encoded.indices, index)).to_pylist()
                    errors.update({position: error for position in ambiguous if position not in errors})
            at = rows.schema.get_field_index(column)
            resolved = pa.array(ids, pa.string()).take(encoded.indices)
            rows = rows.set_column(at, rows.schema.field(at), resolved)
        key = table_id_key(self.catalog, self.catalog.tables[batch.key])
        if key is not None:
            rows = rows.set_column(0, rows.schema.field(0), derive_ids(key, rows))
            errors = {**self._wrong_edge_ids(key, rows, batch.places), **errors}
        for position in sorted(errors):
            endpoints = rows.slice(position, 1).select(["src", "dst"]).to_pylist()[0]
            record = {"edge": edge.name, "from": endpoints["src"], "to": endpoints["dst"]}
            self.rejects.reject(batch.places[position].as_py(), errors[position], record)
        if not errors:
            return InputBatch(batch.key, rows, batch.places, batch.source)
        kept = pa.array([position not in errors for position in range(rows.num_rows)])
        return InputBatch(batch.key, rows.filter(kept), batch.places.filter(kept), batch.source)

    def _wrong_edge_ids(self, key: TypeKey, rows: pa.Table, places: pa.Array) -> dict[int, InvalidInput]:
        """Return the errors of edges whose explicit id is not the derived one, by position."""
        errors = {}
        for position, place in enumerate(places.to_pylist() if self.edge_ids else ()):
            explicit, derived = self.edge_ids.get(place), rows["id"][position].as_py()
            if explicit is not None and explicit != derived and typed_id(key, explicit) != derived:
                errors[position] = wrong_id(key, explicit, derived)
        return errors


def _row(converter: RecordConverter, data: dict[str, Any]) -> tuple[Row, list[str]]:
    row: Row = {}
    nulled: list[str] = []
    for name, convert in converter.converters.items():
        value = data.get(name)
        if value is not None:
            converted = convert(value)
            if converted is not MISMATCH:
                row[name] = converted
            elif converter.columns[name].type.is_list or converter.columns[name].type.scalar is Scalar.VECTOR:
                error = mismatch_error(converter.columns[name], value)
                raise error.located(ErrorLocation(type=converter.table.name))
            else:
                nulled.append(name)
    if data.get("id") is not None:
        row["id"] = converter.explicit_id(data["id"])
    converter.check_complete(row)
    return row, nulled
