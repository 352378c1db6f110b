"""Group commit: the writes that wait for one branch are prepared as a chain and published with one swap.

Every write of a group is prepared on the state that the write before it leaves, as if they came one after another.
Each keeps its own commit: id, parent, actor, message and tables. A write that fails is left out of the chain. Its
error, like any outcome that depends on an unpublished commit of the chain, is reported when the chain is published.
If the chain is not published, the write is prepared again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import wait
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from omnigraph.errors import Conflict, OmnigraphError
from omnigraph.graph.publish import (
    ChainFailed,
    PublishReceipt,
    StaleBase,
    check_expected_head,
    now_micros,
    preparing_again_behind_the_fence,
    publish_chain,
    sleep_with_backoff,
)
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_request import Prepare, WriteRequest, WriteResult
from omnigraph.store.manifest.records import CommitRecord, HeadRecord
from omnigraph.store.request_counts import attribute_requests_to
from omnigraph.store.spans import span
from omnigraph.store.sync import SyncBatch

if TYPE_CHECKING:
    from omnigraph.graph.idempotency import KeyClaim
    from omnigraph.graph.reservations import BranchReservation
    from omnigraph.graph.snapshot import Snapshot
    from omnigraph.graph.write_plan import Prepared, WritePlan
    from omnigraph.graph.write_queue import Turn
    from omnigraph.store.manifest.manifest import Manifest

# A group is published when it has this many writes, or when their new files have this many bytes.
MAX_WRITES = 64
MAX_BYTES = 32 << 20

T = TypeVar("T")


@dataclass(eq=False)
class QueuedWrite(Generic[T]):
    """A write that one thread submitted and that the leader of a group executes.

    `context` are the context variables of the submitting thread. `claim` is the claim of its idempotency key, if it
    was made before the first preparation. `attempted_id` is the commit id of a publish whose
    outcome was not determined, because its leader was interrupted.
    """

    request: WriteRequest
    prepare: Prepare[T]
    context: Context = field(default_factory=copy_context)
    claim: KeyClaim | None = None
    preparations: int = 0
    attempted_id: str | None = None
    result: WriteResult[T] | None = None
    error: Exception | None = None

    @property
    def needs_intent(self) -> bool:
        """Whether the write is too large for a group. It has no outcome."""
        return isinstance(self.error, NeedsIntent)

    def outcome(self) -> WriteResult[T]:
        """Return the result; raises the error of the write."""
        if self.error is not None:
            raise self.error
        assert self.result is not None, "a write that is done has a result or an error"
        return self.result


class NeedsIntent(Exception):
    """A write turned out to be too large for a group. Nothing is staged, and it has to be prepared alone."""


class GroupHost(Protocol):
    """The operations of a graph that group commit builds on."""

    manifest: Manifest

    def begin(self, branch: str, *, reservation: BranchReservation) -> Transaction:
        """Start a transaction on the current head, after other writes that have reserved the branch."""
        ...

    def reservation(self, branch: str) -> BranchReservation:
        """Return the reservation that a write makes if it loses too many races for a branch."""
        ...

    def snapshot_of(self, commit: CommitRecord) -> Snapshot:
        """Return the snapshot of a commit."""
        ...

    def claim_key(
        self, transaction: Transaction, request: WriteRequest, early: KeyClaim | None = None
    ) -> CommitRecord | None:
        """Set the commit id of a transaction to that of its idempotency key; return the commit if it exists."""
        ...


@dataclass(eq=False)
class _Link:
    """A prepared write of a chain. `commit` is its commit if the chain is published on its present base."""

    write: QueuedWrite[Any]
    plan: WritePlan
    result: Any
    commit: CommitRecord


@dataclass(eq=False)
class _Chain:
    """The prepared writes of one attempt, and the state that the last of them leaves.

    `fence` is the fence of garbage collection when the chain was begun. `decided` has the outcomes of other writes
    that were decided on this state. They hold if the chain is published. No write joins a chain that `is_complete`.
    """

    head: HeadRecord
    base: Snapshot
    fence: int | None
    links: list[_Link] = field(default_factory=list)
    decided: list[tuple[QueuedWrite[Any], WriteResult[Any] | Exception]] = field(default_factory=list)
    syncs: SyncBatch = field(default_factory=SyncBatch)
    size: int = 0
    is_complete: bool = False

    def append(self, write: QueuedWrite[Any], plan: WritePlan, result: Any) -> CommitRecord:
        """Add a prepared write; return its commit, which the next write is prepared on."""
        commit = plan.commit_on(self.head.commit, now_micros())
        self.links.append(_Link(write, plan, result, commit))
        self.head = HeadRecord(self.head.branch, self.head.incarnation, commit)
        self.size += sum(file.size for files in plan.files.values() for file in files)
        return commit

    def find(self, commit_id: str) -> CommitRecord | None:
        """Return the commit of a write of the chain."""
        return next((link.commit for link in self.links if link.commit.id == commit_id), None)


class GroupCommit:
    """The turn of one write at a branch: commits it, together with the writes that arrive while it is prepared."""

    def __init__(
        self, host: GroupHost, branch: str, turn: Turn[QueuedWrite[Any]], max_preparations: int
    ) -> None:
        self._host = host
        self._branch = branch
        self._turn = turn
        self._max_preparations = max_preparations
        # The writes of the group that have no outcome, in the order in which they are committed.
        self._pending: list[QueuedWrite[Any]] = [turn.write]

    def run(self) -> None:
        """Commit groups until the write of the leader has an outcome.

        Other writes of the group may be left without one. The queue gives them to the next leader.
        """
        with self._host.reservation(self._branch) as reservation:
            self._run(reservation)

    def _run(self, reservation: BranchReservation) -> None:
        attempt = 0
        while self._turn.write in self._pending:
            if attempt:
                self._turn.statistics.record_retry()
                sleep_with_backoff(attempt)
            reservation.begin_preparation(attempt)
            attempt += 1
            try:
                first = self._host.begin(self._branch, reservation=reservation)
            except Exception as error:  # noqa: BLE001 - any error is the outcome of the write
                self._finish(self._turn.write, error)
                return
            chain = _Chain(first.head, first.base, first.fence)
            for write in self._writes(chain):
                self._prepare(chain, write)
            if chain.links:
                self._publish(chain)

    def _writes(self, chain: _Chain) -> Iterator[QueuedWrite[Any]]:
        """Yield the writes of the group, then those that have arrived since, until the group is full."""
        for write in list(self._pending):
            if chain.is_complete:
                return
            yield write
        while not chain.is_complete and len(self._pending) < MAX_WRITES and chain.size < MAX_BYTES:
            arrived = self._turn.take_next()
            if arrived is None:
                return
            self._pending.append(arrived)
            yield arrived

    def _prepare(self, chain: _Chain, write: QueuedWrite[Any]) -> None:
        """Add a write to the chain, or decide its outcome."""
        outcome: WriteResult[Any] | Exception | None
        try:
            with self._turn.preparing(write) as is_wanted:
                if not is_wanted:
                    self._pending.remove(write)
                    return
                outcome = write.context.run(self._add, chain, write)
        except StaleBase:
            return
        except Exception as error:  # noqa: BLE001 - any error is the outcome of this write alone
            outcome = error
        if outcome is None:
            return
        if chain.links:
            chain.decided.append((write, outcome))
        else:
            self._finish(write, outcome)

    def _add(self, chain: _Chain, write: QueuedWrite[Any]) -> WriteResult[Any] | None:
        """Prepare a write on the last commit of a chain. Returns its result if there is nothing to commit."""
        host, request = self._host, write.request
        attribute_requests_to(host.manifest.root.request_counter)
        if write.attempted_id is not None:
            published = host.manifest.find_commit(host.manifest.view, write.attempted_id)
            if published is not None:
                return WriteResult(PublishReceipt(published, replayed=True), None)
        if write.preparations >= self._max_preparations:
            raise too_many_preparations(self._branch, request, write.preparations)
        write.preparations += 1
        transaction = Transaction(chain.head, chain.base, fence=chain.fence)
        transaction.on_begin_intent(_refuse_intent)
        if request.idempotency_key is not None:
            # In every attempt, because the same request may have been committed by another process meanwhile.
            # Preparing on top of its own effect could then fail.
            early, write.claim = write.claim, None
            commit = host.claim_key(transaction, request, early) or chain.find(transaction.commit_id)
            if commit is not None:
                return WriteResult(PublishReceipt(commit, replayed=True), None)
        if request.expected_head is not None:
            check_expected_head(self._branch, request.expected_head, chain.head.commit)
        # Staging in storage takes fewer requests for a single write, and local staging fewer round trips for many.
        syncs = SyncBatch(defers_uploads=bool(chain.links) or self._turn.has_waiting)
        with (
            preparing_again_behind_the_fence(host.manifest, transaction),
            transaction.base.reading(),
            syncs.collecting(),
        ):
            prepared = write.prepare(transaction)
        plan = make_plan(transaction, request, prepared)
        if plan is None:
            return WriteResult(None, prepared.result)
        chain.syncs.add_all(syncs)
        commit = chain.append(write, plan, prepared.result)
        if plan.schema is None:
            chain.base = host.snapshot_of(commit)
        else:
            # Other writes cannot read its schema before it is published.
            chain.is_complete = True
        return None

    def _publish(self, chain: _Chain) -> None:
        """Make the files of a chain durable, then publish its commits with one swap, then report all outcomes."""
        writes = [link.write for link in chain.links]
        withdrawn = self._turn.begin_publishing(writes)
        if withdrawn:
            self._pending = [write for write in self._pending if write not in withdrawn]
            return
        for link in chain.links:
            link.write.attempted_id = link.plan.commit_id
        # The files become durable while the files of the manifest are written. The swap waits for both.
        files = chain.syncs.start()
        try:
            plans = [link.plan for link in chain.links]
            with span("commit", commits=len(plans)):
                receipts = publish_chain(self._host.manifest, plans, wait_for_files=files.result)
        except ChainFailed as failed:
            for index, write in enumerate(writes):
                write.attempted_id = None
                if index in failed.errors:
                    self._finish(write, failed.errors[index])
        except Exception as error:  # noqa: BLE001 - the error of the publish is the outcome of all its writes
            for write in writes:
                self._finish(write, _copy_of(error))
        else:
            self._turn.statistics.record_group(len(receipts))
            published = {receipt.commit.id: receipt.commit for receipt in receipts}
            for link, receipt in zip(chain.links, receipts, strict=True):
                self._finish(link.write, WriteResult(receipt, link.result))
            for write, outcome in chain.decided:
                self._finish(write, _with_published(outcome, published))
        finally:
            wait([files])

    def _finish(self, write: QueuedWrite[Any], outcome: WriteResult[Any] | Exception) -> None:
        if isinstance(outcome, Exception):
            write.error = outcome
        else:
            write.result = outcome
        self._pending.remove(write)
        self._turn.finish(write)


def _refuse_intent() -> None:
    raise NeedsIntent


def make_plan(transaction: Transaction, request: WriteRequest, prepared: Prepared[Any]) -> WritePlan | None:
    """Return the plan of a prepared write, None if there is nothing to commit.

    A pipeline run commits its state even if no row changed: otherwise the next run would read the same input again.
    """
    operation_class = prepared.operation_class
    if operation_class is None:
        if request.run is None or not request.run.advances:
            return None
        # A load stages its rows before it finds that all of them are stored already, and may have deleted them.
        transaction.discard_writes()
        operation_class = "insert"
    return transaction.plan(
        request.operation,
        operation_class,
        actor=request.actor,
        message=request.message,
        expected_head=request.expected_head,
        run=request.run,
    )


def too_many_preparations(branch: str, request: WriteRequest, count: int) -> Conflict:
    """Return the error of a write that other writers made stale too often."""
    return Conflict(
        f"branch '{branch}' changed {count} times while {request.operation} was being prepared",
        details={"branch": branch},
        hint="try again when there are fewer concurrent writers",
    )


def _with_published(
    outcome: WriteResult[Any] | Exception, published: dict[str, CommitRecord]
) -> WriteResult[Any] | Exception:
    """Return an outcome with the commit as it was published, if it replays a commit of the same group."""
    if isinstance(outcome, Exception) or outcome.receipt is None:
        return outcome
    receipt = outcome.receipt
    commit = published.get(receipt.commit.id, receipt.commit)
    return WriteResult(replace(receipt, commit=commit), outcome.result)


def _copy_of(error: Exception) -> Exception:
    """Return a copy of an error. Every thread raises its own, because raising adds a traceback."""
    if not isinstance(error, OmnigraphError):
        return error
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied
