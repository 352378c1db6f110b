"""Fragments that one process writes and another process commits.

Spark tasks and the threads of a bulk load write fragments and return them with the digests of their files. The
process that owns the write stages them into a version. A fragment that is never committed is garbage.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.errors import StorageError
from omnigraph.store.file_digests import FileDigest
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import data_file_sizes, data_files, get_fragment
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.fragment_writer import append_rows


@dataclass(frozen=True, slots=True)
class WrittenFragment:
    """An uncommitted fragment in JSON, its number of rows, and the digests of its data files. It can be pickled."""

    text: str
    rows: int
    files: tuple[FileDigest, ...] = ()

    @classmethod
    def of(cls, fragment: FragmentMetadata, files: Sequence[FileDigest] = ()) -> WrittenFragment:
        """Return the serialized form of a fragment. `files` may have digests of other files as well."""
        names = set(data_files([fragment]))
        own = tuple(item for item in files if item.name in names)
        return cls(json.dumps(fragment.to_json()), fragment.physical_rows, own)

    def decode(self) -> FragmentMetadata:
        """Return the fragment."""
        return FragmentMetadata.from_json(self.text)

    @property
    def data_files(self) -> list[str]:
        """The data files, relative to their table."""
        return data_files([self.decode()])


def write_rows(
    root: LanceRoot, pin: TablePin, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> list[WrittenFragment]:
    """Write rows as uncommitted fragments of a pinned table. The fragments are durable on return."""
    with translate_lance_errors(f"write rows of {pin.path}"):
        dataset = root.open(pin.path, pin.version)
        fragments = append_rows(dataset, batches, schema)
        files = root.seal(pin.path, data_file_sizes(fragments))
    return [WrittenFragment.of(item, files) for item in fragments]


def rewrite_fragments(
    root: LanceRoot, pin: TablePin, fragments: Sequence[int], new_id: int
) -> WrittenFragment:
    """Write the live rows of some fragments as one uncommitted fragment.

    The fragment is durable on return. The caller chooses its id, so that an index segment built over the fragment
    remains valid when the fragment is committed to a later version.
    """
    with translate_lance_errors(f"rewrite {pin.path}"):
        dataset = root.open(pin.path, pin.version)
        old = [get_fragment(dataset, id_) for id_ in fragments]
        rows = sum(item.metadata.num_rows for item in old)
        reader = dataset.scanner(fragments=old, scan_in_order=True).to_reader()
        new = list(write_fragments(reader, dataset, mode="append", max_rows_per_file=rows))
        if len(new) != 1 or new[0].physical_rows != rows:
            raise StorageError(
                f"rewriting {pin.path} at version {pin.version}: expected 1 fragment with {rows} rows,"
                f" got {len(new)} with {sum(item.physical_rows for item in new)}"
            )
        files = root.seal(pin.path, data_file_sizes(new))
    text = json.dumps({**new[0].to_json(), "id": new_id})
    return WrittenFragment(text, new[0].physical_rows, files)
