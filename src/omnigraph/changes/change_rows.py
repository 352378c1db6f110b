"""Changes as Arrow columns: one row per change, with the images before and after as JSON texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Column, Table
from omnigraph.catalog.columns import ENDPOINT_NAMES
from omnigraph.catalog.row_json import json_values
from omnigraph.changes.change_records import Op
from omnigraph.changes.diff import OPS, TypeDiff
from omnigraph.engine.diff.column_equality import Bools
from omnigraph.engine.diff.table_diff import DELETE, INSERT, ChangeBatch
from omnigraph.lang.temporal import days_of
from omnigraph.lang.types import PropType, Scalar
from omnigraph.read.export.record_lines import json_texts
from omnigraph.store.manifest.records import CommitRecord

_TEXT = pa.large_string()


@dataclass(frozen=True)
class _TemporalFormat:
    """A type that an export writes as a number and a change image as text."""

    stored: pa.DataType
    unit: str
    per_day: int
    suffix: str

    def texts(self, values: pa.Array) -> pa.Array | None:
        """Return JSON texts; None if a value is outside the years 1 to 9999."""
        numbers = pc.fill_null(values.cast(self.stored), 0).to_numpy().astype(np.int64)
        first, end = days_of(date.min) * self.per_day, (days_of(date.max) + 1) * self.per_day
        if ((numbers < first) | (numbers >= end)).any():
            return None
        formatted = pa.array(np.datetime_as_string(numbers.astype(f"datetime64[{self.unit}]")), _TEXT)
        before, after, between = (pa.scalar(mark, _TEXT) for mark in ('"', f'{self.suffix}"', ""))
        texts = pc.binary_join_element_wise(before, formatted, after, between)
        return pc.if_else(values.is_valid(), texts, None)


_TEMPORAL: Final = {
    Scalar.DATE: _TemporalFormat(pa.int32(), "D", 1, ""),
    Scalar.DATETIME: _TemporalFormat(pa.int64(), "ms", 86_400_000, "Z"),
}


def read_change_rows(
    diff: TypeDiff,
    commit: CommitRecord,
    ops: tuple[Op, ...],
    part: tuple[int, int] | None,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a type that `commit` made, in the columns and types of a schema.

    `part` selects a hash partition of the ids. JSON texts are what ``json`` produces for the images of an
    `EntityChange`, without spaces.
    """
    if not diff.possible.intersection(ops or OPS.values()):
        return
    selected = [number for number, op in OPS.items() if not ops or op in ops]
    for batch in diff.rows.batches(part=part):
        kept = np.isin(batch.ops, selected)
        if kept.any():
            yield _encode(diff, commit, batch if kept.all() else batch.filter(kept), schema)


def _encode(diff: TypeDiff, commit: CommitRecord, batch: ChangeBatch, schema: pa.Schema) -> pa.RecordBatch:
    constants = _constants(diff, commit)
    arrays = []
    for column in schema:
        match column.name:
            case "id":
                found = batch.ids
            case "op":
                found = pa.array([OPS[number] for number in sorted(OPS)]).take(
                    pa.array(np.searchsorted(sorted(OPS), batch.ops))
                )
            case "before":
                found = _image_texts(diff, diff.before, batch.before, batch.ops != INSERT)
            case "after":
                found = _image_texts(diff, diff.after, batch.after, batch.ops != DELETE)
            case "changed":
                found = _changed_names(diff, batch)
            case name:
                found = pa.repeat(pa.scalar(constants[name], column.type), len(batch))
        arrays.append(found.cast(column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _constants(diff: TypeDiff, commit: CommitRecord) -> Mapping[str, Any]:
    """Return the values that are the same for all changes of one type in one commit."""
    return {
        "commit_id": commit.id,
        "parent_id": commit.parent,
        "branch": commit.branch,
        "actor": commit.actor,
        "committed_at": commit.created_at,
        "commit_sequence": commit.sequence,
        "kind": diff.kind,
        "type": diff.table.name,
        "type_id": diff.type_id,
    }


def _image_texts(diff: TypeDiff, table: Table | None, rows: pa.Table, there: Bools) -> pa.Array:
    """Return the images of one side as JSON texts, null where there is none."""
    if table is None or not there.any():
        return pa.nulls(len(there), _TEXT)
    columns = {column.physical: column for column in table.columns if column.physical != "id"}
    ends = [columns.pop(name) for name in ENDPOINT_NAMES if name in columns]
    pieces = ['{"properties":{', *_members(diff, rows, list(columns.values())), "}"]
    if ends:
        pieces += [',"endpoints":{', *_members(diff, rows, ends), "}"]
    joined = pc.binary_join_element_wise(
        *(pa.scalar(piece, _TEXT) if isinstance(piece, str) else piece for piece in (*pieces, "}", ""))
    )
    if isinstance(joined, pa.Scalar):
        joined = pa.repeat(joined, len(there))
    return joined if there.all() else pc.if_else(pa.array(there), joined, None)


def _members(diff: TypeDiff, rows: pa.Table, columns: list[Column]) -> Iterator[str | pa.Array]:
    comma = ""
    for column in columns:
        yield f"{comma}{json.dumps(diff.names[column.physical], ensure_ascii=False)}:"
        texts = _value_texts(rows[column.physical].combine_chunks(), column.type)
        yield pc.fill_null(texts, "null") if texts.null_count else texts
        comma = ","


def _value_texts(values: pa.Array, prop_type: PropType) -> pa.Array:
    temporal = _TEMPORAL.get(prop_type.scalar)
    if temporal is None:
        return json_texts(values, prop_type)
    if not prop_type.is_list:
        texts = temporal.texts(values)
        if texts is not None:
            return texts
    items = json_values(values, prop_type)
    return pa.array(
        [None if item is None else json.dumps(item, separators=(",", ":")) for item in items], _TEXT
    )


def _changed_names(diff: TypeDiff, batch: ChangeBatch) -> pa.Array:
    """Return the names of the properties that an update changed; empty for other operations."""
    updated = (batch.ops != INSERT) & (batch.ops != DELETE)
    flags: dict[str, Bools] = {}
    for column, name in diff.names.items():
        if column in batch.changed:
            found = batch.changed[column] & updated
            # Two properties that had the same name at different times are reported as one.
            flags[name] = flags[name] | found if name in flags else found
    if not flags:
        return pa.repeat(pa.scalar([], pa.list_(pa.string())), len(batch))
    matrix = np.array(list(flags.values())).T
    offsets = np.concatenate([[0], np.cumsum(matrix.sum(axis=1))])
    names = pa.array(list(flags), pa.string()).take(pa.array(np.nonzero(matrix)[1]))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), names)
