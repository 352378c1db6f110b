"""Bounded reachability against a plain breadth-first search, on random multigraphs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine import reachability as module
from omnigraph.engine.csr import Adjacency
from omnigraph.engine.reachability import reach, reach_chunks, reachable

Edges = list[tuple[int, int]]
LAW = settings(max_examples=60, deadline=None)


def ints(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)


def build(n: int, edges: Edges) -> Adjacency:
    return Adjacency.build(ints([s for s, _ in edges]), ints([t for _, t in edges]), n, n)


def search(edges: Edges, source: int, low: int, high: int) -> set[int]:
    """The nodes at a distance within the bounds, by the book."""
    if source < 0:
        return set()
    found = {source} if (source, source) in edges and low <= 1 else set()
    seen, level = {source}, {source}
    for distance in range(1, high + 1):
        level = {t for s, t in edges if s in level} - seen
        seen |= level
        if distance >= low:
            found |= level
    return found


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, Edges]:
    """Sparse to dense graphs, a ring or a path in some of them, so that there are long ways."""
    n = draw(st.integers(0, 12))
    if not n:
        return n, []
    node = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=25))
    if draw(st.booleans()):
        edges += [(i, i + 1) for i in range(n - 1)]
    return n, edges


BOUNDS = st.tuples(st.integers(1, 4), st.integers(0, 9)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@pytest.fixture(params=["by size", "by flags", "by search", "by sort"], scope="module")
def way(request: pytest.FixtureRequest) -> str:
    """The rule that chooses how new nodes are found, or one way of the three for every step."""
    name: str = request.param
    return name


def force(way: str, patch: pytest.MonkeyPatch) -> None:
    big = 1 << 40
    dense, sparse = {
        "by size": (module._DENSE, module._SPARSE),
        "by flags": (big, big),
        "by search": (0, 0),
        "by sort": (0, big),
    }[way]
    patch.setattr(module, "_DENSE", dense)
    patch.setattr(module, "_SPARSE", sparse)


@LAW
@given(graphs(), BOUNDS, st.sampled_from([1, 3, 10, 1000]), st.data())
def test_reach_finds_the_nodes_at_a_shortest_distance_within_the_bounds(
    way: str, graph: tuple[int, Edges], bounds: tuple[int, int], limit: int, data: st.DataObject
) -> None:
    n, edges = graph
    low, high = bounds
    frontier = data.draw(st.lists(st.integers(-1, n - 1), max_size=15))
    expected = Counter((row, t) for row, s in enumerate(frontier) for t in search(edges, s, low, high))
    adjacency = build(n, edges)
    with pytest.MonkeyPatch.context() as patch:
        force(way, patch)
        found: Counter[tuple[int, int]] = Counter()
        for rows, targets in reach_chunks(adjacency, ints(frontier), low, high, limit=limit):
            assert rows.dtype == np.int64
            assert targets.dtype == np.int32
            found.update(zip(rows.tolist(), targets.tolist(), strict=True))
        assert found == expected
        rows, targets = reach(adjacency, ints(frontier), low, high)
        assert Counter(zip(rows.tolist(), targets.tolist(), strict=True)) == expected


@LAW
@given(graphs(), BOUNDS, st.sampled_from([1, 5, 1000]), st.data())
def test_a_pair_is_reachable_when_reach_would_find_it(
    way: str, graph: tuple[int, Edges], bounds: tuple[int, int], limit: int, data: st.DataObject
) -> None:
    n, edges = graph
    low, high = bounds
    node = st.integers(-1, n - 1)
    pairs = data.draw(st.lists(st.tuples(node, node), max_size=25))
    # One source with many ends makes the last hop go by expansion, many sources with one end by search.
    pairs += [(source, t) for source, _ in pairs[:1] for t in range(n)]
    with pytest.MonkeyPatch.context() as patch:
        force(way, patch)
        patch.setattr(module, "CHUNK", limit)
        answer = reachable(
            build(n, edges), ints([s for s, _ in pairs]), ints([t for _, t in pairs]), low, high
        )
    assert answer.tolist() == [t in search(edges, s, low, high) for s, t in pairs]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    bounds=st.sampled_from([(1, 2), (2, 2), (1, 3), (3, 3), (3, 5), (4, 4)]),
    sources=st.sampled_from([1, 3, 40]),
    limit=st.sampled_from([15, 100, 10_000]),
)
def test_many_pairs_are_decided_alike_for_few_and_for_many_sources(
    seed: int, bounds: tuple[int, int], sources: int, limit: int
) -> None:
    generator = np.random.default_rng(seed)
    n = 40
    edges: Edges = [(int(s), int(t)) for s, t in n * generator.random((100, 2)) ** 2]
    left, right = generator.integers(0, sources, 60), generator.integers(0, n, 60)
    found = {s: search(edges, s, *bounds) for s in range(sources)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", limit)
        answer = reachable(build(n, edges), left, right, *bounds)
    assert answer.tolist() == [t in found[s] for s, t in zip(left.tolist(), right.tolist(), strict=True)]


def test_a_self_loop_gives_the_source_once_at_distance_one_only() -> None:
    adjacency = build(3, [(0, 0), (0, 0), (0, 1), (1, 1), (1, 0)])
    assert reach(adjacency, ints([0]), 1, 3)[1].tolist() == [0, 1]
    assert reach(adjacency, ints([0]), 2, 3)[1].tolist() == []
    assert reachable(adjacency, ints([0, 0]), ints([0, 2]), 1, 3).tolist() == [True, False]
    assert reachable(adjacency, ints([0]), ints([0]), 2, 3).tolist() == [False]


def test_between_types_of_different_size_only_distance_one_exists() -> None:
    adjacency = Adjacency.build(ints([0, 1, 1]), ints([1, 2, 2]), 2, 3)
    rows, targets = reach(adjacency, ints([1, 0, 1]), 1, 5)
    assert list(zip(rows.tolist(), targets.tolist(), strict=True)) == [(0, 2), (1, 1), (2, 2)]
    assert reach(adjacency, ints([0, 1]), 2, 5)[0].tolist() == []
    assert reachable(adjacency, ints([0, 0]), ints([1, 2]), 1, 5).tolist() == [True, False]
    assert reachable(adjacency, ints([0]), ints([1]), 2, 5).tolist() == [False]


def test_a_way_of_many_hops_is_walked_to_its_end() -> None:
    length = 3_000
    adjacency = build(length, [(i, i + 1) for i in range(length - 1)])
    assert sorted(reach(adjacency, ints([0]), 2_000, 5_000)[1].tolist()) == list(range(2_000, length))


def test_chunks_of_distinct_sources_stay_within_the_limit() -> None:
    n, limit = 400, 7
    adjacency = build(n, [(i, (i + step) % n) for i in range(n) for step in (0, 1, 2, 3)])
    sizes = [len(rows) for rows, _ in reach_chunks(adjacency, np.arange(n), 1, 4, limit=limit)]
    assert sum(sizes) == n * 13
    assert max(sizes) == limit


def test_chunks_of_repeated_sources_stay_within_the_limit_but_for_the_rows_of_one_node() -> None:
    n, limit = 400, 500
    adjacency = build(n, [(i, (i + step) % n) for i in range(n) for step in (1, 2, 3)])
    frontier = ints([*range(n), *range(0, n, 2), *([7] * 900)])
    chunks = list(reach_chunks(adjacency, frontier, 1, 4, limit=limit))
    assert sum(len(rows) for rows, _ in chunks) == len(frontier) * 12
    # The entries of one found node for the 901 rows with the same source stay together.
    assert all(len(rows) <= limit or len(set(targets.tolist())) == 1 for rows, targets in chunks)


@pytest.mark.parametrize("seed", range(3))
def test_work_memory_follows_the_limit_and_not_the_number_of_sources(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(seed)
    n, m, limit = 2_000, 20_000, 5_000
    skewed = (n * generator.random((2, m)) ** 2).astype(np.int32)
    adjacency = Adjacency.build(skewed[0], skewed[1], n, n)
    met: list[int] = []
    step = module._next_pairs

    def measured(*arguments: object) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        found: np.ndarray[tuple[int], np.dtype[np.int64]] = step(*arguments)  # type: ignore[arg-type]
        met.append(len(found))
        return found

    monkeypatch.setattr(module, "_next_pairs", measured)
    for _ in reach_chunks(adjacency, np.arange(n, dtype=np.int32), 1, 2, limit=limit):
        pass
    assert sum(met) > 50 * limit
    # One source alone meets each edge at most once.
    assert max(met) <= max(limit, len(adjacency.targets))
    assert sorted(met)[len(met) // 2] <= limit
