"""Tables of a graph that is accessed through a server, so that their storage is not reachable from this process."""

from __future__ import annotations

from typing import Any, NoReturn

from omnigraph.errors import InvalidInput
from omnigraph.store.tables.tables import Tables


class RemoteTables(Tables):
    """The tables of a snapshot received from a server: their pins are known, their rows cannot be read."""

    def __init__(self) -> None:
        """Open nothing and cache nothing."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def open(self, path: str, version: int) -> NoReturn:  # noqa: ARG002 - every table is refused
        """Raise `InvalidInput`. Every read of rows opens its table first."""
        raise InvalidInput(
            "the rows of a served graph cannot be scanned", hint="read them with `query`, `get` or `export`"
        )
