"""The fence between one garbage collection and everything that runs beside it.

After `advance`, a write that began before it is prepared again. `announce` states which versions will be removed,
so that no commit adopts one of them. `withdraw` ends the announcement when the versions are gone. A garbage
collection that was interrupted leaves its announcement, and the next one completes the removal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from omnigraph.errors import OmnigraphError, OutcomeUnknown
from omnigraph.graph.history import branch_heads
from omnigraph.graph.publish import sleep_with_backoff
from omnigraph.graph.swap_retries import retry_swap
from omnigraph.store.manifest.collection_fence import (
    MAX_REPLACED,
    advance_fence,
    announce_reclaimed,
    commits_added,
    files_to_replace,
    reclaimed_versions,
    replace_by_equal_files,
    withdraw_reclaimed,
)
from omnigraph.store.manifest.manifest import Manifest, SwapLost, SwapOutcomeUnknown
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord

# Every attempt either replaces files or finds that a writer has replaced one of them.
_MAX_LOST_REPLIES: Final = 20


class CollectionFence:
    """The fence of one garbage collection. Without `advance` nothing in storage changes."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._fenced: ManifestView | None = None
        self._heads: Sequence[CommitRecord] = ()

    def advance(self) -> None:
        """Set the next fence, and replace the files that a swap from before it would replace.

        Every swap that was prepared on an older view then either is part of the newest view or fails.
        """
        manifest = self._manifest
        fenced = retry_swap(manifest, lambda view: advance_fence(manifest, view))
        self._fenced = fenced
        self._heads = [head.commit for head in branch_heads(manifest, fenced)]
        self._replace_files(fenced)

    def _replace_files(self, fenced: ManifestView) -> None:
        count, lost_replies, attempt = MAX_REPLACED, 0, 0
        while files := files_to_replace(fenced, self._manifest.refresh()):
            try:
                replace_by_equal_files(self._manifest, self._manifest.view, files[:count])
            except SwapLost:
                # A writer has replaced one of them. Fewer files at a time, so that the swap succeeds beside others.
                count, attempt = max(1, count // 2), attempt + 1
                sleep_with_backoff(min(attempt, 4))
            except SwapOutcomeUnknown as error:
                lost_replies += 1
                if lost_replies >= _MAX_LOST_REPLIES:
                    raise OutcomeUnknown(
                        f"storage did not reply to a change of the heads: {error.error.message}",
                        details={"cause": error.error.message},
                        hint="nothing was removed; run cleanup again",
                    ) from error
                sleep_with_backoff(lost_replies)

    def recent_heads(self, view: ManifestView) -> Iterator[CommitRecord]:
        """Yield the commits that were a head at any time from the fence up to a view.

        A branch may be created at one of them while a view is read, even if it is not a head in that view.
        """
        if self._fenced is not None:
            yield from self._heads
            yield from commits_added(self._manifest, self._fenced, view)

    def announce(self, view: ManifestView, versions: Mapping[str, Collection[int]]) -> None:
        """Announce the versions that will be removed, by the path of their table.

        Raises `SwapLost` if a commit may have adopted one of them since the view.
        """
        if versions:
            announce_reclaimed(self._manifest, view, versions)

    def withdraw(self, existing: Callable[[str], Collection[int]], warnings: list[str]) -> None:
        """End the announcements whose versions are all gone, including those of interrupted garbage collections.

        `existing` returns the versions of a table that exist.
        """
        manifest = self._manifest
        try:
            announced = reclaimed_versions(manifest, manifest.refresh())
            paths = {path for tables in announced.values() for path in tables}
            present = {path: set(existing(path)) for path in paths}
            done = [
                name
                for name, tables in announced.items()
                if not any(versions & present[path] for path, versions in tables.items())
            ]
            if done:
                retry_swap(manifest, lambda view: withdraw_reclaimed(manifest, view, done))
        except OmnigraphError as error:
            warnings.append(f"the next cleanup ends the announcement of removed versions: {error.message}")
