"""The swap of `__manifest`: one new version that replaces files of a view by new fragments.

On a local disk the version is written without Lance if no other one has been made since the view. It is created
by linking its complete manifest file to its name, which fails if the name exists. This is the compare-and-swap of
Lance as well. Otherwise Lance makes the swap: it compares the transactions since the view and rebases.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import lance
from lance import LanceOperation
from lance.commit import CommitConflictError
from lance.fragment import FragmentMetadata

from omnigraph.errors import NotFound, OmnigraphError, StorageError
from omnigraph.store.file_digests import FileDigest, digest_bytes
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import get_fragment, transaction_file, version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.lance.version_manifest import parse_version
from omnigraph.store.lance.version_writer import create_version, rewrite_fragments
from omnigraph.store.manifest.manifest_errors import MANIFEST
from omnigraph.store.manifest.manifest_files import ManifestFile
from omnigraph.store.manifest.manifest_view import ManifestView, make_view, view_of
from omnigraph.store.manifest.swap_errors import SwapLost, SwapOutcomeUnknown
from omnigraph.store.manifest.version_probe import VersionProbe
from omnigraph.store.request_counts import count_requests


@dataclass(frozen=True, slots=True)
class FileSwap:
    """A swap that was made: the view and its new files, which are not synced.

    `digest` is that of the manifest file. It is None for files of Lance, which are not known to be complete.
    """

    view: ManifestView
    files: Sequence[str]
    digest: FileDigest | None = None


def swap_locally(
    probe: VersionProbe,
    view: ManifestView,
    removed: Sequence[ManifestFile],
    fragments: Sequence[FragmentMetadata],
) -> FileSwap | None:
    """Replace files of the newest version; None if Lance must make the swap: nothing changed.

    Raises `StorageError` if the list of files of the view is damaged in storage, and `SwapOutcomeUnknown` if the
    process was paused so long that the version of the view was removed.
    """
    if probe.find_newest(view.version) != view.version:
        return None
    try:
        with open(f"{probe.folder}/{version_file(view.version)}", "rb", 0) as stream:  # noqa: PTH123 - every commit
            following = rewrite_fragments(stream.read(), {item.fragment for item in removed}, fragments)
        stored = None if following is None else parse_version(following.manifest)
        if following is None or stored is None or stored.version != view.version + 1:
            return None
        # Before the swap, so that a damaged list of files is not handed on to the next version.
        swapped = view_of(stored, view)
        count_requests(writes=2)
        if not create_version(probe.folder, following):
            return None
    except OSError:
        # Lance makes the swap in another way, or reports the failure.
        return None
    if probe.find_newest(view.version) is None:
        # Old versions are removed in ascending order. If that of the view is gone, its successor may have been
        # removed as well, and its name was free for that reason.
        paused = StorageError("the process was paused during a commit", kind="transient")
        raise SwapOutcomeUnknown(paused)
    return FileSwap(swapped, list(following.files), digest_bytes("", following.manifest))


def swap_through_lance(
    root: LanceRoot,
    view: ManifestView,
    newest: ManifestView,
    removed: Sequence[ManifestFile],
    fragments: Sequence[FragmentMetadata],
) -> FileSwap:
    """Replace files of a view, or only add fragments, on top of the versions that were made since.

    `newest` is a later view, which saves reading its files again. Raises `SwapLost` if one of the files was
    replaced, and `SwapOutcomeUnknown`.
    """
    try:
        replaced = [get_fragment(view.dataset, item.fragment).metadata for item in removed]
    except NotFound as error:
        # The version of the view was removed, because there are many later ones.
        raise SwapLost from error
    # Lance checks that the fragments of a rewrite exist. An update is compared only with those versions since its
    # view that have not been removed, and ignores fragments that do not exist.
    operation = (
        LanceOperation.Rewrite([LanceOperation.RewriteGroup(replaced, list(fragments))], [])
        if replaced
        else LanceOperation.Append(list(fragments))
    )
    transaction = lance.Transaction(view.version, operation)
    try:
        with translate_lance_errors(f"commit to {MANIFEST}"):
            dataset = lance.LanceDataset.commit(view.dataset, transaction)
        swapped = make_view(dataset, newest)
    except CommitConflictError as error:
        raise SwapLost from error
    except OmnigraphError as error:
        raise SwapOutcomeUnknown(error) from error
    return FileSwap(swapped, [*_transaction_files(root, transaction, swapped), version_file(swapped.version)])


def _transaction_files(root: LanceRoot, transaction: lance.Transaction, view: ManifestView) -> list[str]:
    """Return the transaction file of the swap that made a view, on a local disk.

    Lance names it after the version that the swap follows. A rewrite that was rebased keeps the name of the version
    that it was prepared on.
    """
    if root.local is None:
        return []
    folder = f"{root.local}/{MANIFEST}"
    names = {transaction_file(transaction, view.version - 1), transaction_file(transaction)}
    return [name for name in names if os.path.exists(f"{folder}/{name}")]  # noqa: PTH110 - every commit does it
