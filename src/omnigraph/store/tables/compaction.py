"""What a table consists of, and the rewriting of its fragments by whoever has the time, committed by another.

Lance's own planner keeps indexed and other fragments apart and may commit while its tasks run, so that which
fragments are rewritten is decided elsewhere, and they are read and written here as any rows are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lance.dataset import Index
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.errors import StorageError
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.lance_io import LanceRoot, data_files, fragment_of, translate_lance_errors
from omnigraph.store.tables.tables import Tables


@dataclass(frozen=True, slots=True)
class Fragment:
    """A fragment of a version: `rows` are there of the `written` ones. Two that are equal hold the same rows."""

    id: int
    files: str
    deletions: str | None
    rows: int
    written: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of an index, by the fragments that it was built over, those that are gone among them.

    `handle` is what a table removes it by.
    """

    index: str
    fragments: frozenset[int]
    handle: Any


def list_fragments(tables: Tables, pin: TablePin) -> list[Fragment]:
    """The fragments of a pinned table, in their order."""
    with translate_lance_errors(f"open {pin.path}"):
        return [_fragment(item.metadata) for item in tables.open(pin.path, pin.version).get_fragments()]


def list_segments(tables: Tables, pin: TablePin) -> list[Segment]:
    """The segments of all indexes of a pinned table."""
    with translate_lance_errors(f"open {pin.path}"):
        found = tables.open(pin.path, pin.version).describe_indices()
    return [
        Segment(
            item.name,
            frozenset(part.fragment_ids),
            Index(
                uuid=str(part.uuid),
                name=item.name,
                fields=list(item.fields),
                dataset_version=part.dataset_version_at_last_update,
                fragment_ids=part.fragment_ids,
                index_version=part.index_version,
            ),
        )
        for item in found
        for part in item.segments
    ]


def rewrite_fragments(root: LanceRoot, pin: TablePin, fragments: Sequence[int], number: int) -> str:
    """Write the rows of some fragments as one, which is to have this number; the new one as text.

    It is durable when this returns. Nothing refers to it: should nobody commit it, it is garbage. The number is
    the caller's, so that what is built upon it stays right when the fragment is committed to a later version.
    """
    with translate_lance_errors(f"rewrite {pin.path}"):
        dataset = root.open(pin.path, pin.version)
        old = [fragment_of(dataset, id_) for id_ in fragments]
        rows = sum(item.metadata.num_rows for item in old)
        reader = dataset.scanner(fragments=old, scan_in_order=True).to_reader()
        new = list(write_fragments(reader, dataset, mode="append", max_rows_per_file=rows))
        if len(new) != 1 or new[0].physical_rows != rows:
            raise StorageError(
                f"{rows} rows of {pin.path} were rewritten as {sum(item.physical_rows for item in new)}"
                f" in {len(new)} fragments"
            )
        root.sync(pin.path, data_files(new))
    return json.dumps({**new[0].to_json(), "id": number})


def _fragment(found: FragmentMetadata) -> Fragment:
    deletions: Any = found.deletion_file
    return Fragment(
        id=found.id,
        # The public property makes a class for every call.
        files="|".join(item._path for item in found.files),  # noqa: SLF001
        deletions=None if deletions is None else deletions.path(found.id),
        rows=found.num_rows,
        written=found.physical_rows,
        nbytes=sum(item.file_size_bytes or 0 for item in found.files),
    )
