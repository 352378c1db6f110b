"""The arguments of an export, and the target that it writes to.

Local and remote graphs share these functions.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from gzip import GzipFile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from omnigraph.api.results.commits import At
from omnigraph.engine.engine_choice import Engine, check_engine
from omnigraph.errors import InvalidInput
from omnigraph.graph.progress import Progress

if TYPE_CHECKING:
    from omnigraph.store.storage_options import StorageOptions

ExportFormat: TypeAlias = Literal["ndjson", "parquet"]
# A path, an address, or an open text file.
ExportTarget: TypeAlias = str | Path | IO[str]

_WRITE_CHARACTERS = 8_192
_GZIP = ".gz"
_FILE_SUFFIXES = (".ndjson", ".jsonl", ".json", ".parquet")


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The arguments of `Graph.export` besides the target."""

    branch: str = "main"
    at: At = None
    types: Sequence[str] | None = None
    progress: Progress | None = None
    format: ExportFormat = "ndjson"
    engine: Engine = "auto"
    spark: Any = None
    overwrite: bool = False


def check_export(target: ExportTarget, options: ExportOptions) -> None:
    """Raise `InvalidInput` for an unknown engine or format, and for a target that cannot be written."""
    check_engine(options.engine)
    if options.format not in get_args(ExportFormat):
        known = ", ".join(get_args(ExportFormat))
        raise InvalidInput(f"unknown format '{options.format}'", hint=f"one of {known}")
    if isinstance(options.types, str):
        raise InvalidInput(f"`types` must be a list of names, got '{options.types}'")
    check_target(target)


def check_target(target: Any) -> None:
    """Raise `InvalidInput` unless `target` is a path or a text stream."""
    if isinstance(target, str | Path):
        return
    if not callable(getattr(target, "write", None)):
        raise InvalidInput(f"a target is a path or a text stream, not a value of {type(target).__name__}")
    if isinstance(target, io.BufferedIOBase | io.RawIOBase) or "b" in str(getattr(target, "mode", "")):
        raise InvalidInput("expected a text stream, got a binary stream", hint="open it without `b`")


def folder_of(target: ExportTarget, options: ExportOptions) -> str | None:
    """Return the address of the folder if the export writes many files, None if it writes one file or a stream.

    Raises `InvalidInput` if the format or the engine writes many files and the target is one file or a stream.
    """
    many = "Parquet" if options.format == "parquet" else "Spark" if options.engine == "spark" else None
    if not isinstance(target, str | Path):
        if many is not None:
            raise InvalidInput(f"{many} writes many files, and the target is a stream", hint="give a folder")
        return None
    text = str(target)
    local = "://" not in text or text.lower().startswith("file:")
    if text.endswith("/") or (local and _local_path(target).is_dir()):
        return text
    if many is None:
        return None
    if text.lower().removesuffix(_GZIP).endswith(_FILE_SUFFIXES):
        raise InvalidInput(
            f"{many} writes many files, and `{text}` is the name of one file",
            hint="give a folder: a name that ends in /",
        )
    return text


def _local_path(target: str | Path) -> Path:
    from omnigraph.store.location import Location

    return Path(Location.parse(target).path) if isinstance(target, str) and "://" in target else Path(target)


def write_one(target: ExportTarget, chunks: Iterable[tuple[int, bytes]], options: StorageOptions) -> int:
    """Write chunks of lines, each with its number of lines, to a stream or a file; return the number of lines.

    A file appears when it is complete. A file whose name ends in ``.gz`` is compressed.
    """
    from omnigraph.api.files.local_files import atomic_write
    from omnigraph.store.location import Location
    from omnigraph.store.objects.object_store import ObjectStore

    if not isinstance(target, str | Path):
        return _write_text(target, chunks)
    compress = str(target).lower().endswith(_GZIP)
    if isinstance(target, str) and "://" in target and not Location.parse(target).is_local:
        store, key = ObjectStore.split_uri(target, options)
        with store.open_write(key) as file:
            return _write_bytes(file, chunks, compress=compress)
    with atomic_write(_local_path(target)) as text:
        return _write_bytes(text.buffer, chunks, compress=True) if compress else _write_text(text, chunks)


def _write_bytes(file: Any, chunks: Iterable[tuple[int, bytes]], *, compress: bool) -> int:
    count = 0
    # Without a timestamp and a name in the header, so that equal states give equal files.
    with GzipFile("", "wb", 6, file, mtime=0) if compress else nullcontext(file) as target:
        for rows, data in chunks:
            target.write(data)
            count += rows
    return count


def _write_text(file: IO[str], chunks: Iterable[tuple[int, bytes]]) -> int:
    count = 0
    for rows, data in chunks:
        text = data.decode()
        # An unbuffered stream reports a closed pipe only at the next write, so each write is small.
        for start in range(0, len(text), _WRITE_CHARACTERS):
            file.write(text[start : start + _WRITE_CHARACTERS])
        count += rows
    return count
