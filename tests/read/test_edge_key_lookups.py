"""Edges between two known nodes, looked up by the ids that their key gives them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import omnigraph as og
from omnigraph.engine.layered_adjacency import connecting_edges
from omnigraph.engine.memory import cached_table
from omnigraph.engine.memory.memory_cache import Cache
from omnigraph.lang.ir import Direction
from omnigraph.read import topology as topology_module
from omnigraph.read.topology import ExpandMode, Topology
from tests.read.graphs import PLENTY, topology
from tests.support.places import fresh_memory

SCHEMA = """
node Person { name: String @key }
node Firm { code: I64 @key }
edge Knows: Person -> Person { since: I32?  @key(src, dst) }
edge Rates: Person -> Firm { stars: I32?  @key(src, dst) }
edge Visits: Person -> Firm { day: I32  @key(src, dst, day) }
"""
PEOPLE = ("ana", 'b"o', "c,d", "eve")
KNOWS = [("ana", 'b"o'), ('b"o', "ana"), ("ana", "ana"), ("c,d", "ana"), ("eve", "c,d")]
RATES = [("ana", 1), ("c,d", 1), ("c,d", 2)]
CLOSED = """
query q($p: String, $f: I64) {
  match { $a: Person { name: $p }  $b: Firm { code: $f }  %s }
  return { %s }
}"""


@pytest.fixture(scope="module")
def graph() -> Iterator[og.LocalGraph]:
    """A graph whose edges are looked up in storage, as those of a large one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topology_module, "SMALL_EDGES", 0)
        patch.setattr(cached_table, "SMALL_ROWS", 0)
        patch.setattr(cached_table, "_USES_UNTIL_CACHED", 1 << 30)
        with og.init(fresh_memory(), schema=SCHEMA) as made:
            made.load(
                {
                    "Person": [{"name": name} for name in PEOPLE],
                    "Firm": [{"code": code} for code in (1, 2)],
                    "Knows": [{"from": a, "to": b} for a, b in [*KNOWS, ("eve", "ana")]],
                    "Rates": [{"from": a, "to": b, "stars": b} for a, b in RATES],
                    "Visits": [{"from": "ana", "to": 1, "day": day} for day in (1, 2)],
                }
            )
            made.mutate('query d() { delete Knows where from = "eve" and to = "ana" }')
            yield made


def pairs_connected(table: Topology, direction: Direction, mode: ExpandMode) -> list[tuple[str, str, str]]:
    """The ends and the edge of every connected pair, among all pairs of nodes and a null."""
    size = table.source.num_rows, table.target.num_rows
    pairs = [*itertools.product(range(size[0]), range(size[1])), (-1, 0), (0, -1)]
    near, far = (np.array(items, np.int64) for items in zip(*pairs, strict=True))
    start, end = (table.target, table.source) if direction == "in" else (table.source, table.target)
    view = table.connections(direction, near, far, mode)
    places, edges = connecting_edges(view.adjacency, view.to_local(near), view.to_local(far, far=True))
    found = zip(
        start.values("id", near[places]).to_pylist(),
        end.values("id", far[places]).to_pylist(),
        table.edges.values("id", view.edge_positions(edges)).to_pylist(),
        strict=True,
    )
    return sorted(found)


@pytest.mark.parametrize("direction", ["out", "in", "both"])
def test_pairs_looked_up_by_key_are_those_of_the_adjacency(
    graph: og.LocalGraph, direction: Direction
) -> None:
    knows = topology(graph._repository.snapshot("main"), Cache(PLENTY))
    assert knows.looks_up_pairs(direction, 18)
    by_key = pairs_connected(knows, direction, "index")
    assert by_key == pairs_connected(knows, direction, "csr")
    assert len(by_key) == {"out": 5, "in": 5, "both": 9}[direction]


def test_pairs_of_other_keys_and_many_pairs_are_not_looked_up(graph: og.LocalGraph) -> None:
    snapshot = graph._repository.snapshot("main")
    rates = topology(snapshot, Cache(PLENTY), "Rates")
    assert rates.looks_up_pairs("out", topology_module.INDEX_FRONTIER)
    assert not rates.looks_up_pairs("out", topology_module.INDEX_FRONTIER + 1)
    assert not topology(snapshot, Cache(PLENTY), "Visits").looks_up_pairs("out", 1)
    rates.adjacency("out")
    assert not rates.looks_up_pairs("out", 1)


@pytest.mark.parametrize(
    ("step", "output", "expected"),
    [
        ("$a rates $b", "$b.code", {("ana", 1): [1], ("c,d", 2): [2], ("ana", 2): []}),
        ("$a $e:rates $b", "$e.stars", {("ana", 1): [1], ("c,d", 2): [2], ("eve", 1): []}),
        ("not { $a rates $b }", "$a.name", {("ana", 1): [], ("ana", 2): ["ana"], ("nobody", 1): []}),
        ("$a visits $b", "$b.code", {("ana", 1): [1], ("eve", 1): []}),
    ],
)
def test_read_between_two_keys_finds_the_edge(
    graph: og.LocalGraph, step: str, output: str, expected: dict[tuple[str, int], list[object]]
) -> None:
    text = CLOSED % (step, f"{output} as x")
    for (name, code), rows in expected.items():
        found = graph.query(text, {"p": name, "f": code})
        assert [row["x"] for row in found] == rows, (name, code)
    plan = graph.explain(text, {"p": "ana", "f": 1})
    assert ("by key lookup (up to 512 pairs of nodes)" in plan) == ("rates" in step)
