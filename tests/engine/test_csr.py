"""One-hop kernels against plain loops, on random multigraphs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.csr import (
    Adjacency,
    connected,
    connecting_edges,
    degrees,
    expand_edges,
    expand_total,
    expand_unique,
    split_by_weight,
)
from omnigraph.errors import InvalidInput

BIGGEST = 2**31 - 1
LAW = settings(max_examples=100, deadline=None)


@dataclass(frozen=True)
class Graph:
    """Edges as (source, target) in edge order; edge `i` has the ordinal ``edges[i]``."""

    n_sources: int
    n_targets: int
    pairs: list[tuple[int, int]]
    edges: list[int]

    def build(self, count: int | None = None) -> Adjacency:
        kept = self.pairs[:count]
        return Adjacency.build(
            ints([s for s, _ in kept]),
            ints([t for _, t in kept]),
            self.n_sources,
            self.n_targets,
            ints(self.edges[:count]),
        )

    def sorted_edges(self, source: int) -> list[tuple[int, int]]:
        return sorted((t, e) for (s, t), e in zip(self.pairs, self.edges, strict=True) if s == source)


def ints(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Few nodes and relatively many edges, so that parallel edges and self-loops are common."""
    n_sources, n_targets = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    if not n_sources or not n_targets:
        return Graph(n_sources, n_targets, [], [])
    pair = st.tuples(st.integers(0, n_sources - 1), st.integers(0, n_targets - 1))
    pairs = draw(st.lists(pair, max_size=30))
    # A table's ordinals may come in any order, and be so large that three of them do not fit in one number.
    first = draw(st.sampled_from([0, BIGGEST - 40]))
    return Graph(n_sources, n_targets, pairs, [first + e for e in draw(st.permutations(range(len(pairs))))])


def frontiers(n: int) -> st.SearchStrategy[list[int]]:
    return st.one_of(st.lists(st.integers(-1, n - 1), max_size=12), st.just(list(range(n))))


def same(left: Adjacency, right: Adjacency) -> bool:
    return (
        left.offsets.tolist() == right.offsets.tolist()
        and left.targets.tolist() == right.targets.tolist()
        and left.edges.tolist() == right.edges.tolist()
        and (left.n_targets, left.n_pairs) == (right.n_targets, right.n_pairs)
    )


@LAW
@given(graphs())
def test_edges_are_grouped_by_source_and_sorted_by_target_and_edge(graph: Graph) -> None:
    adjacency = graph.build()
    assert adjacency.n_sources == graph.n_sources
    for source in range(graph.n_sources):
        part = slice(adjacency.offsets[source], adjacency.offsets[source + 1])
        found = zip(adjacency.targets[part].tolist(), adjacency.edges[part].tolist(), strict=True)
        assert list(found) == graph.sorted_edges(source)
    assert adjacency.offsets.dtype == np.int64
    assert adjacency.targets.dtype == adjacency.edges.dtype == np.int32


def test_ordinals_too_large_to_pack_into_one_number_are_sorted_all_the_same() -> None:
    sources, targets = ints([2, 0, 2, 2, 2]), ints([BIGGEST - 1, 5, 7, BIGGEST - 1, 7])
    edges = ints([BIGGEST, 4, BIGGEST - 1, 3, BIGGEST - 2])
    adjacency = Adjacency.build(sources, targets, 3, BIGGEST, edges)
    assert adjacency.offsets.tolist() == [0, 1, 1, 5]
    assert adjacency.targets.tolist() == [5, 7, 7, BIGGEST - 1, BIGGEST - 1]
    assert adjacency.edges.tolist() == [4, BIGGEST - 2, BIGGEST - 1, 3, BIGGEST]
    assert connected(adjacency, ints([2, 2, 0]), ints([BIGGEST - 1, 8, 5])).tolist() == [True, False, True]


def test_edges_are_numbered_in_their_order_by_default() -> None:
    adjacency = Adjacency.build(ints([1, 0, 1]), ints([1, 1, 0]), 2, 2)
    assert adjacency.edges.tolist() == [1, 2, 0]


@pytest.mark.parametrize(("source", "target"), [(-1, 0), (0, -1), (3, 0), (0, 2)])
def test_an_edge_to_a_node_that_is_not_there_is_refused(source: int, target: int) -> None:
    with pytest.raises(InvalidInput, match="outside"):
        Adjacency.build(ints([0, source]), ints([0, target]), 3, 2)


@LAW
@given(graphs(), st.data())
def test_an_extended_adjacency_equals_one_built_from_all_edges(graph: Graph, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(graph.pairs)))
    old, new = graph.pairs[:count], graph.pairs[count:]
    # The nodes that the old edges do not need may come with the extension.
    n_sources = data.draw(st.integers(max((s + 1 for s, _ in old), default=0), graph.n_sources))
    n_targets = data.draw(st.integers(max((t + 1 for _, t in old), default=0), graph.n_targets))
    before = Graph(n_sources, n_targets, old, graph.edges[:count]).build()
    extended = before.extended(
        ints([s for s, _ in new]),
        ints([t for _, t in new]),
        ints(graph.edges[count:]),
        graph.n_sources,
        graph.n_targets,
    )
    assert same(extended, graph.build())
    assert same(before, Graph(n_sources, n_targets, old, graph.edges[:count]).build())


@LAW
@given(graphs())
def test_the_simple_view_has_each_target_once_and_its_bytes_are_counted_beforehand(graph: Graph) -> None:
    adjacency = graph.build()
    counted = adjacency.nbytes
    simple = adjacency.simple
    for source in range(graph.n_sources):
        targets = simple.targets[simple.offsets[source] : simple.offsets[source + 1]].tolist()
        assert targets == sorted({t for t, _ in graph.sorted_edges(source)})
    arrays = {
        id(array): array.nbytes
        for array in (
            adjacency.offsets,
            adjacency.targets,
            adjacency.edges,
            simple.offsets,
            simple.targets,
        )
    }
    assert counted == adjacency.nbytes == sum(arrays.values())


def test_the_simple_view_is_made_once_by_many_threads() -> None:
    adjacency = Adjacency.build(ints([0, 0]), ints([1, 1]), 2, 2)
    with ThreadPoolExecutor(8) as pool:
        views = list(pool.map(lambda _: adjacency.simple, range(64)))
    assert len({id(view) for view in views}) == 1


def test_the_arrays_cannot_be_written() -> None:
    adjacency = Adjacency.build(ints([0, 0]), ints([1, 1]), 2, 2)
    simple = adjacency.simple
    for array in (adjacency.offsets, adjacency.targets, adjacency.edges, simple.offsets, simple.targets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@LAW
@given(graphs(), st.data())
def test_expansion_gives_every_edge_or_every_target_of_every_entry_in_order(
    graph: Graph, data: st.DataObject
) -> None:
    adjacency = graph.build()
    frontier = data.draw(frontiers(graph.n_sources))
    by_edge = [(row, t, e) for row, s in enumerate(frontier) for t, e in graph.sorted_edges(s)]
    unique = [
        (row, t) for row, s in enumerate(frontier) for t in sorted({t for t, _ in graph.sorted_edges(s)})
    ]
    rows, targets, edges = expand_edges(adjacency, ints(frontier))
    assert list(zip(rows.tolist(), targets.tolist(), edges.tolist(), strict=True)) == by_edge
    rows, targets = expand_unique(adjacency, ints(frontier))
    assert list(zip(rows.tolist(), targets.tolist(), strict=True)) == unique
    assert expand_total(adjacency, ints(frontier), unique=False) == len(by_edge)
    assert expand_total(adjacency, ints(frontier), unique=True) == len(unique)
    assert degrees(adjacency, ints(frontier), unique=True).tolist() == [
        sum(row == found for found, _ in unique) for row in range(len(frontier))
    ]
    assert degrees(adjacency, ints(frontier), unique=False).tolist() == [
        sum(row == found for found, _, _ in by_edge) for row in range(len(frontier))
    ]


@LAW
@given(graphs(), st.data())
def test_a_pair_is_connected_when_an_edge_goes_from_left_to_right(graph: Graph, data: st.DataObject) -> None:
    adjacency = graph.build()
    entry = st.tuples(st.integers(-1, graph.n_sources - 1), st.integers(-1, graph.n_targets - 1))
    pairs = data.draw(st.lists(entry, max_size=20))
    left, right = ints([s for s, _ in pairs]), ints([t for _, t in pairs])
    assert connected(adjacency, left, right).tolist() == [pair in graph.pairs for pair in pairs]
    rows, edges = connecting_edges(adjacency, left, right)
    assert list(zip(rows.tolist(), edges.tolist(), strict=True)) == [
        (row, e) for row, (s, t) in enumerate(pairs) for target, e in graph.sorted_edges(s) if target == t
    ]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_search_is_right_in_long_ranges_and_over_many_blocks(seed: int) -> None:
    generator = np.random.default_rng(seed)
    # A few hubs with thousands of targets, and more pairs than one block of searches holds.
    sources = generator.integers(0, 4, 6_000).astype(np.int32)
    targets = generator.integers(0, 5_000, 6_000).astype(np.int32)
    adjacency = Adjacency.build(sources, targets, 5, 5_000)
    left = generator.integers(-1, 5, 70_000).astype(np.int32)
    right = generator.integers(-1, 5_000, 70_000).astype(np.int32)
    edges = set(zip(sources.tolist(), targets.tolist(), strict=True))
    expected = [pair in edges for pair in zip(left.tolist(), right.tolist(), strict=True)]
    assert connected(adjacency, left, right).tolist() == expected


@LAW
@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 12))
def test_pieces_cover_the_sequence_and_only_single_items_exceed_the_limit(
    weights: list[int], limit: int
) -> None:
    cuts = list(split_by_weight(np.array(weights, dtype=np.int64), limit))
    assert [i for cut in cuts for i in range(cut.start, cut.stop)] == list(range(len(weights)))
    for cut in cuts:
        assert sum(weights[cut]) <= limit or cut.stop - cut.start == 1
    for cut, following in pairwise(cuts):
        assert sum(weights[cut]) + weights[following.start] > limit
