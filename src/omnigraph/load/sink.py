"""Sinks: writes of rows of one type whose parts are staged by several processes and committed by one.

The processes share an intent in storage, created at the beginning. The process that commits takes the intent over.
Staged files are deleted only by a process that takes it over itself, so the files of a commit are safe even if its
process is killed before it reports success.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from omnigraph.catalog.table_lookup import find_table
from omnigraph.errors import Conflict, InvalidInput, NotFound, OmnigraphError
from omnigraph.graph.branch_lookup import has_branch
from omnigraph.graph.publish import PublishReceipt
from omnigraph.graph.recovery.intents import Intent, Intents, lease_intent
from omnigraph.graph.recovery.scratch_files import PREFIX, ScratchFolder
from omnigraph.graph.repository import Repository
from omnigraph.graph.write_request import WriteRequest
from omnigraph.load.distributed import (
    DistributedLoad,
    DistributedLoadOptions,
    LoadTasks,
    delete_written_rows,
    load_job,
)
from omnigraph.load.load_request import row_operations, write_mode
from omnigraph.load.operation_rules import OperationRules
from omnigraph.load.quarantine import Quarantine
from omnigraph.load.reject_limit import RejectLimit
from omnigraph.load.reject_log import RejectLog
from omnigraph.load.reject_target import TABLE_PREFIX, RejectTarget, check_rejects, is_folder
from omnigraph.load.sink_options import SinkOptions
from omnigraph.load.split_staging import LoadJob, SplitReport, stage_partition
from omnigraph.load.spool import LoadLimits
from omnigraph.rules.blob_ingress import BlobIngress
from omnigraph.rules.load_mode import WriteMode
from omnigraph.search.embeddings.providers import EnvironmentEmbedder
from omnigraph.search.embeddings.vector_computation import VectorComputation
from omnigraph.sources.mapping.type_mapping import with_operations
from omnigraph.sources.row_operations import RowOperations
from omnigraph.sources.tabular import read_table
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import propagate_context

# The time in which all parts must be staged. Until then, every other write looks at the intent of an abandoned
# sink.
LEASE_SECONDS = 24 * 3600.0
# Batches of a stream with fewer rows are left for optimize to index, like the rows of a load in memory.
_MIN_INDEXED_ROWS = LoadLimits().rows
_INDEX_THREADS = 4


@dataclass(frozen=True)
class SinkPart:
    """A staged part: its report, and the schema, the table path and the stream that it was staged for."""

    report: SplitReport
    schema: str
    path: str
    stream: str = ""


@dataclass(frozen=True)
class SinkRejects:
    """The target of the rejected rows of a sink. `name` is part of the name of the file of a stream's batch."""

    target: str
    limit: RejectLimit | None = None
    name: str | None = None

    @classmethod
    def of(cls, options: SinkOptions) -> SinkRejects | None:
        """Return the target that the options name, if any."""
        if options.rejects is None:
            if options.max_rejects is not None:
                raise InvalidInput("the option 'maxRejects' needs the option 'rejects'")
            return None
        if options.rejects.startswith(TABLE_PREFIX):
            raise InvalidInput(
                "the data source writes rejected rows to files",
                hint="the option 'rejects' is a file or a folder; Graph.load also writes tables",
            )
        check_rejects(options.rejects)
        limit = None if options.max_rejects is None else RejectLimit.parse(options.max_rejects)
        return cls(options.rejects, limit)

    @property
    def is_folder(self) -> bool:
        """Whether every write has a file of its own."""
        return is_folder(self.target)

    def open(self, log: RejectLog, job: LoadJob) -> RejectTarget:
        """Return the target for the rows of a log."""
        return RejectTarget(self.target, log, job.scratch.options, name=self.name)


@dataclass(frozen=True)
class Sink:
    """A write in progress. Instances can be pickled, and each method may run in another process.

    Indexes are built when there are at least `min_indexed_rows` rows, and not with `index_later`. With `rejects`,
    rows that are invalid or break a constraint are left out. The rows are of the type `key`, or of the types that
    `type_column` names.
    """

    job: LoadJob
    key: str | None
    mode: WriteMode
    branch: str
    request: WriteRequest
    min_indexed_rows: int = 0
    rejects: SinkRejects | None = None
    operations: RowOperations | None = None
    type_column: str | None = None
    index_later: bool = False

    def stage(self, number: int, batches: Iterable[pa.RecordBatch]) -> SinkPart:
        """Check and write the rows of one part. Errors are in the part, and `commit` raises them.

        A part can be staged several times, also concurrently; only the part that is passed to `commit` counts.
        """
        report = stage_partition(
            self.job,
            self.key or "",
            "DataFrame" if self.key is None else f"DataFrame of {self.key}",
            number,
            batches,
            with_operations(self.key or "", None, self.operations),
            type_column=self.type_column,
        )
        return SinkPart(report, self.job.catalog.fingerprint, _paths(self.job))

    def commit(self, parts: Sequence[SinkPart]) -> PublishReceipt | None:
        """Check the rules between rows and make one commit of all parts.

        After an error nothing is visible, and the staged files are deleted.
        """
        tasks = LoadTasks(
            stage=lambda job: self._reports(job, parts),
            run=_run_in_threads if _count_rows(parts) >= self.min_indexed_rows else _skip_indexes,
            resolve=_run_in_threads,
        )
        with closing(self._open()) as repository, RejectLog() as log:
            target = None if self.rejects is None else self.rejects.open(log, self.job)
            options = DistributedLoadOptions(
                self.mode,
                self.job.durability,
                named=[] if self.key is None else [self.key],
                ingress=self.job.ingress,
                quarantine=None if self.rejects is None else Quarantine(log, self.rejects.limit),
                rules=self.job.rules,
                index_later=self.index_later,
            )
            try:
                with DistributedLoad(tasks, self.job.scratch, self.job.catalog, options) as load:
                    prepare = load.prepare if target is None else target.writing(load.prepare)
                    done, _ = repository.write(self.branch, self.request, prepare)
            except OmnigraphError as error:
                if target is not None:
                    target.write_refused(error)
                self._roll_back(repository, parts, error)
                raise
            if done is not None and done.replayed:
                self._discard(repository, parts)
            return done

    def abort(self, parts: Sequence[SinkPart]) -> None:
        """Delete the staged files, unless a commit has taken the intent over: then they belong to the commit."""
        with closing(self._open()) as repository:
            self._discard(repository, parts)

    def _open(self) -> Repository:
        scratch = self.job.scratch
        return Repository.open(scratch.uri, options=scratch.options, durability=self.job.durability)

    def _reports(self, job: LoadJob, parts: Sequence[SinkPart]) -> list[SplitReport]:
        expected = job.catalog.fingerprint, _paths(job)
        if any((part.schema, part.path) != expected for part in parts):
            raise Conflict(
                "the schema changed while rows were being staged",
                details={"branch": self.branch},
                hint="write them again",
            )
        return sorted((part.report for part in parts), key=lambda report: report.split.number)

    def _discard(self, repository: Repository, parts: Iterable[SinkPart]) -> None:
        assert self.request.intent_id is not None
        if repository.release_lease(self.request.intent_id):
            path = _paths(self.job)
            delete_written_rows(self.job, [part.report for part in parts if part.path == path])
        self.job.scratch.remove()

    def _roll_back(self, repository: Repository, parts: Sequence[SinkPart], error: OmnigraphError) -> None:
        try:
            self._discard(repository, parts)
        except OmnigraphError as failure:
            error.add_note(f"the rows written for it could not be deleted: {failure.message}")


@dataclass(frozen=True)
class SinkStream:
    """The batches of a stream, each one commit that is made once even if the stream repeats the batch.

    A new instance is opened for every batch, on the current head of the branch. The first part of a batch with rows
    stores the `intent`, because the number of the batch is not known before.
    """

    sink: Sink
    intent: Intent

    def stage(self, stream: str, batch: int, number: int, batches: Iterable[pa.RecordBatch]) -> SinkPart:
        """Check and write the rows of one part of a batch."""
        sink = self._batch(stream, batch)
        rows = (item for item in batches if item.num_rows)
        first = next(rows, None)
        if first is None:
            return replace(sink.stage(number, ()), stream=stream)
        scratch = sink.job.scratch
        objects = ObjectStore.open(scratch.uri, scratch.options, durability=sink.job.durability)
        lease_intent(Intents(objects), replace(self.intent, id=self._intent_id(stream, batch)), LEASE_SECONDS)
        return replace(sink.stage(number, chain((first,), rows)), stream=stream)

    def commit(self, batch: int, parts: Sequence[SinkPart]) -> PublishReceipt | None:
        """Commit a batch, or return the receipt of its earlier commit; None when it has no rows."""
        stream = _stream_of(parts)
        return None if stream is None else self._batch(stream, batch).commit(parts)

    def abort(self, batch: int, parts: Sequence[SinkPart]) -> None:
        """Delete the staged files of a batch that is not committed."""
        stream = _stream_of(parts)
        if stream is not None:
            self._batch(stream, batch).abort(parts)

    def _batch(self, stream: str, batch: int) -> Sink:
        intent_id = self._intent_id(stream, batch)
        sink = self.sink
        rejects = sink.rejects
        return replace(
            sink,
            # Every attempt at a batch writes the same file.
            rejects=None if rejects is None else replace(rejects, name=f"{stream}-{batch}"),
            job=replace(sink.job, scratch=replace(sink.job.scratch, folder=f"{PREFIX}{intent_id}")),
            request=replace(
                sink.request, idempotency_key=f"stream {stream} batch {batch}", intent_id=intent_id
            ),
        )

    def _intent_id(self, stream: str, batch: int) -> str:
        """Return the id of the intent of a batch, the same for all its parts and attempts."""
        text = f"{self.intent.incarnation}\0{stream}\0{batch}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def open_sink(options: SinkOptions, names: Sequence[str]) -> Sink:
    """Begin a write of rows with columns of these names. After an error nothing remains."""
    with closing(Repository.open(options.uri, options=options.storage)) as repository:
        key = _prepare_branch(repository, options, names)
        request = WriteRequest(
            "load",
            actor=options.actor,
            message=options.message,
            expected_head=options.if_commit,
            idempotency_key=options.idempotency_key,
            request=_request_text(options, key, names),
            bulk=True,
        )
        # An earlier write with this key has moved the branch. `commit` finds it and does not check the head.
        early = request if options.idempotency_key is None else replace(request, expected_head=None)
        intent_id = repository.lease_intent(options.branch, early, LEASE_SECONDS)
        return _sink(repository, options, key, replace(request, intent_id=intent_id))


def open_stream(options: SinkOptions, names: Sequence[str]) -> SinkStream:
    """Open a stream of rows with columns of these names. No intent is stored yet."""
    with closing(Repository.open(options.uri, options=options.storage)) as repository:
        key = _prepare_branch(repository, options, names, is_stream=True)
        # Stream and number identify a batch: a batch that failed may be repeated with other rows.
        request = WriteRequest(
            "load", actor=options.actor, message=options.message, request="stream", bulk=True
        )
        intent = repository.new_unclaimed_intent(options.branch, request)
        return SinkStream(_sink(repository, options, key, request, _MIN_INDEXED_ROWS), intent)


def _request_text(options: SinkOptions, key: str | None, names: Sequence[str]) -> str:
    """Return what a repeated write with the same idempotency key must have in common with the first."""
    text = f"load\0{options.mode}\0{key}\0{','.join(sorted(names))}"
    extra = [options.type_column, options.op_column, options.order_by, options.require_existing]
    return f"{text}\0{json.dumps(extra)}" if any(extra) else text


def _operations(options: SinkOptions) -> RowOperations | None:
    return row_operations(options.mode, options.op_column, options.order_by)


def _prepare_branch(
    repository: Repository, options: SinkOptions, names: Sequence[str], *, is_stream: bool = False
) -> str | None:
    """Check the options and columns, create the branch if it is missing, and return the key of the only table."""
    rejects = SinkRejects.of(options)
    if is_stream and rejects is not None and not rejects.is_folder:
        raise InvalidInput(
            f"the rejected rows of a stream need a folder, got '{rejects.target}'",
            hint="each batch writes a file of its own; end an address with a slash",
        )
    missing = not has_branch(repository.manifest, options.branch)
    if missing and options.create_from is None:
        raise NotFound(
            f"branch '{options.branch}' not found",
            details={"branch": options.branch},
            hint="the option createFrom names the branch to create it from",
        )
    source = options.create_from if missing and options.create_from is not None else options.branch
    catalog = repository.snapshot(source).catalog
    key = None if options.type is None else find_table(catalog, options.type).key
    columns = pa.table([pa.nulls(0) for _ in names], names=list(names))
    if key is not None:
        mapping = with_operations(key, None, _operations(options))
        # The table has no rows: only the columns are checked, before any part is staged.
        for _ in read_table(key, columns, catalog, source=f"DataFrame of {key}", mapping=mapping):
            continue
    else:
        meanings = {options.type_column: "type", options.op_column: "operation", options.order_by: "order"}
        for name, meaning in meanings.items():
            if name is not None and name not in names:
                raise InvalidInput(f"missing column '{name}', which has the {meaning} of each row")
    if missing:
        repository.create_branch(options.branch, source, actor=options.actor)
    return key


def _stream_of(parts: Iterable[SinkPart]) -> str | None:
    """Return the name of the stream of the parts; None when they have no rows."""
    return next((part.stream for part in parts if part.report.lines), None)


def _count_rows(parts: Iterable[SinkPart]) -> int:
    return sum(written.rows for part in parts for written in part.report.written.values())


def _paths(job: LoadJob) -> str:
    """Return a hash of the paths of all tables, which change when the graph is created anew."""
    text = "\0".join(pin.path for _, pin in sorted(job.pins.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def _run_in_threads(items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
    """Build index segments or fold operations in threads of this process."""
    with ThreadPoolExecutor(_INDEX_THREADS, thread_name_prefix="omnigraph-index") as pool:
        return list(pool.map(propagate_context(work), items))


def _skip_indexes(items: Sequence[Any], _: Callable[[Any], Any]) -> list[Any]:
    """Build no index segments."""
    return [None] * len(items)


def _sink(
    repository: Repository,
    options: SinkOptions,
    key: str | None,
    request: WriteRequest,
    min_indexed_rows: int = 0,
) -> Sink:
    scratch = ScratchFolder(options.uri, dict(options.storage))
    ingress = BlobIngress(options.external_blobs, dict(options.storage))
    rejects = SinkRejects.of(options)
    operations = _operations(options)
    rules = None
    if operations is not None:
        rules = OperationRules(options.order_by, options.require_existing, options.op_column)
    job = load_job(
        repository.snapshot(options.branch),
        scratch,
        repository.durability,
        keep_rejects=rejects is not None,
        ingress=ingress,
        rules=rules,
        vectors=VectorComputation(EnvironmentEmbedder.of(options.embedding) if options.embedding else None),
    )
    return Sink(
        job,
        key,
        write_mode(options.mode),
        options.branch,
        request,
        min_indexed_rows,
        rejects,
        operations,
        options.type_column,
        options.index_later,
    )
