"""Exports as the API offers them: one ordered file or stream, or a folder of many files, here or on Spark."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from gzip import GzipFile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from omnigraph.engine.engine_choice import Engine, check_engine, wants_spark
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.read.export.export_parts import ExportJob, ExportPart, PartReport
    from omnigraph.store.storage_options import StorageOptions

ExportFormat: TypeAlias = Literal["ndjson", "parquet"]

_PIECE = 8_192
_GZIP = ".gz"
_FILE_SUFFIXES = (".ndjson", ".jsonl", ".json", ".parquet")
# Here a million records are written in a second, two million as Parquet: for less, starting Spark takes longer.
SPARK_ROWS: Mapping[ExportFormat, int] = {"ndjson": 50_000_000, "parquet": 100_000_000}


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """An export as it was asked for."""

    target: str | Path | IO[str]
    branch: str = "main"
    at: str | datetime | Snapshot | None = None
    types: Sequence[str] | None = None
    progress: Callable[[str, int], None] | None = None
    format: ExportFormat = "ndjson"
    engine: Engine = "auto"
    spark: Any = None
    overwrite: bool = False


def run_export(repository: Repository, request: ExportRequest) -> int:
    """Write a state where it was asked for; the number of records. A file or a folder is complete or not there."""
    check_export(request)
    snapshot = repository.snapshot(request.branch, request.at)
    folder = folder_of(request)
    if folder is None:
        return _write_one(repository, request, snapshot)
    return _write_many(repository, request, snapshot, folder)


def check_export(request: ExportRequest) -> None:
    """Refuse an engine and a format that do not exist, and what cannot be written to."""
    check_engine(request.engine)
    if request.format not in get_args(ExportFormat):
        known = ", ".join(get_args(ExportFormat))
        raise InvalidInput(f"unknown format '{request.format}'", hint=f"one of {known}")
    if isinstance(request.types, str):
        raise InvalidInput(f"a list of names is needed, not the text '{request.types}'")
    check_target(request.target)


def check_target(target: Any) -> None:
    """Refuse what is neither the name of a file or folder nor a stream of text."""
    if isinstance(target, str | Path):
        return
    if not callable(getattr(target, "write", None)):
        raise InvalidInput(f"a target is a path or a stream of text, not a value of {type(target).__name__}")
    if isinstance(target, io.BufferedIOBase | io.RawIOBase) or "b" in str(getattr(target, "mode", "")):
        raise InvalidInput("what is written is text, and the stream takes bytes", hint="open it without `b`")


def folder_of(request: ExportRequest) -> str | None:
    """The address of the folder that many files are meant to go to; None for one file or a stream."""
    target = request.target
    why = "Parquet" if request.format == "parquet" else "Spark" if request.engine == "spark" else None
    if not isinstance(target, str | Path):
        if why is not None:
            raise InvalidInput(f"{why} writes many files, which a stream is not", hint="give a folder")
        return None
    text = str(target)
    local = "://" not in text or text.lower().startswith("file:")
    if text.endswith("/") or (local and _local_path(target).is_dir()):
        return text
    if why is None:
        return None
    if text.lower().removesuffix(_GZIP).endswith(_FILE_SUFFIXES):
        raise InvalidInput(
            f"{why} writes many files, and `{text}` is the name of one",
            hint="give a folder: a name that ends in /",
        )
    return text


def _local_path(target: str | Path) -> Path:
    from omnigraph.store.location import Location

    return Path(Location.parse(target).path) if isinstance(target, str) and "://" in target else Path(target)


# --- one file ---------------------------------------------------------------------------------------------


def _write_one(repository: Repository, request: ExportRequest, snapshot: Snapshot) -> int:
    from omnigraph.read.export.record_export import export_lines

    chunks = export_lines(snapshot, request.types, request.progress)
    return write_one(request.target, chunks, repository.objects.options)


def write_one(
    target: str | Path | IO[str], chunks: Iterable[tuple[int, bytes]], options: StorageOptions
) -> int:
    """Write chunks of whole lines, each with how many, to a stream or to a file that is whole or not there.

    A file whose name ends in ``.gz`` is packed.
    """
    from omnigraph.api.files import replacing
    from omnigraph.store.location import Location
    from omnigraph.store.objects.object_store import ObjectStore

    if not isinstance(target, str | Path):
        return _write_text(target, chunks)
    is_packed = str(target).lower().endswith(_GZIP)
    if isinstance(target, str) and "://" in target and not Location.parse(target).is_local:
        store, key = ObjectStore.split_uri(target, options)
        with store.open_write(key) as file:
            return _write_bytes(file, chunks, packed=is_packed)
    with replacing(_local_path(target)) as text:
        return _write_bytes(text.buffer, chunks, packed=True) if is_packed else _write_text(text, chunks)


def _write_bytes(file: Any, chunks: Iterable[tuple[int, bytes]], *, packed: bool) -> int:
    count = 0
    # Without a time and a name in it, so that equal states give equal files.
    with GzipFile("", "wb", 6, file, mtime=0) if packed else nullcontext(file) as target:
        for rows, data in chunks:
            target.write(data)
            count += rows
    return count


def _write_text(file: IO[str], chunks: Iterable[tuple[int, bytes]]) -> int:
    count = 0
    for rows, data in chunks:
        text = data.decode()
        # A stream without a buffer does not tell that its reader left in the middle of a write, only at the next.
        for start in range(0, len(text), _PIECE):
            file.write(text[start : start + _PIECE])
        count += rows
    return count


# --- many files -------------------------------------------------------------------------------------------


def _write_many(repository: Repository, request: ExportRequest, snapshot: Snapshot, target: str) -> int:
    from omnigraph.read.export.export_folder import ExportFolder
    from omnigraph.read.export.export_parts import ExportJob, plan_parts

    parts = plan_parts(snapshot, request.types, request.format)
    on_spark = _wants_spark(repository, request, target, parts)
    options = repository.objects.options
    folder = ExportFolder.prepare(target, options, overwrite=request.overwrite)
    job = ExportJob(
        repository.location.uri,
        snapshot.commit,
        folder.store.location.uri,
        folder.prefix,
        request.format,
        dict(options),
    )
    names = [part.name for part in parts]
    try:
        if on_spark:
            _write_on_spark(job, parts, request)
        else:
            _write_here(job, parts, request, snapshot)
        rows: Counter[str] = Counter()
        for part in parts:
            rows[part.table.key] += part.rows
        folder.publish(names, {"commit": snapshot.commit_id, "format": request.format, "rows": dict(rows)})
    except BaseException as error:
        folder.discard(names, error)
        raise
    return rows.total()


def _wants_spark(
    repository: Repository, request: ExportRequest, target: str, parts: Sequence[ExportPart]
) -> bool:
    """Whether the parts are for Spark: asked for, or of very many rows together."""
    in_memory = repository.location.scheme == "memory" or target.lower().startswith("memory:")
    large = sum(part.rows for part in parts) >= SPARK_ROWS[request.format]
    return wants_spark(request.engine, in_memory=in_memory, large=large)


def _write_on_spark(job: ExportJob, parts: Sequence[ExportPart], request: ExportRequest) -> None:
    from omnigraph.read.export.export_parts import write_part
    from omnigraph.spark.engine.tasks import run_tasks
    from omnigraph.spark.session import session_for

    def write(part: ExportPart) -> PartReport:
        return write_part(job, part)

    for part, report in zip(parts, run_tasks(session_for(request.spark), parts, write), strict=True):
        if report.error is not None:
            raise report.error
        if request.progress is not None:
            request.progress(part.table.key, report.rows)


def _write_here(
    job: ExportJob, parts: Sequence[ExportPart], request: ExportRequest, snapshot: Snapshot
) -> None:
    from omnigraph.read.export.export_parts import write_part

    for part in parts:
        progress = None if request.progress is None else partial(request.progress, part.table.key)
        report = write_part(job, part, snapshot.tables, progress)
        if report.error is not None:
            raise report.error
