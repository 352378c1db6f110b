"""Files as DataFrames: tasks read them with Arrow, from local disks and object stores alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from omnigraph.errors import InvalidInput
from omnigraph.sources.splits import SPLIT_BYTES, Split

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.sources.input_files import InputFile
    from omnigraph.sources.mapping.type_mapping import Format

FILE: Final = "_file"
FILE_TIME: Final = "_file_time"
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
# The usual width of a row, to estimate the number of rows.
_ROW_BYTES: Final = 100


@dataclass(frozen=True)
class FileRead:
    """How the files of a source are read. `columns` is Spark DDL, None for the columns of the first file.

    `folder` is the folder of the pipeline file. Folders above it are no partitions.
    """

    form: Format
    columns: str | None = None
    null: str = ""
    folder: str = ""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class FilePart:
    """A split of a file with the modification time of the file and the values of its partition columns."""

    split: Split
    modified: int
    partition: tuple[str | None, ...]


def file_frame(
    spark: SparkSession, files: Sequence[InputFile], example: InputFile | None, read: FileRead
) -> DataFrame:
    """Return the rows of files, with the partition columns of their folders, `_file` and `_file_time`.

    `example` is a file of the source that has its columns, if they are not declared.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    from omnigraph.spark.engine.part_frame import part_frame

    schema = _file_schema(example, read)
    names = tuple(name for name, _ in _partition(example.name, read.folder)) if example is not None else ()
    extra = [pa.field(name, pa.string()) for name in names if name not in schema.names]
    # A file may have the column of its partition too, which then counts.
    complete = pa.schema(
        [*schema, *extra, pa.field(FILE, pa.string()), pa.field(FILE_TIME, pa.timestamp("us", "UTC"))]
    )
    columns = from_arrow_schema(complete)
    if not files:
        return spark.createDataFrame([], columns)
    groups = _grouped([part for file in files for part in _parts(file, read, names)])
    size = sum(file.version().size for file in files)
    reader = partial(_read_group, read, schema, tuple(item.name for item in extra), names, complete)
    return part_frame(spark, groups, reader, columns, max(1, size // _ROW_BYTES))


def _file_schema(example: InputFile | None, read: FileRead) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    from omnigraph.sources.split_tables import read_file_schema

    if read.columns is not None:
        declared = StructType.fromDDL(read.columns)
        assert isinstance(declared, StructType)
        return to_arrow_schema(declared, timezone="UTC")
    if example is None:
        raise InvalidInput(
            "the source has no file, so its columns are unknown", hint="declare them with `columns`"
        )
    return read_file_schema(example, read.form, read.null)


def _partition(name: str, folder: str) -> list[tuple[str, str | None]]:
    """Return the partition columns and values in the folders of a file, without those of the pipeline's folder.

    >>> _partition("s3://b/env=x/in/day=2026-05-01/shop=A%2FB/part-0.csv", "s3://b/env=x")
    [('day', '2026-05-01'), ('shop', 'A/B')]
    """
    inner = name.removeprefix(f"{folder.rstrip('/')}/")
    pairs = [segment.partition("=") for segment in inner.split("/")[:-1]]
    return [
        (key, None if value == _HIVE_NULL else unquote(value))
        for key, equals, value in pairs
        if equals and key
    ]


def _parts(file: InputFile, read: FileRead, names: tuple[str, ...]) -> Iterator[FilePart]:
    from omnigraph.sources.split_tables import split_table_file, whole_file

    version = file.version()
    values = dict(_partition(file.name, read.folder))
    if tuple(values) != names:
        raise InvalidInput(
            f"`{file.name}` has the partition columns {', '.join(values) or 'none'}, "
            f"other files have {', '.join(names) or 'none'}"
        )
    splits = [whole_file(file, read.form)]
    if version.size > SPLIT_BYTES:
        # Only a large file is opened here.
        splits = split_table_file(file, read.form, SPLIT_BYTES)
    for split in splits:
        yield FilePart(split, version.modified, tuple(values.values()))


def _grouped(parts: Sequence[FilePart]) -> list[tuple[FilePart, ...]]:
    """Return the parts of each task: a large part, or several small ones."""
    groups: list[list[FilePart]] = []
    room = 0
    for part in parts:
        split = part.split
        is_range = split.stop is not None and split.form in ("records", "csv")
        size = (split.stop or 0) - split.start if is_range else SPLIT_BYTES // 8
        if not groups or size > room:
            groups.append([])
            room = SPLIT_BYTES
        groups[-1].append(part)
        room -= size
    return [tuple(group) for group in groups]


def _read_group(
    read: FileRead,
    schema: pa.Schema,
    extra: tuple[str, ...],
    names: tuple[str, ...],
    complete: pa.Schema,
    group: tuple[FilePart, ...],
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from omnigraph.sources.split_tables import read_split_table

    for part in group:
        moment = datetime.fromtimestamp(part.modified / 1_000_000, UTC)
        values = dict(zip(names, part.partition, strict=True))
        constants = [*(values[name] for name in extra), part.split.file, moment]
        kinds = [item.type for item in complete][len(schema) :]
        for batch in read_split_table(part.split, schema, read.storage, read.null):
            added = [
                pa.repeat(pa.scalar(value, kind), batch.num_rows)
                for value, kind in zip(constants, kinds, strict=True)
            ]
            yield pa.RecordBatch.from_arrays([*batch.columns, *added], schema=complete)
