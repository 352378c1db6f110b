"""Export of a local graph: to one file or stream, or to a folder of files that this process or Spark writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from omnigraph.api.files.export_files import ExportFormat, ExportOptions, ExportTarget, folder_of, write_one
from omnigraph.engine.engine_choice import wants_spark

if TYPE_CHECKING:
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.read.export.export_parts import ExportJob, ExportPart, PartReport

# One process writes a million records a second, two million as Parquet. Below these counts Spark takes longer to
# start.
SPARK_ROWS: Mapping[ExportFormat, int] = {"ndjson": 50_000_000, "parquet": 100_000_000}


def run_export(
    repository: Repository, snapshot: Snapshot, target: ExportTarget, options: ExportOptions
) -> int:
    """Write a snapshot to the target and return the number of records. A file or folder appears when complete."""
    folder = folder_of(target, options)
    if folder is None:
        return _write_file(repository, snapshot, target, options)
    return _write_folder(repository, snapshot, folder, options)


def _write_file(
    repository: Repository, snapshot: Snapshot, target: ExportTarget, options: ExportOptions
) -> int:
    from omnigraph.read.export.record_export import export_lines

    chunks = export_lines(snapshot, options.types, options.progress)
    return write_one(target, chunks, repository.objects.options)


def _write_folder(repository: Repository, snapshot: Snapshot, target: str, options: ExportOptions) -> int:
    from omnigraph.read.export.export_folder import ExportFolder
    from omnigraph.read.export.export_parts import ExportJob, plan_parts

    parts = plan_parts(snapshot, options.types, options.format)
    on_spark = _chooses_spark(repository, target, options, parts)
    storage_options = repository.objects.options
    folder = ExportFolder.prepare(target, storage_options, overwrite=options.overwrite)
    job = ExportJob(
        repository.location.uri,
        snapshot.commit,
        folder.store.location.uri,
        folder.prefix,
        options.format,
        dict(storage_options),
    )
    names = [part.name for part in parts]
    try:
        with snapshot.held():
            if on_spark:
                _write_parts_on_spark(job, parts, options)
            else:
                _write_parts(job, parts, options, snapshot)
        rows: Counter[str] = Counter()
        for part in parts:
            rows[part.table.key] += part.rows
        folder.publish(names, {"commit": snapshot.commit_id, "format": options.format, "rows": dict(rows)})
    except BaseException as error:
        folder.discard(names, error)
        raise
    return rows.total()


def _chooses_spark(
    repository: Repository, target: str, options: ExportOptions, parts: Sequence[ExportPart]
) -> bool:
    """Return whether Spark writes the parts: on request, or because there are very many rows."""
    in_memory = repository.location.scheme == "memory" or target.lower().startswith("memory:")
    large = sum(part.rows for part in parts) >= SPARK_ROWS[options.format]
    return wants_spark(options.engine, in_memory=in_memory, large=large)


def _write_parts_on_spark(job: ExportJob, parts: Sequence[ExportPart], options: ExportOptions) -> None:
    from omnigraph.read.export.export_parts import write_part
    from omnigraph.spark.engine.tasks import run_tasks
    from omnigraph.spark.session import session_for

    def write(part: ExportPart) -> PartReport:
        return write_part(job, part)

    for part, report in zip(parts, run_tasks(session_for(options.spark), parts, write), strict=True):
        if report.error is not None:
            raise report.error
        if options.progress is not None:
            options.progress(part.table.key, report.rows)


def _write_parts(
    job: ExportJob, parts: Sequence[ExportPart], options: ExportOptions, snapshot: Snapshot
) -> None:
    from omnigraph.read.export.export_parts import write_part

    for part in parts:
        progress = None if options.progress is None else partial(options.progress, part.table.key)
        report = write_part(job, part, snapshot.tables, progress)
        if report.error is not None:
            raise report.error
