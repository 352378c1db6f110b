"""Commits that a garbage collection has read, kept for the next one.

The lineage of many busy branches has many commits. Those that one run has used are kept in memory, so that the next
run reads only the commits that were made since. Others are forgotten: memory follows what is retained.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from omnigraph.graph.history import GetCommit, get_commit
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord, TablePin

# The number of commits, and of their references to table versions, that are kept at most. A commit takes some 400
# bytes, and a reference 100. Commits beyond are read again by the next run.
_MAX_COMMITS: Final = 65_536
_MAX_PINS: Final = 524_288


def _continue() -> None:
    """Do nothing."""


class CommitMemory:
    """Commits by id. `pause` is called for each lookup, so that a long walk lets other threads work."""

    def __init__(self, manifest: Manifest, pause: Callable[[], None] = _continue) -> None:
        self._manifest = manifest
        self._pause = pause
        # Commits that the last run used, and those that this run has used.
        self._before: dict[str, CommitRecord] = {}
        self._used: dict[str, CommitRecord] = {}
        self._pins = 0
        # Successive commits refer to mostly the same versions.
        self._shared: dict[tuple[str, int], TablePin] = {}

    @property
    def kept(self) -> frozenset[str]:
        """The ids of the commits that are in memory."""
        return frozenset([*self._before, *self._used])

    def getter(self, view: ManifestView) -> GetCommit:
        """Return a function that returns a commit by its id. Commits have no digests of files and no message."""
        return partial(self._get, view)

    def end_run(self) -> None:
        """Forget the commits that were not used since the last call."""
        self._before, self._used, self._pins = self._used, {}, 0
        self._shared = {
            (pin.path, pin.version): pin for item in self._before.values() for pin in item.tables.values()
        }

    def _get(self, view: ManifestView, id_: str) -> CommitRecord:
        self._pause()
        found = self._used.get(id_)
        if found is None:
            found = self._before.pop(id_, None)
            if found is None:
                found = self._slim(get_commit(self._manifest, view, id_))
            if len(self._used) < _MAX_COMMITS and self._pins + len(found.tables) <= _MAX_PINS:
                self._used[found.id] = found
                self._pins += len(found.tables)
        return found

    def _slim(self, commit: CommitRecord) -> CommitRecord:
        """Return a commit without the members that retention does not need, and with shared texts."""
        intern = sys.intern
        return replace(
            commit,
            id=intern(commit.id),
            parent=None if commit.parent is None else intern(commit.parent),
            branch=intern(commit.branch),
            incarnation=intern(commit.incarnation),
            schema=intern(commit.schema),
            actor=None,
            message=None,
            touched=(),
            files="",
            tables={
                intern(key): self._shared.setdefault((pin.path, pin.version), pin)
                for key, pin in commit.tables.items()
            },
        )
