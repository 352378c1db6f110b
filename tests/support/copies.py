"""Backup, restore and clone as work of a traced process, and the folders they start from.

A folder holds ``graph`` and, for an incremental backup and a restore, ``backup``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from omnigraph.errors import NotFound
from omnigraph.graph.repository import Repository
from omnigraph.maintain.backup.backup import backup, clone, restore
from omnigraph.maintain.backup.copy_options import CopyOptions
from omnigraph.maintain.backup.copy_report import CopyReport


@dataclass(frozen=True, slots=True)
class Copy:
    """A kind of copy: the names of its source and target in the folder, and the work."""

    source: str
    target: str
    act: Callable[[Repository, str, CopyOptions], CopyReport]

    def run(self, folder: str, options: Mapping[str, str]) -> str:
        """Copy; return the head of main."""
        source = Repository.open(f"{folder}/{self.source}", mode="r", options=options)
        return self.act(source, f"{folder}/{self.target}", CopyOptions(options)).heads["main"]


COPIES: Final[dict[str, Copy]] = {
    "backup": Copy("graph", "new", backup),
    "incremental-backup": Copy("graph", "backup", backup),
    "restore": Copy("backup", "new", restore),
    "clone": Copy("graph", "new", clone),
}


def open_copy(folder: str, kind: str, options: Mapping[str, str] | None = None) -> Repository | None:
    """Return the target of a kind, or None if there is no graph yet."""
    try:
        return Repository.open(f"{folder}/{COPIES[kind].target}", mode="r", options=options)
    except NotFound:
        return None
