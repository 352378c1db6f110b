"""The branches of a graph: their entries in buckets, or in the registry of a graph of an old format.

Formats before 3 have no buckets. Their registry holds all branches, and every branch has a head file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from omnigraph.store.manifest.bucket_entries import BucketEntries, select_names
from omnigraph.store.manifest.manifest_files import BUCKETS
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import BranchEntry, Registry
from omnigraph.store.manifest.row_files import RowFiles


class BranchEntries(BucketEntries[BranchEntry]):
    """The entries of branches in the views of a manifest."""

    def __init__(self, rows: RowFiles, registry: Callable[[ManifestView], Registry]) -> None:
        super().__init__(rows, BUCKETS, BranchEntry.from_body)
        self._registry = registry

    def get(self, view: ManifestView, name: str) -> BranchEntry | None:
        """Return the entry of a branch, or None if there is no such branch. One bucket is read."""
        return super().get(view, name) if view.buckets.files else self._of_registry(view).get(name)

    def after(self, view: ManifestView, name: str | None) -> Iterator[tuple[str, BranchEntry]]:
        """Yield the entries after a name in the order of names, or all of them. Buckets are read one by one."""
        if view.buckets.files:
            return super().after(view, name)
        entries = self._of_registry(view).items()
        return iter(sorted(item for item in entries if name is None or item[0] > name))

    def names(self, view: ManifestView, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Yield the names that begin with a prefix and come after a name, sorted."""
        if view.buckets.files:
            return super().names(view, prefix, after)
        return select_names(sorted(self._of_registry(view)), prefix, after)

    def names_near(self, view: ManifestView, name: str) -> list[str]:
        """Return the names in the bucket of a name, sorted: those with the longest common beginning."""
        return super().names_near(view, name) if view.buckets.files else sorted(self._of_registry(view))

    def _of_registry(self, view: ManifestView) -> Mapping[str, BranchEntry]:
        return self._registry(view).legacy_branches or {}
