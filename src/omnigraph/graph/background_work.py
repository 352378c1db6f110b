"""Work that follows a commit: upkeep of `__manifest` by the writer itself, and other work in the background."""

from __future__ import annotations

from typing import Protocol

from omnigraph.errors import OmnigraphError
from omnigraph.graph.recovery.leases import find_leases
from omnigraph.store.manifest.branch_swaps import fold_heads, needs_fold
from omnigraph.store.manifest.manifest import Manifest, SwapOutcomeUnknown
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.objects.store_clock import warn_about_clock


class BackgroundWork(Protocol):
    """Work that a handle performs beside its writes. No method raises, and none waits for the work but `close`."""

    def notice_commit(self, branch: str) -> None:
        """Take note of a commit of this handle."""

    def close(self) -> None:
        """End the work and its threads."""


def maintain_manifest(manifest: Manifest, objects: ObjectStore, warnings: list[str]) -> None:
    """Compact the log, fold branches at rest, and remove old versions, each if it is time.

    The commit before it is visible. If this fails, a warning is added, and a later write does the work. There is
    also a warning if the clock of this machine differs from that of the storage system.
    """
    try:
        if manifest.needs_log_compaction:
            manifest.compact_log()
        if needs_fold(manifest.view):
            fold_heads(manifest, manifest.view)
        # A copy needs the files of the version that it began with.
        if manifest.take_trim() and all(lease.is_of_read for lease in find_leases(objects).live):
            manifest.remove_old_versions(objects)
            warn_about_clock(warnings, manifest.trimmed_at)
    except (OmnigraphError, SwapOutcomeUnknown) as error:
        warnings.append(f"cannot maintain __manifest, a later write will do it: {error}")
