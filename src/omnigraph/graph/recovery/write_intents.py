"""The intent of a write: from its transaction, for as long as the write takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.errors import OutcomeUnknown
from omnigraph.graph.publish import now_micros
from omnigraph.graph.recovery.intents import Intent, IntentOwner, Intents, OwnedIntent, this_process
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_request import WriteRequest
from omnigraph.store.manifest.manifest_files import new_id


def new_intent(transaction: Transaction, request: WriteRequest, owner: IntentOwner) -> Intent:
    """Return the intent of a write that begins. Nothing is written."""
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
def hold_intent(
    intents: Intents, transaction: Transaction, request: WriteRequest, warnings: list[str]
) -> Iterator[OwnedIntent]:
    """Own the intent of a write for the duration of the block: a new one, or the one that the request names.

    At the end the intent is removed, unless the outcome of the write is unknown. A failed removal adds a warning.
    """
    if request.intent_id is not None:
        intent = OwnedIntent.claim(intents, request.intent_id)
    else:
        intent = OwnedIntent.begin(intents, new_intent(transaction, request, this_process()))
    keep = False
    try:
        yield intent
    except OutcomeUnknown:
        # Recovery finds out from the confirmed plan whether the commit exists.
        keep = True
        raise
    finally:
        warning = intent.end(keep=keep)
        if warning is not None:
            warnings.append(warning)
