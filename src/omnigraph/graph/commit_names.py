"""The commit that a text names: its id, or a tag."""

from __future__ import annotations

from itertools import islice

from omnigraph.errors import NotFound
from omnigraph.graph.branch_names import LISTED_IN_ERRORS, has_form_of_commit_id
from omnigraph.graph.damage import CommitState, check_versions, reclaimed_error
from omnigraph.graph.history import get_commit
from omnigraph.lang.suggestions import suggestion
from omnigraph.store.manifest.collection_fence import find_reclaimed
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord


def find_named_commit(manifest: Manifest, view: ManifestView, name: str) -> CommitRecord:
    """Return the commit with an id, or the commit of a tag; `NotFound` if there is neither.

    No tag has the form of a commit id, so the order does not matter.
    """
    name = name.strip()
    if not has_form_of_commit_id(name):
        tag = manifest.tags.get(view, name)
        if tag is not None:
            return get_commit(manifest, view, tag.commit)
    try:
        return get_commit(manifest, view, name)
    except NotFound as error:
        hint = suggestion(name, manifest.tags.names_near(view, name))
        if error.hint is not None or hint is None:
            raise
        raise NotFound(error.message, details=error.details, hint=hint) from error


def unknown_tag(manifest: Manifest, view: ManifestView, name: str) -> NotFound:
    """Return the error for a tag that a view does not have."""
    first = islice(manifest.tags.names(view), LISTED_IN_ERRORS)
    names = sorted({*first, *manifest.tags.names_near(view, name)})
    return NotFound(
        f"tag '{name}' not found",
        details={"tag": name, "tags": names[:LISTED_IN_ERRORS]},
        hint=suggestion(name, names),
    )


def check_readable(manifest: Manifest, view: ManifestView, state: CommitState) -> None:
    """Raise `NotFound` if garbage collection has removed, or is removing, the data of a table of a commit."""
    pins = [(pin.path, pin.version) for pin in state.commit.tables.values()]
    if any(find_reclaimed(manifest, view, pins)):
        raise reclaimed_error(state.commit)
    check_versions(state)
