"""Fragments that one process writes and another process commits.

Spark tasks and the threads of a bulk load write fragments and return them as JSON. The process that owns the write
stages them into a version. A fragment that is never committed is garbage.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pyarrow as pa
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.errors import StorageError
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import data_files, get_fragment
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.fragment_writer import append_rows


def write_rows(
    root: LanceRoot, pin: TablePin, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> list[tuple[str, int]]:
    """Write rows as uncommitted fragments of a pinned table; return each as JSON with its number of rows.

    The fragments are durable on return.
    """
    with translate_lance_errors(f"write rows of {pin.path}"):
        dataset = root.open(pin.path, pin.version)
        fragments = append_rows(dataset, batches, schema)
        root.sync(pin.path, data_files(fragments))
    return [(json.dumps(item.to_json()), item.physical_rows) for item in fragments]


def rewrite_fragments(root: LanceRoot, pin: TablePin, fragments: Sequence[int], new_id: int) -> str:
    """Write the live rows of some fragments as one uncommitted fragment; return it as JSON.

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
        root.sync(pin.path, data_files(new))
    return json.dumps({**new[0].to_json(), "id": new_id})


def decode_fragments(texts: Sequence[str]) -> list[FragmentMetadata]:
    """Return the fragments that JSON texts describe."""
    return [FragmentMetadata.from_json(text) for text in texts]


def fragment_files(texts: Sequence[str]) -> list[str]:
    """Return the data files of fragments in JSON, relative to their table."""
    return data_files(decode_fragments(texts))
