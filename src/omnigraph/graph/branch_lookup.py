"""Finding branches without reading the entries of all of them."""

from __future__ import annotations

from itertools import islice

from omnigraph.errors import NotFound
from omnigraph.graph.branch_names import LISTED_IN_ERRORS, branch_not_found
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_view import ManifestView


def has_branch(manifest: Manifest, name: str) -> bool:
    """Return whether a branch exists now. One bucket of branches is read."""
    return manifest.branch(manifest.refresh(), name) is not None


def list_branches(
    manifest: Manifest, prefix: str = "", after: str | None = None, limit: int | None = None
) -> list[str]:
    """Return the names that begin with a prefix and come after a name, sorted, at most `limit` of them.

    Only the buckets that hold these names are read.
    """
    return list(islice(manifest.branch_entries.names(manifest.refresh(), prefix, after), limit))


def known_branches(manifest: Manifest, view: ManifestView, name: str) -> list[str]:
    """Return the branches that the error for an unknown branch may name: the first ones and similar ones."""
    first = islice(manifest.branch_entries.names(view), LISTED_IN_ERRORS)
    return sorted({*first, *manifest.branch_entries.names_near(view, name)})


def unknown_branch(manifest: Manifest, view: ManifestView, name: str) -> NotFound:
    """Return the error for a branch that a view does not have."""
    return branch_not_found(name, known_branches(manifest, view, name))
