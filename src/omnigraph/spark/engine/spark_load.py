"""Loads on Spark: tasks read files and the partitions of DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.catalog.catalog import Catalog
    from omnigraph.engine.engine_choice import RunTasks
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.write_request import Prepare, WriteRequest, WriteResult
    from omnigraph.load.distributed import Stage
    from omnigraph.load.load import LoadResult
    from omnigraph.load.load_request import LoadPart, LoadRequest
    from omnigraph.load.quarantine import Quarantine
    from omnigraph.load.split_staging import LoadJob, SplitReport
    from omnigraph.sources.mapping.type_mapping import TypeMapping
    from omnigraph.sources.rejects import OnReject
    from omnigraph.store.storage_options import StorageOptions

T = TypeVar("T")
# Stages some splits.
StageJob: TypeAlias = "Callable[[], list[SplitReport]]"
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
    return isinstance(source, Mapping) and any(map(_is_spark, source.values()))


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
    sources = [part.source for part in request.all_parts]
    by_type = [source for source in sources if isinstance(source, Mapping)]
    named = [find_table(catalog, str(name)).key for source in by_type for name in source]
    spark = session_for(request.spark or next(filter(None, map(_session_of, sources)), None))
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
        index_later=request.index_later,
        vectors=request.vectors,
    )
    scratch = ScratchFolder(repository.location.uri, options)
    with DistributedLoad(tasks, scratch, catalog, load_options) as load:
        return repository.write(request.base, write, load.prepare if wrap is None else wrap(load.prepare))


def _stage(
    request: LoadRequest, catalog: Catalog, options: StorageOptions, run: RunTasks, spark: Any
) -> Stage:
    """Return a function that stages the parts of a load. Their split numbers are in the order of the parts.

    All files of a part are one job, and each DataFrame is a job of its own. Jobs run at the same time, so that the
    last tasks of one job do not leave the cluster idle. What several DataFrames share is computed once.
    """
    from omnigraph.spark.engine.shared_plans import shared_plans

    frames: list[Any] = []
    planned = [_plan_part(part, catalog, options, run, spark, frames) for part in request.all_parts]
    length = MAX_SPLITS // len(planned)

    def stage(job: LoadJob) -> list[SplitReport]:
        jobs = [
            item for number, jobs_of in enumerate(planned) for item in jobs_of(job, number * length, length)
        ]
        with shared_plans(frames):
            return [report for reports in run_jobs(jobs) for report in reports]

    return stage


def _plan_part(
    part: LoadPart,
    catalog: Catalog,
    options: StorageOptions,
    run: RunTasks,
    spark: Any,
    all_frames: list[Any],
) -> Callable[[LoadJob, int, int], list[StageJob]]:
    """Return a function that returns the jobs of a part, whose split numbers are in a range of a given length.

    The DataFrames of the part are added to `all_frames`.
    """
    from omnigraph.catalog.table_lookup import find_table
    from omnigraph.load.distributed import staged_splits
    from omnigraph.sources.mapping.type_mapping import with_operations
    from omnigraph.sources.splits import plan_splits

    source, mapping = part.source, part.mapping
    items = dict(source) if isinstance(source, Mapping) else {}
    files = {
        name: item for name, item in items.items() if isinstance(item, str | Path) and not _is_table(item)
    }
    others = {name: item for name, item in items.items() if name not in files and not _is_spark(item)}
    if others and part.operations is None:
        raise _unsupported(next(iter(others.values())))
    # Two names may refer to one type, as with files; both contain its rows.
    frames = [
        (find_table(catalog, str(name)).key, _frame(item, spark))
        for name, item in items.items()
        if _is_spark(item)
    ]
    all_frames += [frame for _, frame in frames]
    is_path = isinstance(source, str | Path)
    in_memory = others if items else None if is_path else source
    splits = (
        plan_splits(
            files if items else source,
            catalog,
            options,
            mapping=mapping,
            csv_null=part.csv_null,
            operations=part.operations,
        )
        if files or is_path
        else []
    )
    has_rows = bool(others) or (not items and not is_path)

    def jobs_of(job: LoadJob, start: int, length: int) -> list[StageJob]:
        # The numbers of splits order the records of the input, so each DataFrame has a range of its own.
        first, width = frame_ranges(len(splits), len(frames) + has_rows, length)
        numbered = [replace(split, number=start + split.number) for split in splits]
        jobs: list[StageJob] = [lambda: staged_splits(run, numbered)(job)]
        for number, (key, frame) in enumerate(frames):
            own = None if mapping is None else mapping.types.get(key)
            own = with_operations(key, own, part.operations)
            jobs.append(partial(_stage_frame, job, key, frame, start + first + number * width, width, own))
        if has_rows:
            last = start + first + len(frames) * width
            jobs.append(partial(_stage_rows, job, replace(part, source=in_memory), last))
        return jobs

    return jobs_of


def _stage_rows(job: LoadJob, part: LoadPart, number: int) -> list[SplitReport]:
    """Stage rows that are in the memory of this process."""
    from omnigraph.load.split_staging import stage_read
    from omnigraph.sources.readers import open_source
    from omnigraph.sources.splits import Split

    count = 0

    def read(on_reject: OnReject | None) -> Iterator[Any]:
        nonlocal count
        opened = open_source(
            part.source,
            job.catalog,
            on_reject=on_reject,
            options=job.scratch.options,
            mapping=part.mapping,
            csv_null=part.csv_null,
            operations=part.operations,
        )
        for batch in opened:
            count += batch.rows.num_rows
            yield batch

    return [stage_read(job, Split(number, "rows", f"rows {number}", ""), read, lambda: count)]


def frame_ranges(splits: int, frames: int, length: int = MAX_SPLITS) -> tuple[int, int]:
    """Return the first split number of the first DataFrame, and the length of the range of each DataFrame.

    >>> frame_ranges(3, 2)
    (2796202, 2796202)
    """
    width = length // (frames + 1)
    if splits > width:
        width = (length - splits) // max(1, frames)
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
    raise _unsupported(part)


def _unsupported(part: Any) -> InvalidInput:
    return InvalidInput(
        f"Spark cannot load from {type(part).__name__}",
        hint="use paths, DataFrames or table:NAME; spark.createDataFrame converts a table in memory",
    )


def _is_spark(part: Any) -> bool:
    return is_frame(part) or _is_table(part)


def _is_table(part: Any) -> bool:
    return isinstance(part, str) and part.startswith(_TABLE)


def _session_of(source: Any) -> Any | None:
    """Return the session that a DataFrame of the source belongs to, because only this session can read it."""
    parts = source.values() if isinstance(source, Mapping) else ()
    return next((part.sparkSession for part in parts if is_frame(part)), None)
