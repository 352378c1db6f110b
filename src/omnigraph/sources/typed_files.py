"""Reader of files with rows of one type, for all formats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from omnigraph.sources.columnar_files import read_arrow, read_avro, read_orc, read_parquet
from omnigraph.sources.csv_files import read_csv
from omnigraph.sources.input_files import read_chunks
from omnigraph.sources.json.json_files import read_json_array, read_json_lines, starts_with_array
from omnigraph.sources.json.line_blocks import without_bom
from omnigraph.sources.mapping.type_mapping import Format
from omnigraph.sources.row_batch import InputBatch
from omnigraph.sources.table_reader import TableInput


def read_table_file(stream: BinaryIO, form: Format, file: TableInput) -> Iterator[InputBatch]:
    """Read the rows of a file of this format, from the start of its decompressed bytes."""
    match form:
        case "csv":
            return read_csv(stream, file)
        case "json":
            if starts_with_array(stream, file.source):
                return read_json_array(stream, file)
            return read_json_lines(without_bom(read_chunks(stream, file.source)), file)
        case "parquet":
            return read_parquet(stream, file)
        case "orc":
            return read_orc(stream, file)
        case "avro":
            return read_avro(stream, file)
        case "arrow":
            return read_arrow(stream, file)
