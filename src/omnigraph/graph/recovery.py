"""Healing: what a dead bulk writer confirmed is published, what it did not is discarded, once and on record."""

from __future__ import annotations

from omnigraph.errors import Conflict, NotFound, PreconditionFailed
from omnigraph.graph.intents import Intent, Intents
from omnigraph.graph.publish import Contended, PrepareAgain, now_micros, pause, publish
from omnigraph.graph.write_plan import Plan
from omnigraph.store.manifest.manifest import Change, Manifest, Superseded, Uncertain
from omnigraph.store.manifest.records import RecoveryOutcome, RecoveryRecord

RECOVERY_ACTOR = "omnigraph:recovery"
# What was done by an operation whose intent cannot be read.
UNKNOWN = "unknown"
_ATTEMPTS = 50


def heal(manifest: Manifest, intents: Intents) -> list[RecoveryRecord]:
    """Settle every intent whose owner is gone; gives what was done.

    Safe to run in any number of processes at once and to repeat after a crash at any point. An intent that
    cannot be read, and storage that cannot be listed, are errors: the write or open that called this fails.
    """
    done = []
    pending = intents.pending()
    intents.tidy(pending)
    for id_ in pending.ids:
        record = settle(manifest, intents, id_)
        if record is not None:
            done.append(record)
    return done


def settle(manifest: Manifest, intents: Intents, id_: str) -> RecoveryRecord | None:
    """Settle one operation if its owner is gone; what was done, or None when there was nothing to do here."""
    intent = intents.read(id_)
    return None if intent is None else _settle(manifest, intents, intent)


def give_up(manifest: Manifest, intents: Intents, id_: str) -> RecoveryRecord | None:
    """Discard an operation whose intent cannot be read, on record; None while its owner may be alive.

    Nothing is known of it but its id. What it had staged is garbage from then on; where it had begun to publish,
    its commit may be there, whole, or not.
    """
    if intents.is_heard(id_):
        return None
    began = intents.fence(id_) == "publishing"
    reason = "its intent cannot be read and was given up"
    record = RecoveryRecord(
        id=id_,
        outcome="discarded",
        actor=None,
        branch="",
        operation=UNKNOWN,
        commit_id=None,
        reason=f"{reason}; it had begun to publish" if began else reason,
        created_at=now_micros(),
    )
    _write_audit(manifest, record)
    intents.remove(id_)
    return record


def _settle(manifest: Manifest, intents: Intents, intent: Intent) -> RecoveryRecord | None:
    view = manifest.refresh()
    if intent.plan is not None and manifest.find_commit(view, intent.plan.commit_id) is not None:
        # Published, by the owner or by another healer; only the tidying was left undone.
        intents.remove(intent.id)
        return None
    if not intents.is_abandoned(intent):
        return None
    if manifest.head(view, intent.incarnation) is None:
        return _discard(manifest, intents, intent, "orphaned", f"branch '{intent.branch}' was deleted")
    if intent.plan is None:
        return _discard(manifest, intents, intent, "discarded", "it was interrupted before it was complete")
    return _roll_forward(manifest, intents, intent, intent.plan)


def _roll_forward(manifest: Manifest, intents: Intents, intent: Intent, plan: Plan) -> RecoveryRecord | None:
    held = intents.claim_outcome(intent.id, "publishing")
    if held is None:
        return None
    if held == "discarded":
        return _discard(
            manifest, intents, intent, "discarded", "an earlier recovery discarded it", fenced=True
        )
    record = _record(intent, "rolled_forward", "it was complete and has been published", plan.commit_id)
    try:
        receipt = publish(manifest, plan, recovery=record)
    except Contended:
        # Others were quicker, not further: the intent stays for the next healer.
        return None
    except (Conflict, PreconditionFailed, PrepareAgain) as error:
        # The branch has moved past this plan for good, so neither its owner nor anybody can still publish it.
        return _discard(manifest, intents, intent, "discarded", f"it was overtaken: {error}", fenced=True)
    except NotFound:
        if manifest.head(manifest.refresh(), intent.incarnation) is not None:
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
        held = intents.claim_outcome(intent.id, "discarded")
        if held is None or (held == "publishing" and intent.plan is None):
            # Settled by others, or the owner woke up between our look and our claim: the work is its own again.
            return None
    record = _record(intent, outcome, reason, None)
    written = _write_audit(manifest, record)
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


def _write_audit(manifest: Manifest, record: RecoveryRecord) -> bool:
    """Add a recovery row exactly once; whether this call did.

    Rows of a log cannot collide, so the registry is replaced by itself in the same swap: of two healers one
    loses, looks again, and finds the other's row.
    """
    for attempt in range(_ATTEMPTS):
        if attempt:
            pause(attempt)
        view = manifest.refresh()
        if manifest.find_recovery(view, record.id) is not None:
            return attempt > 0 and _is_same(manifest, record)
        registry = manifest.registry(view)
        change = Change(registry=registry.with_next_epoch(), recoveries=[record])
        try:
            manifest.replace_registry_if_equals(view, registry, change)
        except (Superseded, Uncertain):
            continue
        return True
    raise Conflict(f"the outcome of operation {record.id} could not be recorded: the registry kept changing")


def _is_same(manifest: Manifest, record: RecoveryRecord) -> bool:
    found = manifest.find_recovery(manifest.view, record.id)
    return found == record
