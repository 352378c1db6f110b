"""Work that others get in the way of, at the moment between its staging and its publishing."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from tests.support.repositories import Prepare


class Interrupted:
    """A preparation during which something else happens: the first thing at the first try, and so on."""

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
        """How often it was prepared."""
        return len(self.bases)
