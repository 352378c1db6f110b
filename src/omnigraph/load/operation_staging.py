"""Resolution of row operations by tasks: each folds the rows of a range of ids and writes the final rows.

Splits write their rows with operations to files. When all are written, tasks read the rows of their ids from all
files, look up the stored rows, and write final rows, keys, and the keys of the rows to delete.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from io import BufferedReader
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Table
from omnigraph.engine.arrow_file import ArrowFile
from omnigraph.engine.committed_rows import CommittedRows
from omnigraph.engine.engine_choice import RunTasks
from omnigraph.errors import OmnigraphError
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.transaction import Transaction
from omnigraph.load.change_files import ChangeFile, HashRange, read_changes
from omnigraph.load.fold import FoldCounts
from omnigraph.load.key_readers import KeyFileReader
from omnigraph.load.load_strategy import Offense
from omnigraph.load.operation_quarantine import OpenLines, fold_offenses, rejected_lines, split_rejected
from omnigraph.load.operation_rules import OperationRules
from omnigraph.load.resolve import (
    add_incident_edges,
    fold_part,
    fold_violations,
    has_removed_ends,
    joined,
)
from omnigraph.load.split_staging import LoadJob, SplitReport, WrittenTable, write_table
from omnigraph.load.spool import LoadLimits, Spool
from omnigraph.rules.blob_ingress import BlobIngress
from omnigraph.rules.violations import Violations, raise_violations
from omnigraph.sources.row_batch import PLACE, SOURCE
from omnigraph.sources.splits import Split

_PART_ROWS = LoadLimits().rows
_PART_LIMITS = LoadLimits(rows=1 << 62, bytes=1 << 62)
# The file of each split, and the number of its lines that precede the split.
Origins: TypeAlias = Mapping[int, tuple[str | None, int]]


@dataclass(frozen=True)
class FoldJob:
    """What all tasks of a resolution share. Instances can be pickled."""

    job: LoadJob
    base: Snapshot
    rules: OperationRules
    origins: Origins
    rejected: Mapping[str, pa.Array] | None = None


@dataclass(frozen=True)
class FoldTask:
    """The rows of one table with a range of ids."""

    number: int
    key: str
    ids: HashRange
    files: tuple[ChangeFile, ...]
    keep_unchanged: bool


@dataclass(frozen=True)
class FoldReport:
    """The result of a task.

    `removed` is the file with the keys of the rows to delete, `left_out` the one with the rows of rejected ids.
    """

    task: FoldTask
    written: WrittenTable = field(default_factory=lambda: WrittenTable(0))
    removed: str | None = None
    counts: FoldCounts = field(default_factory=FoldCounts)
    violations: Violations = field(default_factory=Violations)
    offenses: tuple[Offense, ...] = ()
    left_out: str | None = None
    error: OmnigraphError | None = None

    def as_split(self) -> SplitReport:
        """Return the final rows as those of a split."""
        split = Split(self.task.number, "rows", "", "", self.task.key)
        return SplitReport(split, written={self.task.key: self.written})


@dataclass(frozen=True)
class ResolvedSplits:
    """The result of a resolution, as `resolve.ResolvedLoad`, with the final rows in fragments."""

    reports: Sequence[SplitReport]
    removed: Mapping[str, pa.Table]
    counts: Mapping[str, FoldCounts]
    deleted: Mapping[str, pa.Table]
    left_out: Mapping[str, list[OpenLines]]
    offenses: Mapping[str, list[Offense]]


def resolve_splits(
    transaction: Transaction,
    job: LoadJob,
    reports: Sequence[SplitReport],
    origins: Origins,
    run: RunTasks,
    on_written: Callable[[Iterable[SplitReport]], None],
    rejected: Mapping[str, pa.Array] | None = None,
) -> ResolvedSplits:
    """Fold the operations of all splits on the base of a transaction, with tasks.

    `on_written` is called with the final rows as soon as they are written. Raises the errors of
    `resolve.resolve_operations`.
    """
    assert job.rules is not None
    shared = FoldJob(job, transaction.base, job.rules, origins, rejected)
    removed: dict[str, pa.Table] = {}
    counts: dict[str, FoldCounts] = {}
    written: list[SplitReport] = []
    found: list[Violations] = []
    offenses: dict[str, list[Offense]] = {}
    left_out: dict[str, list[OpenLines]] = {}
    keys = sorted({key for report in reports for key in report.written})
    # Nodes come first: whether an unchanged edge must be checked depends on the deleted nodes.
    for kind in ("node:", "edge:"):
        tasks: list[FoldTask] = []
        for key in (key for key in keys if key.startswith(kind)):
            transaction.read(key)
            keep = has_removed_ends(job.catalog, job.catalog.tables[key], removed)
            tasks += _tasks_of(key, reports, len(written) + len(tasks), keep_unchanged=keep)
        done = run(tasks, partial(fold_split, shared)) if tasks else []
        on_written([item.as_split() for item in done])
        written += [item.as_split() for item in done]
        for item in done:
            if item.error is not None:
                raise item.error
            key = item.task.key
            found.append(item.violations)
            counts[key] = counts.get(key, FoldCounts()) + item.counts
            if item.offenses:
                offenses.setdefault(key, []).extend(item.offenses)
            if item.left_out is not None:
                left_out.setdefault(key, []).append(partial(_open_lines, job, item.left_out))
            if item.removed is not None:
                removed[key] = joined(removed.get(key), _read_table(job, item.removed))
    raise_violations(Violations.merge(found))
    committed = CommittedRows(transaction.base, transaction.read)
    edges = {key: _written_ids(job, key, written) for key in keys if key.startswith("edge:") and removed}
    everything = add_incident_edges(job.catalog, committed, removed, edges)
    return ResolvedSplits(written, everything, counts, removed, left_out, offenses)


def _tasks_of(
    key: str, reports: Sequence[SplitReport], first: int, *, keep_unchanged: bool
) -> list[FoldTask]:
    items = [report.written[key] for report in reports if key in report.written]
    files = tuple(item.changes for item in items if item.changes is not None)
    rows = sum(item.rows for item in items)
    ranges = HashRange.divide(-(-rows // _PART_ROWS)) if files else []
    return [FoldTask(number, key, ids, files, keep_unchanged) for number, ids in enumerate(ranges, first)]


def fold_split(shared: FoldJob, task: FoldTask) -> FoldReport:
    """Fold the rows of a range of ids, and write the final rows and their keys. Errors are in the report."""
    job, table = shared.job, shared.job.catalog.tables[task.key]
    try:
        changes = read_changes(job.scratch, task.files, task.ids)
        if changes is None:
            return FoldReport(task)
        changes = _with_places(changes, shared.origins)
        rejected = None if shared.rejected is None else shared.rejected.get(task.key)
        changes, without = split_rejected(changes, rejected)
        left_out = None if without is None else _write_left_out(shared, task, table, without)
        committed = CommittedRows(shared.base)
        folded = fold_part(committed, table, changes, shared.rules, keep_unchanged=task.keep_unchanged)
        sources = {number: file for number, (file, _) in shared.origins.items()}
        report = FoldReport(task, counts=folded.counts, left_out=left_out)
        if shared.rejected is None:
            report = replace(
                report, violations=fold_violations(job.catalog, table, folded, shared.rules, sources)
            )
        else:
            offenses = fold_offenses(job.catalog, table, folded, shared.rules)
            report = replace(report, offenses=tuple(offenses))
        if report.violations or report.offenses:
            return report
        removed = _write_table(job, task, folded.removed) if folded.removed.num_rows else None
        with Spool(job.catalog, _PART_LIMITS, BlobIngress()) as spool:
            spool.name_table(task.key)
            for batch in folded.rows.cast(spool.schema(task.key)).to_batches():
                spool.add(task.key, batch)
            written = WrittenTable(0)
            if spool.counts[task.key]:
                # A dry run has no use for the rows: rejected records are input rows.
                plain = replace(job, keep_rejects=False)
                written = write_table(plain, task.number, table, spool, has_sources=True)
        return replace(report, written=written, removed=removed)
    except OmnigraphError as error:
        return FoldReport(task, error=error)


def _with_places(changes: pa.Table, origins: Origins) -> pa.Table:
    """Return rows with their places in whole files."""
    numbers, inverse = np.unique(changes[SOURCE].to_numpy(), return_inverse=True)
    shifts = np.array([origins[int(number)][1] for number in numbers], np.int64)
    at = changes.schema.get_field_index(PLACE)
    places = pa.array(changes[PLACE].to_numpy() + shifts[inverse])
    return changes.set_column(at, changes.schema.field(at), places)


def _write_table(job: LoadJob, task: FoldTask, rows: pa.Table) -> str:
    name = f"removed-{task.number:06d}-{uuid.uuid4().hex}.arrow"
    with job.scratch.open_write(name) as file, pa.ipc.new_file(ArrowFile(file), rows.schema) as writer:
        writer.write_table(rows)
    return name


def _write_left_out(shared: FoldJob, task: FoldTask, table: Table, rows: pa.Table) -> str:
    name = f"rejected-{task.number:06d}-{uuid.uuid4().hex}.ndjson"
    with shared.job.scratch.open_write(name) as file:
        for line in rejected_lines(shared.job.catalog, table, rows, shared.rules):
            file.write(line)
    return name


@contextmanager
def _open_lines(job: LoadJob, name: str) -> Iterator[Iterable[bytes]]:
    with job.scratch.open_read(name) as stream:
        yield BufferedReader(stream)


def _read_table(job: LoadJob, name: str) -> pa.Table:
    with job.scratch.open_read(name) as stream, pa.ipc.open_file(stream) as reader:
        return reader.read_all()


def _written_ids(job: LoadJob, key: str, written: Sequence[SplitReport]) -> pa.ChunkedArray:
    """Return the ids of the final rows of a table, from their key files."""
    files = [item.written[key].keys for item in written if key in item.written]
    batches = KeyFileReader(job.scratch)([name for name in files if name is not None])
    return pa.chunked_array([batch.column("id") for batch in batches], pa.string())
