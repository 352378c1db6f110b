"""Adjacency: carried over from older versions or looked up in storage, it is that of the edges that there are."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine import layered_adjacency
from omnigraph.engine.csr import Adjacency
from omnigraph.engine.layered_adjacency import LayeredAdjacency, expand_edges, expand_unique
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.engine.reachability import reach
from omnigraph.errors import StorageError
from omnigraph.graph.repository import Repository
from omnigraph.lang.ir import Direction
from omnigraph.read import topology as topology_module
from omnigraph.read.topology import AdjacencyView, Topology
from tests.read.graphs import (
    CITY,
    KNOWS,
    LIVES,
    PERSON,
    PLENTY,
    Rows,
    change,
    check_adjacency,
    drop,
    index,
    neighbours,
    new_graph,
    put,
    rewrite,
    topology,
)

NAMES = tuple("abcdefg")
DIRECTIONS: tuple[Direction, ...] = ("out", "in", "both")


def nodes(*ids: str) -> Rows:
    return {id_: {"name": id_} for id_ in ids}


def edges(*pairs: str) -> Rows:
    """Edges named by their two ends and their place among equals."""
    found: dict[str, dict[str, str]] = {}
    for pair in pairs:
        number = sum(name.startswith(pair) for name in found)
        found[f"{pair}{number}"] = {"src": pair[0], "dst": pair[1]}
    return found


@pytest.fixture
def graph() -> Repository:
    """Parallel edges, a self-loop, a cycle and a node without edges."""
    found = new_graph()
    pairs = edges("ab", "ab", "bc", "ca", "cc", "bd")
    change(found, {PERSON: nodes(*"abcde"), KNOWS: pairs, CITY: nodes("x", "y")})
    change(found, {LIVES: edges("ax", "bx", "by")})
    return found


def check_all(graph: Repository, cache: Cache, branch: str = "main") -> None:
    check_adjacency(graph.snapshot(branch), cache)
    check_adjacency(graph.snapshot(branch), cache, "Lives")


# --- carried over ----------------------------------------------------------------------------------------


def test_appended_edges_and_nodes_extend_what_is_in_memory(graph: Repository) -> None:
    cache = Cache(PLENTY)
    check_all(graph, cache)
    change(graph, {PERSON: nodes("f", "g"), KNOWS: edges("fg", "fa", "af"), LIVES: edges("fx")})
    check_all(graph, cache)
    put(graph, KNOWS, edges("gg", "ga"))
    check_all(graph, cache)


def test_nodes_alone_may_be_added(graph: Repository) -> None:
    cache = Cache(PLENTY)
    check_all(graph, cache)
    put(graph, PERSON, nodes("f"))
    put(graph, CITY, nodes("z"))
    check_all(graph, cache)


def test_deleted_edges_are_gone(graph: Repository) -> None:
    cache = Cache(PLENTY)
    check_all(graph, cache)
    drop(graph, KNOWS, ["ab1", "cc0"])
    check_all(graph, cache)


@pytest.mark.parametrize("gone", ["e", "d"])
def test_a_deleted_node_moves_those_behind_it(graph: Repository, gone: str) -> None:
    cache = Cache(PLENTY)
    check_all(graph, cache)
    change(graph, None, {PERSON: gone, KNOWS: ["bd0"]})
    check_all(graph, cache)


def test_a_node_without_edges_may_go(graph: Repository) -> None:
    cache = Cache(PLENTY)
    check_all(graph, cache)
    drop(graph, PERSON, "e")
    check_all(graph, cache)


def test_a_node_that_is_replaced_moves_and_its_edges_follow(graph: Repository) -> None:
    cache = Cache(PLENTY)
    check_all(graph, cache)
    put(graph, PERSON, nodes("a", "c"))
    check_all(graph, cache)
    put(graph, CITY, nodes("x"))
    put(graph, KNOWS, edges("ea"))
    check_all(graph, cache)


def test_an_edge_that_is_replaced_connects_what_it_connects_now(graph: Repository) -> None:
    cache = Cache(PLENTY)
    check_all(graph, cache)
    put(graph, KNOWS, {"ab0": {"src": "e", "dst": "d"}})
    check_all(graph, cache)


def test_edge_updated_repeatedly_is_followed_once(graph: Repository) -> None:
    cache = Cache(PLENTY)
    check_all(graph, cache)
    for since in (1, 2, 3):
        put(graph, KNOWS, {"ab0": {"src": "a", "dst": "b", "since": since}, "zz": {"src": "d", "dst": "a"}})
        check_all(graph, cache)


@pytest.mark.parametrize("limit", [0, 2])
def test_delta_larger_than_its_limit_is_folded_without_losing_edges(
    graph: Repository, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(layered_adjacency, "MAX_DELTA", limit)
    cache = Cache(PLENTY)
    check_all(graph, cache)
    for pair in ("ea", "eb", "ee", "ed", "ae"):
        change(graph, {KNOWS: edges(pair), PERSON: nodes("f")}, {PERSON: "f"})
        check_all(graph, cache)
    drop(graph, KNOWS, ["ab0", "ea0", "ee0"])
    check_all(graph, cache)


def test_reads_of_most_nodes_and_repeated_large_reads_fold_the_delta(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(PLENTY)
    monkeypatch.setattr(topology_module, "_FOLD_SHARE", 2)
    check_all(graph, cache)
    put(graph, KNOWS, edges("ea"))
    found = topology(graph.snapshot(), cache)
    rows = found.source.all_rows()
    for _ in range(5):
        assert isinstance(found.neighbourhood("out", rows[:1], 1).adjacency, LayeredAdjacency)
    folded = found.neighbourhood("out", rows, 1).adjacency
    assert isinstance(folded, Adjacency)
    assert found.neighbourhood("out", rows[:1], 1).adjacency is folded
    assert isinstance(found.adjacency("in"), LayeredAdjacency)
    large = [isinstance(found.neighbourhood("in", rows[:1], 2).adjacency, Adjacency) for _ in range(4)]
    assert large == [False, False, False, True]
    check_all(graph, cache)


def test_older_adjacency_is_unchanged_by_newer_versions(graph: Repository) -> None:
    cache = Cache(PLENTY)
    before = topology(graph.snapshot(), cache)
    expected = neighbours(before, "out")
    put(graph, KNOWS, edges("ea", "eb"))
    drop(graph, KNOWS, ["ab0"])
    put(graph, PERSON, nodes("a"))
    check_all(graph, cache)
    assert neighbours(before, "out") == expected


def test_rewritten_files_keep_the_edges(graph: Repository) -> None:
    cache = Cache(PLENTY)
    drop(graph, PERSON, "e")
    drop(graph, KNOWS, ["ab0"])
    check_all(graph, cache)
    for key in (PERSON, KNOWS, LIVES, CITY):
        rewrite(graph, key)
    check_all(graph, cache)


def test_older_commits_are_right_after_newer_ones(graph: Repository) -> None:
    cache = Cache(PLENTY)
    seen = [graph.snapshot()]
    for rows in ({PERSON: nodes("f")}, {KNOWS: edges("fa")}, {PERSON: nodes("a")}):
        change(graph, rows, {key: list(ids) for key, ids in rows.items()})
        seen.append(graph.snapshot())
    for place in (3, 0, 2, 1, 3, 1, 0):
        check_adjacency(seen[place], cache)


def test_branches_of_one_base_keep_their_edges_apart(graph: Repository) -> None:
    cache = Cache(PLENTY)
    check_all(graph, cache)
    graph.create_branch("side")
    put(graph, KNOWS, edges("de", "de"))
    put(graph, KNOWS, edges("ed", "ea"), branch="side")
    put(graph, PERSON, nodes("q"), branch="side")
    for branch in ("main", "side", "main", "side"):
        check_all(graph, cache, branch)


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["nodes", "edges", "edges", "drop edges", "drop node", "rewrite", "look"]),
        st.integers(0, 2**32),
    ),
    min_size=2,
    max_size=8,
)


@settings(max_examples=15, deadline=None)
@given(_STEPS)
def test_whatever_happens_to_nodes_and_edges_the_adjacency_is_that_in_storage(
    steps: list[tuple[str, int]],
) -> None:
    graph, cache = new_graph(), Cache(PLENTY)
    there = set(NAMES[:5])
    links = dict(edges("ab", "bb", "cd"))
    change(graph, {PERSON: nodes(*sorted(there)), KNOWS: links})
    seen = [graph.snapshot()]
    for number, (kind, seed) in enumerate(steps):
        chance = random.Random(seed)
        some = chance.sample(NAMES, 2)
        match kind:
            case "nodes":
                there.update(some)
                put(graph, PERSON, nodes(*some))
            case "edges" if there:
                new = {
                    f"{number}-{place}": {
                        "src": chance.choice(sorted(there)),
                        "dst": chance.choice(sorted(there)),
                    }
                    for place in range(chance.randrange(1, 4))
                }
                links.update(new)
                put(graph, KNOWS, new)
            case "drop edges":
                doomed = chance.sample(sorted(links), min(2, len(links)))
                drop(graph, KNOWS, doomed)
                links = {id_: row for id_, row in links.items() if id_ not in doomed}
            case "drop node":
                doomed = [id_ for id_, row in links.items() if some[0] in row.values()]
                change(graph, None, {PERSON: some[:1], KNOWS: doomed})
                there.discard(some[0])
                links = {id_: row for id_, row in links.items() if id_ not in doomed}
            case "rewrite":
                rewrite(graph, chance.choice([PERSON, KNOWS]))
            case "look":
                check_adjacency(chance.choice(seen), cache)
        seen.append(graph.snapshot())
        check_adjacency(seen[-1], cache)


def test_an_edge_that_ends_nowhere_is_reported_as_damage(graph: Repository) -> None:
    put(graph, KNOWS, edges("az"))
    with pytest.raises(StorageError, match="edge:Knows has 1 row whose dst is not in node:Person"):
        topology(graph.snapshot(), Cache(PLENTY)).adjacency("out")


# --- looked up -------------------------------------------------------------------------------------------


def walked(found: AdjacencyView, frontier: list[int], depth: int) -> tuple[list[Any], ...]:
    """What every kernel makes of it, in terms of rows."""
    inward = found.to_local(np.array(frontier, np.int64))
    rows, targets, numbers = expand_edges(found.adjacency, inward)
    by_edge = sorted(
        zip(
            rows.tolist(),
            found.node_positions(targets).tolist(),
            found.edge_positions(numbers).tolist(),
            strict=True,
        )
    )
    rows, targets = expand_unique(found.adjacency, inward)
    by_node = sorted(zip(rows.tolist(), found.node_positions(targets).tolist(), strict=True))
    rows, targets = reach(found.adjacency, inward, 1, depth)
    far = sorted(zip(rows.tolist(), found.node_positions(targets).tolist(), strict=True))
    return by_edge, by_node, far


def check_modes(topology: Topology, direction: Direction, frontier: list[int], depth: int) -> None:
    start = np.array(frontier, np.int64)
    whole = topology.neighbourhood(direction, start, depth, "csr")
    looked = topology.neighbourhood(direction, start, depth, "index")
    assert (whole.mode, looked.mode) == ("csr", "index")
    assert walked(looked, frontier, depth) == walked(whole, frontier, depth)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 7),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14),
    st.lists(st.integers(-1, 6), max_size=5),
    st.integers(1, 4),
    st.booleans(),
)
def test_edges_looked_up_lead_where_the_whole_adjacency_leads(
    size: int, pairs: list[tuple[int, int]], frontier: list[int], depth: int, indexed: bool
) -> None:
    graph = new_graph()
    links = {
        f"e{number}": {"src": NAMES[source % size], "dst": NAMES[target % size]}
        for number, (source, target) in enumerate(pairs)
    }
    lives = {id_: {"src": row["src"], "dst": row["dst"]} for id_, row in links.items()}
    people = nodes(*NAMES[:size])
    change(graph, {PERSON: people, CITY: people, KNOWS: links, LIVES: lives})
    if indexed and links:
        index(graph, KNOWS, "src", "dst")
    snapshot, start = graph.snapshot(), [place if place < size else 0 for place in frontier]
    for direction in DIRECTIONS:
        check_modes(topology(snapshot, Cache(PLENTY)), direction, start, depth)
        check_modes(topology(snapshot, Cache(0)), direction, start, depth)
    for direction in DIRECTIONS[:2]:
        check_modes(topology(snapshot, Cache(PLENTY), "Lives"), direction, start, 1)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_way_of_several_hops_is_looked_up_to_its_end(direction: Direction) -> None:
    graph = new_graph()
    change(graph, {PERSON: nodes(*NAMES), KNOWS: edges("ab", "bc", "cd", "de", "ba", "ff")})
    found = topology(graph.snapshot(), Cache(PLENTY))
    start = found.source.position("e" if direction == "in" else "a")
    for depth in (1, 2, 3, 4, 9):
        check_modes(found, direction, [start], depth)
    around = found.neighbourhood(direction, np.array([start]), 4, "index")
    assert len(walked(around, [start], 4)[2]) == 4


def test_an_undirected_self_loop_is_walked_once_either_way(graph: Repository) -> None:
    found = topology(graph.snapshot(), Cache(PLENTY))
    c = found.source.position("c")
    for mode in ("csr", "index"):
        around = found.neighbourhood("both", np.array([c]), 1, mode)
        rows, targets, _ = expand_edges(around.adjacency, around.to_local(np.array([c])))
        names = found.source.values("id", around.node_positions(targets)).to_pylist()
        assert sorted(names) == ["a", "b", "c"]
        assert len(rows) == 3


def test_more_nodes_than_a_lookup_takes_are_all_expanded(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology_module, "_IDS_PER_FILTER", 2)
    for direction in DIRECTIONS:
        check_modes(topology(graph.snapshot(), Cache(PLENTY)), direction, [0, 1, 2, 3, 4, 2, -1], 3)


# --- choosing --------------------------------------------------------------------------------------------


def many(monkeypatch: pytest.MonkeyPatch, *, frontier: int = 2) -> None:
    """Make the graph a large one."""
    monkeypatch.setattr(topology_module, "SMALL_EDGES", 3)
    monkeypatch.setattr(topology_module, "INDEX_FRONTIER", frontier)


def chosen(found: Topology, *frontier: int) -> tuple[str, str]:
    return found.choose_mode("out", np.array(frontier, np.int64))


def test_few_edges_are_taken_whole(graph: Repository) -> None:
    assert chosen(topology(graph.snapshot(), Cache(PLENTY)), 0) == ("csr", "6 edges")


def test_from_no_node_nothing_is_built(graph: Repository) -> None:
    assert chosen(topology(graph.snapshot(), Cache(PLENTY)))[0] == "index"


def test_few_nodes_are_looked_up_until_the_edges_are_used_again_and_again(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(monkeypatch)
    found = topology(graph.snapshot(), Cache(PLENTY))
    assert [chosen(found, 0) for _ in range(3)] == [
        ("index", "few source nodes"),
        ("index", "few source nodes"),
        ("csr", "used repeatedly"),
    ]


def test_many_nodes_take_the_whole_at_once(graph: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    many(monkeypatch)
    found = topology(graph.snapshot(), Cache(PLENTY))
    assert chosen(found, 0, 1, 2) == ("csr", "many source nodes")
    assert found.choose_mode("out", None) == ("csr", "many source nodes")


def test_what_is_in_memory_is_used_and_what_an_earlier_version_left_is_extended(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(monkeypatch)
    cache = Cache(PLENTY)
    found = topology(graph.snapshot(), cache)
    found.adjacency("out")
    assert chosen(found, 0) == ("csr", "cached")
    assert found.choose_mode("in", np.array([0]))[0] == "index"
    put(graph, KNOWS, edges("ee"))
    assert chosen(topology(graph.snapshot(), cache), 0) == (
        "csr",
        "an earlier version is cached",
    )


def test_what_does_not_fit_is_looked_up_from_however_many_nodes(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(monkeypatch)
    mode, why = chosen(topology(graph.snapshot(), Cache(300)), 0, 1, 2, 3)
    assert (mode, why) == ("index", "the adjacency of 6 edges does not fit in the cache")
    check_modes(topology(graph.snapshot(), Cache(300)), "both", [0, 1, 2, 3], 3)


def test_a_preview_is_not_a_use(graph: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    many(monkeypatch)
    found = topology(graph.snapshot(), Cache(PLENTY))
    assert {found.preview_mode("out")[0] for _ in range(10)} == {"index"}
    assert chosen(found, 0)[0] == "index"
