"""Loads whose splits are done elsewhere: tasks write the rows, keys alone are checked, one commit takes all in."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeAlias

from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.duckdb import DatabaseLimits, Workspace
from omnigraph.engine.engine_choice import RunTasks
from omnigraph.errors import OmnigraphError
from omnigraph.graph.progress import Progress
from omnigraph.graph.scratch_files import ScratchFolder
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.load.key_checks import looked_at
from omnigraph.load.load import LoadInput, LoadResult, check_and_stage, load_class, schema_changed
from omnigraph.load.split_staging import Indexing, LoadJob, SplitReport, index_column, rows_done, stage_split
from omnigraph.load.spool import LoadLimits
from omnigraph.load.staged_fragments import (
    LocallyCheckedLoad,
    TaskCheckedLoad,
    TaskKeys,
    WrittenInput,
    WrittenLoad,
    lines_before,
)
from omnigraph.rules.load_mode import LoadMode
from omnigraph.rules.violations import Violations, raise_violations
from omnigraph.sources.row_batch import OnReject, Reject
from omnigraph.sources.splits import Split
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.sync import Durability
from omnigraph.store.tables.uncommitted_fragments import fragment_files

# Has the splits of a job done; gives their reports in input order.
Stage: TypeAlias = Callable[[LoadJob], list[SplitReport]]

# Up to so many keys, new and committed, are looked at here: a cluster does some thirty times the work for them,
# which pays where this machine's disk and cores are the limit.
KEYS_HERE = 100_000_000
_LOOK_SECONDS = 1.0


# Opens key tables on the tasks' engine.
OpenKeys: TypeAlias = Callable[[], AbstractContextManager[TaskKeys]]


@dataclass(frozen=True)
class LoadTasks:
    """The functions that run the parts of a load on tasks.

    `stage` stages every split and returns the reports, `run` builds index segments. Where there are more keys than
    `KEYS_HERE`, the rules between rows are queries over tables that `open_keys` opens; otherwise, and without
    `open_keys`, they are queries in this process.
    """

    stage: Stage
    run: RunTasks
    open_keys: OpenKeys | None = None


@dataclass(frozen=True)
class DistributedLoadOptions:
    """The options of a distributed load. `named` are the tables that the input names, also those without rows."""

    mode: LoadMode
    durability: Durability
    named: Sequence[str] = ()
    rejecting: OnReject | None = None
    progress: Progress | None = None
    limits: LoadLimits = field(default_factory=LoadLimits)
    dry: bool = False


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
            if self._is_elsewhere(transaction):
                raise schema_changed(transaction)
            staged = self._stage(transaction)
            written = WrittenInput(self._scratch, staged.reports, options.named)
            result = check_and_stage(
                self._open(transaction, staged.job, written),
                LoadInput(written.counts, staged.rejected, staged.seconds),
                options.progress,
                dry=options.dry,
            )
        except OmnigraphError as error:
            self._take_back(error)
            raise
        return Prepared(load_class(options.mode, dry=options.dry), result)

    def _is_elsewhere(self, transaction: Transaction) -> bool:
        """Whether what was written, or is about to be, does not belong to the tables of this state."""
        base = transaction.base
        if base.catalog.fingerprint != self._catalog.fingerprint:
            return True
        pins = {} if self._staged is None else self._staged.job.pins
        return any(base.pin(key).path != pin.path for key, pin in pins.items())

    # --- splits ------------------------------------------------------------------------------------------

    def _stage(self, transaction: Transaction) -> _StagedSplits:
        """What the splits came to. What was written next to one version of a table fits another just as well."""
        if self._staged is not None:
            return self._staged
        options = self._options
        job = load_job(
            transaction.base,
            self._scratch,
            options.durability,
            rejecting=options.rejecting is not None,
            dry=options.dry,
        )
        began = time.monotonic()
        with _watched(self._scratch, options.progress):
            reports = self._tasks.stage(job)
        self._staged = _StagedSplits(job, reports, time.monotonic() - began)
        before = lines_before(reports)
        _refuse_errors(reports, before)
        self._hand_over(reports, before)
        return self._staged

    def _hand_over(self, reports: Sequence[SplitReport], before: Sequence[int]) -> None:
        """Pass on what was rejected, in input order, with places that count from the beginning of the file."""
        rejecting = self._options.rejecting
        for report, first in zip(reports, before, strict=True):
            if report.rejects is None or rejecting is None:
                continue
            with self._scratch.open_read(report.rejects) as file:
                for line in BufferedReader(file):
                    rejecting(Reject.from_state(json.loads(line)).shifted(first))

    def _take_back(self, error: OmnigraphError) -> None:
        """Remove what was written for a load that is refused. What cannot be removed is left to cleanup."""
        if self._staged is None:
            return
        try:
            remove_written(self._staged.job, self._staged.reports)
        except OmnigraphError as failure:
            error.add_note(f"what was written for it could not be removed: {failure.message}")

    # --- checks ------------------------------------------------------------------------------------------

    @contextmanager
    def _open(self, transaction: Transaction, job: LoadJob, given: WrittenInput) -> Iterator[WrittenLoad]:
        assert self._local is not None
        index = partial(self._index, job)
        mode, open_keys = self._options.mode, self._tasks.open_keys
        committed = looked_at(self._catalog, mode, given.counts, given.made)
        keys = sum(given.counts.values()) + sum(transaction.pin(key).rows for key in committed)
        if open_keys is not None and keys > KEYS_HERE:
            with open_keys() as tables:
                yield TaskCheckedLoad(transaction, mode, tables, given, index)
        else:
            limits = DatabaseLimits(memory=f"{self._options.limits.memory}B")
            with Workspace(Path(self._local.name), limits) as workspace:
                yield LocallyCheckedLoad(transaction, mode, workspace, given, index)

    def _index(self, job: LoadJob, wanted: Sequence[Indexing]) -> list[Any]:
        if self._options.progress is not None:
            self._options.progress("index", 0)
        return self._tasks.run(wanted, partial(index_column, job))


def load_job(
    base: Snapshot,
    scratch: ScratchFolder,
    durability: Durability,
    *,
    rejecting: bool = False,
    dry: bool = False,
) -> LoadJob:
    """What the splits of a load on top of that state need to know."""
    pins = {key: base.pin(key) for key in base.catalog.tables}
    return LoadJob(base.catalog, pins, scratch, durability, rejecting, dry)


def staged_splits(run: RunTasks, splits: Sequence[Split]) -> Stage:
    """Has splits of files done by tasks."""
    return lambda job: run(splits, partial(stage_split, job))


def remove_written(job: LoadJob, reports: Iterable[SplitReport]) -> None:
    """Remove the rows that were written for a load which will not be committed."""
    doomed = [
        f"{job.pins[key].path}/{name}"
        for report in reports
        for key, written in report.written.items()
        for name in fragment_files([text for text, _ in written.fragments])
    ]
    ObjectStore.open(job.scratch.uri, job.scratch.options, durability="os").delete_many(doomed)


@contextmanager
def _watched(scratch: ScratchFolder, progress: Progress | None) -> Iterator[None]:
    """Tell how many records tasks have written, as long as they are at it."""
    if progress is None:
        yield
        return
    progress("read", 0)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_SECONDS):
            try:
                progress("read", rows_done(scratch.names()))
            except OmnigraphError:
                # A look that fails says nothing about the work, and there is another one soon.
                continue

    watcher = threading.Thread(target=watch, name="omnigraph-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _refuse_errors(reports: Sequence[SplitReport], before: Sequence[int]) -> None:
    """Raise what the first split in input order raised, else what all rows that broke a rule of their own did."""
    for report, first in zip(reports, before, strict=True):
        if report.error is not None:
            raise _relocated(report.error, first)
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
        for report, first in zip(reports, before, strict=True)
    ]
    raise_violations(Violations.merge(shifted))


def _relocated(error: OmnigraphError, first: int) -> OmnigraphError:
    """Return the error of a split with the line or row of the whole file; `first` of them precede the split."""
    return error if error.location is None else error.located(error.location.shifted(first))
