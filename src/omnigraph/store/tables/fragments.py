"""Rows written into a table by whoever computes them, to be committed by somebody else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pyarrow as pa
from lance.fragment import FragmentMetadata

from omnigraph.store.location import Location
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.storage_options import StorageOptions
from omnigraph.store.sync import Durability
from omnigraph.store.tables.appending import append_rows
from omnigraph.store.tables.lance_io import LanceRoot, data_files, translate_lance_errors


def open_root(uri: str, options: StorageOptions, durability: Durability) -> LanceRoot:
    """The root of a graph's tables, for a process that knows its address alone."""
    return LanceRoot.at(Location.parse(uri), options, durability)


def write_rows(
    root: LanceRoot, pin: TablePin, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> list[tuple[str, int]]:
    """Write rows as fragments of a pinned table that no version has yet; each as text, with its number of rows.

    They are durable when this returns. Nothing refers to them: should nobody commit them they are garbage.
    """
    with translate_lance_errors(f"write rows of {pin.path}"):
        dataset = root.open(pin.path, pin.version)
        fragments = append_rows(dataset, batches, schema)
        root.sync(pin.path, data_files(fragments))
    return [(json.dumps(item.to_json()), item.physical_rows) for item in fragments]


def read_fragments(texts: Sequence[str]) -> list[FragmentMetadata]:
    """Fragments as a table takes them in."""
    return [FragmentMetadata.from_json(text) for text in texts]


def fragment_files(texts: Sequence[str]) -> list[str]:
    """The files that fragments are in, relative to their table."""
    return data_files(read_fragments(texts))
