"""Compaction policy: which fragments and index segments of a table `optimize` rewrites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omnigraph.store.tables.table_fragments import TableFragment
from omnigraph.store.tables.table_indexes import IndexSegment

# A fragment of at least half of either size is full. Merged fragments have about this size at most.
TARGET_ROWS = 1 << 20
TARGET_BYTES = 512 << 20
# Building an index segment of more rows would take one process too long.
SEGMENT_ROWS = 1 << 24
# An item of at most this size is merged with any other. A larger item is rewritten only together with smaller ones
# that have at least half its size in total. Each rewrite then makes the item of a row half as large again, so the
# number of rewrites of a row is logarithmic.
SMALL_ROWS = 1 << 16
RATIO = 2
# A fragment that has lost this fraction of its rows is rewritten.
MIN_DELETED_FRACTION = 0.1


def group_by_size(sizes: Sequence[int], target: int) -> list[list[int]]:
    """Group items by size and return their indexes. The items of a group are merged; a single item is kept.

    The result is stable: grouping the merged sizes again merges nothing.

    >>> group_by_size([10, 900_000, 20, 30], TARGET_ROWS)
    [[0, 2, 3], [1]]
    >>> group_by_size([200_000, 90_000, 300_000, 400_000], TARGET_ROWS)
    [[0, 1, 2], [3]]
    >>> group_by_size([90_000, 400_000, 10], TARGET_ROWS)
    [[2], [0], [1]]
    """
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    smaller, merged = 0, 0
    for number, index in enumerate(order):
        size = sizes[index]
        if size * 2 >= target:
            break
        if size <= max(SMALL_ROWS, RATIO * smaller):
            # All smaller items are merged too, because their cost is small compared with this one.
            merged = number + 1
        smaller += size
    together = _split_into_runs(sorted(order[:merged]), sizes, target) if merged else []
    return [*together, *([index] for index in order[merged:])]


def _split_into_runs(indexes: Sequence[int], sizes: Sequence[int], target: int) -> list[list[int]]:
    """Split a sequence into runs. A run ends when it has at least half the target size."""
    runs: list[list[int]] = [[]]
    total = 0
    for index in indexes:
        if total * 2 >= target:
            runs.append([])
            total = 0
        runs[-1].append(index)
        total += sizes[index]
    return runs


def groups_to_rewrite(fragments: Sequence[TableFragment]) -> list[tuple[TableFragment, ...]]:
    """Return groups of fragments to rewrite. Each group becomes one fragment."""
    groups = [
        tuple(fragments[index] for index in indexes)
        for indexes in group_by_size([_size(item) for item in fragments], TARGET_ROWS)
    ]
    return [group for group in groups if len(group) > 1 or _has_many_deletions(group[0])]


def segments_to_build(
    fragments: Mapping[int, int],
    segments: Sequence[IndexSegment],
    min_rows: int = 0,
    max_rows: int = SEGMENT_ROWS,
) -> tuple[list[tuple[int, ...]], list[IndexSegment]]:
    """Return the fragments of each segment to build for an index, and the segments to remove.

    `fragments` has the ids and row counts of the table's fragments, `segments` the present segments of the index. A
    segment is removed if most of its fragments are gone or if it is merged into a new one. Nothing is built for
    fewer than `min_rows` uncovered rows, and a segment covers about `max_rows` at most.
    """
    removed = [item for item in segments if 2 * len(item.fragments & fragments.keys()) <= len(item.fragments)]
    kept = [item for item in segments if item not in removed]
    covered = {id_ for item in kept for id_ in item.fragments}
    ids = [id_ for id_ in fragments if id_ not in covered]
    if sum(fragments[id_] for id_ in ids) < min_rows:
        return [], removed
    uncovered = _split_uncovered(ids, fragments, max_rows)
    live = [tuple(sorted(item.fragments & fragments.keys())) for item in kept]
    parts = [*uncovered, *live]
    builds = []
    for indexes in group_by_size([sum(fragments[id_] for id_ in part) for part in parts], max_rows):
        if len(indexes) == 1 and indexes[0] >= len(uncovered):
            continue
        builds.append(tuple(sorted(id_ for index in indexes for id_ in parts[index])))
        removed += [kept[index - len(uncovered)] for index in indexes if index >= len(uncovered)]
    return builds, removed


def _split_uncovered(ids: Sequence[int], rows: Mapping[int, int], target: int) -> list[tuple[int, ...]]:
    runs = _split_into_runs(range(len(ids)), [rows[id_] for id_ in ids], target)
    return [tuple(ids[index] for index in run) for run in runs if run]


def _size(fragment: TableFragment) -> int:
    """Return the size of a fragment without its deleted rows, in rows of average width."""
    by_bytes = fragment.nbytes * TARGET_ROWS // TARGET_BYTES
    return max(fragment.rows, by_bytes * fragment.rows // max(fragment.physical_rows, 1))


def _has_many_deletions(fragment: TableFragment) -> bool:
    deleted = fragment.physical_rows - fragment.rows
    return fragment.rows > 0 and deleted >= MIN_DELETED_FRACTION * fragment.physical_rows
