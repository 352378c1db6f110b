"""Tables of a graph whose storage cannot be reached from here."""

from __future__ import annotations

from typing import Any, NoReturn

from omnigraph.errors import InvalidInput
from omnigraph.store.tables.tables import Tables


class UnreachableTables(Tables):
    """What a state that came over a wire has for tables: their pins are known, their rows are not."""

    def __init__(self) -> None:
        """Nothing is opened, and so nothing is kept."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def open(self, path: str, version: int) -> NoReturn:  # noqa: ARG002 - all are alike
        """Refuse: every way to the rows of a table begins here."""
        raise InvalidInput(
            "the rows of a served graph cannot be scanned", hint="read them with `query`, `get` or `export`"
        )
