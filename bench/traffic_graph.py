"""The graph of the load test: its schema, queries, policy and tokens.

Clients write pairs: two people and the edge between them, inserted, updated and deleted in one commit. A reader
that sees one half, or two different ages, has seen a partial commit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GRAPH = "team"
RING = 40
TALLIES = 4
LANES = 8
ACTORS = ("ann", "bob", "cid", "dee", "eli", "fay", "gus", "hal")
# The sides of a pair. People of the ring have none.
SIDES = ("a", "b")

SCHEMA = """
node Person { name: String @key  pair: String?  side: String?  owner: I32?  age: I32? }
node Counter { name: String @key  value: I64 }
edge Knows: Person -> Person
"""
POINT = (
    "query point($n: String) { match { $p: Person { name: $n } } return { $p.name as name, $p.age as age } }"
)
HOPS = """query hops($n: String) {
  match { $p: Person { name: $n }  $p knows $f  $f knows $q }
  return { $q.name as name, count($f) as ways } }"""
OWNED = """query owned($o: I32) {
  match { $p: Person { owner: $o } }
  return { $p.pair as pair, $p.side as side, $p.age as age } }"""
TWINS = """query twins($o: I32) {
  match { $a: Person { owner: $o, side: "a" }  $a knows $b }
  return { $a.pair as pair, $a.age as age, $b.pair as other, $b.age as other_age } }"""
VALUE = "query value($n: String) { match { $c: Counter { name: $n } } return { $c.value as value } }"
INSERT = """query add($a: String, $b: String, $p: String, $o: I32, $age: I32) {
  insert Person { name: $a, pair: $p, side: "a", owner: $o, age: $age }
  insert Person { name: $b, pair: $p, side: "b", owner: $o, age: $age }
  insert Knows { from: $a, to: $b } }"""
UPDATE = "query age($p: String, $age: I32) { update Person set { age: $age } where pair = $p }"
DELETE = "query gone($p: String) { delete Person where pair = $p }"
COUNT = "query count_up($n: String, $v: I64) { update Counter set { value: $v } where name = $n }"


def member(pair: str, side: str) -> str:
    """Return the name of one half of a pair."""
    return f"{pair}-{side}"


def pair_params(pair: str, owner: int, age: int) -> dict[str, Any]:
    """Return the parameters of `INSERT` for a pair."""
    return {"a": member(pair, "a"), "b": member(pair, "b"), "p": pair, "o": owner, "age": age}


def pair_records(pair: str, owner: int, age: int) -> list[dict[str, Any]]:
    """Return the records that load the same pair."""
    people = [
        {
            "type": "Person",
            "data": {"name": member(pair, side), "pair": pair, "side": side, "owner": owner, "age": age},
        }
        for side in SIDES
    ]
    return [*people, {"edge": "Knows", "from": member(pair, "a"), "to": member(pair, "b")}]


def tally(number: int) -> str:
    """Return the name of a branch that holds a counter."""
    return f"tally-{number}"


def lane(number: int) -> str:
    """Return the branch of a client that only inserts; the first one is main."""
    return f"lane-{number}" if number else "main"


def ring_name(number: int) -> str:
    """Return the name of a person of the ring, which never changes."""
    return f"ring-{number % RING}"


def ring_hops(number: int) -> dict[str, int]:
    """Return the people that `HOPS` finds from a person of the ring, and the number of paths to each.

    >>> ring_hops(0)
    {'ring-2': 1, 'ring-4': 2, 'ring-6': 1}
    """
    return {ring_name(number + 2): 1, ring_name(number + 4): 2, ring_name(number + 6): 1}


def token_of(actor: str) -> str:
    """Return the bearer token of an actor."""
    return f"token-of-{actor}"


def make_graph(folder: Path) -> Path:
    """Create the graph in a folder, with its stored query and its policy. Return the server configuration."""
    import omnigraph as og

    with og.init(str(folder / f"{GRAPH}.omni"), SCHEMA) as graph:
        edges = [
            {"from": ring_name(number), "to": ring_name(number + step)}
            for number in range(RING)
            for step in (1, 3)
        ]
        graph.load(
            {
                "Person": [{"name": ring_name(number)} for number in range(RING)],
                "Counter": [{"name": "clicks", "value": 0}],
                "Knows": edges,
            }
        )
        for number in range(TALLIES):
            graph.branches.create(tally(number))
        for number in range(1, LANES):
            graph.branches.create(lane(number))
    (folder / "queries").mkdir()
    (folder / "queries" / "twins.gq").write_text(TWINS, encoding="utf-8")
    (folder / "policy.yaml").write_text(json.dumps(_policy()), encoding="utf-8")
    (folder / "tokens.json").write_text(
        json.dumps({actor: token_of(actor) for actor in ACTORS}), encoding="utf-8"
    )
    config = folder / "server.yaml"
    graphs = {GRAPH: {"uri": f"{GRAPH}.omni", "queries": "queries", "policy": "policy.yaml"}}
    config.write_text(json.dumps({"graphs": graphs}), encoding="utf-8")
    return config


def _policy() -> dict[str, Any]:
    """Return the policy: all clients may do what the load test needs, and nothing else."""
    data = {"actors": {"group": "clients"}, "actions": ["read", "change", "invoke_query"]}
    branches = {"actors": {"group": "clients"}, "actions": ["branch_create", "branch_delete", "branch_merge"]}
    return {
        "version": 1,
        "groups": {"clients": list(ACTORS)},
        "rules": [{"id": "data", "allow": data}, {"id": "branches", "allow": branches}],
    }
