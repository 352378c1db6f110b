"""Distributed loads: tasks stage the splits of the input, this process checks the keys and makes one commit."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import TypeAlias

from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.database_limits import DatabaseLimits
from omnigraph.engine.duckdb import Workspace
from omnigraph.engine.engine_choice import RunTasks
from omnigraph.errors import OmnigraphError
from omnigraph.graph.progress import Progress
from omnigraph.graph.recovery.scratch_files import ScratchFolder
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.load.key_lookups import looked_up_tables
from omnigraph.load.keys import committed_key_columns
from omnigraph.load.load import (
    LoadInput,
    LoadResult,
    changes_nothing,
    check_and_stage,
    load_class,
    schema_changed,
    unchanged_result,
    with_fold_counts,
)
from omnigraph.load.operation_quarantine import RejectedIds, Resolution
from omnigraph.load.operation_rules import OperationRules
from omnigraph.load.operation_staging import resolve_splits
from omnigraph.load.quarantine import Quarantine
from omnigraph.load.split_staging import (
    IndexTask,
    LoadJob,
    SplitReport,
    build_index_segment,
    count_staged_rows,
    stage_split,
)
from omnigraph.load.spool import LoadLimits
from omnigraph.load.staged_fragments import (
    FragmentLoad,
    LocallyCheckedLoad,
    TaskCheckedLoad,
    TaskKeys,
    WrittenInput,
    preceding_lines,
    split_origins,
)
from omnigraph.rules.blob_ingress import BlobIngress
from omnigraph.rules.load_mode import WriteMode
from omnigraph.rules.set_rules import edge_key_hint
from omnigraph.rules.violations import Violations, raise_violations
from omnigraph.search.embeddings.vector_computation import VectorComputation
from omnigraph.sources.invalid_records import InvalidRecords
from omnigraph.sources.rejects import Reject
from omnigraph.sources.splits import Split
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.sync import Durability
from omnigraph.store.tables.index_segments import BuiltSegment

# Stages the splits of a job; returns their reports in input order.
Stage: TypeAlias = Callable[[LoadJob], list[SplitReport]]

# Up to this number of keys, new and committed, the rules run in this process. Spark does about thirty times the
# work for them, which is worth it only beyond the disk and the cores of one machine.
MAX_LOCAL_KEYS = 100_000_000
_PROGRESS_SECONDS = 1.0


# Opens key tables on the tasks' engine.
OpenKeys: TypeAlias = Callable[[], AbstractContextManager[TaskKeys]]


@dataclass(frozen=True)
class LoadTasks:
    """The functions that run the parts of a load on tasks.

    `stage` stages every split and returns the reports, `run` builds index segments, `resolve` folds operations; by
    default it is `run`. Where there are more keys than
    `MAX_LOCAL_KEYS`, the rules between rows are queries over tables that `open_keys` opens; otherwise, and without
    `open_keys`, they are queries in this process.
    """

    stage: Stage
    run: RunTasks
    open_keys: OpenKeys | None = None
    resolve: RunTasks | None = None


@dataclass(frozen=True)
class DistributedLoadOptions:
    """The options of a distributed load.

    `named` are the tables that the input names, also those without rows. With `rules` the rows have operations.
    With `index_later` no index segments are built.
    """

    mode: WriteMode
    durability: Durability
    named: Sequence[str] = ()
    quarantine: Quarantine | None = None
    progress: Progress | None = None
    limits: LoadLimits = field(default_factory=LoadLimits)
    dry_run: bool = False
    ingress: BlobIngress = field(default_factory=BlobIngress)
    rules: OperationRules | None = None
    index_later: bool = False
    vectors: VectorComputation | None = None


@dataclass(frozen=True)
class _StagedSplits:
    """The reports of all splits, the job they were staged for, and the seconds it took."""

    job: LoadJob
    reports: list[SplitReport]
    seconds: float

    @property
    def rejected(self) -> int:
        return sum(report.rejected for report in self.reports)


class DistributedLoad:
    """A load whose splits are staged by tasks, planned with the given catalog.

    Rows are written once, and used by every preparation. When the load is refused, they are removed.
    """

    def __init__(
        self, tasks: LoadTasks, scratch: ScratchFolder, catalog: Catalog, options: DistributedLoadOptions
    ) -> None:
        self._tasks = tasks
        self._scratch = scratch
        self._catalog = catalog
        self._options = options
        self._staged: _StagedSplits | None = None
        # Final rows of a load with operations, by every preparation.
        self._folded: list[SplitReport] = []
        self._local: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> DistributedLoad:
        self._local = tempfile.TemporaryDirectory(prefix="omnigraph-load-")
        return self

    def __exit__(self, *_: object) -> None:
        if self._local is not None:
            self._local.cleanup()
        self._scratch.remove()

    def prepare(self, transaction: Transaction) -> Prepared[LoadResult]:
        """Check the staged rows against a branch and add them to the transaction.

        The first call stages the splits. After an error the rows that were written are removed.
        """
        options = self._options
        try:
            if self._tables_changed(transaction):
                raise schema_changed(transaction)
            staged = self._stage(transaction)
            if options.rules is not None:
                return self._prepare_operations(transaction, staged)
            written = WrittenInput(self._scratch, staged.reports, options.named)
            result = check_and_stage(
                self._open(transaction, staged.job, written),
                LoadInput(written.counts, staged.rejected, staged.seconds, written.generated_ids),
                self._catalog,
                options.progress,
                partial(edge_key_hint, self._catalog, options.mode),
                dry_run=options.dry_run,
                quarantine=options.quarantine,
            )
            assert result is not None, "offenders are left out"
        except OmnigraphError as error:
            self._roll_back(error)
            raise
        if result.unchanged or (options.dry_run and options.quarantine is not None):
            with suppress(OmnigraphError):
                # Garbage collection removes rows that cannot be deleted now.
                delete_written_rows(staged.job, staged.reports)
            return Prepared(None, result)
        return Prepared(load_class(options.mode, dry_run=options.dry_run), result)

    def _prepare_operations(self, transaction: Transaction, staged: _StagedSplits) -> Prepared[LoadResult]:
        """Resolve the operations of the staged rows and add the final rows to the transaction.

        The final rows depend on the stored ones, so they are written again when the branch has moved.
        """
        rejected = None
        if self._options.quarantine is not None:
            rejected = RejectedIds(self._catalog, self._options.quarantine)
        while True:
            result = self._resolve_and_stage(transaction, staged, rejected)
            if result is not None:
                class_ = None if result.unchanged else load_class("merge", dry_run=self._options.dry_run)
                return Prepared(class_, result)

    def _resolve_and_stage(
        self, transaction: Transaction, staged: _StagedSplits, rejected: RejectedIds | None
    ) -> LoadResult | None:
        """Return the result of a load without the rejected ids; None if there are more of them than before."""
        options, began = self._options, time.monotonic()
        self._delete_folded(staged.job)
        origins = split_origins(staged.reports)
        run = self._tasks.resolve or self._tasks.run
        resolved = resolve_splits(
            transaction,
            staged.job,
            staged.reports,
            origins,
            run,
            self._folded.extend,
            None if rejected is None else rejected.arrays,
        )
        if rejected is not None and rejected.add(resolved.offenses):
            return None
        records = WrittenInput(self._scratch, staged.reports, options.named).counts
        named = dict.fromkeys([*records, *resolved.removed])
        written = WrittenInput(
            self._scratch,
            resolved.reports,
            list(named),
            resolved.removed,
            {number: (file, 0) for number, (file, _) in origins.items()},
        )
        attempt = None
        if rejected is not None:
            total = sum(records.values())
            attempt = Resolution(
                rejected, resolved.deleted, resolved.left_out, lambda number: origins[number][0], total
            )
        rows = {key: written.counts[key] for key in records}
        read = LoadInput(rows, staged.rejected, staged.seconds + time.monotonic() - began)
        if changes_nothing(records, written.counts, resolved.removed) and not options.dry_run:
            return with_fold_counts(unchanged_result(read, resolved.counts, attempt), resolved.counts)
        result = check_and_stage(
            self._open(transaction, staged.job, written),
            read,
            self._catalog,
            options.progress,
            partial(edge_key_hint, self._catalog, "merge") if attempt is None else attempt.hint,
            dry_run=options.dry_run,
            attempt=attempt,
        )
        return None if result is None else with_fold_counts(result, resolved.counts)

    def _delete_folded(self, job: LoadJob) -> None:
        """Delete the final rows of an earlier preparation. Garbage collection removes those that remain."""
        folded, self._folded = self._folded, []
        with suppress(OmnigraphError):
            delete_written_rows(job, folded)

    def _tables_changed(self, transaction: Transaction) -> bool:
        """Whether the schema or the paths of the tables differ from those that the rows are written for."""
        base = transaction.base
        if base.catalog.fingerprint != self._catalog.fingerprint:
            return True
        pins = {} if self._staged is None else self._staged.job.pins
        return any(base.pin(key).path != pin.path for key, pin in pins.items())

    # --- splits ------------------------------------------------------------------------------------------

    def _stage(self, transaction: Transaction) -> _StagedSplits:
        """Stage the splits once. Their fragments can be added to any later version of the tables."""
        if self._staged is not None:
            return self._staged
        options = self._options
        job = load_job(
            transaction.base,
            self._scratch,
            options.durability,
            keep_rejects=options.quarantine is not None,
            dry_run=options.dry_run,
            ingress=options.ingress,
            rules=options.rules,
            vectors=options.vectors,
        )
        began = time.monotonic()
        with _report_progress(self._scratch, options.progress):
            reports = self._tasks.stage(job)
        self._staged = _StagedSplits(job, reports, time.monotonic() - began)
        preceding = preceding_lines(reports)
        _raise_errors(reports, preceding)
        self._pass_on_rejects(reports, preceding)
        return self._staged

    def _pass_on_rejects(self, reports: Sequence[SplitReport], preceding: Sequence[int]) -> None:
        """Pass on rejected records in input order, with their places in the whole file."""
        quarantine = self._options.quarantine
        for report, first in zip(reports, preceding, strict=True):
            if report.rejects is None or quarantine is None:
                continue
            with self._scratch.open_read(report.rejects) as file:
                for line in BufferedReader(file):
                    quarantine.log.add(Reject.from_state(json.loads(line)).shifted(first))

    def _roll_back(self, error: OmnigraphError) -> None:
        """Delete the rows of a load that failed. Garbage collection removes rows that cannot be deleted now."""
        if self._staged is None:
            return
        try:
            delete_written_rows(self._staged.job, [*self._staged.reports, *self._folded])
        except OmnigraphError as failure:
            error.add_note(f"the rows written for it could not be deleted: {failure.message}")

    # --- checks ------------------------------------------------------------------------------------------

    @contextmanager
    def _open(self, transaction: Transaction, job: LoadJob, written: WrittenInput) -> Iterator[FragmentLoad]:
        assert self._local is not None
        build = None if self._options.index_later else partial(self._build_segments, job)
        mode, open_keys = self._options.mode, self._tasks.open_keys
        committed = committed_key_columns(self._catalog, mode, written.counts, written.generated_ids)
        found = looked_up_tables(
            self._catalog,
            mode,
            written.counts,
            written.generated_ids,
            lambda key: transaction.base.pin(key).rows,
        )
        scanned = sum(transaction.base.pin(key).rows for key in committed if key not in found)
        keys = sum(written.counts.values()) + scanned
        if open_keys is not None and keys > MAX_LOCAL_KEYS:
            with open_keys() as tables:
                yield TaskCheckedLoad(transaction, mode, tables, written, build)
        else:
            limits = DatabaseLimits(memory=f"{self._options.limits.memory}B")
            with Workspace(Path(self._local.name), limits) as workspace:
                yield LocallyCheckedLoad(transaction, mode, workspace, written, build)

    def _build_segments(self, job: LoadJob, tasks: Sequence[IndexTask]) -> list[BuiltSegment | None]:
        if self._options.progress is not None:
            self._options.progress("index", 0)
        return self._tasks.run(tasks, partial(build_index_segment, job))


def load_job(
    base: Snapshot,
    scratch: ScratchFolder,
    durability: Durability,
    *,
    keep_rejects: bool = False,
    dry_run: bool = False,
    ingress: BlobIngress | None = None,
    rules: OperationRules | None = None,
    vectors: VectorComputation | None = None,
) -> LoadJob:
    """Return the job of a load on a snapshot."""
    pins = {key: base.pin(key) for key in base.catalog.tables}
    return LoadJob(
        base.catalog,
        pins,
        scratch,
        durability,
        keep_rejects,
        dry_run,
        ingress or BlobIngress(),
        rules,
        vectors,
    )


def staged_splits(run: RunTasks, splits: Sequence[Split]) -> Stage:
    """Return a function that stages splits of files with tasks."""
    return lambda job: run(splits, partial(stage_split, job))


def delete_written_rows(job: LoadJob, reports: Iterable[SplitReport]) -> None:
    """Delete the fragments of a load that is not committed."""
    files = [
        f"{job.pins[key].path}/{name}"
        for report in reports
        for key, written in report.written.items()
        for fragment in written.fragments
        for name in fragment.data_files
    ]
    ObjectStore.open(job.scratch.uri, job.scratch.options, durability="os").delete_many(files)


@contextmanager
def _report_progress(scratch: ScratchFolder, progress: Progress | None) -> Iterator[None]:
    """Report the number of staged rows while the context is open."""
    if progress is None:
        yield
        return
    progress("read", 0)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_PROGRESS_SECONDS):
            try:
                progress("read", count_staged_rows(scratch.names()))
            except OmnigraphError:
                # A failed listing does not affect the load, and the next one follows soon.
                continue

    watcher = threading.Thread(target=watch, name="omnigraph-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _raise_errors(reports: Sequence[SplitReport], preceding: Sequence[int]) -> None:
    """Raise the invalid records of the splits up to the first one with an error, else that error, else the
    violations of all splits.
    """
    failed: OmnigraphError | None = None
    invalid: list[InvalidRecords] = []
    for report, first in zip(reports, preceding, strict=True):
        invalid.append(report.invalid.shifted(first))
        if report.error is not None:
            failed = _relocated(report.error, first)
            break
    InvalidRecords.join(invalid).raise_first()
    if failed is not None:
        raise failed
    shifted = [
        replace(
            report.violations,
            reported=tuple(
                replace(item, details={**item.details, "line": item.details["line"] + first})
                if "line" in item.details
                else item
                for item in report.violations
            ),
        )
        for report, first in zip(reports, preceding, strict=True)
    ]
    raise_violations(Violations.merge(shifted))


def _relocated(error: OmnigraphError, first: int) -> OmnigraphError:
    """Return the error of a split with the line or row of the whole file; `first` of them precede the split."""
    return error if error.location is None else error.located(error.location.shifted(first))
