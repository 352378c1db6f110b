"""Sinks: rows of one type that some processes stage part by part, and another one commits, or gives up.

No process need know another one's memory. What they share is an intent in storage, held from the beginning: whoever
takes it up commits, and what was staged is removed only by whoever finds that nobody has, so that files of a commit
are safe also when the process that made it was killed before it could say so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from omnigraph.catalog.table_lookup import find_table
from omnigraph.errors import Conflict, NotFound, OmnigraphError
from omnigraph.graph.intents import Intent, Intents, lease_intent
from omnigraph.graph.publish import PublishReceipt
from omnigraph.graph.repository import Repository
from omnigraph.graph.scratch_files import PREFIX, ScratchFolder
from omnigraph.graph.write_request import WriteRequest
from omnigraph.load.distributed import (
    DistributedLoad,
    DistributedLoadOptions,
    LoadTasks,
    load_job,
    remove_written,
)
from omnigraph.load.sink_options import SinkOptions
from omnigraph.load.split_staging import LoadJob, SplitReport, stage_partition
from omnigraph.load.spool import LoadLimits
from omnigraph.rules.load_mode import LoadMode
from omnigraph.sources.tabular import read_table
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import propagate_context

# How long whoever stages may take. What is given up without a word is looked at with every write until then.
LEASE_SECONDS = 24 * 3600.0
# Fewer rows than a load that is done in memory are left for optimize to index, as those of such a load are.
_WORTH_AN_INDEX = LoadLimits().rows
_INDEXES_AT_ONCE = 4


@dataclass(frozen=True)
class Part:
    """What came of one part, and what it was staged for: the schema, where the table is, and of which stream."""

    report: SplitReport
    schema: str
    path: str
    stream: str = ""


@dataclass(frozen=True)
class Sink:
    """A write that has begun. A value that can be pickled; each method may run in a process of its own.

    Indexes are made when there are at least `index_from` rows.
    """

    job: LoadJob
    key: str
    mode: LoadMode
    branch: str
    request: WriteRequest
    index_from: int = 0

    def stage(self, number: int, batches: Iterable[pa.RecordBatch]) -> Part:
        """Check and write the rows of one part. What is wrong with them is in what it gives, for `commit` to raise.

        Done again or twice at once it leaves files that nobody names; only the part that `commit` is given counts.
        """
        report = stage_partition(self.job, self.key, f"DataFrame of {self.key}", number, batches)
        return Part(report, self.job.catalog.fingerprint, self.job.pins[self.key].path)

    def commit(self, parts: Sequence[Part]) -> PublishReceipt | None:
        """Check what stands between rows and make all of it one commit, with indexes.

        Refused, nothing is visible and what was staged is gone.
        """
        tasks = LoadTasks(
            stage=lambda job: self._reports(job, parts),
            run=_run_here if _rows(parts) >= self.index_from else _leave_out,
        )
        options = DistributedLoadOptions(self.mode, self.job.durability, named=[self.key])
        with closing(self._open()) as repository:
            try:
                with DistributedLoad(tasks, self.job.scratch, self.job.catalog, options) as load:
                    done, _ = repository.write(self.branch, self.request, load.prepare)
            except OmnigraphError as error:
                self._take_back(repository, parts, error)
                raise
            if done is not None and done.replayed:
                self._give_up(repository, parts)
            return done

    def abort(self, parts: Sequence[Part]) -> None:
        """Remove what was staged, unless a commit has taken it up: then it is that one's, or left to cleanup."""
        with closing(self._open()) as repository:
            self._give_up(repository, parts)

    def _open(self) -> Repository:
        scratch = self.job.scratch
        return Repository.open(scratch.uri, options=scratch.options, durability=self.job.durability)

    def _reports(self, job: LoadJob, parts: Sequence[Part]) -> list[SplitReport]:
        wanted = job.catalog.fingerprint, job.pins[self.key].path
        if any((part.schema, part.path) != wanted for part in parts):
            raise Conflict(
                "the schema changed while rows were being staged",
                details={"branch": self.branch},
                hint="write them again",
            )
        return sorted((part.report for part in parts), key=lambda report: report.split.number)

    def _give_up(self, repository: Repository, parts: Iterable[Part]) -> None:
        assert self.request.intent_id is not None
        if repository.release_lease(self.request.intent_id):
            path = self.job.pins[self.key].path
            remove_written(self.job, [part.report for part in parts if part.path == path])
        self.job.scratch.remove()

    def _take_back(self, repository: Repository, parts: Sequence[Part], error: OmnigraphError) -> None:
        try:
            self._give_up(repository, parts)
        except OmnigraphError as failure:
            error.add_note(f"what was written for it could not be removed: {failure.message}")


@dataclass(frozen=True)
class SinkStream:
    """Batches of one stream, each a commit of its own, made once however often the stream starts it again.

    Made anew for every batch, so that it stands on the branch as it is then. `intent` is held by the first part of
    a batch that has rows: before that nobody knows which batch it will be.
    """

    sink: Sink
    intent: Intent

    def stage(self, stream: str, batch: int, number: int, batches: Iterable[pa.RecordBatch]) -> Part:
        """Check and write the rows of one part of a batch of the stream of that name."""
        sink = self._batch(stream, batch)
        rows = (item for item in batches if item.num_rows)
        first = next(rows, None)
        if first is None:
            return replace(sink.stage(number, ()), stream=stream)
        scratch = sink.job.scratch
        objects = ObjectStore.open(scratch.uri, scratch.options, durability=sink.job.durability)
        lease_intent(Intents(objects), replace(self.intent, id=self._intent_id(stream, batch)), LEASE_SECONDS)
        return replace(sink.stage(number, chain((first,), rows)), stream=stream)

    def commit(self, batch: int, parts: Sequence[Part]) -> PublishReceipt | None:
        """Commit a batch, unless that was done before; None when it has no rows."""
        stream = _stream(parts)
        return None if stream is None else self._batch(stream, batch).commit(parts)

    def abort(self, batch: int, parts: Sequence[Part]) -> None:
        """Remove what was staged of a batch that will not be committed now."""
        stream = _stream(parts)
        if stream is not None:
            self._batch(stream, batch).abort(parts)

    def _batch(self, stream: str, batch: int) -> Sink:
        intent_id = self._intent_id(stream, batch)
        sink = self.sink
        return replace(
            sink,
            job=replace(sink.job, scratch=replace(sink.job.scratch, folder=f"{PREFIX}{intent_id}")),
            request=replace(
                sink.request, idempotency_key=f"stream {stream} batch {batch}", intent_id=intent_id
            ),
        )

    def _intent_id(self, stream: str, batch: int) -> str:
        """The same for every part and every attempt, so that one that was given up does not leave another."""
        text = f"{self.intent.incarnation}\0{stream}\0{batch}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def open_sink(options: SinkOptions, names: Sequence[str]) -> Sink:
    """Begin a write of rows with columns of these names. Options or columns that are refused leave nothing."""
    with closing(Repository.open(options.uri, options=options.storage)) as repository:
        key = _prepare_branch(repository, options, names)
        request = WriteRequest(
            "load",
            actor=options.actor,
            message=options.message,
            expected_head=options.if_commit,
            idempotency_key=options.idempotency_key,
            request=f"load\0{options.mode}\0{key}\0{','.join(sorted(names))}",
            bulk=True,
        )
        # What was done before under this key has moved the branch, and is not to be refused for it.
        early = request if options.idempotency_key is None else replace(request, expected_head=None)
        intent_id = repository.lease_intent(options.branch, early, LEASE_SECONDS)
        return _sink(repository, options, key, replace(request, intent_id=intent_id))


def open_stream(options: SinkOptions, names: Sequence[str]) -> SinkStream:
    """What a batch of a stream with columns of these names needs; nothing is held yet."""
    with closing(Repository.open(options.uri, options=options.storage)) as repository:
        key = _prepare_branch(repository, options, names)
        # What a batch is, its stream and number say: one that was refused may come again in another way.
        request = WriteRequest(
            "load", actor=options.actor, message=options.message, request="stream", bulk=True
        )
        intent = repository.new_unclaimed_intent(options.branch, request)
        return SinkStream(_sink(repository, options, key, request, _WORTH_AN_INDEX), intent)


def _prepare_branch(repository: Repository, options: SinkOptions, names: Sequence[str]) -> str:
    """The table of the type that is written, its branch made if it has to be and the columns are right."""
    missing = options.branch not in repository.branches()
    if missing and options.create_from is None:
        raise NotFound(
            f"branch '{options.branch}' not found",
            details={"branch": options.branch},
            hint="the option createFrom names the branch to make it from",
        )
    source = options.create_from if missing and options.create_from is not None else options.branch
    catalog = repository.snapshot(source).catalog
    key = find_table(catalog, options.type).key
    columns = pa.table([pa.nulls(0) for _ in names], names=list(names))
    # No rows are read: what is wrong with the columns is said before any of them is staged.
    for _ in read_table(key, columns, catalog, source=f"DataFrame of {key}"):
        continue
    if missing:
        repository.create_branch(options.branch, source, actor=options.actor)
    return key


def _stream(parts: Iterable[Part]) -> str | None:
    """The stream that rows are of; None when there are none."""
    return next((part.stream for part in parts if part.report.lines), None)


def _rows(parts: Iterable[Part]) -> int:
    return sum(written.rows for part in parts for written in part.report.written.values())


def _run_here(items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
    """Make indexes, which is all there is to do after the parts, in this process: it has no other to ask."""
    with ThreadPoolExecutor(_INDEXES_AT_ONCE, thread_name_prefix="omnigraph-index") as pool:
        return list(pool.map(propagate_context(work), items))


def _leave_out(items: Sequence[Any], _: Callable[[Any], Any]) -> list[Any]:
    """Make no index."""
    return [None] * len(items)


def _sink(
    repository: Repository, options: SinkOptions, key: str, request: WriteRequest, index_from: int = 0
) -> Sink:
    scratch = ScratchFolder(options.uri, dict(options.storage))
    job = load_job(repository.snapshot(options.branch), scratch, repository.durability)
    return Sink(job, key, options.mode, options.branch, request, index_from)
