"""Graphs with many small fragments, and the state of their storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import omnigraph as og
from omnigraph.store.tables.table_fragments import TableFragment, list_fragments
from omnigraph.store.tables.table_indexes import IndexSegment, list_segments

SCHEMA = """
node Person { name: String @key  age: I32? @index  mail: String? @unique  vec: Vector(2)? @index }
node City { name: String @key }
edge Knows: Person -> Person { since: I32? @index }
"""
PERSON, CITY, KNOWS = "node:Person", "node:City", "edge:Knows"
QUERIES = (
    "query all() { match { $p: Person } return { $p.name, $p.age, $p.mail } order { $p.name } }",
    "query old() { match { $p: Person  $p.age >= 3 } return { $p.name } order { $p.name } }",
    'query mail() { match { $p: Person  $p.mail = "m3" } return { $p.name, $p.age } }',
    "query known() { match { $p: Person  $p knows $q } return { $p.name, $q.name } order { $p.name, $q.name } }",
    "query since() { match { $p: Person  $p $e: knows $q  $e.since < 4 } return { $q.name } order { $q.name } }",
    "query count() { match { $p: Person } return { count($p) as n } }",
)


def person(number: int, age: int | None = None) -> dict[str, Any]:
    return {"name": f"p{number}", "age": number % 7 if age is None else age, "mail": f"m{number}"}


def knows(number: int, src: int, dst: int) -> dict[str, Any]:
    return {"id": f"k{number}", "from": f"p{src}", "to": f"p{dst}", "since": number % 5}


def scattered(uri: str, commits: int = 4) -> og.LocalGraph:
    """Return a graph with rows of many commits, some of them deleted."""
    graph = og.init(uri, schema=SCHEMA, durability="os", actor="ann")
    for number in range(commits):
        people = [person(10 * number + place) for place in range(4)]
        edges = [knows(number, 10 * number, 10 * number + 1)]
        graph.load({"Person": people, "Knows": edges})
    graph.load({"City": [{"name": "Bern"}]})
    graph.mutate('query gone() { delete Person where name = "p3" }')
    return graph


def told(graph: og.Graph, branch: str = "main", at: str | None = None) -> list[Any]:
    """Return the results of the queries."""
    return [graph.query(source, branch=branch, at=at).rows() for source in QUERIES]


def fragments(graph: og.Graph, key: str, branch: str = "main") -> list[TableFragment]:
    snapshot = graph.snapshot(branch)
    return list(list_fragments(snapshot.tables, snapshot.pin(key)))


def segments(graph: og.Graph, key: str, index: str = "id_btree", branch: str = "main") -> list[IndexSegment]:
    snapshot = graph.snapshot(branch)
    return [item for item in list_segments(snapshot.tables, snapshot.pin(key)) if item.index == index]


def covered(graph: og.Graph, branch: str = "main") -> bool:
    """Return whether every index covers every row, and each fragment once."""
    snapshot = graph.snapshot(branch)
    for key in snapshot.catalog.tables:
        live = {item.id for item in fragments(graph, key, branch)}
        for name in {item.index for item in list_segments(snapshot.tables, snapshot.pin(key))}:
            found = [id_ for item in segments(graph, key, name, branch) for id_ in item.fragments & live]
            if sorted(found) != sorted(live):
                return False
    return True


def by_key(done: Any) -> dict[str, Any]:
    return {item.type_key: item for item in done.datasets}


def indexes(graph: og.Graph, branch: str = "main") -> set[tuple[str, str]]:
    return {(item.type, item.property) for item in graph.indexes(branch=branch)}


def names(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["p.name"] for row in rows]
