"""An adjacency with a delta gives what an adjacency built from the same edges gives."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.csr import Adjacency
from omnigraph.engine.layered_adjacency import (
    AnyAdjacency,
    EdgeList,
    LayeredAdjacency,
    connected,
    connecting_edges,
    degrees,
    expand_edges,
    expand_unique,
)
from omnigraph.engine.reachability import reach, reachable

NODES = 6
_PAIRS = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=10)


def edge_list(edges: dict[int, tuple[int, int]]) -> EdgeList:
    ends = np.array([*edges.values()], np.int32).reshape(-1, 2)
    return EdgeList(ends[:, 0], ends[:, 1], np.array([*edges], np.int32))


def built(edges: dict[int, tuple[int, int]], nodes: int) -> Adjacency:
    found = edge_list(edges)
    return Adjacency.build(found.sources, found.targets, nodes, nodes, found.edges)


def answers(adjacency: AnyAdjacency, nodes: int) -> list[object]:
    """Return what every kernel gives for repeated, null and all sources, and for single ones."""
    frontiers = [np.array([*range(nodes), -1, 0, nodes - 1]), *(np.array([node]) for node in range(nodes))]
    left, right = (np.array(side).ravel() for side in np.indices((nodes, nodes)))
    found: list[object] = [connected(adjacency, left, right).tolist()]
    found += [item.tolist() for item in connecting_edges(adjacency, left, right)]
    found.append(reachable(adjacency, left, right, 1, 3).tolist())
    for frontier in frontiers:
        found += [item.tolist() for item in expand_edges(adjacency, frontier)]
        found += [item.tolist() for item in expand_unique(adjacency, frontier)]
        found += [degrees(adjacency, frontier, unique=unique).tolist() for unique in (True, False)]
        found.append(sorted(zip(*(item.tolist() for item in reach(adjacency, frontier, 1, 2)), strict=True)))
    return found


@settings(max_examples=40, deadline=None)
@given(_PAIRS, st.lists(st.tuples(_PAIRS, st.sets(st.integers(0, 30))), min_size=1, max_size=3))
def test_changed_adjacency_gives_the_edges_of_one_built_anew(
    start: list[tuple[int, int]], steps: list[tuple[list[tuple[int, int]], set[int]]]
) -> None:
    edges = dict(enumerate(start))
    number, nodes = len(edges), NODES
    adjacency = LayeredAdjacency.of(built(edges, nodes))
    for more, numbers in steps:
        before = answers(adjacency, nodes)
        gone = {edge: edges[edge] for edge in numbers & edges.keys()}
        added = {number + place: pair for place, pair in enumerate(more)}
        # A node at the end of both sides comes with every step.
        changed = adjacency.changed(edge_list(added), edge_list(gone), nodes + 1, nodes + 1)
        assert answers(adjacency, nodes) == before
        adjacency, nodes, number = changed, nodes + 1, number + len(more)
        edges = {edge: pair for edge, pair in (edges | added).items() if edge not in gone}
        expected = built(edges, nodes)
        assert answers(adjacency, nodes) == answers(expected, nodes)
        folded = adjacency.folded()
        for name in ("offsets", "targets", "edges"):
            assert getattr(folded, name).tolist() == getattr(expected, name).tolist()
        assert (folded.n_pairs, folded.n_targets) == (expected.n_pairs, expected.n_targets)


def test_undirected_edge_removed_is_gone_from_both_ends() -> None:
    sources, targets, edges = np.array([0, 1, 1, 2]), np.array([1, 0, 2, 1]), np.array([0, 0, 1, 1])
    adjacency = LayeredAdjacency.of(Adjacency.build(sources, targets, 3, 3, edges))
    none = EdgeList(*(np.zeros(0, np.int32),) * 3)
    later = adjacency.changed(none, EdgeList(sources[:2], targets[:2], edges[:2]), 3, 3)
    assert expand_edges(later, np.arange(3))[1].tolist() == [2, 1]
    assert expand_edges(adjacency, np.arange(3))[1].tolist() == [1, 0, 2, 1]
