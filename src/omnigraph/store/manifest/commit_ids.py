"""The ids of commits in a range, read without the commits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.row_files import SupersededFile

# Greater than every character of an id.
_LAST: Final = "Z" * 26


def commit_ids_with_prefix(manifest: Manifest, view: ManifestView, prefix: str) -> Iterator[str]:
    """Yield the ids of all commits that begin with a text, each once, in no particular order.

    Only files whose range of ids overlaps the prefix are read, and of large files only the keys.
    """
    key = f"commit:{prefix}"
    yielded: set[str] = set()
    for file in view.of_kind("commit"):
        first, last = file.id_range
        if last < prefix or first > prefix + _LAST:
            continue
        try:
            keys = manifest.keys(view, file)
        except SupersededFile:
            # A later view has every row of the log.
            later = commit_ids_with_prefix(manifest, manifest.view, prefix)
            yield from (id_ for id_ in later if f"commit:{id_}" not in yielded)
            return
        for found in keys:
            if found.startswith(key) and found not in yielded:
                yielded.add(found)
                yield found.removeprefix("commit:")
