"""Files that a load is given: by path, folder or pattern, on disks or in object stores, packed or not."""

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

from omnigraph.errors import InvalidInput, NotFound, StorageError
from omnigraph.lang.suggestions import suggestion
from omnigraph.sources.mapping.type_mapping import FORMATS, Format
from omnigraph.store.location import Location
from omnigraph.store.objects.object_store import ObjectInfo, ObjectStore
from omnigraph.store.storage_options import StorageOptions

# What the names of files end in, by what is in them.
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
_READ = 1024 * 1024
_SIBLINGS = 1000


@dataclass(frozen=True)
class InputFile:
    """A file somewhere: what messages call it, and how to get at its bytes."""

    name: str
    open: Callable[[], BinaryIO]

    @property
    def is_compressed(self) -> bool:
        """Whether its bytes have to be unpacked."""
        return self.name.lower().endswith(_GZIP)

    @property
    def format(self) -> Format | None:
        """What its name says that is in it.

        >>> InputFile("people.CSV.gz", lambda: None).format
        'csv'
        """
        return next((item for item in FORMATS if has_suffix(self.name, SUFFIXES[item])), None)


def list_table_files(
    source: str | Path, options: StorageOptions, given: Format | None = None
) -> list[tuple[InputFile, Format]]:
    """The files with rows of one type that a path names, each with its format: `given`, or what its name says."""
    if given is None:
        found = [(file, file.format) for file in list_files(source, TABLE_SUFFIXES, options)]
        odd = next((file for file, form in found if form is None), None)
        if odd is not None:
            raise InvalidInput(
                f"`{odd.name}` is of no known format",
                hint=f"names end in {', '.join(TABLE_SUFFIXES)}, or a mapping says the format",
            )
        return [(file, form) for file, form in found if form is not None]
    try:
        return [(file, given) for file in list_files(source, SUFFIXES[given], options)]
    except NotFound:
        # A folder whose files have other names, such as parts that Hive wrote.
        files = list_files(source, ("",), options)
        return [(file, given) for file in files if not Path(file.name).name.startswith(("_", "."))]


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
    store, key = ObjectStore.split_uri(uri, options)

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
    found = [
        file_of(info)
        for info in store.list(folder)
        if has_suffix(info.key, suffixes) and not _is_aside(info.key.removeprefix(folder).split("/")[:-1])
    ]
    if not found:
        raise NotFound(f"folder `{uri}` has no file with {', '.join(suffixes)}")
    return found


def _paths(text: str, source: str | Path, suffixes: tuple[str, ...]) -> list[Path]:
    path = Path(text)
    if path.is_dir():
        found = sorted(item for item in _below(path) if has_suffix(item.name, suffixes))
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


def _below(folder: Path) -> Iterator[Path]:
    """The files of a folder and of those below it."""
    for item in folder.rglob("*"):
        if not _is_aside(item.relative_to(folder).parts[:-1]) and item.is_file():
            yield item


def _is_aside(folders: Iterable[str]) -> bool:
    """Whether a file is in a folder that writers keep for themselves, such as ``_temporary`` or ``_delta_log``."""
    return any(name.startswith(("_", ".")) for name in folders)


def has_suffix(name: str, suffixes: tuple[str, ...]) -> bool:
    """Whether a name ends in one of these, packed or not."""
    return name.lower().removesuffix(_GZIP).endswith(suffixes)


@contextmanager
def open_file(file: InputFile) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked."""
    with ExitStack() as opened:
        try:
            stream = opened.enter_context(file.open())
        except OSError as error:
            raise StorageError(
                f"`{file.name}` cannot be read: {error}", details={"source": file.name}
            ) from error
        if file.is_compressed:
            stream = cast(BinaryIO, opened.enter_context(gzip.GzipFile(fileobj=stream, mode="rb")))
        yield stream


def read_chunks(stream: BinaryIO, name: str | None) -> Iterator[bytes]:
    """The bytes of a stream; where they cannot be read or unpacked, that is an error of storage."""
    while True:
        try:
            found = stream.read(_READ)
        except (OSError, EOFError, zlib.error) as error:
            raise StorageError(f"`{name}` cannot be read: {error}", details={"source": name}) from error
        if not found:
            return
        yield found
