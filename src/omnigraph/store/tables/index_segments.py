"""Segments of an index: built over the fragments that no segment covers yet, by whoever has the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lance

from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.lance_io import LanceRoot, translate_lance_errors


def uncovered_fragments(dataset: lance.LanceDataset, column: str, kind: str) -> list[tuple[int, int]]:
    """The fragments that the column's index does not cover, each with its rows."""
    known = [item for item in dataset.describe_indices() if item.name == index_name(column, kind)]
    covered = {id_ for item in known for part in item.segments for id_ in part.fragment_ids}
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
    """A segment over some fragments, else over all that the column's index does not cover; None over none.

    Nothing refers to it before a version is committed with it.
    """
    name = index_name(column, kind)
    if fragments is None:
        wanted = [id_ for id_, _ in uncovered_fragments(dataset, column, kind)]
    else:
        wanted = list(fragments)
    if not wanted:
        return None
    segment = dataset.create_index_uncommitted(
        column, kind, name=name, replace=True, fragment_ids=wanted, **parameters
    )
    if kind == "INVERTED":
        # A full-text segment is built in parts, and not usable before they are merged, even if it is one.
        segment = dataset.merge_existing_index_segments([segment])
    return segment


def segment_files(segment: Any) -> list[str]:
    """The files of a segment, relative to its table."""
    return [f"_indices/{segment.uuid}/{item.path}" for item in segment.files or ()]


def build_segment(
    root: LanceRoot, pin: TablePin, column: str, kind: str, fragments: Sequence[int] | None = None
) -> Any | None:
    """A segment of a pinned table, durable when this returns, to be committed by somebody else."""
    with translate_lance_errors(f"index {pin.path}.{column}"):
        segment = make_segment(root.open(pin.path, pin.version), column, kind, fragments)
        if segment is not None:
            root.sync(pin.path, segment_files(segment))
    return segment


def index_name(column: str, kind: str) -> str:
    """What a table calls the index of a column."""
    return f"{column}_{kind.lower()}"
