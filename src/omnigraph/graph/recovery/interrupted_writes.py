"""Recovery of interrupted bulk writes: confirmed work is rolled forward, other work is discarded.

Each recovered operation has exactly one recovery record in the manifest.
"""

from __future__ import annotations

from omnigraph.errors import Conflict, NotFound, PreconditionFailed
from omnigraph.graph.publish import BranchContention, StaleBase, now_micros, publish, sleep_with_backoff
from omnigraph.graph.recovery.intents import Intent, Intents
from omnigraph.graph.staged_files import StagedFilesRemoved
from omnigraph.graph.write_plan import WritePlan
from omnigraph.store.manifest.manifest import Manifest, SwapLost, SwapOutcomeUnknown
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.records import RecoveryOutcome, RecoveryRecord

RECOVERY_ACTOR = "omnigraph:recovery"
# The operation name in the recovery record of an unreadable intent.
UNKNOWN_OPERATION = "unknown"
_ATTEMPTS = 50


def recover_all(manifest: Manifest, intents: Intents) -> list[RecoveryRecord]:
    """Recover every operation whose owner is dead; return the recovery records that this call wrote.

    Any number of processes may run it concurrently, and it can be repeated after a crash. Raises `RecoveryRequired`
    for an unreadable intent and `StorageError` when storage fails; the open or write that called it then fails too.
    """
    records = []
    pending = intents.pending()
    intents.remove_strays(pending)
    for id_ in pending.ids:
        record = recover_operation(manifest, intents, id_)
        if record is not None:
            records.append(record)
    return records


def recover_operation(manifest: Manifest, intents: Intents, id_: str) -> RecoveryRecord | None:
    """Recover one operation if its owner is dead; return the recovery record that this call wrote, if any."""
    intent = intents.read(id_)
    return None if intent is None else _recover(manifest, intents, intent)


def discard_unreadable(manifest: Manifest, intents: Intents, id_: str) -> RecoveryRecord | None:
    """Discard an operation whose intent cannot be read; return its record, or None if its owner may be alive.

    Only the id of the operation is known. Its staged files become garbage. If it had begun to publish, its
    commit is either completely visible or not visible.
    """
    if intents.has_recent_heartbeat(id_):
        return None
    was_publishing = intents.fence(id_) == "publishing"
    reason = "its intent cannot be read and was discarded"
    record = RecoveryRecord(
        id=id_,
        outcome="discarded",
        actor=None,
        branch="",
        operation=UNKNOWN_OPERATION,
        commit_id=None,
        reason=f"{reason}; it had begun to publish" if was_publishing else reason,
        created_at=now_micros(),
    )
    _write_record(manifest, record)
    intents.remove(id_)
    return record


def _recover(manifest: Manifest, intents: Intents, intent: Intent) -> RecoveryRecord | None:
    view = manifest.refresh()
    if intent.plan is not None and manifest.find_commit(view, intent.plan.commit_id) is not None:
        # The owner or another process published it. Only the removal of the intent is missing.
        intents.remove(intent.id)
        return None
    if not intents.is_abandoned(intent):
        return None
    if manifest.head(view, intent.branch, intent.incarnation) is None:
        return _discard(manifest, intents, intent, "orphaned", f"branch '{intent.branch}' was deleted")
    if intent.plan is None:
        return _discard(manifest, intents, intent, "discarded", "it was interrupted before it was complete")
    return _roll_forward(manifest, intents, intent, intent.plan)


def _roll_forward(
    manifest: Manifest, intents: Intents, intent: Intent, plan: WritePlan
) -> RecoveryRecord | None:
    outcome = intents.claim_outcome(intent.id, "publishing")
    if outcome is None:
        return None
    if outcome == "discarded":
        return _discard(
            manifest, intents, intent, "discarded", "an earlier recovery discarded it", fenced=True
        )
    record = _record(intent, "rolled_forward", "it was complete and has been published", plan.commit_id)
    try:
        receipt = publish(manifest, plan, recovery=record)
    except BranchContention:
        # The plan is still valid. The intent stays for the next recovery.
        return None
    except StagedFilesRemoved as error:
        return _discard(manifest, intents, intent, "discarded", error.message, fenced=True)
    except (Conflict, PreconditionFailed, StaleBase) as error:
        # The branch has moved past this plan, so no process can publish it any more.
        return _discard(manifest, intents, intent, "discarded", f"the branch has moved: {error}", fenced=True)
    except NotFound:
        if manifest.head(manifest.refresh(), intent.branch, intent.incarnation) is not None:
            raise
        return _discard(
            manifest, intents, intent, "orphaned", f"branch '{intent.branch}' was deleted", fenced=True
        )
    intents.remove(intent.id)
    return None if receipt.replayed else record


def _discard(
    manifest: Manifest,
    intents: Intents,
    intent: Intent,
    outcome: RecoveryOutcome,
    reason: str,
    *,
    fenced: bool = False,
) -> RecoveryRecord | None:
    if not fenced:
        decided = intents.claim_outcome(intent.id, "discarded")
        if decided is None or (decided == "publishing" and intent.plan is None):
            # Another process ended the operation, or the owner claimed it first and continues its work.
            return None
    record = _record(intent, outcome, reason, None)
    written = _write_record(manifest, record)
    intents.remove(intent.id)
    return record if written else None


def _record(intent: Intent, outcome: RecoveryOutcome, reason: str, commit_id: str | None) -> RecoveryRecord:
    tables = {} if intent.plan is None else dict.fromkeys(intent.plan.writes, outcome)
    return RecoveryRecord(
        id=intent.id,
        outcome=outcome,
        actor=intent.actor,
        branch=intent.branch,
        operation=intent.operation,
        commit_id=commit_id,
        reason=reason,
        created_at=now_micros(),
        tables=tables,
    )


def _write_record(manifest: Manifest, record: RecoveryRecord) -> bool:
    """Add a recovery record exactly once; return whether this call did.

    Log rows do not conflict with each other, so the same swap also replaces the registry. Of two recovery processes
    one loses, reads the manifest again, and finds the record of the other.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            sleep_with_backoff(attempt)
        view = manifest.refresh()
        stored = manifest.find_recovery(view, record.id)
        if stored is not None:
            return attempt > 0 and stored == record
        registry = manifest.registry(view)
        change = ManifestChange(registry=registry.with_next_epoch(), recoveries=[record])
        try:
            manifest.replace_registry_if_equals(view, registry, change)
        except (SwapLost, SwapOutcomeUnknown):
            continue
        return True
    raise Conflict(
        f"cannot record the outcome of operation {record.id}: the registry changed {_ATTEMPTS} times",
        hint="try again when there are fewer concurrent writers",
    )
