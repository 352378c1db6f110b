"""Writes with concurrent commits between staging and publishing."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from tests.support.repositories import Prepare


class Interrupted:
    """A preparation during which other actions run: the first action in the first attempt, and so on."""

    def __init__(self, prepare: Prepare, *between: Callable[[], object]) -> None:
        self._prepare = prepare
        self._between = between
        self.bases: list[str] = []

    def __call__(self, transaction: Transaction) -> Prepared[None]:
        self.bases.append(transaction.base.commit_id)
        found = self._prepare(transaction)
        if len(self.bases) <= len(self._between):
            self._between[len(self.bases) - 1]()
        return found

    @property
    def times(self) -> int:
        """The number of preparations."""
        return len(self.bases)
