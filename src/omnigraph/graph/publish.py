"""The one door: a plan becomes visible by one compare-and-swap of its branch's head, or not at all."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from omnigraph.errors import Conflict, NotFound, OmnigraphError, OutcomeUnknown, PreconditionFailed
from omnigraph.graph.write_plan import Plan
from omnigraph.store.manifest.manifest import Change, Manifest, Superseded, Uncertain, View
from omnigraph.store.manifest.records import CommitRecord, HeadRecord, RecoveryRecord, TablePin

# A lost swap means that somebody else got on, so many attempts only ever happen under heavy contention.
MAX_ATTEMPTS = 200
_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.25


@dataclass(frozen=True, slots=True)
class Receipt:
    """A commit that is visible. `replayed` says that an earlier attempt had already made it so."""

    commit: CommitRecord
    attempts: int = 1
    replayed: bool = False


class Contended(Conflict):
    """A branch moved too often for a commit to get a turn. The plan is as good as before; nothing is visible."""


class PrepareAgain(Exception):
    """The branch has moved in a way that this work can absorb by being prepared once more."""


def now_micros() -> int:
    """The wall clock in microseconds since the epoch."""
    return time.time_ns() // 1000


def publish(
    manifest: Manifest,
    plan: Plan,
    *,
    recovery: RecoveryRecord | None = None,
    before_swap: Callable[[], None] | None = None,
) -> Receipt:
    """Make a plan's commit visible.

    Safe to call again with the same plan, in any process: its commit id is looked up before every attempt.
    Raises `PrepareAgain` when the work must be redone,
    `Conflict` when it must not, `OutcomeUnknown` when storage fell silent. On any error but the last nothing is
    visible.
    """
    uncertain: OmnigraphError | None = None
    for attempt in range(MAX_ATTEMPTS):
        if attempt:
            pause(attempt)
        view = manifest.view
        if attempt or recovery is not None:
            view = _refresh(manifest, plan, uncertain)
        found = manifest.find_commit(view, plan.commit_id)
        if found is not None:
            # After an attempt without an answer it is this call's own; otherwise somebody else made it.
            return Receipt(found, attempt + 1, replayed=uncertain is None)
        head = current_head(manifest, view, plan.branch, plan.incarnation)
        check_head(plan, head.commit)
        record = plan.record_on(head.commit, now_micros(), recovered=recovery is not None)
        if before_swap is not None:
            rolled_forward = _enter_swap(manifest, plan, before_swap)
            if rolled_forward is not None:
                return Receipt(rolled_forward, attempt + 1, replayed=True)
        change = _change(plan, record, recovery)
        if plan.taken:
            # Whoever removes versions replaces the registry and then looks at the heads again. One of the two sees
            # the other: either the versions are gone by now, or this swap fails, or the remover finds them in use.
            change = replace(change, registry=manifest.registry(view).with_next_epoch())
            _check_taken(manifest, plan)
        try:
            manifest.replace_head_if_equals(view, head, change)
        except Superseded:
            continue
        except Uncertain as silence:
            uncertain = silence.error
            continue
        except OutcomeUnknown as error:
            error.details["commit_id"] = plan.commit_id
            raise
        return Receipt(record, attempt + 1)
    if uncertain is not None:
        raise unknown_outcome(plan, uncertain)
    raise Contended(
        f"branch '{plan.branch}' moved {MAX_ATTEMPTS} times while a commit was being published",
        details={"branch": plan.branch, "expected": plan.base, "actual": None},
        hint="try again when fewer writers are busy",
    )


def _check_taken(manifest: Manifest, plan: Plan) -> None:
    for path, version in plan.taken:
        try:
            manifest.root.open(path, version)
        except NotFound as error:
            raise Conflict(
                f"version {version} of {path} was removed while this {plan.operation} took it over",
                details={"branch": plan.branch, "path": path, "version": str(version)},
                hint="try again on what the branches are now",
            ) from error


def _enter_swap(manifest: Manifest, plan: Plan, before_swap: Callable[[], None]) -> CommitRecord | None:
    """Claim the right to swap. A healer that took it may have published for us: then that commit is ours."""
    try:
        before_swap()
    except Conflict:
        found = manifest.find_commit(manifest.refresh(), plan.commit_id)
        if found is None:
            raise
        return found
    return None


def pause(attempt: int) -> None:
    """Wait a random while that grows with the attempts, so that rivals fall out of step."""
    time.sleep(random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**attempt)))


def current_head(manifest: Manifest, view: View, branch: str, incarnation: str) -> HeadRecord:
    """Where a branch stands, or `NotFound` when that incarnation is gone."""
    head = manifest.head(view, incarnation)
    if head is None:
        raise NotFound(f"branch '{branch}' not found", details={"branch": branch})
    return head


def check_expected_head(branch: str, expected: str, head: CommitRecord) -> None:
    """Refuse when a branch's head is not the commit that the caller expects."""
    if head.id != expected:
        raise PreconditionFailed(
            f"precondition failed on branch '{branch}': expected head '{expected}' but current is {head.id}",
            details={"expected": expected, "actual": head.id},
        )


def check_head(plan: Plan, head: CommitRecord) -> None:
    """Decide what the head's having moved means for a plan; returns when the plan may go on top of it."""
    if plan.expected_head is not None:
        check_expected_head(plan.branch, plan.expected_head, head)
    if head.id == plan.base:
        return
    if head.schema != plan.base_schema:
        _moved(plan, "schema", plan.base_schema, head.schema, logical=True)
    for table in sorted(plan.looked_at):
        before, after = plan.base_tables.get(table), head.tables.get(table)
        if before != after:
            logical = before is None or after is None or before.content != after.content
            _moved(plan, plan.label(table), _version(before), _version(after), logical=logical)


def _moved(plan: Plan, table: str, expected: str | None, actual: str | None, *, logical: bool) -> None:
    if not logical or plan.operation_class != "strict":
        raise PrepareAgain(f"{table} changed from {expected} to {actual}")
    raise Conflict(
        f"{table} changed on branch '{plan.branch}' since this {plan.operation} began:"
        f" expected version {expected}, found {actual}",
        details={"table_key": table, "expected": expected, "actual": actual, "branch": plan.branch},
        hint="read the branch again and retry",
    )


def _version(pin: TablePin | None) -> str | None:
    return None if pin is None else str(pin.version)


def _change(plan: Plan, record: CommitRecord, recovery: RecoveryRecord | None) -> Change:
    schemas = {}
    if plan.schema is not None and plan.schema_payload is not None:
        schemas[plan.schema] = plan.schema_payload
    return Change(
        heads=[HeadRecord(plan.branch, plan.incarnation, record)],
        commits=[record],
        schemas=schemas,
        recoveries=[] if recovery is None else [recovery],
    )


def _refresh(manifest: Manifest, plan: Plan, uncertain: OmnigraphError | None) -> View:
    try:
        return manifest.refresh()
    except OmnigraphError as error:
        if uncertain is None:
            raise
        raise unknown_outcome(plan, error) from error


def unknown_outcome(plan: Plan, cause: OmnigraphError) -> OutcomeUnknown:
    """The error of a commit that may or may not be visible."""
    return OutcomeUnknown(
        f"storage did not answer while commit {plan.commit_id} was being published: {cause.message}",
        details={"commit_id": plan.commit_id, "branch": plan.branch, "cause": cause.message},
        hint=f"look for commit {plan.commit_id} before trying again",
    )
