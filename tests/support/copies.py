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
from omnigraph.maintain.backup.copy_report import CopyReport


@dataclass(frozen=True, slots=True)
class Copy:
    """A kind of copy: the names of its source and target in the folder, and the work."""

    source: str
    target: str
    act: Callable[[Repository, str, Mapping[str, str]], CopyReport]

    def run(self, folder: str, options: Mapping[str, str]) -> str:
        """Copy; return the head of main."""
        source = Repository.open(f"{folder}/{self.source}", mode="r", options=options)
        return self.act(source, f"{folder}/{self.target}", options).heads["main"]


def _backup(source: Repository, target: str, options: Mapping[str, str]) -> CopyReport:
    return backup(source, target, options=options)


def _restore(source: Repository, target: str, options: Mapping[str, str]) -> CopyReport:
    return restore(source, target, options=options)


def _clone(source: Repository, target: str, options: Mapping[str, str]) -> CopyReport:
    return clone(source, target, options=options)


COPIES: Final[dict[str, Copy]] = {
    "backup": Copy("graph", "new", _backup),
    "incremental-backup": Copy("graph", "backup", _backup),
    "restore": Copy("backup", "new", _restore),
    "clone": Copy("graph", "new", _clone),
}


def open_copy(folder: str, kind: str, options: Mapping[str, str] | None = None) -> Repository | None:
    """Return the target of a kind, or None if there is no graph yet."""
    try:
        return Repository.open(f"{folder}/{COPIES[kind].target}", mode="r", options=options)
    except NotFound:
        return None
