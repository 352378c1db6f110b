"""New files of a source: those that no earlier run has read.

A file is identified by its address, its size and its time of modification, or the entity tag of the object store.
The address of a file below the pipeline file is relative to it. A file that is replaced is therefore new. The
state holds only files that the source still lists, so it does not grow when old files are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from omnigraph.errors import InvalidInput, NotFound
from omnigraph.pipelines.definition import FileSource
from omnigraph.pipelines.run_record import (
    MAX_LISTED,
    SourceLineage,
    SourceState,
    decode_hashes,
    encode_hashes,
)
from omnigraph.sources.input_files import InputFile, list_table_files
from omnigraph.sources.mapping.type_mapping import Format
from omnigraph.store.storage_options import StorageOptions

# The state of so many files takes about 11 MB in the row of a commit.
MAX_FILES = 1_000_000


@dataclass(frozen=True)
class FileInput:
    """The files of a source: all, those to read, and the state after they are read."""

    form: Format
    listed: Sequence[InputFile]
    new: Sequence[InputFile]
    state: SourceState

    @property
    def lineage(self) -> SourceLineage:
        """The files to read, of which the first are named."""
        names = tuple(file.name for file in self.new[:MAX_LISTED])
        return SourceLineage("files", names, len(self.new))


def find_new_files(
    source: FileSource, path: str, folder: str, state: SourceState | None, options: StorageOptions
) -> FileInput:
    """List the files of a source and return those to read. `folder` is where relative paths of the file start.

    With ``incremental: files`` these are the files that `state` does not have. Otherwise all files are read if any
    of them has changed, and none if all are as they were.
    """
    form: Format = "json" if source.format == "ndjson" else source.format
    try:
        listed = [file for file, _ in list_table_files(path, options, form)]
    except NotFound:
        if source.incremental is None or source.columns is None:
            raise
        # A source with declared columns may be empty.
        listed = []
    if len(listed) > MAX_FILES:
        raise InvalidInput(
            f"`{source.path}` matches {len(listed):,} files, more than {MAX_FILES:,}",
            hint="archive old files, or name a folder with fewer files",
        )
    hashes = {_hash(file, folder): file for file in listed}
    if source.incremental is not None:
        seen = decode_hashes(state["seen"]) if state is not None and state["kind"] == "files" else frozenset()
        new = [file for number, file in hashes.items() if number not in seen]
        return FileInput(form, listed, new, {"kind": "files", "seen": encode_hashes(hashes)})
    digest = xxhash.xxh3_128_hexdigest(b"".join(number.to_bytes(8, "little") for number in sorted(hashes)))
    after = {"kind": "listing", "digest": digest}
    return FileInput(form, listed, [] if state == after else listed, after)


def _hash(file: InputFile, folder: str) -> int:
    # The same file has the same hash wherever the pipeline is started.
    name = file.name.removeprefix(f"{folder.rstrip('/')}/")
    version = file.version()
    text = f"{name}\0{version.size}\0{version.etag or version.modified}"
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogateescape"))
