"""A handle on the storage of a graph: branches, snapshots, history, recovery, and writes that end in `publish`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from omnigraph.catalog.catalog import Catalog
from omnigraph.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    RecoveryRequired,
)
from omnigraph.graph.argument_checks import check_text, require_text
from omnigraph.graph.background_work import BackgroundWork, maintain_manifest
from omnigraph.graph.branch_lookup import unknown_branch
from omnigraph.graph.branch_names import (
    MAIN,
    check_branch_name,
    check_new_name,
    check_not_main,
    normalize_branch_name,
)
from omnigraph.graph.commit_names import check_readable, find_named_commit
from omnigraph.graph.format_version import (
    CURRENT,
    MIGRATIONS,
    OLDEST_SUPPORTED,
    Migration,
    check_format,
    pending_migrations,
)
from omnigraph.graph.group_commit import GroupCommit, QueuedWrite, make_plan, too_many_preparations
from omnigraph.graph.history import (
    GetCommit,
    ancestors_by_distance,
    best_common_ancestors,
    branch_heads,
    commit_at,
    first_parents,
    get_commit,
)
from omnigraph.graph.idempotency import KeyClaim, claim_key
from omnigraph.graph.initialize import create_manifest
from omnigraph.graph.open_storage import check_choice, check_process, check_writable, connect, open_manifest
from omnigraph.graph.publish import (
    PublishReceipt,
    StaleBase,
    check_expected_head,
    now_micros,
    preparing_again_behind_the_fence,
    publish,
    sleep_with_backoff,
)
from omnigraph.graph.read_leases import ReadLeases
from omnigraph.graph.recovery.intents import (
    UNCLAIMED,
    Intent,
    Intents,
    OwnedIntent,
    lease_intent,
    this_process,
)
from omnigraph.graph.recovery.interrupted_writes import discard_unreadable, recover_all, recover_operation
from omnigraph.graph.recovery.write_intents import hold_intent, new_intent
from omnigraph.graph.reservations import BranchReservation, wait_for_reservations
from omnigraph.graph.snapshot import Snapshot
from omnigraph.graph.swap_retries import retry_swap
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import WritePlan
from omnigraph.graph.write_queue import WriteQueue
from omnigraph.graph.write_request import Prepare, WriteRequest, WriteResult
from omnigraph.lang.temporal import last_micros_of
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.location import Location
from omnigraph.store.manifest.branch_swaps import (
    create_branch_if_absent,
    delete_branch_if_equals,
)
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_files import new_id
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import (
    BranchEntry,
    CommitRecord,
    HeadRecord,
    RecoveryRecord,
)
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import propagate_context
from omnigraph.store.storage_options import StorageOptions
from omnigraph.store.sync import Durability
from omnigraph.store.tables.read_checks import ReadChecks
from omnigraph.store.tables.tables import Tables

Mode: TypeAlias = Literal["rw", "r"]
At: TypeAlias = str | datetime | Snapshot | None
T = TypeVar("T")

# How often a write is prepared again after concurrent commits before it fails.
MAX_PREPARATIONS = 32


class Repository:
    """A handle on one graph. Safe to share between threads. Any number of handles and processes may use a graph."""

    def __init__(
        self, location: Location, root: LanceRoot, manifest: Manifest, objects: ObjectStore, mode: Mode
    ) -> None:
        self.location = location
        registry = manifest.registry(manifest.view)
        self.is_backup = registry.backup is not None
        self.requested_mode: Mode = mode
        self.mode: Mode = "r" if self.is_backup else mode
        self.durability: Durability = "full" if root.durable else "os"
        self.tables = Tables(root, ReadChecks(root, lambda: manifest.recorded_files(manifest.view)))
        self.manifest = manifest
        self.objects = objects
        self.intents = Intents(objects, writable=self.mode == "rw")
        self.warnings: list[str] = []
        self.background: BackgroundWork | None = None
        # A handle for reading only writes nothing, and the files of a graph in memory are never collected.
        leased = self.mode == "rw" and location.scheme != "memory"
        self.read_leases = ReadLeases(objects, registry.graph_id) if leased else None
        self.write_queue: WriteQueue[QueuedWrite[Any]] = WriteQueue()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="omnigraph-probe")
        self._closed = False
        self._process = os.getpid()
        self._catalog = lru_cache(maxsize=16)(self._load_catalog)
        self._snapshots: tuple[ManifestView, dict[str, Snapshot]] = (manifest.view, {})

    # --- opening -----------------------------------------------------------------------------------------

    @classmethod
    def init(
        cls,
        uri: str | os.PathLike[str],
        catalog: Catalog,
        *,
        options: StorageOptions | None = None,
        durability: Durability = "full",
        actor: str | None = None,
    ) -> Repository:
        """Create a graph. Of several concurrent calls one succeeds, and the others raise `Conflict`.

        A process that dies on the way leaves a root that cannot be opened. The next `init` completes it.
        """
        check_text("actor", actor)
        location, root, objects = connect(uri, options, durability)
        manifest = create_manifest(root, location, catalog, actor)
        return cls(location, root, manifest, objects, "rw")

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        mode: Mode = "rw",
        options: StorageOptions | None = None,
        durability: Durability = "full",
        recover: bool = True,
    ) -> Repository:
        """Open a graph. Mode `rw` recovers interrupted writes if `recover` is set. A backup opens in mode `r`."""
        check_choice("mode", mode, get_args(Mode))
        location, root, objects = connect(uri, options, durability)
        manifest = open_manifest(root, location)
        repository = cls(location, root, manifest, objects, mode)
        check_format(manifest.registry(manifest.view).format)
        if repository.mode == "rw":
            repository._migrate()
            if recover:
                repository.recover()
        return repository

    def _migrate(
        self,
        current: int = CURRENT,
        oldest: int = OLDEST_SUPPORTED,
        migrations: Mapping[int, Migration] = MIGRATIONS,
    ) -> None:
        version = self.manifest.registry(self.manifest.view).format
        for target, migrate in pending_migrations(
            version, current=current, oldest=oldest, migrations=migrations
        ):
            migrate(self.manifest)
            self._set_format(target)

    def _set_format(self, target: int) -> None:
        def set_format(view: ManifestView) -> None:
            registry = self.manifest.registry(view)
            if registry.format < target:
                change = ManifestChange(registry=registry.with_format(target))
                self.manifest.replace_registry_if_equals(view, registry, change)

        retry_swap(self.manifest, set_format)

    def recover(self) -> list[RecoveryRecord]:
        """Recover the interrupted bulk writes of dead processes; return the recovery records written."""
        self.check_writable("recover interrupted writes")
        return recover_all(self.manifest, self.intents)

    def recover_operation(self, id_: str, *, force: bool = False) -> RecoveryRecord | None:
        """Recover one interrupted bulk write. With `force`, an unreadable intent is discarded."""
        self.check_writable("recover interrupted writes")
        try:
            return recover_operation(self.manifest, self.intents, id_)
        except RecoveryRequired:
            if not force:
                raise
            return discard_unreadable(self.manifest, self.intents, id_)

    def close(self) -> None:
        """Stop the threads of the handle. Later calls raise `InvalidInput`."""
        if self.background is not None:
            self.background.close()
        self._closed = True
        if self.read_leases is not None:
            self.read_leases.close()
        self._executor.shutdown(wait=False)

    def check_usable(self) -> None:
        """Raise `InvalidInput` if the handle is closed or was opened before this process was forked."""
        if self._closed:
            raise InvalidInput("the graph is closed", hint="open it again")
        check_process(self._process)

    # --- reading -----------------------------------------------------------------------------------------

    def head(self, branch: str = MAIN, *, refresh: bool = True) -> HeadRecord:
        """Return the head of a branch."""
        view = self.manifest.refresh() if refresh else self.manifest.view
        return self._head(view, branch)

    def _head(self, view: ManifestView, branch: str) -> HeadRecord:
        branch = normalize_branch_name(branch)
        head = self.manifest.head(view, branch)
        if head is None:
            raise unknown_branch(self.manifest, view, branch)
        return head

    def snapshot(self, branch: str = MAIN, at: At = None) -> Snapshot:
        """Return the snapshot of a branch now, or at the name of a commit, the snapshot or the time `at`.

        A time with microseconds is exact. A time without microseconds includes its whole millisecond.
        """
        if isinstance(at, Snapshot):
            return replace(at, is_head=False)
        branch = normalize_branch_name(branch)
        view = self.manifest.refresh()
        if at is None:
            return self.head_snapshot(view, branch)
        # The branch must exist even when `at` is a commit id.
        head = self._head(view, branch).commit
        if isinstance(at, str):
            commit = find_named_commit(self.manifest, view, at, branch)
        else:
            commit = commit_at(self.manifest, view, head, last_micros_of(at))
        return replace(self._snapshot(branch, commit), is_head=commit.id == head.id)

    def head_snapshot(self, view: ManifestView, branch: str) -> Snapshot:
        """Return the snapshot of a branch in a view of the manifest. The snapshots of the last view are cached."""
        cached_view, snapshots = self._snapshots
        if cached_view is not view:
            snapshots = {}
            self._snapshots = (view, snapshots)
        snapshot = snapshots.get(branch)
        if snapshot is None:
            found = self._snapshot(branch, self._head(view, branch).commit)
            snapshot = snapshots[branch] = replace(found, is_head=True)
        return snapshot

    def snapshot_of(self, commit: CommitRecord) -> Snapshot:
        """Return the snapshot of a commit. Only its schema is read, and cached."""
        return self._snapshot(commit.branch, commit)

    def _snapshot(self, branch: str, commit: CommitRecord) -> Snapshot:
        stored = self.manifest.registry(self.manifest.view).format
        return Snapshot(
            branch, commit, self._catalog(commit.schema), self.tables, stored, leases=self.read_leases
        )

    def _load_catalog(self, schema: str) -> Catalog:
        return Catalog.from_json(json.loads(self.manifest.schema(self.manifest.view, schema)))

    def commit(self, id_: str) -> CommitRecord:
        """Return the commit that a text names, see `find_named_commit`; `NotFound` if there is none."""
        return find_named_commit(self.manifest, self.manifest.refresh(), require_text("id", id_))

    def commits(self, branch: str = MAIN) -> Iterator[CommitRecord]:
        """Return the first-parent history of a branch, newest first, including inherited commits."""
        view = self.manifest.refresh()
        return first_parents(self.manifest, view, self._head(view, branch).commit)

    def merge_bases(self, ours: Sequence[Snapshot], theirs: Sequence[Snapshot]) -> list[Snapshot]:
        """Return all best common ancestors of two states, oldest first; `NotFound` if there is none.

        Several snapshots on a side stand for a merge of them.
        """
        sides = [[item.commit for item in side] for side in (ours, theirs)]
        bases = best_common_ancestors(self._commits_in(self.manifest.view), *sides)
        if not bases:
            ids = [ours[0].commit_id, theirs[0].commit_id]
            raise NotFound(
                f"commits '{ids[0]}' and '{ids[1]}' have no common ancestor", details={"commits": ids}
            )
        return [self._snapshot(ours[0].branch, base) for base in bases]

    def is_ancestor(self, commit_id: str, branch: str = MAIN) -> bool:
        """Return whether a commit is in the history of a branch, over both parents."""
        view = self.manifest.refresh()
        start = self._head(view, branch).commit
        return any(
            commit.id == commit_id for _, commit in ancestors_by_distance(self._commits_in(view), start)
        )

    def _commits_in(self, view: ManifestView) -> GetCommit:
        return partial(get_commit, self.manifest, view)

    def recoveries(self) -> list[RecoveryRecord]:
        """Return all recovery records, oldest first."""
        return self.manifest.recoveries(self.manifest.refresh())

    # --- branches ----------------------------------------------------------------------------------------

    def branches(self) -> dict[str, BranchEntry]:
        """Return the branches, sorted by name."""
        return self.manifest.branches(self.manifest.refresh())

    def create_branch(
        self, name: str, source: str = MAIN, *, at: At = None, actor: str | None = None
    ) -> HeadRecord:
        """Create a branch at the head of another branch, or at a commit, tag, snapshot or time. Copies nothing."""
        self.check_writable("create a branch")
        check_text("actor", actor)
        name = check_new_name(name)
        incarnation = new_id()

        def create(view: ManifestView) -> HeadRecord:
            existing = self.manifest.branch(view, name)
            if existing is not None:
                if existing.incarnation == incarnation:
                    # An earlier attempt of this call succeeded, but its reply was lost.
                    return self._head(view, name)
                raise Conflict(f"branch '{name}' already exists", details={"branch": name})
            if self.manifest.tags.get(view, name) is not None:
                raise Conflict(f"'{name}' is a tag", details={"tag": name}, hint="choose another name")
            commit = self._head(view, source).commit
            registry = None
            if at is not None:
                commit = self._readable_commit(view, source, at)
                # Garbage collection replaces the registry when it announces the versions that it removes.
                registry = self.manifest.registry(view).with_next_epoch()
            entry = BranchEntry(incarnation, now_micros(), actor, commit.id)
            create_branch_if_absent(self.manifest, view, name, entry, registry)
            return HeadRecord(name, incarnation, commit)

        head = retry_swap(self.manifest, create)
        self.maintain_manifest()
        return head

    def _readable_commit(self, view: ManifestView, source: str, at: At) -> CommitRecord:
        """Return the commit at `at`; `NotFound` if garbage collection removed the data of one of its tables."""
        name = at.commit_id if isinstance(at, Snapshot) else at
        if isinstance(name, str):
            commit = find_named_commit(self.manifest, view, name, normalize_branch_name(source))
        else:
            commit = self.snapshot(source, at).commit
        check_readable(self.manifest, view, self._snapshot(source, commit).state)
        return commit

    def delete_branch(self, name: str, *, expected_head: str | None = None) -> None:
        """Delete a branch. Its name can be used again at once.

        Garbage collection removes its commits, unless another branch reaches them. Raises `PreconditionFailed`
        if the head is not `expected_head`.
        """
        self.check_writable("delete a branch")
        name = check_not_main(name, "delete")
        attempted: str | None = None

        def delete(view: ManifestView) -> None:
            nonlocal attempted
            entry = self.manifest.branch(view, name)
            if entry is None or (attempted is not None and entry.incarnation != attempted):
                if attempted is not None:
                    # An earlier attempt of this call succeeded, but its reply was lost.
                    return
                raise unknown_branch(self.manifest, view, name)
            if expected_head is not None:
                check_expected_head(name, expected_head, self._head(view, name).commit)
            attempted = entry.incarnation
            delete_branch_if_equals(self.manifest, view, name, entry)

        retry_swap(self.manifest, delete)
        self.maintain_manifest()

    def reserve_identities(self, count: int, at_least: int) -> int:
        """Reserve consecutive ids of types, properties or tables and return the first one.

        No branch uses the ids, and no other call returns them. Ids that are not used are lost.
        """
        self.check_writable("change a schema")

        def reserve(view: ManifestView) -> int:
            registry = self.manifest.registry(view)
            first = max(at_least, registry.next_id or self._highest_identity(view))
            change = ManifestChange(registry=registry.with_next_id(first + count))
            self.manifest.replace_registry_if_equals(view, registry, change)
            return first

        return retry_swap(self.manifest, reserve)

    def _highest_identity(self, view: ManifestView) -> int:
        schemas = {head.commit.schema for head in branch_heads(self.manifest, view)}
        return max(self._catalog(schema).next_id for schema in schemas)

    # --- writing -----------------------------------------------------------------------------------------

    def begin(
        self, branch: str = MAIN, commit_id: str | None = None, reservation: BranchReservation | None = None
    ) -> Transaction:
        """Start a transaction on the current head, after the recovery of interrupted writes.

        Waits for writes that have reserved the branch. `reservation` is that of this write.
        """
        self.check_writable("write")
        branch = check_branch_name(branch, "write")
        listed = self.intents.pending
        if not self.location.is_local:  # The two requests are independent, and each is a round trip.
            listed = self._executor.submit(propagate_context(listed)).result
        view = self.manifest.refresh()
        pending = listed()
        if pending.reservations and wait_for_reservations(
            self.objects,
            branch,
            pending.reservations,
            None if reservation is None else reservation.id,
            lambda: self.intents.pending().reservations,
        ):
            view = self.manifest.refresh()
        if pending:
            self.recover()
            view = self.manifest.refresh()
        head = self._head(view, branch)
        fence = self.manifest.registry(view).fence
        return Transaction(head, self._snapshot(branch, head.commit), commit_id, fence=fence)

    def write(self, branch: str, request: WriteRequest, prepare: Prepare[T]) -> WriteResult[T]:
        """Prepare a write and publish it as one commit, in a group with other writes that wait for the branch.

        `prepare` stages into the transaction. The thread of another write of the group may call it, in a copy of
        the present context. It is called again with a new transaction when the branch moved and the operation class
        allows a retry. The result returned is that of the call whose work was committed. After an error nothing is
        visible, and the next write succeeds.
        """
        self.check_writable(request.operation)
        branch = check_branch_name(branch, request.operation)
        if request.bulk:
            return self._write_alone(branch, request, prepare)
        write = QueuedWrite(request, prepare, claim=self._claim_early(branch, request))
        with self.write_queue.enter(branch, write, alone=request.alone, starts=request.starts_group) as turn:
            if turn is not None:
                if not request.alone:
                    GroupCommit(self, branch, turn, MAX_PREPARATIONS).run()
                if request.alone or write.needs_intent:
                    return self._write_alone(branch, request, prepare)
                self._after_commit(branch)
        return write.outcome()

    def reservation(self, branch: str) -> BranchReservation:
        """Return the reservation that a write makes if it loses too many races for a branch."""
        return BranchReservation(self.objects, branch)

    def _write_alone(self, branch: str, request: WriteRequest, prepare: Prepare[T]) -> WriteResult[T]:
        """Prepare and publish one write that is not part of a group, with an intent if it is large."""
        with ExitStack() as resources:
            intent: OwnedIntent | None = None
            reservation = resources.enter_context(self.reservation(branch))

            def begin_intent() -> None:
                nonlocal intent
                if intent is None:
                    # One intent for all attempts: it protects the files of the first attempt until the last ends.
                    intent = resources.enter_context(
                        hold_intent(self.intents, transaction, request, self.warnings)
                    )

            for number in range(MAX_PREPARATIONS):
                if number:
                    self.write_queue.statistics.record_retry()
                    sleep_with_backoff(number)
                if not request.background:
                    reservation.begin_preparation(number)
                transaction = self.begin(branch, reservation=reservation)
                if request.idempotency_key is not None:
                    # In every attempt, as in a group: another process may have committed the request meanwhile.
                    commit = self.claim_key(transaction, request)
                    if commit is not None:
                        return WriteResult(PublishReceipt(commit, replayed=True), None)
                if request.expected_head is not None:
                    check_expected_head(branch, request.expected_head, transaction.head.commit)
                transaction.on_begin_intent(begin_intent)
                if request.bulk:
                    begin_intent()
                if intent is not None:
                    # Garbage collection keeps files that are younger than a pending intent.
                    transaction.fence = None
                try:
                    with (
                        preparing_again_behind_the_fence(self.manifest, transaction),
                        transaction.base.reading(),
                    ):
                        prepared = prepare(transaction)
                    plan = make_plan(transaction, request, prepared)
                    receipt = None if plan is None else self._confirm_and_publish(plan, intent)
                    return WriteResult(receipt, prepared.result)
                except StaleBase:
                    continue
        raise too_many_preparations(branch, request, MAX_PREPARATIONS)

    def lease_intent(self, branch: str, request: WriteRequest, seconds: float) -> str:
        """Write the intent of a bulk write that another process will execute; return its id.

        The intent protects staged files from garbage collection for `seconds`. Recovery cannot know whether the
        other process will claim it. An intent that is never claimed costs every write one request until the
        lease expires.
        """
        return lease_intent(self.intents, self.new_unclaimed_intent(branch, request), seconds)

    def new_unclaimed_intent(self, branch: str, request: WriteRequest) -> Intent:
        """Return an intent on the current head for a bulk write of another process. Nothing is written."""
        transaction = self.begin(branch)
        if request.expected_head is not None:
            check_expected_head(transaction.head.branch, request.expected_head, transaction.head.commit)
        return new_intent(transaction, request, UNCLAIMED)

    def release_lease(self, intent_id: str) -> bool:
        """Discard an unclaimed intent; return False if it has ended or a process has claimed it."""
        if self.intents.claim(intent_id, this_process()) is None:
            return False
        self.intents.remove(intent_id)
        return True

    def _claim_early(self, branch: str, request: WriteRequest) -> KeyClaim | None:
        """Claim the key of a write that has to wait for its branch: keys of several writes at the same time."""
        if request.idempotency_key is None or branch not in self.write_queue.branches:
            return None
        with suppress(NotFound):
            return self._claim(self._head(self.manifest.view, branch), request)
        return None

    def _claim(self, head: HeadRecord, request: WriteRequest) -> KeyClaim:
        assert request.idempotency_key is not None
        return claim_key(self.objects, request.idempotency_key, head, request.request, now_micros())

    def claim_key(
        self, transaction: Transaction, request: WriteRequest, early: KeyClaim | None = None
    ) -> CommitRecord | None:
        """Set the commit id of a transaction to that of its idempotency key; return the commit if it exists."""
        # A claim that was made early is void if the branch was created again since.
        claim = early
        if claim is None or claim.incarnation != transaction.head.incarnation:
            claim = self._claim(transaction.head, request)
        transaction.commit_id = claim.commit_id
        return None if claim.fresh else self.manifest.find_commit(self.manifest.refresh(), claim.commit_id)

    def _confirm_and_publish(self, plan: WritePlan, intent: OwnedIntent | None) -> PublishReceipt:
        if intent is None:
            return self._publish(plan)
        intent.confirm(plan)
        return self._publish(plan, before_swap=intent.claim_publish)

    def _publish(self, plan: WritePlan, before_swap: Callable[[], None] | None = None) -> PublishReceipt:
        receipt = publish(self.manifest, plan, before_swap=before_swap)
        self.write_queue.statistics.record_group(1)
        self._after_commit(plan.branch)
        return receipt

    def _after_commit(self, branch: str) -> None:
        maintain_manifest(self.manifest, self.objects, self.warnings)
        if self.background is not None:
            self.background.notice_commit(branch)

    def maintain_manifest(self) -> None:
        """Compact the log and remove old versions of the manifest if it is time to. An error is a warning."""
        maintain_manifest(self.manifest, self.objects, self.warnings)

    def check_writable(self, action: str) -> None:
        """Raise `PermissionDenied` if the handle is open for reading only."""
        self.check_usable()
        check_writable(self.location, self.mode, action, is_backup=self.is_backup)
