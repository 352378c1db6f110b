"""Building of index segments over fragments that no segment covers yet. Any process may build, another commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lance

from omnigraph.store.file_digests import FileDigest
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.vector_indexes import VectorIndexMethod, build_vector_segment


def uncovered_fragments(dataset: lance.LanceDataset, column: str, kind: str) -> list[tuple[int, int]]:
    """Return the ids of the fragments that the index of a column does not cover, each with its number of rows."""
    indexes = [item for item in dataset.describe_indices() if item.name == index_name(column, kind)]
    covered = {id_ for item in indexes for segment in item.segments for id_ in segment.fragment_ids}
    return [
        (item.fragment_id, item.physical_rows)
        for item in dataset.get_fragments()
        if item.fragment_id not in covered
    ]


def make_segment(
    dataset: lance.LanceDataset,
    column: str,
    kind: str,
    fragments: Sequence[int] | None = None,
    **parameters: Any,
) -> Any | None:
    """Build an uncommitted segment over some fragments, by default over all that the index does not cover.

    `kind` is a kind of scalar index, or the name of a `VectorIndexMethod`. Returns None when there are no such
    fragments.
    """
    name = index_name(column, kind)
    if fragments is None:
        fragment_ids = [id_ for id_, _ in uncovered_fragments(dataset, column, kind)]
    else:
        fragment_ids = list(fragments)
    if not fragment_ids:
        return None
    method = VectorIndexMethod.parse(kind)
    if method is not None:
        return build_vector_segment(dataset, column, method, name, fragment_ids)
    segment = dataset.create_index_uncommitted(
        column, kind, name=name, replace=True, fragment_ids=fragment_ids, **parameters
    )
    if kind == "INVERTED":
        # A full-text segment is built in partitions and is unusable until they are merged, even a single one.
        segment = dataset.merge_existing_index_segments([segment])
    return segment


def segment_file_sizes(segment: Any) -> dict[str, int | None]:
    """Return the files of a segment, relative to its table, each with the size that Lance reported."""
    return {f"_indices/{segment.uuid}/{item.path}": item.size_bytes for item in segment.files or ()}


@dataclass(frozen=True, slots=True)
class BuiltSegment:
    """An uncommitted segment as Lance describes it, and the digests of its files. It can be pickled."""

    segment: Any
    files: tuple[FileDigest, ...] = ()


def build_segment(
    root: LanceRoot, pin: TablePin, column: str, kind: str, fragments: Sequence[int] | None = None
) -> BuiltSegment | None:
    """Build an uncommitted segment of a pinned table, as `make_segment` does. It is durable on return."""
    with translate_lance_errors(f"index {pin.path}.{column}"):
        segment = make_segment(root.open(pin.path, pin.version), column, kind, fragments)
        if segment is None:
            return None
        return BuiltSegment(segment, root.seal(pin.path, segment_file_sizes(segment)))


def index_name(column: str, kind: str) -> str:
    """Return the name of the index of a column."""
    return f"{column}_{kind.lower()}"


def index_kind(column: str, name: str) -> str:
    """Return the kind of an index of a column by its name."""
    return name.removeprefix(f"{column}_").upper()
