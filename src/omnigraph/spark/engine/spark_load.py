"""Loads on Spark: tasks read files and the partitions of DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.catalog.catalog import Catalog
    from omnigraph.engine.engine_choice import RunTasks
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.write_request import Prepare, WriteRequest, WriteResult
    from omnigraph.load.distributed import Stage
    from omnigraph.load.load import LoadResult
    from omnigraph.load.load_request import LoadRequest
    from omnigraph.load.quarantine import Quarantine
    from omnigraph.load.split_staging import LoadJob, SplitReport
    from omnigraph.sources.mapping.type_mapping import TypeMapping
    from omnigraph.store.storage_options import StorageOptions

T = TypeVar("T")
_TABLE = "table:"
# Jobs that stage DataFrames at the same time. Each of them can use all cores, so more would not be faster.
_MAX_JOBS = 4
# Split numbers are above the bits of the position in a split, in a signed integer of 64 bits.
MAX_SPLITS = (1 << 23) - 1


def is_frame(source: Any) -> bool:
    """Return whether a value is a Spark DataFrame, classic or Spark Connect."""
    return any(
        kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql")
        for kind in type(source).__mro__
    )


def is_spark_source(source: Any) -> bool:
    """Return whether only Spark can read the source: it contains a DataFrame or a table of Spark's catalog."""
    return isinstance(source, Mapping) and any(is_frame(part) or _is_table(part) for part in source.values())


def load_on_spark(
    repository: Repository,
    request: LoadRequest,
    write: WriteRequest,
    quarantine: Quarantine | None,
    wrap: Callable[[Prepare[LoadResult]], Prepare[LoadResult]] | None = None,
) -> WriteResult[LoadResult]:
    """Read, check and write a source in tasks, and commit it once.

    `wrap` adds to a preparation what the caller does before its commit is published.
    """
    from omnigraph.catalog.table_lookup import find_table
    from omnigraph.graph.recovery.scratch_files import ScratchFolder
    from omnigraph.load.distributed import DistributedLoad, DistributedLoadOptions, LoadTasks
    from omnigraph.rules.blob_ingress import BlobIngress
    from omnigraph.spark.engine.key_tables import SparkKeys
    from omnigraph.spark.engine.tasks import run_tasks
    from omnigraph.spark.session import session_for

    catalog = repository.snapshot(request.base).catalog
    options = repository.objects.options
    source = request.source
    named = [find_table(catalog, str(name)).key for name in source] if isinstance(source, Mapping) else []
    spark = session_for(request.spark or _session_of(source))
    run: RunTasks = partial(run_tasks, spark)
    tasks = LoadTasks(
        stage=_stage(request, catalog, options, run, spark), run=run, open_keys=partial(SparkKeys, spark)
    )
    load_options = DistributedLoadOptions(
        request.write_mode,
        repository.durability,
        named=named,
        quarantine=quarantine,
        progress=request.progress,
        dry_run=request.dry_run,
        ingress=BlobIngress(request.external_blobs, dict(options)),
        rules=request.rules,
    )
    scratch = ScratchFolder(repository.location.uri, options)
    with DistributedLoad(tasks, scratch, catalog, load_options) as load:
        return repository.write(request.base, write, load.prepare if wrap is None else wrap(load.prepare))


def _stage(
    request: LoadRequest, catalog: Catalog, options: StorageOptions, run: RunTasks, spark: Any
) -> Stage:
    """Return a function that stages the source: all files as one job, and each DataFrame as a job of its own.

    Jobs run at the same time, so that the last tasks of one job do not leave the cluster idle.
    """
    from omnigraph.catalog.table_lookup import find_table
    from omnigraph.load.distributed import staged_splits
    from omnigraph.sources.mapping.type_mapping import with_operations
    from omnigraph.sources.splits import plan_splits

    source, mapping = request.source, request.mapping
    if not isinstance(source, Mapping):
        return staged_splits(run, plan_splits(source, catalog, options, operations=request.operations))
    files = {
        name: part for name, part in source.items() if isinstance(part, str | Path) and not _is_table(part)
    }
    # Two names may refer to one type, as with files; both contain its rows.
    frames = [
        (find_table(catalog, str(name)).key, _frame(part, spark))
        for name, part in source.items()
        if name not in files
    ]
    splits = (
        plan_splits(
            files,
            catalog,
            options,
            mapping=mapping,
            csv_null=request.csv_null,
            operations=request.operations,
        )
        if files
        else []
    )

    def stage(job: LoadJob) -> list[SplitReport]:
        # The numbers of splits order the records of the input, so each DataFrame has a range of its own.
        first, width = frame_ranges(len(splits), len(frames))
        jobs: list[Callable[[], list[SplitReport]]] = [lambda: staged_splits(run, splits)(job)]
        for number, (key, frame) in enumerate(frames):
            own = None if mapping is None else mapping.types.get(key)
            own = with_operations(key, own, request.operations)
            jobs.append(partial(_stage_frame, job, key, frame, first + number * width, width, own))
        return [report for reports in run_jobs(jobs) for report in reports]

    return stage


def frame_ranges(splits: int, frames: int) -> tuple[int, int]:
    """Return the first split number of the first DataFrame, and the length of the range of each DataFrame.

    >>> frame_ranges(3, 2)
    (2796202, 2796202)
    """
    width = MAX_SPLITS // (frames + 1)
    if splits > width:
        width = (MAX_SPLITS - splits) // max(1, frames)
        return splits, width
    return width, width


def run_jobs(jobs: Sequence[Callable[[], T]]) -> list[T]:
    """Run some Spark jobs at the same time, from threads, and return their results in order.

    The error of the first job that failed is raised when all have ended.
    """
    from omnigraph.store.request_counts import propagate_context

    if len(jobs) == 1:
        return [jobs[0]()]
    with ThreadPoolExecutor(min(_MAX_JOBS, len(jobs)), thread_name_prefix="omnigraph-spark") as pool:
        return list(pool.map(propagate_context(_call), jobs))


def _call(job: Callable[[], T]) -> T:
    return job()


def _stage_frame(
    job: LoadJob, key: str, frame: Any, first: int, width: int, mapping: TypeMapping | None
) -> list[SplitReport]:
    from omnigraph.load.split_staging import stage_partition
    from omnigraph.spark.engine.tasks import run_partitions

    def stage(number: int, batches: Iterator[Any]) -> SplitReport:
        if number >= width:
            raise InvalidInput(
                f"the DataFrame of {key} has more than {width:,} partitions", hint="coalesce its partitions"
            )
        return stage_partition(job, key, f"DataFrame of {key}", first + number, batches, mapping)

    found: list[SplitReport] = run_partitions(frame, stage)
    return found


def _frame(part: Any, spark: Any) -> Any:
    if is_frame(part):
        return part
    if _is_table(part):
        return spark.table(str(part).removeprefix(_TABLE))
    raise InvalidInput(
        f"Spark cannot load from {type(part).__name__}",
        hint="use paths, DataFrames or table:NAME; spark.createDataFrame converts a table in memory",
    )


def _is_table(part: Any) -> bool:
    return isinstance(part, str) and part.startswith(_TABLE)


def _session_of(source: Any) -> Any | None:
    """Return the session that a DataFrame of the source belongs to, because only this session can read it."""
    parts = source.values() if isinstance(source, Mapping) else ()
    return next((part.sparkSession for part in parts if is_frame(part)), None)
