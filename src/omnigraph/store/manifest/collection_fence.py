"""The fence of garbage collection: compare-and-swaps that separate it from writes and from each other.

A garbage collection advances the fence in the registry. Then it replaces every head file and every bucket of
branches that existed before, so that a swap which was prepared on an older view fails. The writer reads the
manifest again, finds another fence, and prepares its write again. Before a version is removed it is announced as
reclaimed. A swap that adopts a version of another commit replaces the registry, as the announcement does, so one
of the two notices the other. `docs/design/0031-collection-fence.md` has the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_files import BUCKETS, RECLAIMED, ManifestFile
from omnigraph.store.manifest.manifest_rows import parse_row
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord
from omnigraph.store.manifest.row_files import file_path

# The number of files that one swap replaces. A writer that publishes to one of their branches meanwhile makes the
# swap fail, so a smaller number follows after a failure.
MAX_REPLACED: Final = 32
_PREFIX: Final = f"{RECLAIMED}:"


def advance_fence(manifest: Manifest, view: ManifestView) -> ManifestView:
    """Set the next fence; `SwapLost` if the registry was replaced since the view."""
    registry = manifest.registry(view)
    return manifest.replace_registry_if_equals(
        view, registry, ManifestChange(registry=registry.with_next_fence())
    )


def files_to_replace(fenced: ManifestView, view: ManifestView) -> list[ManifestFile]:
    """Return the head files and buckets of a view that an earlier view, the one with the fence, has too.

    A swap that was prepared before the fence may still replace one of them. The head that moved least recently
    comes first, and stays before the others.
    """
    names = {file.name for file in fenced.files}
    files = [file for file in view.files if file.kind in ("head", BUCKETS) and file.name in names]
    return sorted(files, key=lambda file: (file.kind, file.fragment))


def replace_by_equal_files(manifest: Manifest, view: ManifestView, files: Iterable[ManifestFile]) -> None:
    """Replace head files and buckets by files with the same rows; `SwapLost` if one of them was replaced."""
    chosen = list(files)
    heads = [file for file in chosen if file.kind == "head"]
    bounds = [file.lower_bound for file in chosen if file.kind == BUCKETS]
    buckets = manifest.branch_entries.change(view, (), touched=bounds)
    change = ManifestChange(
        heads=[manifest.read_head_file(view, file) for file in heads], buckets=buckets.added
    )
    manifest.replace_files(view, [*heads, *buckets.removed], change)


def commits_added(manifest: Manifest, before: ManifestView, view: ManifestView) -> Iterator[CommitRecord]:
    """Yield the commits of a view that an earlier view does not have, and possibly some that it has.

    Only new files of the log are read. A file that compaction wrote meanwhile has older commits as well.
    """
    names = {file.name for file in before.files}
    for file in view.of_kind("commit"):
        if file.name not in names:
            for key, text in manifest.rows(view, file).items():
                yield parse_row(file_path(file), key, text, CommitRecord.from_body)


def announce_reclaimed(
    manifest: Manifest, view: ManifestView, versions: Mapping[str, Iterable[int]]
) -> ManifestView:
    """Record the versions that will be removed, by the path of their table.

    Raises `SwapLost` if the registry was replaced since the view: a commit may have adopted one of the versions.
    """
    registry = manifest.registry(view)
    rows = {
        _PREFIX + path: " ".join(f"{item:x}" for item in sorted(items)) for path, items in versions.items()
    }
    change = ManifestChange(registry=registry.with_next_epoch(), reclaimed=rows)
    return manifest.replace_registry_if_equals(view, registry, change)


def reclaimed_versions(manifest: Manifest, view: ManifestView) -> dict[str, dict[str, frozenset[int]]]:
    """Return the versions that garbage collections are removing, by the file that records them and by path."""
    return {
        file.name: {
            key.removeprefix(_PREFIX): frozenset(int(item, 16) for item in text.split())
            for key, text in manifest.rows(view, file).items()
        }
        for file in view.of_kind(RECLAIMED)
    }


def find_reclaimed(
    manifest: Manifest, view: ManifestView, versions: Iterable[tuple[str, int]]
) -> Iterator[tuple[str, int]]:
    """Yield those of the versions, given with the path of their table, that a garbage collection is removing.

    Nothing is read unless a garbage collection is running or was interrupted.
    """
    if view.of_kind(RECLAIMED):
        found = reclaimed_versions(manifest, view).values()
        for path, version in versions:
            if any(version in tables.get(path, ()) for tables in found):
                yield path, version


def withdraw_reclaimed(manifest: Manifest, view: ManifestView, names: Iterable[str]) -> None:
    """Remove records of reclaimed versions, by the names of their files. All of the versions must be gone."""
    chosen = set(names)
    files = [file for file in view.of_kind(RECLAIMED) if file.name in chosen]
    if files:
        # A swap has at least one new file.
        registry = manifest.registry(view).with_next_epoch()
        manifest.replace_files(view, [*view.of_kind("registry"), *files], ManifestChange(registry=registry))
