"""The outcomes of a compare-and-swap of `__manifest` other than success."""

from __future__ import annotations

from omnigraph.errors import OmnigraphError


class SwapLost(Exception):
    """The compare-and-swap failed, because another writer replaced a row first."""


class SwapOutcomeUnknown(Exception):
    """The compare-and-swap was sent and the reply was lost. It may have happened, or may still happen.

    It is safe to repeat, because each row can be replaced only once.
    """

    def __init__(self, error: OmnigraphError) -> None:
        super().__init__(str(error))
        self.error = error
