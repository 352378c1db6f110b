"""The indexes of a pinned table and their segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lance.dataset import Index

from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.tables import Tables


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """An index of a table. It covers `rows` rows; a lookup scans the others."""

    name: str
    columns: tuple[str, ...]
    kind: str
    rows: int


@dataclass(frozen=True, slots=True)
class IndexSegment:
    """A segment of an index.

    `fragments` are the ids of the fragments it was built over, including those that no longer exist. `handle`
    is the object with which `Tables.stage_segments` removes the segment.
    """

    index: str
    fragments: frozenset[int]
    handle: Any


def list_indexes(tables: Tables, pin: TablePin) -> list[IndexInfo]:
    """Return the indexes of a pinned table."""
    with translate_lance_errors(f"open {pin.path}"):
        indexes = tables.open(pin.path, pin.version).describe_indices()
    return [
        IndexInfo(item.name, tuple(item.field_names), str(item.index_type), int(item.num_rows_indexed))
        for item in indexes
    ]


def list_segments(tables: Tables, pin: TablePin) -> list[IndexSegment]:
    """Return the segments of all indexes of a pinned table."""
    with translate_lance_errors(f"open {pin.path}"):
        indexes = tables.open(pin.path, pin.version).describe_indices()
    return [
        IndexSegment(
            item.name,
            frozenset(segment.fragment_ids),
            Index(
                uuid=str(segment.uuid),
                name=item.name,
                fields=list(item.fields),
                dataset_version=segment.dataset_version_at_last_update,
                fragment_ids=segment.fragment_ids,
                index_version=segment.index_version,
            ),
        )
        for item in indexes
        for segment in item.segments
    ]
