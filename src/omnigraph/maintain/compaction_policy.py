"""What is worth rewriting: small things together, worn ones alone, large ones never for the sake of small ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omnigraph.store.tables.table_fragments import TableFragment
from omnigraph.store.tables.table_indexes import IndexSegment

# A fragment is full from half of either on. What is merged becomes at most about this large.
TARGET_ROWS = 1 << 20
TARGET_BYTES = 512 << 20
# An index segment of more rows would take one process too long to build.
SEGMENT_ROWS = 1 << 24
# What is no larger is merged with anything. Beyond that a thing is rewritten for smaller ones that come to half of
# it or more together: what holds a row then grows by half each time, so that the times are few.
SMALL_ROWS = 1 << 16
RATIO = 2
# A fragment that has lost this part of its rows is rewritten for the space and time they take.
WORN = 0.1


def gather(weights: Sequence[int], target: int) -> list[list[int]]:
    """The places of the weights in sets that become one each. What is alone in its set stays as it is.

    Gathering the sums again leaves each alone: there is an end to it.

    >>> gather([10, 900_000, 20, 30], TARGET_ROWS)
    [[0, 2, 3], [1]]
    >>> gather([200_000, 90_000, 300_000, 400_000], TARGET_ROWS)
    [[0, 1, 2], [3]]
    >>> gather([90_000, 400_000, 10], TARGET_ROWS)
    [[2], [0], [1]]
    """
    order = sorted(range(len(weights)), key=lambda place: weights[place])
    smaller, merged = 0, 0
    for number, place in enumerate(order):
        weight = weights[place]
        if weight * 2 >= target:
            break
        if weight <= max(SMALL_ROWS, RATIO * smaller):
            # Whatever is smaller comes along: beside this one it costs next to nothing.
            merged = number + 1
        smaller += weight
    together = _cut(sorted(order[:merged]), weights, target) if merged else []
    return [*together, *([place] for place in order[merged:])]


def _cut(places: Sequence[int], weights: Sequence[int], target: int) -> list[list[int]]:
    """Places in runs, each closed once it weighs half the target."""
    runs: list[list[int]] = [[]]
    total = 0
    for place in places:
        if total * 2 >= target:
            runs.append([])
            total = 0
        runs[-1].append(place)
        total += weights[place]
    return runs


def groups_to_rewrite(fragments: Sequence[TableFragment]) -> list[tuple[TableFragment, ...]]:
    """The fragments to be rewritten, those together that become one."""
    sets = gather([_weight(item) for item in fragments], TARGET_ROWS)
    found = [tuple(fragments[place] for place in places) for places in sets]
    return [group for group in found if len(group) > 1 or _is_worn(group[0])]


def segments_to_build(
    fragments: Mapping[int, int], segments: Sequence[IndexSegment]
) -> tuple[list[tuple[int, ...]], list[IndexSegment]]:
    """The fragments of each segment that an index lacks, and the segments that go: emptied, worn or merged.

    `fragments` are those of the table with their rows, `segments` the ones that the index has.
    """
    gone = [item for item in segments if 2 * len(item.fragments & fragments.keys()) <= len(item.fragments)]
    kept = [item for item in segments if item not in gone]
    covered = {id_ for item in kept for id_ in item.fragments}
    missing = _cut_missing([id_ for id_ in fragments if id_ not in covered], fragments)
    live = [tuple(sorted(item.fragments & fragments.keys())) for item in kept]
    parts = [*missing, *live]
    builds = []
    for places in gather([sum(fragments[id_] for id_ in part) for part in parts], SEGMENT_ROWS):
        if len(places) == 1 and places[0] >= len(missing):
            continue
        builds.append(tuple(sorted(id_ for place in places for id_ in parts[place])))
        gone += [kept[place - len(missing)] for place in places if place >= len(missing)]
    return builds, gone


def _cut_missing(ids: Sequence[int], rows: Mapping[int, int]) -> list[tuple[int, ...]]:
    runs = _cut(range(len(ids)), [rows[id_] for id_ in ids], SEGMENT_ROWS)
    return [tuple(ids[place] for place in run) for run in runs if run]


def _weight(fragment: TableFragment) -> int:
    """The size of a fragment without its deleted rows, in rows: those it has, or more if they are wide."""
    wide = fragment.nbytes * TARGET_ROWS // TARGET_BYTES
    return max(fragment.rows, wide * fragment.rows // max(fragment.physical_rows, 1))


def _is_worn(fragment: TableFragment) -> bool:
    return fragment.rows > 0 and fragment.physical_rows - fragment.rows >= WORN * fragment.physical_rows
