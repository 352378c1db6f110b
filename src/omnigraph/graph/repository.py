"""A graph's storage as one handle: branches, snapshots, history, and writes that end in `publish`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import lru_cache, partial
from typing import Literal, TypeAlias, TypeVar, get_args

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.columns import arrow_schema
from omnigraph.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    OmnigraphError,
    OutcomeUnknown,
    PermissionDenied,
    RecoveryRequired,
)
from omnigraph.graph.argument_checks import check_text, require_text
from omnigraph.graph.branch_names import (
    MAIN,
    check_branch_name,
    check_movable,
    check_new_name,
    no_branch,
    stored_name,
)
from omnigraph.graph.format_version import CURRENT, FLOOR, MIGRATIONS, Step, check_format, pending_migrations
from omnigraph.graph.history import GetCommit, commit_at, distances, first_parents, get_commit, merge_base
from omnigraph.graph.idempotency import claim_key
from omnigraph.graph.intents import HELD, Intent, Intents, OwnedIntent, Owner, hold_intent, this_process
from omnigraph.graph.open_storage import (
    check_free,
    check_one_of,
    check_process,
    connect,
    open_manifest,
    settle_init,
)
from omnigraph.graph.publish import PrepareAgain, Receipt, check_expected_head, now_micros, pause, publish
from omnigraph.graph.recovery import give_up, heal, settle
from omnigraph.graph.snapshot import Snapshot, reclaimed
from omnigraph.graph.transaction import Transaction, schema_row
from omnigraph.graph.write_plan import Plan, Prepared
from omnigraph.graph.write_queue import Turns
from omnigraph.graph.write_request import Prepare, WriteRequest, WriteResult
from omnigraph.lang.temporal import last_micros_of
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.location import Location
from omnigraph.store.manifest.manifest import Change, Manifest, Superseded, Uncertain, View
from omnigraph.store.manifest.manifest_files import new_id
from omnigraph.store.manifest.records import (
    GENESIS_SEQUENCE,
    BranchEntry,
    CommitRecord,
    HeadRecord,
    RecoveryRecord,
    Registry,
    TablePin,
)
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import propagate_context
from omnigraph.store.storage_options import StorageOptions
from omnigraph.store.sync import Durability
from omnigraph.store.tables.tables import Tables

Mode: TypeAlias = Literal["rw", "r"]
At: TypeAlias = str | datetime | Snapshot | None
T = TypeVar("T")

# How often a write that can absorb the changes of others is prepared again before it gives up.
MAX_PREPARATIONS = 32
_SWAP_ATTEMPTS = 100


class Repository:
    """A handle on one graph. Safe to share between threads; any number of handles and processes may coexist."""

    def __init__(
        self, location: Location, root: LanceRoot, manifest: Manifest, objects: ObjectStore, mode: Mode
    ) -> None:
        self.location = location
        self.mode: Mode = mode
        self.durability: Durability = "full" if root.durable else "os"
        self.tables = Tables(root)
        self.manifest = manifest
        self.objects = objects
        self.intents = Intents(objects, writable=mode == "rw")
        self.warnings: list[str] = []
        self._turns = Turns()
        # Two requests that a write begins with do not depend on each other; on a store each is a round trip.
        self._side = ThreadPoolExecutor(max_workers=1, thread_name_prefix="omnigraph-probe")
        self._closed = False
        self._process = os.getpid()
        self._catalog = lru_cache(maxsize=16)(self._load_catalog)
        self._snapshots: tuple[View, dict[str, Snapshot]] = (manifest.view, {})

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
        """Make a new graph. Of several initialisers one succeeds and the others get `Conflict`.

        One that dies on the way leaves a root that cannot be opened and that the next `init` completes.
        """
        check_text("actor", actor)
        location, root, objects = connect(uri, options, durability)
        check_free(root, location)
        tables = Tables(root)
        commit_id, incarnation, now = new_id(), new_id(), now_micros()
        pins = {}
        for table in catalog.tables.values():
            # The path has an id of its own: what a rival or a dead initialiser made is never built upon.
            path = f"{table.path}-{new_id()}"
            version = tables.create(path, arrow_schema(table, physical=True))
            pins[str(table.id)] = TablePin(path, version, 0, commit_id)
        schema, payload = schema_row(catalog)
        commit = CommitRecord(
            id=commit_id,
            branch=MAIN,
            incarnation=incarnation,
            sequence=GENESIS_SEQUENCE,
            parent=None,
            merged_parent=None,
            actor=actor,
            operation="init",
            message=None,
            created_at=now,
            schema=schema,
            tables=pins,
            touched=tuple(sorted(pins)),
        )
        registry = Registry(CURRENT, new_id(), now, {MAIN: BranchEntry(incarnation, now, actor)})
        first = Change(registry, [HeadRecord(MAIN, incarnation, commit)], [commit], {schema: payload})
        try:
            manifest = Manifest.create(root, first)
        except (Superseded, Uncertain) as error:
            manifest = settle_init(root, registry, location, error)
        return cls(location, root, manifest, objects, "rw")

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        mode: Mode = "rw",
        options: StorageOptions | None = None,
        durability: Durability = "full",
        heal: bool = True,
    ) -> Repository:
        """Open a graph. Read-write heals what dead writers left, unless told not to; read-only writes nothing."""
        check_one_of("mode", mode, get_args(Mode))
        location, root, objects = connect(uri, options, durability)
        manifest = open_manifest(root, location)
        repository = cls(location, root, manifest, objects, mode)
        check_format(manifest.registry(manifest.view).format)
        if mode == "rw":
            repository._migrate()
            if heal:
                repository.heal()
        return repository

    def _migrate(
        self, current: int = CURRENT, floor: int = FLOOR, migrations: Mapping[int, Step] = MIGRATIONS
    ) -> None:
        stamp = self.manifest.registry(self.manifest.view).format
        for target, step in pending_migrations(stamp, current=current, floor=floor, migrations=migrations):
            step(self.manifest)
            self._restamp(target)

    def _restamp(self, target: int) -> None:
        def restamp(view: View) -> None:
            registry = self.manifest.registry(view)
            if registry.format < target:
                change = Change(registry=registry.with_format(target))
                self.manifest.replace_registry_if_equals(view, registry, change)

        self._retry(restamp)

    def heal(self) -> list[RecoveryRecord]:
        """Settle what dead bulk writers left behind."""
        self._writable("heal")
        return heal(self.manifest, self.intents)

    def settle(self, id_: str, *, force: bool = False) -> RecoveryRecord | None:
        """Settle what one dead bulk writer left behind. By `force` what cannot be read is given up."""
        self._writable("heal")
        try:
            return settle(self.manifest, self.intents, id_)
        except RecoveryRequired:
            if not force:
                raise
            return give_up(self.manifest, self.intents, id_)

    def close(self) -> None:
        """Let go of threads; the graph needs no closing. Afterwards the handle is refused."""
        self._closed = True
        self._side.shutdown(wait=False)

    def check_usable(self) -> None:
        """`InvalidInput` when the handle has been closed, or is one of the process that forked this one."""
        if self._closed:
            raise InvalidInput("the graph is closed", hint="open it again")
        check_process(self._process)

    # --- reading -----------------------------------------------------------------------------------------

    def head(self, branch: str = MAIN, *, refresh: bool = True) -> HeadRecord:
        """Where a branch stands now."""
        view = self.manifest.refresh() if refresh else self.manifest.view
        return self._head(view, branch)

    def _head(self, view: View, branch: str) -> HeadRecord:
        branch = stored_name(branch)
        entry = self.manifest.registry(view).branches.get(branch)
        head = None if entry is None else self.manifest.head(view, entry.incarnation)
        if head is None:
            raise no_branch(branch, self.manifest.registry(view).branches)
        return head

    def snapshot(self, branch: str = MAIN, at: At = None) -> Snapshot:
        """The state of a branch now, or of the commit, snapshot or moment `at`.

        A moment with microseconds is taken exactly, another one covers its millisecond.
        """
        if isinstance(at, Snapshot):
            return at
        branch = stored_name(branch)
        view = self.manifest.refresh()
        if at is None:
            return self._newest(view, branch)
        # Also where a commit is named by its id: a branch that is not there is a mistake, and nobody's state.
        head = self._head(view, branch).commit
        if isinstance(at, str):
            commit = get_commit(self.manifest, view, at)
        else:
            commit = commit_at(self.manifest, view, head, last_micros_of(at))
        return self._snapshot(branch, commit)

    def _newest(self, view: View, branch: str) -> Snapshot:
        """The state of a branch at a version of the manifest; asked for again and again between two commits."""
        known_view, known = self._snapshots
        if known_view is view:
            found = known.get(branch)
            if found is not None:
                return found
        else:
            known = {}
            self._snapshots = (view, known)
        found = known[branch] = self._snapshot(branch, self._head(view, branch).commit)
        return found

    def state(self, commit: CommitRecord) -> Snapshot:
        """The state of a commit that is at hand; only its schema is looked up, and kept."""
        return self._snapshot(commit.branch, commit)

    def _snapshot(self, branch: str, commit: CommitRecord) -> Snapshot:
        return Snapshot(branch, commit, self._catalog(commit.schema), self.tables)

    def _load_catalog(self, schema: str) -> Catalog:
        return Catalog.from_json(json.loads(self.manifest.schema(self.manifest.view, schema)))

    def commit(self, id_: str) -> CommitRecord:
        """A commit by its id."""
        return get_commit(self.manifest, self.manifest.refresh(), require_text("id", id_))

    def commits(self, branch: str = MAIN) -> Iterator[CommitRecord]:
        """A branch's first-parent history, newest first, the inherited part included."""
        view = self.manifest.refresh()
        return first_parents(self.manifest, view, self._head(view, branch).commit)

    def merge_base(self, ours: Snapshot, theirs: Snapshot) -> Snapshot:
        """The state where two histories meet: the nearest common ancestor over both parents."""
        found = merge_base(self._commits_in(self.manifest.view), ours.commit, theirs.commit)
        if found is None:
            raise NotFound(
                f"commits '{ours.commit_id}' and '{theirs.commit_id}' have no common ancestor",
                details={"commits": [ours.commit_id, theirs.commit_id]},
            )
        return self._snapshot(ours.branch, found)

    def is_ancestor(self, commit_id: str, branch: str = MAIN) -> bool:
        """Whether a commit is part of a branch's history, over both parents."""
        view = self.manifest.refresh()
        start = self._head(view, branch).commit
        return any(commit.id == commit_id for _, commit in distances(self._commits_in(view), start))

    def _commits_in(self, view: View) -> GetCommit:
        return partial(get_commit, self.manifest, view)

    def recoveries(self) -> list[RecoveryRecord]:
        """What recovery has done, oldest first."""
        return self.manifest.recoveries(self.manifest.refresh())

    # --- branches ----------------------------------------------------------------------------------------

    def branches(self) -> dict[str, BranchEntry]:
        """The live branches by name, sorted."""
        registry = self.manifest.registry(self.manifest.refresh())
        return dict(sorted(registry.branches.items()))

    def create_branch(
        self, name: str, source: str = MAIN, *, at: At = None, actor: str | None = None
    ) -> HeadRecord:
        """Make a branch at another branch's head, or at a commit, snapshot or moment. Costs one row."""
        self._writable("create a branch")
        check_text("actor", actor)
        name = check_new_name(name)
        incarnation = new_id()

        def create(view: View) -> HeadRecord:
            registry = self.manifest.registry(view)
            taken = registry.branches.get(name)
            if taken is not None:
                if taken.incarnation == incarnation:
                    return self._head(view, name)
                raise Conflict(f"branch '{name}' already exists", details={"branch": name})
            commit = self._head(view, source).commit
            if at is not None:
                commit = self._readable(view, source, at)
            head = HeadRecord(name, incarnation, commit)
            entry = BranchEntry(incarnation, now_micros(), actor)
            change = Change(registry=registry.with_branch(name, entry), heads=[head])
            self.manifest.replace_registry_if_equals(view, registry, change)
            return head

        return self._retry(create)

    def _readable(self, view: View, source: str, at: At) -> CommitRecord:
        """The commit that `at` names, unless cleanup has taken what it pins: a branch there could not be read."""
        if isinstance(at, Snapshot):
            at = at.commit_id
        known = isinstance(at, str)
        commit = get_commit(self.manifest, view, str(at)) if known else self.snapshot(source, at).commit
        if not all(self.tables.exists(pin) for pin in commit.tables.values()):
            raise reclaimed(commit)
        return commit

    def delete_branch(self, name: str, *, expected_head: str | None = None) -> None:
        """Delete a branch: its name is free at once, its commits stay reachable from others or go with cleanup.

        With `expected_head` it is refused unless the branch stands at that commit.
        """
        self._writable("delete a branch")
        name = check_movable(name, "delete")
        attempted: str | None = None

        def delete(view: View) -> None:
            nonlocal attempted
            registry = self.manifest.registry(view)
            entry = registry.branches.get(name)
            if entry is None or (attempted is not None and entry.incarnation != attempted):
                if attempted is not None:
                    # An earlier attempt of this call went through, though its answer was lost.
                    return
                raise no_branch(name, registry.branches)
            if expected_head is not None:
                check_expected_head(name, expected_head, self._head(view, name).commit)
            attempted = entry.incarnation
            change = Change(registry=registry.without_branch(name))
            self.manifest.replace_registry_if_equals(view, registry, change, remove_head=entry.incarnation)

        self._retry(delete)

    def reserve_identities(self, count: int, at_least: int) -> int:
        """The first of so many numbers in a row that nothing on any branch has, nor will get from others.

        What is reserved and not used is lost, which costs nothing.
        """
        self._writable("change a schema")

        def reserve(view: View) -> int:
            registry = self.manifest.registry(view)
            first = max(at_least, registry.next_id or self._highest_identity(view, registry))
            change = Change(registry=registry.with_next_id(first + count))
            self.manifest.replace_registry_if_equals(view, registry, change)
            return first

        return self._retry(reserve)

    def _highest_identity(self, view: View, registry: Registry) -> int:
        heads = (self.manifest.head(view, entry.incarnation) for entry in registry.branches.values())
        schemas = {head.commit.schema for head in heads if head is not None}
        return max(self._catalog(schema).next_id for schema in schemas)

    def _retry(self, attempt: Callable[[View], T]) -> T:
        """Repeat a compare-and-swap on fresh views until it holds."""
        silence: OmnigraphError | None = None
        for number in range(_SWAP_ATTEMPTS):
            if number:
                pause(number)
            try:
                return attempt(self.manifest.refresh())
            except Superseded:
                continue
            except Uncertain as error:
                silence = error.error
        if silence is not None:
            raise OutcomeUnknown(
                f"storage did not answer: {silence.message}", details={"cause": silence.message}
            )
        raise Conflict("the registry kept changing", hint="try again when fewer writers are busy")

    # --- writing -----------------------------------------------------------------------------------------

    def begin(self, branch: str = MAIN, commit_id: str | None = None) -> Transaction:
        """Start a write on a fresh base: heals, probes once, pins the head."""
        self._writable("write")
        pending = self._side.submit(propagate_context(self.intents.pending))
        view = self.manifest.refresh()
        if pending.result():
            self.heal()
            view = self.manifest.refresh()
        branch = check_branch_name(branch, "write")
        head = self._head(view, branch)
        return Transaction(head, self._snapshot(branch, head.commit), commit_id)

    def write(self, branch: str, request: WriteRequest, prepare: Prepare[T]) -> WriteResult[T]:
        """Prepare a write and publish it as one commit.

        `prepare` stages into the transaction. It is called again with a new transaction when the branch moved and
        the operation class allows a retry. The result returned is that of the call whose work was committed. After
        an error nothing is visible, and the next write succeeds.
        """
        self._writable(request.operation)
        branch = check_branch_name(branch, request.operation)
        with ExitStack() as held:
            if not request.bulk:
                held.enter_context(self._turns.take(branch))
            intent: OwnedIntent | None = None

            def hold() -> None:
                nonlocal intent
                if intent is None:
                    # One for all attempts: what the first has written is safe from cleanup until the last.
                    intent = held.enter_context(self._intent(transaction, request))

            for number in range(MAX_PREPARATIONS):
                if number:
                    pause(number)
                transaction = self.begin(branch)
                if request.idempotency_key is not None:
                    # Each time: a twin of this request may have committed meanwhile, and work prepared on top of
                    # its own effect could refuse what has in fact succeeded.
                    done = self._claim(transaction, request.idempotency_key, request.request)
                    if done is not None:
                        return WriteResult(Receipt(done, replayed=True), None)
                if request.expected_head is not None:
                    check_expected_head(branch, request.expected_head, transaction.head.commit)
                transaction.hold_by(hold)
                if request.bulk:
                    hold()
                try:
                    prepared = prepare(transaction)
                    plan = self._plan(transaction, request, prepared)
                    receipt = None if plan is None else self._confirm_and_publish(plan, intent)
                    return WriteResult(receipt, prepared.result)
                except PrepareAgain:
                    continue
        raise Conflict(
            f"branch '{branch}' changed {MAX_PREPARATIONS} times while {request.operation} was being prepared",
            details={"branch": branch},
            hint="try again when fewer writers are busy",
        )

    def hold(self, branch: str, request: WriteRequest, seconds: float) -> str:
        """Begin the intent of a bulk write that another process will do, within so many seconds; its id.

        What is written meanwhile is safe from cleanup. Nobody can tell whether the other process will ever come,
        so that work which is given up costs a look at its intent with every write until the time is over.
        """
        return hold_intent(self.intents, self.intend(branch, request), seconds)

    def intend(self, branch: str, request: WriteRequest) -> Intent:
        """The intent of a bulk write that another process will do on top of the branch's head, not yet held."""
        transaction = self.begin(branch)
        if request.expected_head is not None:
            check_expected_head(transaction.head.branch, request.expected_head, transaction.head.commit)
        return self._new_intent(transaction, request, HELD)

    def release(self, held: str) -> bool:
        """Give up what was held, for good; False when it is over, or somebody has taken it up and it is theirs."""
        if self.intents.take_over(held, this_process()) is None:
            return False
        self.intents.remove(held)
        return True

    def _claim(self, transaction: Transaction, key: str, request: str) -> CommitRecord | None:
        """Give a transaction the commit id of its key; that commit, when it is there already."""
        claim = claim_key(self.objects, key, transaction.head, request, now_micros())
        transaction.commit_id = claim.commit_id
        return None if claim.fresh else self.manifest.find_commit(self.manifest.refresh(), claim.commit_id)

    def _confirm_and_publish(self, plan: Plan, intent: OwnedIntent | None) -> Receipt:
        if intent is None:
            return self._publish(plan)
        intent.confirm(plan)
        return self._publish(plan, before_swap=intent.enter_swap)

    @staticmethod
    def _plan(transaction: Transaction, request: WriteRequest, prepared: Prepared[T]) -> Plan | None:
        if prepared.operation_class is None:
            return None
        return transaction.plan(
            request.operation,
            prepared.operation_class,
            actor=request.actor,
            message=request.message,
            expected_head=request.expected_head,
        )

    def _new_intent(self, transaction: Transaction, request: WriteRequest, owner: Owner) -> Intent:
        head = transaction.head
        return Intent(
            id=new_id(),
            operation=request.operation,
            actor=request.actor,
            branch=head.branch,
            incarnation=head.incarnation,
            base=head.commit.id,
            owner=owner,
            created_at=now_micros(),
        )

    @contextmanager
    def _intent(self, transaction: Transaction, request: WriteRequest) -> Iterator[OwnedIntent]:
        if request.held is not None:
            intent = OwnedIntent.adopt(self.intents, request.held)
        else:
            intent = OwnedIntent.begin(self.intents, self._new_intent(transaction, request, this_process()))
        keep = False
        try:
            yield intent
        except OutcomeUnknown:
            # Whether the commit is there is for the next healer to find out, from the confirmed plan.
            keep = True
            raise
        finally:
            warning = intent.end(keep=keep)
            if warning is not None:
                self.warnings.append(warning)

    def _publish(self, plan: Plan, before_swap: Callable[[], None] | None = None) -> Receipt:
        receipt = publish(self.manifest, plan, before_swap=before_swap)
        if self.manifest.is_full:
            self._fold()
        return receipt

    def _fold(self) -> None:
        try:
            self.manifest.fold_log(self.objects)
        except (OmnigraphError, Uncertain) as error:
            # The commit stands; a log that is not folded now is folded after the next one.
            self.warnings.append(f"the manifest's log was not folded: {error}")

    def _writable(self, what: str) -> None:
        self.check_usable()
        if self.mode == "r":
            raise PermissionDenied(
                f"cannot {what}: the graph is open for reading only", hint="open it with mode='rw'"
            )
