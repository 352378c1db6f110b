"""Segments of an index: built over the fragments that no segment covers yet, by whoever has the time."""

from __future__ import annotations

from typing import Any

import lance

from omnigraph.store.lance_io import LanceRoot, translated
from omnigraph.store.records import TablePin


def make_segment(dataset: lance.LanceDataset, column: str, kind: str, **parameters: Any) -> Any | None:
    """A segment over the fragments that the column's index does not cover; None when it covers all.

    Nothing refers to it before a version is committed with it.
    """
    name = f"{column}_{kind.lower()}"
    known = [item for item in dataset.describe_indices() if item.name == name]
    covered = {id_ for item in known for part in item.segments for id_ in part.fragment_ids}
    wanted = [item.fragment_id for item in dataset.get_fragments() if item.fragment_id not in covered]
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


def build_segment(root: LanceRoot, pin: TablePin, column: str, kind: str) -> Any | None:
    """A segment of a pinned table, durable when this returns, to be committed by somebody else."""
    with translated(f"index {pin.path}.{column}"):
        segment = make_segment(root.open(pin.path, pin.version), column, kind)
        if segment is not None:
            root.sync(pin.path, segment_files(segment))
    return segment
