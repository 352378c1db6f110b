"""Input files of a load: listing of paths, folders and globs, local or in object stores, and decompression."""

from __future__ import annotations

import glob
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

from omnigraph.budget.query_budget import count_decoded
from omnigraph.errors import InvalidInput, NotFound, StorageError
from omnigraph.lang.suggestions import suggestion
from omnigraph.sources.mapping.type_mapping import FORMATS, Format
from omnigraph.store.location import Location
from omnigraph.store.objects.object_store import ObjectInfo, ObjectStore
from omnigraph.store.storage_options import StorageOptions

# File name suffixes by format.
SUFFIXES: dict[Format, tuple[str, ...]] = {
    "csv": (".csv",),
    "json": (".ndjson", ".jsonl", ".json"),
    "parquet": (".parquet",),
    "orc": (".orc",),
    "avro": (".avro",),
    "arrow": (".arrow", ".feather", ".ipc"),
}
RECORD_SUFFIXES = SUFFIXES["json"]
TABLE_SUFFIXES = tuple(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)
_GZIP = ".gz"
_CHUNK_BYTES = 1024 * 1024
# Maximum number of names that suggestions are searched in.
_MAX_SIBLINGS = 1000


@dataclass(frozen=True, slots=True)
class FileVersion:
    """The size of a file, its modification time in microseconds since the epoch, and its entity tag or None."""

    size: int
    modified: int
    etag: str | None = None


@dataclass(frozen=True)
class InputFile:
    """A file: its name in errors, a function that opens it, and one that returns its version."""

    name: str
    open: Callable[[], BinaryIO]
    version: Callable[[], FileVersion]

    @property
    def is_compressed(self) -> bool:
        """Whether the file is compressed with gzip."""
        return self.name.lower().endswith(_GZIP)

    @property
    def format(self) -> Format | None:
        """Format of the file by its name, or None.

        >>> InputFile("people.CSV.gz", lambda: None, lambda: None).format
        'csv'
        """
        return next((item for item in FORMATS if has_suffix(self.name, SUFFIXES[item])), None)


def list_table_files(
    source: str | Path, options: StorageOptions, form: Format | None = None
) -> list[tuple[InputFile, Format]]:
    """Return the files with rows of one type, each with its format: `form`, or the format of its name."""
    if form is None:
        files = list_files(source, TABLE_SUFFIXES, options)
        unknown = next((file for file in files if file.format is None), None)
        if unknown is not None:
            raise InvalidInput(
                f"unknown format of `{unknown.name}`",
                hint=f"use a name that ends in {', '.join(TABLE_SUFFIXES)}, or set the format in a mapping",
            )
        return [(file, file.format) for file in files if file.format is not None]
    try:
        return [(file, form) for file in list_files(source, SUFFIXES[form], options)]
    except NotFound:
        # A folder whose files have other names, such as the part files of Hive.
        files = list_files(source, ("",), options)
        return [(file, form) for file in files if not Path(file.name).name.startswith(("_", "."))]


def list_files(source: str | Path, suffixes: tuple[str, ...], options: StorageOptions) -> list[InputFile]:
    """Return the files of a path, a URI, a folder or a glob, ordered by name."""
    text = str(source)
    # `Path` would have removed one of the slashes.
    if isinstance(source, str) and "://" in text:
        scheme = text.partition("://")[0].lower()
        if scheme in ("s3", "memory"):
            return _remote_files(text, suffixes, options)
        text = Location.parse(text).path
    return [_local_file(path) for path in _paths(text, source, suffixes)]


def _local_file(path: Path) -> InputFile:
    return InputFile(str(path), lambda: path.open("rb"), lambda: _local_version(path))


def _local_version(path: Path) -> FileVersion:
    try:
        found = path.stat()
    except OSError as error:
        raise StorageError(f"cannot read `{path}`: {error}", details={"source": str(path)}) from error
    return FileVersion(found.st_size, found.st_mtime_ns // 1000)


def _remote_files(uri: str, suffixes: tuple[str, ...], options: StorageOptions) -> list[InputFile]:
    store, key = ObjectStore.split_uri(uri, options)

    def file_of(info: ObjectInfo) -> InputFile:
        version = FileVersion(info.size, round(info.last_modified.timestamp() * 1_000_000), info.etag)
        return InputFile(
            f"{store.location.uri}/{info.key}",
            lambda: cast(BinaryIO, store.open_read(info)),
            lambda: version,
        )

    if glob.has_magic(key):
        files = [file_of(info) for info in store.match(key)]
        if files:
            return files
        raise NotFound(f"no file matches `{uri}`")
    folder = key.removesuffix("/")
    if folder == key and key:
        try:
            return [file_of(store.head(key))]
        except NotFound:
            # The key may be a folder. A missing bucket is detected by a listing only.
            if not store.exists_any(folder):
                names = [info.key for info in islice(store.list(folder.rpartition("/")[0]), _MAX_SIBLINGS)]
                raise NotFound(f"file `{uri}` not found", hint=suggestion(key, names)) from None
    files = [
        file_of(info)
        for info in store.list(folder)
        if has_suffix(info.key, suffixes) and not _is_hidden(info.key.removeprefix(folder).split("/")[:-1])
    ]
    if not files:
        raise NotFound(f"folder `{uri}` has no file with {', '.join(suffixes)}")
    return files


def _paths(text: str, source: str | Path, suffixes: tuple[str, ...]) -> list[Path]:
    path = Path(text)
    if path.is_dir():
        files = sorted(item for item in _files_below(path) if has_suffix(item.name, suffixes))
        if not files:
            raise NotFound(f"folder `{source}` has no file with {', '.join(suffixes)}")
        return files
    if path.exists():
        return [path]
    if glob.has_magic(text):
        base = Path(path.anchor or ".")
        files = sorted(item for item in base.glob(text.removeprefix(path.anchor)) if item.is_file())
        if files:
            return files
        raise NotFound(f"no file matches `{source}`")
    siblings = [item.name for item in path.parent.iterdir()] if path.parent.is_dir() else []
    raise NotFound(f"file `{source}` not found", hint=suggestion(path.name, siblings))


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and its subfolders."""
    for item in folder.rglob("*"):
        if not _is_hidden(item.relative_to(folder).parts[:-1]) and item.is_file():
            yield item


def _is_hidden(folders: Iterable[str]) -> bool:
    """Return whether a file is in an internal folder of a writer, such as ``_temporary`` or ``_delta_log``."""
    return any(name.startswith(("_", ".")) for name in folders)


def has_suffix(name: str, suffixes: tuple[str, ...]) -> bool:
    """Return whether a name has one of the suffixes, optionally followed by ``.gz``."""
    return name.lower().removesuffix(_GZIP).endswith(suffixes)


@contextmanager
def open_file(file: InputFile) -> Iterator[BinaryIO]:
    """Open a file, decompressed."""
    with ExitStack() as opened:
        try:
            stream = opened.enter_context(file.open())
        except OSError as error:
            raise StorageError(
                f"cannot read `{file.name}`: {error}", details={"source": file.name}
            ) from error
        if file.is_compressed:
            stream = cast(BinaryIO, opened.enter_context(gzip.GzipFile(fileobj=stream, mode="rb")))
        yield stream


def read_chunks(stream: BinaryIO, name: str | None) -> Iterator[bytes]:
    """Yield the bytes of a stream; raise `StorageError` when reading or decompressing fails."""
    while True:
        try:
            chunk = stream.read(_CHUNK_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            raise StorageError(f"cannot read `{name}`: {error}", details={"source": name}) from error
        if not chunk:
            return
        count_decoded(len(chunk))
        yield chunk
