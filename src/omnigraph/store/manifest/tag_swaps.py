"""Compare-and-swap of tags: create and delete.

A name is a branch, a tag, or neither, so that a state can be named without stating which it is. Creating a tag
replaces the bucket of branches that the name would be in, so that a concurrent creation of such a branch fails.
Creating a branch replaces this bucket, so that a concurrent creation of such a tag fails.
"""

from __future__ import annotations

from omnigraph.store.manifest.manifest import Manifest, SwapLost
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import TagEntry


def create_tag_if_absent(manifest: Manifest, view: ManifestView, name: str, entry: TagEntry) -> ManifestView:
    """Create a tag; `SwapLost` if a tag or a branch of the name exists.

    The registry is replaced as well. Garbage collection replaces it when it announces the versions that it removes,
    so a tag and the removal of its data exclude each other. Nor can two processes add a first bucket of tags.
    """
    if manifest.tags.get(view, name) is not None or manifest.branch(view, name) is not None:
        raise SwapLost
    tags = manifest.tags.change(view, [(name, entry)])
    branches = manifest.branch_entries.change(view, (), touched=[name])
    change = ManifestChange(
        registry=manifest.registry(view).with_next_epoch(), buckets=[*tags.added, *branches.added]
    )
    removed = [*view.of_kind("registry"), *tags.removed, *branches.removed]
    return manifest.replace_files(view, removed, change)


def delete_tag_if_equals(
    manifest: Manifest, view: ManifestView, name: str, expected: TagEntry
) -> ManifestView:
    """Delete a tag if its entry is still the expected one, else raise `SwapLost`."""
    if manifest.tags.get(view, name) != expected:
        raise SwapLost
    tags = manifest.tags.change(view, [(name, None)])
    if tags.added:
        return manifest.replace_files(view, tags.removed, ManifestChange(buckets=tags.added))
    # A swap has at least one new file.
    change = ManifestChange(registry=manifest.registry(view).with_next_epoch())
    return manifest.replace_files(view, [*view.of_kind("registry"), *tags.removed], change)
