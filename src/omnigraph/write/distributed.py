"""Loads whose splits are done elsewhere: tasks write the rows, keys alone are checked, one commit takes all in."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.engine.duckdb import Limits, Workspace
from omnigraph.errors import OmnigraphError
from omnigraph.graph.plan import OperationClass
from omnigraph.graph.transaction import Transaction
from omnigraph.store.fragments import read_fragments
from omnigraph.store.options import StorageOptions
from omnigraph.store.sync import Durability
from omnigraph.write import set_queries as queries
from omnigraph.write.findings import Findings, refuse
from omnigraph.write.input import Reject, Rejecting
from omnigraph.write.keyed import INDEXED, KeyedWork, key_columns, no_keys
from omnigraph.write.load import LoadOutcome, carry_out, schema_changed
from omnigraph.write.set_rules import entity_of
from omnigraph.write.splits import Split
from omnigraph.write.spool import LoadLimits, LoadMode, Progress
from omnigraph.write.staging import (
    SPLIT_SHIFT,
    Indexing,
    LoadJob,
    SplitReport,
    Written,
    index_column,
    stage_split,
)

# Runs a function over items somewhere and gives the results in their order, such as `pipeline.tasks.run_tasks`.
RunTasks: TypeAlias = Callable[[Sequence[Any], Callable[[Any], Any]], list[Any]]

# Where a message begins with a place; what comes after may be somebody's own words.
_PLACE = re.compile(r"^(line |row |invalid strict JSON at line )(\d+)")


class DistributedLoad:
    """A load whose splits others do, planned under the given catalog."""

    def __init__(
        self,
        run: RunTasks,
        splits: Sequence[Split],
        catalog: Catalog,
        mode: LoadMode,
        outcome: LoadOutcome,
        *,
        uri: str,
        options: StorageOptions,
        durability: Durability,
        named: Sequence[str] = (),
        rejecting: Rejecting | None = None,
        progress: Progress | None = None,
        limits: LoadLimits | None = None,
    ) -> None:
        self._run = run
        self._splits = splits
        self._catalog = catalog
        self._mode = mode
        self._outcome = outcome
        self._place = (uri, options, durability)
        self._named = named
        self._rejecting = rejecting
        self._progress = progress
        self._limits = limits or LoadLimits()
        self._handed_over = False
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> DistributedLoad:
        self._scratch = tempfile.TemporaryDirectory(prefix="omnigraph-load-")
        return self

    def __exit__(self, *_: object) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()

    def prepare(self, transaction: Transaction) -> OperationClass:
        """The work of the load on a transaction, again if it must be."""
        if transaction.base.catalog.fingerprint != self._catalog.fingerprint:
            raise schema_changed(transaction)
        # Each attempt writes its own rows: only what is written under its intent is safe from cleanup.
        job = self._job(transaction)
        reports = self._stage_splits(job)
        carry_out(self._open(transaction, job, reports), self._counts(reports), self._outcome, self._progress)
        return "strict" if self._mode == "overwrite" else "insert"

    # --- splits ------------------------------------------------------------------------------------------

    def _job(self, transaction: Transaction) -> LoadJob:
        assert self._scratch is not None
        uri, options, durability = self._place
        base = transaction.base
        return LoadJob(
            uri,
            dict(options),
            durability,
            base.catalog,
            {key: base.pin(key) for key in base.catalog.tables},
            self._scratch.name,
            self._rejecting is not None,
        )

    def _stage_splits(self, job: LoadJob) -> list[SplitReport]:
        if self._progress is not None:
            self._progress("read", 0)

        def stage(split: Split) -> SplitReport:
            return stage_split(job, split)

        reports: list[SplitReport] = self._run(self._splits, stage)
        before = _lines_before(reports)
        _refuse_errors(reports, before)
        self._outcome.rejected = sum(report.rejected for report in reports)
        if not self._handed_over:
            self._hand_over(reports, before)
        self._handed_over = True
        return reports

    def _hand_over(self, reports: Sequence[SplitReport], before: Sequence[int]) -> None:
        """Pass on what was rejected, in input order, with places that count from the beginning of the file."""
        for report, first in zip(reports, before, strict=True):
            if report.rejects is None or self._rejecting is None:
                continue
            with Path(report.rejects).open(encoding="utf-8") as file:
                for line in file:
                    item = json.loads(line)
                    message = _shifted(item["error"], first)
                    place = item["line"] + first
                    self._rejecting(Reject(place, message, item["record"], item["source"]))

    def _counts(self, reports: Sequence[SplitReport]) -> dict[str, int]:
        counts = dict.fromkeys(self._named, 0)
        for report in reports:
            for key, written in report.written.items():
                counts[key] = counts.get(key, 0) + written.rows
        return counts

    # --- checks ------------------------------------------------------------------------------------------

    @contextmanager
    def _open(
        self, transaction: Transaction, job: LoadJob, reports: Sequence[SplitReport]
    ) -> Iterator[WrittenLoad]:
        assert self._scratch is not None
        limits = Limits(memory=f"{self._limits.memory}B")
        with Workspace(Path(self._scratch.name), limits) as workspace:
            loaded = list(self._counts(reports))
            index = partial(self._index, job)
            yield WrittenLoad(transaction, self._mode, workspace, reports, loaded, index)

    def _index(self, job: LoadJob, wanted: Sequence[Indexing]) -> list[Any]:
        def index(item: Indexing) -> Any:
            return index_column(job, item)

        return self._run(wanted, index)


class WrittenLoad(KeyedWork):
    """A load whose rows have been written by tasks, which left their keys in files."""

    def __init__(
        self,
        transaction: Transaction,
        mode: LoadMode,
        workspace: Workspace,
        reports: Sequence[SplitReport],
        loaded: Sequence[str],
        index: Callable[[Sequence[Indexing]], list[Any]],
    ) -> None:
        super().__init__(transaction, mode, workspace, loaded)
        self._reports = reports
        self._index = index
        self._sources = [report.split.file for report in reports]
        self._before = _lines_before(reports)
        self._gone = {key: self._bring_new(table) for key, table in self._loaded.items()}
        self.superseded = {key: len(gone) for key, gone in self._gone.items()}
        self._bring_committed()

    def _written(self, key: str) -> Iterator[Written]:
        return (report.written[key] for report in self._reports if key in report.written)

    def _bring_new(self, table: Table) -> np.ndarray[Any, Any]:
        """Have the keys of the records that count in the workspace; the positions of those that do not."""
        files = [written.keys for written in self._written(table.key) if written.keys is not None]
        new, given = queries.new_keys(table.id), queries.given_keys(table.id)
        if not files:
            self._workspace.append(new, [no_keys(table, key_columns(table, entity_of(self._catalog, table)))])
            return np.empty(0, np.int64)
        if self._mode != "merge":
            self._workspace.attach(new, files)
            return np.empty(0, np.int64)
        self._workspace.attach(given, files)
        gone = self._numbers(queries.superseded_positions(table.id))
        self._workspace.derive(new, queries.last_records(table.id))
        return gone

    def places(self, key: str, ids: Sequence[str]) -> Mapping[str, tuple[int, str | None]]:
        """Where the last record of each of these ids is from."""
        found: dict[str, tuple[int, str | None]] = {}
        for batch in self._workspace.stream(queries.origins(self._loaded[key].id, ids)):
            for row in batch.to_pylist():
                split = row[queries.SOURCE]
                found[row["id"]] = (row[queries.PLACE] + self._before[split], self._sources[split])
        return found

    # --- staging -----------------------------------------------------------------------------------------

    def stage(self) -> dict[str, dict[str, int]]:
        """Take everything that was written into detached versions, with indexes of the ids and ends."""
        affected = {key: self._stage(table) for key, table in self._loaded.items()}
        self._stage_indexes()
        return affected

    def _stage_indexes(self) -> None:
        """Have the ids and ends of every table with new rows indexed, all of them at the same time."""
        wanted = [
            (table, Indexing(self._transaction.pin(table.key), table.physical(column)))
            for table in self._loaded.values()
            if any(written.rows for written in self._written(table.key))
            for column in INDEXED[table.kind]
        ]
        made = self._index([item for _, item in wanted])
        segments: dict[str, list[Any]] = {}
        for (table, _), segment in zip(wanted, made, strict=True):
            if segment is not None:
                segments.setdefault(table.key, []).append(segment)
        for key, found in segments.items():
            pin = self._transaction.pin(key)
            self._transaction.write(key, self._transaction.base.tables.stage_segments(pin, found))

    def _stage(self, table: Table) -> dict[str, int]:
        tables, pin = self._transaction.base.tables, self._transaction.pin(table.key)
        parts = [item for written in self._written(table.key) for item in written.fragments]
        fragments = read_fragments([text for text, _ in parts])
        inserted = sum(rows for _, rows in parts) - self.superseded[table.key]
        updated, deleted = 0, 0
        if self._mode == "overwrite":
            updated = int(self._numbers(queries.count_rewritten(table.id))[0])
            deleted = pin.rows - updated
            if pin.rows + inserted:
                self._transaction.write(table.key, tables.stage_written(pin, fragments, replace=True))
        elif inserted:
            doomed = np.empty(0, np.uint64)
            if self._mode == "merge":
                doomed = self._numbers(queries.rewritten_addresses(table.id)).astype(np.uint64)
            updated = len(doomed)
            staged = tables.stage_written(pin, fragments, delete=doomed, dropped=self._dropped(table))
            self._transaction.write(table.key, staged)
        return {"inserted": inserted - updated, "updated": updated, "deleted": deleted}

    def _dropped(self, table: Table) -> dict[int, list[int]]:
        """Of each fragment that was written, by its number, the rows that a later record replaces."""
        gone = self._gone[table.key]
        found: dict[int, list[int]] = {}
        if not len(gone):
            return found
        number = 0
        for report in self._reports:
            written = report.written.get(table.key)
            first = report.split.number << SPLIT_SHIFT
            for _, rows in () if written is None else written.fragments:
                low, high = np.searchsorted(gone, (first, first + rows))
                if low < high:
                    found[number] = (gone[low:high] - first).tolist()
                first += rows
                number += 1
        return found


def _lines_before(reports: Sequence[SplitReport]) -> list[int]:
    """For each split how many lines or rows of its file come before it."""
    found: list[int] = []
    lines: dict[str, int] = {}
    for report in reports:
        split = report.split
        known = lines.get(split.file, 0) if split.form == "records" else split.first_row
        found.append(known)
        lines[split.file] = known + report.lines
    return found


def _refuse_errors(reports: Sequence[SplitReport], before: Sequence[int]) -> None:
    """Raise what the first split in input order raised, else what all rows that broke a rule of their own did."""
    for report, first in zip(reports, before, strict=True):
        if report.error is not None:
            raise _placed(report.error, first)
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


def _placed(error: OmnigraphError, first: int) -> OmnigraphError:
    """An error of a split with the line or row that it has in its file."""
    for name in ("line", "row"):
        place = error.details.get(name)
        if isinstance(place, int):
            error.details[name] = place + first
    error.message = _shifted(error.message, first)
    error.args = (error.message, *error.args[1:])
    return error


def _shifted(message: str, first: int) -> str:
    return _PLACE.sub(lambda found: f"{found[1]}{int(found[2]) + first}", message)
