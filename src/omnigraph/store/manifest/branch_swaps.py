"""Compare-and-swap of branches: create, delete, fold heads at rest into their buckets.

Every function replaces the buckets of the branches that it changes. Of two processes that replace the same bucket,
one raises `SwapLost` and repeats its swap with a new view.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from omnigraph.store.manifest.bucket_entries import first_buckets
from omnigraph.store.manifest.manifest import Manifest, SwapLost
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_files import BUCKETS, ManifestFile
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import MAIN_BRANCH, BranchEntry, HeadRecord, Registry

# A branch is at rest if this number of files was added to the manifest since it moved. A publish adds two files.
REST_AFTER_FILES: Final = 256
# Heads of branches at rest are folded into their buckets if there are more than this number.
MAX_HEADS_AT_REST: Final = 16
# From this number of head files on, those that have not moved for the longest time are folded in any case.
MAX_HEAD_FILES: Final = 96
# The heads that moved last keep their files then.
KEPT_HEAD_FILES: Final = 32
# The number of buckets that one fold replaces.
MAX_FOLDED_BUCKETS: Final = 8


def create_branch_if_absent(
    manifest: Manifest, view: ManifestView, name: str, entry: BranchEntry, registry: Registry | None = None
) -> ManifestView:
    """Create a branch at rest at the commit of its entry; `SwapLost` if a branch or a tag of the name exists.

    With a registry, the swap also fails if the registry was replaced since the view.
    """
    if manifest.branch(view, name) is not None or manifest.tags.get(view, name) is not None:
        raise SwapLost
    removed = [] if registry is None else view.of_kind("registry")
    return _replace_buckets(manifest, view, name, entry, *removed, registry=registry)


def delete_branch_if_equals(
    manifest: Manifest, view: ManifestView, name: str, expected: BranchEntry
) -> ManifestView:
    """Delete a branch if its entry is still the expected one, else raise `SwapLost`."""
    if manifest.branch(view, name) != expected:
        raise SwapLost
    head = view.head_file(expected.incarnation)
    return _replace_buckets(manifest, view, name, None, *([] if head is None else [head]))


def _replace_buckets(
    manifest: Manifest,
    view: ManifestView,
    name: str,
    entry: BranchEntry | None,
    *removed: ManifestFile,
    registry: Registry | None = None,
) -> ManifestView:
    buckets = manifest.branch_entries.change(view, [(name, entry)])
    change = ManifestChange(registry=registry, buckets=buckets.added)
    return manifest.replace_files(view, [*buckets.removed, *removed], change)


def touch_bucket(manifest: Manifest, view: ManifestView, name: str) -> ManifestView:
    """Replace the bucket of a name by an equal one, so that a concurrent swap that replaces it fails."""
    buckets = manifest.branch_entries.change(view, (), touched=[name])
    return manifest.replace_files(view, buckets.removed, ManifestChange(buckets=buckets.added))


def needs_fold(view: ManifestView) -> bool:
    """Return whether so many branches have a head file that those at rest should lose theirs."""
    return bool(_heads_to_fold(view)) and bool(view.buckets.files)


def _heads_to_fold(view: ManifestView) -> list[ManifestFile]:
    # Fragment ids ascend in the order of commits, whatever the clocks of the writers.
    by_age = sorted(view.of_kind("head"), key=lambda file: file.fragment)
    newest = max(file.fragment for file in view.files)
    at_rest = [file for file in by_age if newest - file.fragment >= REST_AFTER_FILES]
    if len(at_rest) > MAX_HEADS_AT_REST:
        return at_rest
    return by_age[:-KEPT_HEAD_FILES] if len(by_age) > MAX_HEAD_FILES else []


def fold_heads(manifest: Manifest, view: ManifestView) -> int:
    """Remove the head files of branches at rest, and of others if there are too many; return how many.

    Their entries name the head commits. A writer that publishes to one of them meanwhile repeats its swap. The work
    is bounded. If two processes fold the same heads, one of them has no effect.
    """
    files = _heads_to_fold(view)
    groups: dict[int, list[tuple[ManifestFile, HeadRecord]]] = {}
    for file, head in zip(files, manifest.read_head_files(view, files), strict=True):
        if head.branch != MAIN_BRANCH:
            groups.setdefault(view.buckets.find(head.branch), []).append((file, head))
    chosen = sorted(groups.values(), key=len, reverse=True)[:MAX_FOLDED_BUCKETS]
    removed: list[ManifestFile] = []
    entries: list[tuple[str, BranchEntry | None]] = []
    for file, head in (item for group in chosen for item in group):
        entry = manifest.branch(view, head.branch)
        if entry is not None and entry.incarnation == head.incarnation:
            entries.append((head.branch, replace(entry, commit=head.commit.id)))
            removed.append(file)
    if not entries:
        return 0
    buckets = manifest.branch_entries.change(view, entries)
    try:
        manifest.replace_files(view, [*buckets.removed, *removed], ManifestChange(buckets=buckets.added))
    except SwapLost:
        return 0
    return len(removed)


def move_branches_to_buckets(manifest: Manifest, view: ManifestView, format_: int) -> ManifestView:
    """Move the branches of a registry of an older format to buckets, and set the format."""
    registry = manifest.registry(view)
    change = ManifestChange(
        registry=registry.with_format(format_).without_branches(),
        buckets=first_buckets(BUCKETS, (registry.legacy_branches or {}).items()),
    )
    return manifest.replace_files(view, view.of_kind("registry"), change)
