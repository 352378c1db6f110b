"""Loads whose splits are done elsewhere: tasks write the rows, keys alone are checked, one commit takes all in."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeAlias

from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.duckdb import Limits, Workspace
from omnigraph.engine.engine_choice import RunTasks
from omnigraph.errors import OmnigraphError
from omnigraph.graph.progress import Progress
from omnigraph.graph.scratch_files import Scratch
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import OperationClass
from omnigraph.load.key_checks import looked_at
from omnigraph.load.load import LoadOutcome, carry_out, schema_changed
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
from omnigraph.rules.violations import Findings, refuse
from omnigraph.sources.row_batch import Reject, Rejecting
from omnigraph.sources.splits import Split
from omnigraph.store.objects.objects import ObjectStore
from omnigraph.store.sync import Durability
from omnigraph.store.tables.uncommitted_fragments import fragment_files

# Has the splits of a job done; gives their reports in input order.
Stage: TypeAlias = Callable[[LoadJob], list[SplitReport]]

# Up to so many keys, new and committed, are looked at here: a cluster does some thirty times the work for them,
# which pays where this machine's disk and cores are the limit.
KEYS_HERE = 100_000_000
_LOOK_SECONDS = 1.0


# Tables of keys for a while.
OpenKeys: TypeAlias = Callable[[], AbstractContextManager[TaskKeys]]


class DistributedLoad:
    """A load whose splits others do, planned under the given catalog.

    `stage` has every split done for a job and gives the reports, `run` runs what comes after. Rows are written
    once, however often the work has to be prepared; when it is refused, they are removed. Rules between rows are
    queries in this process or, where there are more keys than `KEYS_HERE`, in tables that `open_keys` opens.
    """

    def __init__(
        self,
        stage: Stage,
        run: RunTasks,
        scratch: Scratch,
        catalog: Catalog,
        mode: LoadMode,
        outcome: LoadOutcome,
        *,
        durability: Durability,
        named: Sequence[str] = (),
        rejecting: Rejecting | None = None,
        progress: Progress | None = None,
        limits: LoadLimits | None = None,
        open_keys: OpenKeys | None = None,
        dry: bool = False,
    ) -> None:
        self._stage = stage
        self._run = run
        self._scratch = scratch
        self._catalog = catalog
        self._mode = mode
        self._outcome = outcome
        self._durability: Durability = durability
        self._named = named
        self._rejecting = rejecting
        self._progress = progress
        self._limits = limits or LoadLimits()
        self._open_keys = open_keys
        self._dry = dry
        self._done: tuple[LoadJob, list[SplitReport]] | None = None
        self._local: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> DistributedLoad:
        self._local = tempfile.TemporaryDirectory(prefix="omnigraph-load-")
        return self

    def __exit__(self, *_: object) -> None:
        if self._local is not None:
            self._local.cleanup()
        self._scratch.remove()

    def prepare(self, transaction: Transaction) -> OperationClass | None:
        """The work of the load on a transaction, again if it must be; None when it is only tried."""
        try:
            if self._is_elsewhere(transaction):
                raise schema_changed(transaction)
            job, reports = self._staged(transaction)
            given = WrittenInput(self._scratch, reports, self._named)
            opened = self._open(transaction, job, given)
            carry_out(opened, given.counts, self._outcome, self._progress, dry=self._dry)
        except OmnigraphError as error:
            self._take_back(error)
            raise
        if self._dry:
            return None
        return "strict" if self._mode == "overwrite" else "insert"

    def _is_elsewhere(self, transaction: Transaction) -> bool:
        """Whether what was written, or is about to be, does not belong to the tables of this state."""
        base = transaction.base
        if base.catalog.fingerprint != self._catalog.fingerprint:
            return True
        pins = {} if self._done is None else self._done[0].pins
        return any(base.pin(key).path != pin.path for key, pin in pins.items())

    # --- splits ------------------------------------------------------------------------------------------

    def _staged(self, transaction: Transaction) -> tuple[LoadJob, list[SplitReport]]:
        """What the splits came to. What was written next to one version of a table fits another just as well."""
        if self._done is None:
            job = load_job(
                transaction.base,
                self._scratch,
                self._durability,
                rejecting=self._rejecting is not None,
                dry=self._dry,
            )
            began = time.monotonic()
            with _watched(self._scratch, self._progress):
                reports = self._stage(job)
            self._done = job, reports
            self._outcome.seconds["read"] = time.monotonic() - began
            before = lines_before(reports)
            _refuse_errors(reports, before)
            self._outcome.rejected = sum(report.rejected for report in reports)
            self._hand_over(reports, before)
        return self._done

    def _hand_over(self, reports: Sequence[SplitReport], before: Sequence[int]) -> None:
        """Pass on what was rejected, in input order, with places that count from the beginning of the file."""
        for report, first in zip(reports, before, strict=True):
            if report.rejects is None or self._rejecting is None:
                continue
            with self._scratch.reading(report.rejects) as file:
                for line in BufferedReader(file):
                    self._rejecting(Reject.from_state(json.loads(line)).shifted(first))

    def _take_back(self, error: OmnigraphError) -> None:
        """Remove what was written for a load that is refused. What cannot be removed is left to cleanup."""
        if self._done is None:
            return
        job, reports = self._done
        try:
            remove_written(job, reports)
        except OmnigraphError as failure:
            error.add_note(f"what was written for it could not be removed: {failure.message}")

    # --- checks ------------------------------------------------------------------------------------------

    @contextmanager
    def _open(self, transaction: Transaction, job: LoadJob, given: WrittenInput) -> Iterator[WrittenLoad]:
        assert self._local is not None
        index = partial(self._index, job)
        committed = looked_at(self._catalog, self._mode, given.counts, given.made)
        keys = sum(given.counts.values()) + sum(transaction.pin(key).rows for key in committed)
        if self._open_keys is not None and keys > KEYS_HERE:
            with self._open_keys() as tables:
                yield TaskCheckedLoad(transaction, self._mode, tables, given, index)
        else:
            limits = Limits(memory=f"{self._limits.memory}B")
            with Workspace(Path(self._local.name), limits) as workspace:
                yield LocallyCheckedLoad(transaction, self._mode, workspace, given, index)

    def _index(self, job: LoadJob, wanted: Sequence[Indexing]) -> list[Any]:
        if self._progress is not None:
            self._progress("index", 0)
        return self._run(wanted, partial(index_column, job))


def load_job(
    base: Snapshot, scratch: Scratch, durability: Durability, *, rejecting: bool = False, dry: bool = False
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
def _watched(scratch: Scratch, progress: Progress | None) -> Iterator[None]:
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
            report.findings,
            violations=tuple(
                replace(item, details={**item.details, "line": item.details["line"] + first})
                if "line" in item.details
                else item
                for item in report.findings
            ),
        )
        for report, first in zip(reports, before, strict=True)
    ]
    refuse(Findings.merge(shifted))


def _relocated(error: OmnigraphError, first: int) -> OmnigraphError:
    """Return the error of a split with the line or row of the whole file; `first` of them precede the split."""
    return error if error.location is None else error.located(error.location.shifted(first))
