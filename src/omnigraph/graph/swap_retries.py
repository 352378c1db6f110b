"""Repetition of compare-and-swaps on `__manifest` that replace no head of a branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from omnigraph.errors import Conflict, OmnigraphError, OutcomeUnknown
from omnigraph.graph.publish import is_final, sleep_with_backoff
from omnigraph.store.manifest.manifest import Manifest, SwapLost, SwapOutcomeUnknown
from omnigraph.store.manifest.manifest_view import ManifestView

_SWAP_ATTEMPTS = 100
_MAX_LOST_REPLIES = 20
T = TypeVar("T")


def retry_swap(
    manifest: Manifest,
    attempt: Callable[[ManifestView], T],
    *,
    changed: str = "the registry",
    hint: str = "list the branches before trying again",
) -> T:
    """Repeat a compare-and-swap on new views until it succeeds.

    `attempt` must recognize the effect of its earlier calls. A swap that storage refuses for a permanent cause is
    repeated once, which shows that it did not take effect, and then raises `StorageError`. `changed` and `hint` are
    for messages: the part of `__manifest` that the swap changes, and what to do if the outcome is unknown.
    """
    lost_reply: OmnigraphError | None = None
    lost_replies = 0
    for number in range(_SWAP_ATTEMPTS):
        if number:
            sleep_with_backoff(number)
        try:
            return attempt(manifest.refresh())
        except SwapLost:
            continue
        except SwapOutcomeUnknown as error:
            if lost_reply is not None and is_final(lost_reply) and is_final(error.error):
                raise error.error from error
            lost_reply = error.error
            lost_replies += 1
            if lost_replies >= _MAX_LOST_REPLIES:
                break
    if lost_reply is not None:
        raise OutcomeUnknown(
            f"storage did not reply to a change of {changed}: {lost_reply.message}",
            details={"cause": lost_reply.message},
            hint=hint,
        )
    raise Conflict(
        f"{changed} changed {_SWAP_ATTEMPTS} times during the call",
        hint="try again when there are fewer concurrent writers",
    )
