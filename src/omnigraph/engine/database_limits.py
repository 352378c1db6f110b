"""Resource limits of DuckDB databases. DuckDB itself is imported by the first query that needs it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DatabaseLimits:
    """The resources of a database: memory such as ``"2GB"``, a directory to spill to and its size, and threads.

    The defaults are 80 % of the machine's memory, the system's temporary directory without a limit of its size, and
    every core.
    """

    memory: str | None = None
    spill_directory: Path | None = None
    threads: int | None = None
    spill_bytes: int | None = None


_default = DatabaseLimits()


def set_default_limits(limits: DatabaseLimits) -> None:
    """Set the limits of databases that this process opens from now on."""
    global _default
    _default = limits


def default_limits() -> DatabaseLimits:
    """Return the limits of databases that are opened without limits."""
    return _default
