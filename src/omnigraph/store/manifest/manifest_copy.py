"""The files of one version of `__manifest`, described for a copy into another graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lance.fragment import FragmentMetadata

from omnigraph.errors import StorageError
from omnigraph.store.manifest.manifest import PATH
from omnigraph.store.manifest.manifest_files import ManifestFile
from omnigraph.store.manifest.manifest_view import ManifestView


@dataclass(frozen=True, slots=True)
class CopiedManifestFile:
    """A file of `__manifest`. `key` is relative to the graph; `fragment` adds the copy to another manifest."""

    key: str
    size: int
    fragment: FragmentMetadata


def describe_files(view: ManifestView, files: Iterable[ManifestFile]) -> list[CopiedManifestFile]:
    """Return the files for a copy. No file is read."""
    stored = {item.fragment_id: item.metadata for item in view.dataset.get_fragments()}
    return [_describe(stored[file.fragment]) for file in files]


def _describe(stored: FragmentMetadata) -> CopiedManifestFile:
    (data,) = stored.files
    if data.file_size_bytes is None or stored.deletion_file is not None:
        raise StorageError(f"{PATH}/data/{data.path}: expected a file of known size without deleted rows")
    # The manifest that adds the fragment assigns its id.
    fragment = FragmentMetadata(id=0, files=stored.files, physical_rows=stored.physical_rows)
    return CopiedManifestFile(f"{PATH}/data/{data.path}", data.file_size_bytes, fragment)
