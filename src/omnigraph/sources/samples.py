"""The first rows of files and tables, with the types of their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from omnigraph.catalog.schema_proposal import Sample, type_name
from omnigraph.errors import InvalidInput
from omnigraph.sources.columnar_files import read_avro_rows
from omnigraph.sources.csv_files import read_text_batches
from omnigraph.sources.dataframes import table_of
from omnigraph.sources.input_files import InputFile, list_table_files, open_file, read_chunks
from omnigraph.sources.json.json_array import parse_json_array
from omnigraph.sources.json.json_files import starts_with_array
from omnigraph.sources.json.json_stream import parse_json_stream
from omnigraph.sources.mapping.type_mapping import Format
from omnigraph.store.storage_options import StorageOptions

Patterns: TypeAlias = tuple[tuple[str, pa.Scalar], ...]
# What all values of a text column must match to be of another type, and a value of that type. A number with a
# leading zero is a code.
_NUMBERS: Patterns = (
    (r"^-?(0|[1-9][0-9]{0,17})$", pa.scalar(0)),
    (r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$", pa.scalar(0.0)),
    (r"^(true|false)$", pa.scalar(False)),
)
_ZONE = "(Z|[+-][0-9]{2}:?[0-9]{2})?"
_TIMES: Patterns = (
    (r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", pa.scalar(date.min)),
    (
        rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}(\.[0-9]+)?)?{_ZONE}$",
        pa.scalar(0, pa.timestamp("ms")),
    ),
)


def sample_files(source: str | Path, count: int, options: StorageOptions) -> list[Sample]:
    """Return the first rows of each type in a file, a folder or a glob.

    The type of a file with rows of one type is named after the file. Graph records name their types. Files of one
    name, in different folders, belong together.
    """
    found: dict[str, list[Sample]] = {}
    for file, form in list_table_files(source, options):
        with open_file(file) as stream:
            for sample in _sample_file(stream, file, form, count):
                found.setdefault(sample.name, []).append(sample)
    return [_combined(samples) for samples in found.values()]


def sample_table(name: str, table: Any, count: int) -> Sample:
    """Return the first rows of an Arrow table, a data frame or a list of dicts."""
    given = table_of(table)
    if isinstance(given, pa.RecordBatchReader):
        rows = pa.Table.from_batches(_first(given, count), given.schema)
    elif isinstance(given, pa.Table):
        rows = given.slice(0, count)
    elif given is not None or isinstance(table, list | tuple):
        rows = _table_of_dicts(islice(iter(table if given is None else given), count))
    else:
        raise InvalidInput(
            f"expected a path, an Arrow table, a data frame or a list of dicts, got {type(table).__name__}"
        )
    return Sample(name, rows)


def _combined(samples: list[Sample]) -> Sample:
    if len(samples) == 1:
        return samples[0]
    rows = pa.concat_tables([sample.rows for sample in samples], promote_options="permissive")
    return Sample(samples[0].name, rows, samples[0].is_edge)


def _sample_file(stream: BinaryIO, file: InputFile, form: Format, count: int) -> Iterator[Sample]:
    name = type_name(Path(file.name.removesuffix(".gz")).stem)
    match form:
        case "csv":
            texts = pa.Table.from_batches(list(_first(read_text_batches(stream, file.name), count)))
            yield Sample(name, _typed_texts(texts, (*_NUMBERS, *_TIMES)))
        case "json":
            yield from _sample_json(stream, file, name, count)
        case "parquet":
            reader = pq.ParquetFile(stream)
            yield Sample(
                name, pa.Table.from_batches(_first(reader.iter_batches(count), count), reader.schema_arrow)
            )
        case "orc":
            from pyarrow import orc

            stripes = orc.ORCFile(stream)
            batches = map(stripes.read_stripe, range(stripes.nstripes))
            yield Sample(name, pa.Table.from_batches(_first(batches, count), stripes.schema))
        case "avro":
            yield Sample(name, _table_of_dicts(islice(read_avro_rows(stream, file.name), count)))
        case "arrow":
            with pa.ipc.open_file(stream) as arrow:
                batches = map(arrow.get_batch, range(arrow.num_record_batches))
                yield Sample(name, pa.Table.from_batches(_first(batches, count), arrow.schema))


def _sample_json(stream: BinaryIO, file: InputFile, name: str, count: int) -> Iterator[Sample]:
    parse = parse_json_array if starts_with_array(stream, file.name) else parse_json_stream
    rows: dict[tuple[str, bool], list[Mapping[str, Any]]] = {}
    for record in islice(parse(read_chunks(stream, file.name), file.name), count):
        if not isinstance(record, Mapping):
            raise InvalidInput(f"`{file.name}`: expected objects, got {type(record).__name__}")
        data = record.get("data") or {}
        if isinstance(record.get("type"), str) and isinstance(data, Mapping) and "data" in record:
            rows.setdefault((record["type"], False), []).append(data)
        elif isinstance(record.get("edge"), str) and "from" in record and "to" in record:
            ends = {"from": record["from"], "to": record["to"]}
            rows.setdefault((record["edge"], True), []).append({**ends, **data})
        else:
            rows.setdefault((name, False), []).append(record)
    for (found, is_edge), items in rows.items():
        yield Sample(found, _table_of_dicts(items), is_edge)


def _first(batches: Iterable[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of batches. No later batch is read."""
    left = count
    for batch in batches:
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def _table_of_dicts(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    given = list(rows)
    names = dict.fromkeys(name for row in given for name in row)
    columns = {name: _array([row.get(name) for row in given], name) for name in names}
    return _typed_texts(pa.table(columns), _TIMES)


def _array(values: list[Any], name: str) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidInput(f"the values of '{name}' have different types: {error}") from error


def _typed_texts(table: pa.Table, patterns: Patterns) -> pa.Table:
    """Return the table with a type for each text column all of whose values have the form of that type."""
    columns = [_typed_text(column, patterns) for column in table.columns]
    return pa.Table.from_arrays(columns, names=table.column_names)


def _typed_text(column: pa.ChunkedArray, patterns: Patterns) -> pa.ChunkedArray:
    if not pa.types.is_string(column.type) or column.null_count == len(column):
        return column
    for pattern, value in patterns:
        if pc.all(pc.match_substring_regex(column, pattern)).as_py():
            if pa.types.is_integer(value.type):
                # Whole numbers can be keys, so their values matter.
                return column.cast(value.type)
            return pc.if_else(column.is_valid(), value, pa.scalar(None, value.type))
    return column
