"""What a load can be given, and the reader for each: files of records, tables per type, records, streams."""

from __future__ import annotations

import glob
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, table_key
from omnigraph.errors import InvalidInput, NotFound, StorageError
from omnigraph.lang.source import suggestion
from omnigraph.store.location import Location
from omnigraph.store.objects import ObjectInfo, ObjectStore
from omnigraph.store.options import StorageOptions
from omnigraph.write.dicts import read_dicts, read_rows
from omnigraph.write.input import InputBatch, Rejecting
from omnigraph.write.ndjson import read_ndjson
from omnigraph.write.overlay import logical_schema
from omnigraph.write.permissive import read_permissive
from omnigraph.write.tabular import read_csv, read_parquet, read_table

RECORD_SUFFIXES = (".ndjson", ".jsonl", ".json")
TABLE_SUFFIXES = (".csv", ".parquet")
_GZIP = ".gz"
_READ = 1024 * 1024
_SIBLINGS = 1000
_PER_TYPE = 'give tables per type: {"Person": table, "Knows": edges}'


@dataclass(frozen=True)
class _Opening:
    catalog: Catalog
    permissive: bool
    rejecting: Rejecting | None
    options: StorageOptions = field(default_factory=dict)


@dataclass(frozen=True)
class InputFile:
    """A file somewhere: what messages call it, and how to get at its bytes."""

    name: str
    open: Callable[[], BinaryIO]


def open_source(
    source: Any,
    catalog: Catalog,
    *,
    permissive: bool = False,
    rejecting: Rejecting | None = None,
    options: StorageOptions | None = None,
) -> Iterator[InputBatch]:
    """The rows of whatever a load was given.

    - A path, a glob, a folder or a binary stream of graph records, one JSON object a line; ``.gz`` is unpacked.
      A path may also be an address: ``s3://bucket/key``, with a slash at its end for all files below it, or
      ``file://``. `options` are how to reach it.
    - A mapping from type to its rows: a path of CSV or Parquet, an Arrow, pandas or polars table, record batches,
      or rows as dicts. ``node:`` or ``edge:`` says which type is meant where both have the name.
    - An iterable of records as dicts.

    What a source is gets decided at once, before the first row is asked for: something else, a file that is not
    there, an unknown type raise here.
    """
    opening = _Opening(catalog, permissive, rejecting, options or {})
    if isinstance(source, Mapping):
        if {"type", "edge"} & source.keys():
            # Names of types begin with a capital letter.
            raise InvalidInput("a single record is no source", hint="give a list of records")
        return _chain([_announced(named_key(name, catalog), part, opening) for name, part in source.items()])
    if isinstance(source, str | Path):
        return _chain(
            [_records_of(file, opening) for file in list_files(source, RECORD_SUFFIXES, opening.options)]
        )
    if _is_stream(source):
        return _read_records(source, getattr(source, "name", None), opening)
    if arrow_of(source) is not None:
        raise InvalidInput("a table does not say what type its rows have", hint=_PER_TYPE)
    if isinstance(source, Iterable) and not isinstance(source, bytes | bytearray):
        return read_dicts(source, catalog, rejecting=rejecting)
    raise InvalidInput(
        f"cannot load from {type(source).__name__}", hint=f"give a path, records, or {_PER_TYPE[5:]}"
    )


def _chain(parts: Iterable[Callable[[], Iterator[InputBatch]]]) -> Iterator[InputBatch]:
    opened = list(parts)
    return (batch for part in opened for batch in part())


# --- files ------------------------------------------------------------------------------------------------


def list_files(source: str | Path, suffixes: tuple[str, ...], options: StorageOptions) -> list[InputFile]:
    """The files that a path or an address, a folder or a pattern names, by name."""
    text = str(source)
    # A path would have lost one of the slashes.
    if isinstance(source, str) and "://" in text:
        scheme = text.partition("://")[0].lower()
        if scheme in ("s3", "memory"):
            return _remote_files(text, suffixes, options)
        text = Location.parse(text).path
    return [_local_file(path) for path in _paths(text, source, suffixes)]


def _local_file(path: Path) -> InputFile:
    return InputFile(str(path), lambda: path.open("rb"))


def _remote_files(uri: str, suffixes: tuple[str, ...], options: StorageOptions) -> list[InputFile]:
    store, key = ObjectStore.holding(uri, options)

    def file_of(info: ObjectInfo) -> InputFile:
        return InputFile(f"{store.location.uri}/{info.key}", lambda: cast(BinaryIO, store.open_read(info)))

    if glob.has_magic(key):
        found = [file_of(info) for info in store.match(key)]
        if found:
            return found
        raise NotFound(f"no file matches `{uri}`")
    folder = key.removesuffix("/")
    if folder == key and key:
        try:
            return [file_of(store.head(key))]
        except NotFound:
            # What is called like this may be a folder; also, only a listing tells a missing bucket.
            if not store.exists_any(folder):
                names = [info.key for info in islice(store.list(folder.rpartition("/")[0]), _SIBLINGS)]
                raise NotFound(f"there is no file `{uri}`", hint=suggestion(key, names)) from None
    found = [file for file in map(file_of, store.list(folder)) if has_suffix(file.name, suffixes)]
    if not found:
        raise NotFound(f"folder `{uri}` has no file with {', '.join(suffixes)}")
    return found


def _paths(text: str, source: str | Path, suffixes: tuple[str, ...]) -> list[Path]:
    path = Path(text)
    if path.is_dir():
        found = sorted(item for item in path.iterdir() if item.is_file() and has_suffix(item.name, suffixes))
        if not found:
            raise NotFound(f"folder `{source}` has no file with {', '.join(suffixes)}")
        return found
    if path.exists():
        return [path]
    if glob.has_magic(text):
        base = Path(path.anchor or ".")
        found = sorted(item for item in base.glob(text.removeprefix(path.anchor)) if item.is_file())
        if found:
            return found
        raise NotFound(f"no file matches `{source}`")
    siblings = [item.name for item in path.parent.iterdir()] if path.parent.is_dir() else []
    raise NotFound(f"there is no file `{source}`", hint=suggestion(path.name, siblings))


def has_suffix(name: str, suffixes: tuple[str, ...]) -> bool:
    return name.lower().removesuffix(_GZIP).endswith(suffixes)


def _records_of(file: InputFile, opening: _Opening) -> Callable[[], Iterator[InputBatch]]:
    if has_suffix(file.name, TABLE_SUFFIXES):
        raise InvalidInput(f"`{file.name}` does not say what type its rows have", hint=_PER_TYPE)

    def read() -> Iterator[InputBatch]:
        with opened_file(file) as stream:
            yield from _read_records(stream, file.name, opening)

    return read


@contextmanager
def opened_file(file: InputFile) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked."""
    with ExitStack() as opened:
        try:
            stream = opened.enter_context(file.open())
        except OSError as error:
            raise StorageError(
                f"`{file.name}` cannot be read: {error}", details={"source": file.name}
            ) from error
        if file.name.lower().endswith(_GZIP):
            stream = cast(BinaryIO, opened.enter_context(gzip.GzipFile(fileobj=stream, mode="rb")))
        yield stream


def _read_records(stream: BinaryIO, name: Any, opening: _Opening) -> Iterator[InputBatch]:
    reader = read_permissive if opening.permissive else read_ndjson
    source = name if isinstance(name, str) else None
    return reader(bytes_of(stream, source), opening.catalog, source=source, rejecting=opening.rejecting)


def bytes_of(stream: BinaryIO, name: str | None) -> Iterator[bytes]:
    """The bytes of a stream; where they cannot be read or unpacked, that is an error of storage."""
    while True:
        try:
            found = stream.read(_READ)
        except (OSError, EOFError, zlib.error) as error:
            raise StorageError(f"`{name}` cannot be read: {error}", details={"source": name}) from error
        if not found:
            return
        yield found


def _is_stream(source: Any) -> bool:
    return callable(getattr(source, "read", None))


# --- tables per type --------------------------------------------------------------------------------------


def named_key(name: Any, catalog: Catalog) -> str:
    """The table that a name of a mapping means."""
    if name in catalog.tables:
        return str(name)
    schema = catalog.schema
    text = str(name)
    found = [
        table_key(item.kind, item.name) for item in (schema.node(text), schema.edge(text)) if item is not None
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidInput(f"'{text}' is a node type and an edge type", hint=f"write {' or '.join(found)}")
    known = [table.name for table in catalog.tables.values()]
    raise NotFound(f"no type '{text}'", hint=suggestion(text, known))


def _announced(key: str, rows: Any, opening: _Opening) -> Callable[[], Iterator[InputBatch]]:
    """The reader of a type, beginning with a batch without rows: a type that is named is there, be it empty."""
    table = opening.catalog.tables[key]
    nothing = InputBatch(key, logical_schema(table).empty_table(), pa.array([], pa.int64()))
    read = _typed(key, rows, opening)
    return lambda: chain([nothing], read())


def _typed(key: str, rows: Any, opening: _Opening) -> Callable[[], Iterator[InputBatch]]:
    """The reader of what a mapping has for a type."""
    catalog, rejecting = opening.catalog, opening.rejecting
    if isinstance(rows, str | Path):
        files = list_files(rows, TABLE_SUFFIXES, opening.options)
        odd = next((file for file in files if not has_suffix(file.name, TABLE_SUFFIXES)), None)
        if odd is not None:
            raise InvalidInput(
                f"`{odd.name}` is neither CSV nor Parquet", hint="graph records are given without a type"
            )
        return lambda: (batch for file in files for batch in _read_table_file(file, key, opening))
    table = arrow_of(rows)
    if table is not None:
        return lambda: read_table(key, table, catalog, rejecting=rejecting)
    if isinstance(rows, Iterable) and not isinstance(rows, bytes | bytearray | Mapping):
        return lambda: _read_rows(key, rows, opening)
    raise InvalidInput(f"'{key}' cannot be loaded from {type(rows).__name__}", hint="give a path or a table")


def _read_table_file(file: InputFile, key: str, opening: _Opening) -> Iterator[InputBatch]:
    reader = read_parquet if has_suffix(file.name, (".parquet",)) else read_csv
    with opened_file(file) as stream:
        yield from reader(stream, key, opening.catalog, source=file.name, rejecting=opening.rejecting)


def _read_rows(key: str, rows: Iterable[Any], opening: _Opening) -> Iterator[InputBatch]:
    """Record batches or dicts, whichever comes first."""
    iterator = iter(rows)
    first = next(iterator, None)
    if first is None:
        return iter(())
    rest = chain([first], iterator)
    if isinstance(first, Mapping):
        return read_rows(key, rest, opening.catalog, rejecting=opening.rejecting)
    return read_table(key, rest, opening.catalog, rejecting=opening.rejecting)


def arrow_of(source: Any) -> pa.Table | pa.RecordBatchReader | None:
    """A table of any library as Arrow has it, or None when it is none."""
    if isinstance(source, pa.Table | pa.RecordBatchReader):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    if any(
        kind.__module__.split(".")[0] == "pandas" and kind.__name__ == "DataFrame"
        for kind in type(source).__mro__
    ):
        # Its own Arrow stream would keep NaN, which means a missing value there.
        return pa.Table.from_pandas(source, preserve_index=False)
    if hasattr(source, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(source)
    return None
