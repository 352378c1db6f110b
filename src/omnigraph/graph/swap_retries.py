"""Repetition of compare-and-swaps on the registry of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from omnigraph.errors import Conflict, OmnigraphError, OutcomeUnknown
from omnigraph.graph.publish import is_final, sleep_with_backoff
from omnigraph.store.manifest.manifest import Manifest, ManifestView, SwapLost, SwapOutcomeUnknown

_SWAP_ATTEMPTS = 100
_MAX_LOST_REPLIES = 20
T = TypeVar("T")


def retry_swap(manifest: Manifest, attempt: Callable[[ManifestView], T]) -> T:
    """Repeat a compare-and-swap on new views until it succeeds.

    `attempt` must recognize the effect of its earlier calls. A swap that storage refuses for a permanent cause is
    repeated once, which shows that it did not take effect, and then raises `StorageError`.
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
            f"storage did not reply to a change of the registry: {lost_reply.message}",
            details={"cause": lost_reply.message},
            hint="list the branches before trying again",
        )
    raise Conflict(
        f"the registry changed {_SWAP_ATTEMPTS} times during the call",
        hint="try again when there are fewer concurrent writers",
    )
