"""Bounded reachability over an adjacency: the nodes whose shortest distance from a source is within bounds.

A source counts as visited at distance 0, so a longer path back to it gives no result. A self-loop gives the
source itself once, at distance 1. Further hops require sources and targets of one type. Between different types
only distance 1 exists: this is detected if the numbers of nodes differ; otherwise the caller must pass
``high=1``.

The search is breadth-first from many sources at a time. Its state is a sorted array of integers, each a (source,
node) pair. Whenever the next hop of a batch would exceed the limit, the batch is split between sources. Memory is
thus bounded by the limit, or by the graph if one source alone exceeds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from omnigraph.budget.deadline import check_deadline
from omnigraph.budget.query_budget import require_bytes, visit_edges
from omnigraph.engine.csr import Frontier, Mask, Ordinals, Positions, flatten_ranges, split_by_weight
from omnigraph.engine.layered_adjacency import AnyAdjacency, connected, degrees, expand_total, expand_unique

CHUNK = 1 << 18
"""Entries that one step of a search works on, and that one chunk of a result holds."""

# Thresholds between the three methods of finding new pairs, determined by measurement.
_DENSE = 8
# Rows, targets, pairs and the sort of both.
_BYTES_PER_STEP = 40
_SPARSE = 8


def reach(adj: AnyAdjacency, frontier: Frontier, low: int, high: int) -> tuple[Positions, Ordinals]:
    """Return one (row, target) for every node at a distance in ``low..high``, ``1 <= low``, in no particular
    order.

    >>> from omnigraph.engine.csr import Adjacency
    >>> path = Adjacency.build(np.array([0, 1, 2]), np.array([1, 2, 0]), n_sources=3, n_targets=3)
    >>> rows, targets = reach(path, np.array([0, -1, 2]), 1, 2)
    >>> sorted(zip(rows.tolist(), targets.tolist()))
    [(0, 1), (0, 2), (2, 0), (2, 1)]
    """
    chunks = []
    held = 0
    for rows, targets in reach_chunks(adj, frontier, low, high):
        # The chunks, and their copy as one array.
        held += 2 * (rows.nbytes + targets.nbytes)
        require_bytes(held)
        chunks.append((rows, targets))
    if not chunks:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
    return np.concatenate([rows for rows, _ in chunks]), np.concatenate([targets for _, targets in chunks])


def reach_chunks(
    adj: AnyAdjacency, frontier: Frontier, low: int, high: int, *, limit: int = CHUNK
) -> Iterator[tuple[Positions, Ordinals]]:
    """Yield the result of `reach` in chunks of at most `limit` entries, or as many as one node has neighbours or
    rows.
    """
    if high == 1 or adj.n_sources != adj.n_targets:
        if low <= 1:
            yield from _expand_chunks(adj, frontier, limit)
        return
    groups = _group(frontier)
    bits = _node_bits(adj)
    if low <= 1:
        loops = np.flatnonzero(connected(adj, groups.sources, groups.sources))
        yield from _fan_out(groups, loops, groups.sources.take(loops), limit)
    for distance, found in _breadth_first(adj, groups.sources, high, limit):
        if distance >= low:
            yield from _fan_out(groups, found >> bits, _nodes(found, bits), limit)


def reachable(adj: AnyAdjacency, left: Frontier, right: Frontier, low: int, high: int) -> Mask:
    """Return whether ``right[i]`` is at a distance in ``low..high`` from ``left[i]``, ``1 <= low``."""
    adjacent = connected(adj, left, right)
    answer = adjacent if low <= 1 else np.zeros(len(left), dtype=np.bool_)
    if high == 1 or adj.n_sources != adj.n_targets:
        return answer
    # Pairs at distance 1 are decided, and a source has no other distance from itself.
    rest = np.flatnonzero(~adjacent & (left != right) & (left >= 0) & (right >= 0))
    sources, slots = np.unique(left.take(rest), return_inverse=True)
    bits = _node_bits(adj)
    pairs = slots << bits | right.take(rest)
    order = np.argsort(pairs)
    pairs, rest = pairs.take(order), rest.take(order)
    undecided = np.ones(len(pairs), dtype=np.bool_)
    # The last hop is the widest, and with the pairs known most of it need not be computed.
    for distance, found in _breadth_first(adj, sources, high - 1, CHUNK):
        first, stop = np.searchsorted(pairs, _bounds(found, bits))
        open_pairs = first + np.flatnonzero(undecided[first:stop])
        hit = open_pairs[_contains(found, pairs.take(open_pairs))]
        undecided[hit] = False
        if distance >= low:
            answer[rest.take(hit)] = True
        if distance == high - 1:
            open_pairs = open_pairs[undecided.take(open_pairs)]
            answer[rest.take(open_pairs[_leads_to(adj, found, pairs.take(open_pairs), bits)])] = True
    return answer


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """The distinct sources of a frontier, ascending. The rows of source `i` are
    ``rows[offsets[i]:offsets[i+1]]``.
    """

    sources: Ordinals
    offsets: Positions
    rows: Positions


def _group(frontier: Frontier) -> _Groups:
    packed = frontier.astype(np.int64) << 32 | np.arange(len(frontier))
    packed.sort()
    packed = packed[np.searchsorted(packed, 0) :]
    entries = packed >> 32
    starts = _run_starts(entries)
    offsets = np.append(starts, len(entries))
    return _Groups(entries.take(starts).astype(np.int32), offsets, packed & 0xFFFFFFFF)


def _expand_chunks(adj: AnyAdjacency, frontier: Frontier, limit: int) -> Iterator[tuple[Positions, Ordinals]]:
    for piece in split_by_weight(degrees(adj, frontier, unique=True), limit):
        rows, targets = expand_unique(adj, frontier[piece])
        yield rows + piece.start, targets


def _fan_out(
    groups: _Groups, slots: Positions, targets: Ordinals, limit: int
) -> Iterator[tuple[Positions, Ordinals]]:
    """Repeat the result of a source for every frontier entry with that source."""
    if len(groups.rows) == len(groups.sources):
        for first in range(0, len(slots), limit):
            chunk = slice(first, first + limit)
            yield groups.rows.take(slots[chunk]), targets[chunk]
        return
    start, stop = groups.offsets.take(slots), groups.offsets.take(slots + 1)
    for piece in split_by_weight(stop - start, limit):
        found, places = flatten_ranges(start[piece], stop[piece])
        yield groups.rows[places], targets[piece].take(found)


def _breadth_first(
    adj: AnyAdjacency, sources: Ordinals, high: int, limit: int
) -> Iterator[tuple[int, Positions]]:
    """Yield distances up to `high`, each with sorted pairs of a source, by index, and a node at that distance.

    The source itself is never that node. All pairs of one source at one distance are in one item, and nearer ones
    come first.
    """
    bits = _node_bits(adj)
    begin = np.arange(len(sources)) << bits | sources
    waiting = [(0, *batch) for batch in _batches(adj, begin, begin, bits, limit)]
    waiting.reverse()
    while waiting:
        check_deadline()
        distance, level, seen = waiting.pop()
        distance += 1
        found, known = _step(adj, level, seen, bits, last=distance == high)
        if found.size:
            yield distance, found
        if distance < high:
            batches = list(_batches(adj, found, known, bits, limit))
            waiting.extend((distance, *batch) for batch in reversed(batches))


def _batches(
    adj: AnyAdjacency, level: Positions, seen: Positions, bits: int, limit: int
) -> Iterator[tuple[Positions, Positions]]:
    """Split a level and the pairs seen so far between sources, so that the next hop of each batch is bounded."""
    if not level.size:
        return
    counts = degrees(adj, _nodes(level, bits), unique=True)
    if int(counts.sum()) + len(seen) <= limit:
        yield level, seen
        return
    slots = level >> bits
    starts = _run_starts(slots)
    stops = np.append(starts[1:], len(level))
    bounds = np.append(slots.take(starts), slots[-1] + 1) << bits
    seen_at = np.searchsorted(seen, bounds)
    weights = np.add.reduceat(counts, starts) + np.diff(seen_at)
    for piece in split_by_weight(weights, limit):
        yield (
            level[starts[piece.start] : stops[piece.stop - 1]],
            seen[seen_at[piece.start] : seen_at[piece.stop]],
        )


def _step(
    adj: AnyAdjacency, level: Positions, seen: Positions, bits: int, *, last: bool
) -> tuple[Positions, Positions]:
    """Return the pairs one hop beyond a level that were not seen, and all pairs seen with them; both sorted.

    The last step does not need the second result and returns it unchanged.
    """
    reached = _next_pairs(adj, level, bits)
    base, end = _bounds(seen, bits)
    if end - base <= _DENSE * len(reached):
        return _new_by_flags(reached, seen, base, end, last=last)
    if len(reached) * _SPARSE <= len(seen):
        return _new_by_search(reached, seen, last=last)
    return _new_by_sort(reached, seen)


def _new_by_flags(
    reached: Positions, seen: Positions, base: int, end: int, *, last: bool
) -> tuple[Positions, Positions]:
    """Use a flag for every possible pair: best if a large part of them was reached."""
    flags = np.zeros(end - base, dtype=np.bool_)
    flags[reached - base] = True
    flags[seen - base] = False
    found = np.flatnonzero(flags) + base
    if last:
        return found, seen
    flags[seen - base] = True
    return found, np.flatnonzero(flags) + base


def _new_by_search(reached: Positions, seen: Positions, *, last: bool) -> tuple[Positions, Positions]:
    """Search in the pairs seen: best if they are many more than those reached, as on a long path."""
    reached.sort()
    found = reached.take(_run_starts(reached))
    found = found[~_contains(seen, found)]
    return found, seen if last else np.insert(seen, np.searchsorted(seen, found), found)


def _new_by_sort(reached: Positions, seen: Positions) -> tuple[Positions, Positions]:
    """Sort both together, with seen pairs before equal new ones. Memory does not depend on the graph."""
    marked = np.concatenate([seen << 1, reached << 1 | 1])
    marked.sort()
    pairs = marked >> 1
    starts = _run_starts(pairs)
    known = pairs.take(starts)
    return known.take(np.flatnonzero(marked.take(starts) & 1)), known


def _leads_to(adj: AnyAdjacency, level: Positions, open_pairs: Positions, bits: int) -> Mask:
    """Return whether one hop from a level, which is complete for its sources, leads to each of the given pairs."""
    answer = np.zeros(len(open_pairs), dtype=np.bool_)
    slots = open_pairs >> bits
    start, stop = np.searchsorted(level, slots << bits), np.searchsorted(level, slots + 1 << bits)
    hops = degrees(adj, _nodes(level, bits), unique=True)
    if int((stop - start).sum()) <= int(hops.sum()):
        for piece in split_by_weight(stop - start, CHUNK):
            rows, places = flatten_ranges(start[piece], stop[piece])
            rows += piece.start
            hit = connected(adj, _nodes(level[places], bits), _nodes(open_pairs, bits).take(rows))
            answer[rows[hit]] = True
        return answer
    for piece in split_by_weight(hops, CHUNK):
        reached = _next_pairs(adj, level[piece], bits)
        reached.sort()
        answer |= _contains(reached, open_pairs)
    return answer


def _next_pairs(adj: AnyAdjacency, level: Positions, bits: int) -> Positions:
    """Return the pairs one hop from each pair's node, with repeats and unordered."""
    nodes = _nodes(level, bits)
    count = expand_total(adj, nodes, True)
    visit_edges(count)
    require_bytes(count * _BYTES_PER_STEP)
    rows, targets = expand_unique(adj, nodes)
    pairs = (level >> bits << bits).take(rows)
    pairs |= targets
    return pairs


def _contains(values: Positions, keys: Positions) -> Mask:
    """Return whether each given value is among the sorted values."""
    if not values.size:
        return np.zeros(len(keys), dtype=np.bool_)
    found: Mask = values.take(np.searchsorted(values, keys), mode="clip") == keys
    return found


def _bounds(pairs: Positions, bits: int) -> tuple[int, int]:
    """Return the lowest possible pair of the first source, and the end of the pairs of the last source."""
    return int(pairs[0]) >> bits << bits, (int(pairs[-1]) >> bits) + 1 << bits


def _run_starts(values: Positions) -> Positions:
    """Return the start of each run of equal values."""
    starts = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    return np.flatnonzero(starts)


def _node_bits(adj: AnyAdjacency) -> int:
    return max(adj.n_targets - 1, 0).bit_length()


def _nodes(pairs: Positions, bits: int) -> Ordinals:
    return (pairs & (1 << bits) - 1).astype(np.int32)
