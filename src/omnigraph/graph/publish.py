"""Publishing of write plans: one compare-and-swap of the branch head makes their commits visible."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from omnigraph.errors import (
    Conflict,
    NotFound,
    OmnigraphError,
    OutcomeUnknown,
    PreconditionFailed,
    StorageError,
)
from omnigraph.graph.pipeline_runs import find_changed_run, run_conflict
from omnigraph.graph.staged_files import StagedFilesRemoved, check_staged_files
from omnigraph.graph.write_plan import WritePlan
from omnigraph.store.manifest.collection_fence import find_reclaimed
from omnigraph.store.manifest.head_swaps import HeadSwap
from omnigraph.store.manifest.manifest import Manifest, SwapLost, SwapOutcomeUnknown
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord, HeadRecord, RecoveryRecord, TablePin
from omnigraph.store.spans import span

if TYPE_CHECKING:
    from omnigraph.graph.transaction import Transaction

# Every lost swap means that another writer committed, so many attempts occur only under heavy contention.
MAX_ATTEMPTS = 200
# A store that accepts the files of a commit but never replies to its swap is not asked more often.
MAX_LOST_REPLIES = 20
_MIN_BACKOFF = 0.002
_MAX_BACKOFF = 0.25


@dataclass(frozen=True, slots=True)
class PublishReceipt:
    """A visible commit. `replayed` is set when an earlier attempt or another process had published it."""

    commit: CommitRecord
    attempts: int = 1
    replayed: bool = False


class BranchContention(Conflict):
    """Other writers won every attempt. The plan is still valid, and nothing is visible."""


class StaleBase(Exception):
    """The write must be prepared again. Nothing is visible.

    A concurrent commit changed a table that the write depends on, or garbage collection may have removed files that
    were staged.
    """


class ChainFailed(Exception):
    """A chain of plans was not published, or its outcome is unknown.

    `errors` has the errors of single plans by their index in the chain. The other plans can be prepared again.
    """

    def __init__(self, errors: Mapping[int, OmnigraphError]) -> None:
        super().__init__("; ".join(error.message for error in errors.values()) or "the branch moved")
        self.errors = errors

    @classmethod
    def each(cls, plans: Sequence[WritePlan], error_of: Callable[[WritePlan], OmnigraphError]) -> ChainFailed:
        """Return the failure of all plans, each with its own error."""
        return cls({index: error_of(plan) for index, plan in enumerate(plans)})


def now_micros() -> int:
    """Return the wall clock time in microseconds since the epoch."""
    return time.time_ns() // 1000


def publish(
    manifest: Manifest,
    plan: WritePlan,
    *,
    recovery: RecoveryRecord | None = None,
    before_swap: Callable[[], None] | None = None,
) -> PublishReceipt:
    """Make the commit of a plan visible.

    Any process may call it again with the same plan: it looks for the commit id before every attempt. Raises
    `StaleBase` when the write must be prepared again, `Conflict` when it must not be retried, and `OutcomeUnknown`
    when storage did not reply. A swap that storage refuses for a permanent cause, such as a full disk, is not
    repeated and raises `StorageError`. After any error except `OutcomeUnknown`, nothing is visible.
    """
    try:
        with span("commit", commits=1):
            return publish_chain(manifest, [plan], recovery=recovery, before_swap=before_swap)[0]
    except ChainFailed as failed:
        if failed.errors:
            raise failed.errors[0] from failed.__cause__
        raise StaleBase(str(failed)) from failed.__cause__


def publish_chain(
    manifest: Manifest,
    plans: Sequence[WritePlan],
    *,
    recovery: RecoveryRecord | None = None,
    before_swap: Callable[[], None] | None = None,
    wait_for_files: Callable[[], None] | None = None,
) -> list[PublishReceipt]:
    """Make the commits of plans visible with one compare-and-swap: all of them, or none.

    Each plan was prepared on the commit of the plan before it, and its commit becomes the child of that one. Raises
    the errors of `publish`; an error of a single plan is in a `ChainFailed`. Any other error holds for all plans.
    `recovery` and `before_swap` are for a single plan. `wait_for_files` returns when the staged files of the plans
    are durable, and raises `StorageError` if they are not. Files of the manifest are written meanwhile.
    """
    lost_reply: OmnigraphError | None = None
    lost_replies = 0
    for attempt in range(MAX_ATTEMPTS):
        if attempt:
            sleep_with_backoff(attempt)
        view = manifest.view
        if attempt or recovery is not None:
            view = _refresh(manifest, plans, lost_reply)
        found = [manifest.find_commit(view, plan.commit_id) for plan in plans]
        if all(found):
            # After a lost reply this call made the commits, otherwise another process did.
            replayed = lost_reply is None
            return [PublishReceipt(commit, attempt + 1, replayed) for commit in found if commit is not None]
        if any(found):
            # Another process committed the request of one plan, which has the same idempotency key.
            raise ChainFailed({})
        if lost_reply is not None and is_final(lost_reply):
            error, swaps = lost_reply, lost_replies
            raise ChainFailed.each(plans, lambda plan: final_swap_error(plan, error, swaps))  # noqa: B023
        if lost_replies >= MAX_LOST_REPLIES:
            break
        head = current_head(manifest, view, plans[0].branch, plans[0].incarnation)
        _check_fence(manifest, view, plans=plans)
        check_chain(plans, head.commit)
        records = _commit_records(plans, head.commit, recovered=recovery is not None)
        if before_swap is not None:
            rolled_forward = _claim_publish(manifest, plans[0], before_swap)
            if rolled_forward is not None:
                return [PublishReceipt(rolled_forward, attempt + 1, replayed=True)]
        change = _manifest_change(plans, records, recovery)
        if any(plan.adopted_versions for plan in plans):
            # Purge removes versions, then replaces the registry, then reads the heads again. This swap replaces the
            # registry too, so one of the two notices the other: the versions are missing here, or this swap fails,
            # or purge finds that a head refers to them. Garbage collection replaces the registry when it announces
            # the versions that it removes.
            change = replace(change, registry=manifest.registry(view).with_next_epoch())
        _check_files(manifest, view, plans)
        try:
            manifest.head_swaps.replace(
                HeadSwap(view, head, change, partial(_check_fence, manifest, plans=plans), wait_for_files)
            )
        except SwapLost:
            continue
        except SwapOutcomeUnknown as error:
            lost_reply = error.error
            lost_replies += 1
            continue
        except StorageError as error:
            # The files of this attempt could not be written. An earlier attempt may still take effect.
            if lost_reply is None:
                raise
            raise _unknown_outcomes(plans, error) from error
        except OutcomeUnknown as error:
            unsynced = error
            raise ChainFailed.each(plans, lambda plan: _unsynced_error(plan, unsynced)) from error  # noqa: B023
        return [PublishReceipt(record, attempt + 1) for record in records]
    if lost_reply is not None:
        raise _unknown_outcomes(plans, lost_reply)
    raise BranchContention(
        f"branch '{plans[0].branch}' moved {MAX_ATTEMPTS} times while a commit was being published",
        details={"branch": plans[0].branch, "expected": plans[0].base, "actual": None},
        hint="try again when there are fewer concurrent writers",
    )


def is_final(error: OmnigraphError) -> bool:
    """Return whether the cause of a failed swap persists, so that another attempt fails in the same way.

    Such a cause is a full or read-only disk, or missing permission. The storage system refused the swap.
    """
    return isinstance(error, StorageError) and error.kind in ("permanent", "configuration")


def final_swap_error(plan: WritePlan, error: OmnigraphError, swaps: int) -> OmnigraphError:
    """Return the error for a swap that was refused. The manifest has been read since and lacks the commit.

    The first swap was certainly not executed. If an earlier swap had no reply, it may still be executed.
    """
    if swaps > 1:
        return outcome_unknown_error(plan, error)
    return StorageError(
        f"commit {plan.commit_id} was not published: {error.message}",
        kind=error.kind if isinstance(error, StorageError) else None,
        details={**error.details, "commit_id": plan.commit_id, "branch": plan.branch},
        hint=error.hint or "nothing was committed; correct the cause, then try again",
    )


def _unsynced_error(plan: WritePlan, error: OutcomeUnknown) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"commit {plan.commit_id}: {error.message}",
        details={**error.details, "commit_id": plan.commit_id},
        hint=error.hint,
    )


def _check_fence(manifest: Manifest, view: ManifestView, *, plans: Sequence[WritePlan]) -> None:
    """Raise `ChainFailed` if garbage collection may have removed staged files: the plans are prepared again."""
    fences = {plan.fence for plan in plans} - {None}
    if fences and fences != {manifest.registry(view).fence}:
        raise ChainFailed({})


@contextmanager
def preparing_again_behind_the_fence(manifest: Manifest, transaction: Transaction) -> Iterator[None]:
    """Raise `StaleBase` instead of an error of storage if a garbage collection has begun since the transaction.

    The process may have been suspended for so long that the files it reads or has staged are gone.
    """
    try:
        yield
    except (NotFound, StorageError) as error:
        if transaction.fence in (None, manifest.registry(manifest.refresh()).fence):
            raise
        raise StaleBase(f"garbage collection began during the preparation: {error.message}") from error


def _check_files(manifest: Manifest, view: ManifestView, plans: Sequence[WritePlan]) -> None:
    """Check that the files of all plans still exist, just before the swap."""
    errors: dict[int, OmnigraphError] = {}
    for index, plan in enumerate(plans):
        try:
            check_adopted_versions(manifest, view, plan, plan.adopted_versions)
            check_staged_files(manifest.root, plan)
        except StagedFilesRemoved as error:
            _check_fence(manifest, manifest.refresh(), plans=plans)
            errors[index] = error
        except Conflict as error:
            errors[index] = error
    if errors:
        raise ChainFailed(errors)


def check_adopted_versions(
    manifest: Manifest, view: ManifestView, plan: WritePlan, versions: Sequence[tuple[str, int]]
) -> None:
    """Raise `Conflict` if a version that a plan adopts was removed, or if garbage collection is removing it.

    The versions are given with the path of their table. The swap must replace the registry of the view.
    """
    reclaimed = set(find_reclaimed(manifest, view, versions))
    for path, version in versions:
        try:
            if (path, version) in reclaimed:
                raise NotFound("garbage collection is removing it")
            manifest.root.open(path, version)
        except NotFound as error:
            raise Conflict(
                f"version {version} of {path} was removed while this {plan.operation} was being published",
                details={"branch": plan.branch, "path": path, "version": str(version)},
                hint=f"run the {plan.operation} again",
            ) from error


def _claim_publish(
    manifest: Manifest, plan: WritePlan, before_swap: Callable[[], None]
) -> CommitRecord | None:
    """Claim the right to swap; return the commit if recovery has already published the plan."""
    try:
        before_swap()
    except Conflict:
        commit = manifest.find_commit(manifest.refresh(), plan.commit_id)
        if commit is None:
            raise
        return commit
    return None


def sleep_with_backoff(attempt: int) -> None:
    """Sleep for a random time whose upper bound grows with the attempts (exponential backoff, full jitter)."""
    time.sleep(random.uniform(0, min(_MAX_BACKOFF, _MIN_BACKOFF * 2**attempt)))


def current_head(manifest: Manifest, view: ManifestView, branch: str, incarnation: str) -> HeadRecord:
    """Return the head of a branch; `NotFound` if that incarnation was deleted."""
    head = manifest.head(view, branch, incarnation)
    if head is None:
        raise NotFound(f"branch '{branch}' not found", details={"branch": branch})
    return head


def check_expected_head(branch: str, expected: str, head: CommitRecord) -> None:
    """Raise `PreconditionFailed` if the head of a branch is not the expected commit."""
    if head.id != expected:
        raise PreconditionFailed(
            f"precondition failed on branch '{branch}': expected head '{expected}' but current is {head.id}",
            details={"expected": expected, "actual": head.id},
        )


def check_head(plan: WritePlan, head: CommitRecord) -> None:
    """Check that a plan can be committed on a head.

    Raises `PreconditionFailed` if the plan expects another head, and `Conflict` if it is a pipeline run that does
    not continue the last run of its pipeline. Raises `StaleBase` or `Conflict`, depending on the operation class,
    if a table or the schema that the plan depends on has changed since its base.
    """
    if plan.expected_head is not None:
        check_expected_head(plan.branch, plan.expected_head, head)
    pipeline = find_changed_run(head.runs, plan.runs)
    if pipeline is not None:
        if plan.run:
            raise run_conflict(pipeline, plan.runs[pipeline][0], head.runs.get(pipeline))
        raise StaleBase(f"pipeline '{pipeline}' published a run")
    if head.id == plan.base:
        return
    if head.schema != plan.base_schema:
        _raise_changed(plan, "schema", plan.base_schema, head.schema, rows_changed=True)
    for table in sorted(plan.dependencies):
        before, after = plan.base_tables.get(table), head.tables.get(table)
        if before != after:
            rows_changed = before is None or after is None or before.content != after.content
            _raise_changed(
                plan, plan.label(table), _version(before), _version(after), rows_changed=rows_changed
            )


def check_chain(plans: Sequence[WritePlan], head: CommitRecord) -> None:
    """Check that a chain of plans can be committed on a head, as `check_head` does for one plan.

    If commits of other writers are below the head, every plan is checked on its own against their changes. Raises
    `ChainFailed` if one of the plans cannot be committed: the plans after it were prepared on its rows.
    """
    if len(plans) > 1 and head.id == plans[0].base:
        # The preconditions of later plans were decided on the commits before them in the chain.
        return
    errors: dict[int, OmnigraphError] = {}
    is_stale = False
    before: dict[str, TablePin | None] = {}
    for index, plan in enumerate(plans):
        tables = {table: before.get(table, plan.base_tables.get(table)) for table in plan.dependencies}
        if index:
            known = {table: pin for table, pin in tables.items() if pin is not None}
            plan = replace(plan, base=plans[0].base, base_tables=known, expected_head=None)
        try:
            check_head(plan, head)
        except StaleBase:
            is_stale = True
        except (Conflict, PreconditionFailed) as error:
            errors[index] = error
        for table in {*plan.writes, *plan.drops}:
            before.setdefault(table, tables[table])
    if errors or is_stale:
        raise ChainFailed(errors)


def _commit_records(plans: Sequence[WritePlan], head: CommitRecord, *, recovered: bool) -> list[CommitRecord]:
    """Return the commits of a chain of plans, each the child of the one before it."""
    records: list[CommitRecord] = []
    for plan in plans:
        head = plan.commit_on(head, now_micros(), recovered=recovered)
        records.append(head)
    return records


def _raise_changed(
    plan: WritePlan, table: str, expected: str | None, actual: str | None, *, rows_changed: bool
) -> None:
    if not rows_changed or plan.operation_class != "strict":
        raise StaleBase(f"{table} changed from {expected} to {actual}")
    raise Conflict(
        f"{table} changed on branch '{plan.branch}' since this {plan.operation} began:"
        f" expected version {expected}, found {actual}",
        details={"table_key": table, "expected": expected, "actual": actual, "branch": plan.branch},
        hint="read the branch again and retry",
    )


def _version(pin: TablePin | None) -> str | None:
    return None if pin is None else str(pin.number)


def _manifest_change(
    plans: Sequence[WritePlan], records: Sequence[CommitRecord], recovery: RecoveryRecord | None
) -> ManifestChange:
    schemas = {
        plan.schema: plan.schema_payload
        for plan in plans
        if plan.schema is not None and plan.schema_payload is not None
    }
    return ManifestChange(
        heads=[HeadRecord(plans[0].branch, plans[0].incarnation, records[-1])],
        commits=records,
        schemas=schemas,
        recoveries=[] if recovery is None else [recovery],
    )


def _refresh(
    manifest: Manifest, plans: Sequence[WritePlan], lost_reply: OmnigraphError | None
) -> ManifestView:
    try:
        return manifest.refresh()
    except OmnigraphError as error:
        if lost_reply is None:
            raise
        raise _unknown_outcomes(plans, error) from error


def _unknown_outcomes(plans: Sequence[WritePlan], cause: OmnigraphError) -> ChainFailed:
    return ChainFailed.each(plans, lambda plan: outcome_unknown_error(plan, cause))


def outcome_unknown_error(plan: WritePlan, cause: OmnigraphError) -> OutcomeUnknown:
    """Return the error for a commit that may or may not be visible."""
    return OutcomeUnknown(
        f"storage did not reply while commit {plan.commit_id} was being published: {cause.message}",
        details={"commit_id": plan.commit_id, "branch": plan.branch, "cause": cause.message},
        hint=f"look for commit {plan.commit_id} before trying again",
    )
