"""The benchmark queries and writes, in `.gq` and in Cypher.

Both texts of a shape return the same rows; `run` compares every result. This needs three conditions:

- the graph has no loops and no parallel edges, so a traversal gives as many rows as there are edges;
- ``knows{1,n}`` reaches a person once, at the shortest distance, and never the start: ``*SHORTEST 1..n``;
- before a limit, both texts order by a name last, so that there are no ties.

Most of these can be written in several ways in Cypher. The text given here was the fastest of those tried: patterns
start at the side that is grouped by, and reachability is a shortest path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    # Imported for type checking only: a cold start draws no parameters.
    from bench.draw import Draw

SCHEMA = """
node Person { name: String @key  age: I32  city: String  joined: Date? }
node Company { name: String @key  founded: I32 }
edge Knows: Person -> Person { since: Date?  weight: F64? }
edge WorksAt: Person -> Company
"""

Params: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Read:
    """A query. `goals` limits our time as a multiple of that of the peer; None means no goal."""

    name: str
    gq: str
    cypher: str
    parameters: Callable[[Draw], dict[str, Any]]
    goals: Mapping[str, float | None] = field(default_factory=lambda: {"ladybug": 1.0})
    ordered: bool = False
    # The same query as a filter over the people, for Lance.
    lance: str | None = None


@dataclass(frozen=True)
class Write:
    """A durable write, and the query that follows it, if any."""

    name: str
    gq: str
    cypher: str
    parameters: Callable[[Draw], dict[str, Any]]
    goals: Mapping[str, float | None]
    then: Read | None = None


def _nothing(draw: Draw) -> dict[str, Any]:  # noqa: ARG001 - the signature of all parameter functions
    return {}


def _person(draw: Draw) -> dict[str, Any]:
    return {"n": draw.person()}


POINT = Read(
    "point lookup by key",
    """query point($n: String) {
         match { $p: Person { name: $n } }
         return { $p.name, $p.age, $p.city, $p.joined } }""",
    "MATCH (p:Person) WHERE p.name = $n RETURN p.name, p.age, p.city, p.joined",
    _person,
    goals={"ladybug": 1.0, "lance": None},
    lance="name = '{n}'",
)

NEIGHBOURS = Read(
    "1 hop: neighbours",
    """query neighbours($n: String) {
         match { $p: Person { name: $n }  $p knows $q }
         return { $q.name, $q.age } }""",
    "MATCH (p:Person {name: $n})-[:Knows]->(q:Person) RETURN q.name, q.age",
    _person,
)

READS = (
    POINT,
    NEIGHBOURS,
    Read(
        "1..2 hops: distinct people",
        """query within_two($n: String) {
             match { $p: Person { name: $n }  $p knows{1,2} $q }
             return { $q.name } }""",
        "MATCH (p:Person {name: $n})-[:Knows*SHORTEST 1..2]->(q:Person) RETURN q.name",
        _person,
    ),
    Read(
        "2 hops: distinct ends with ways",
        """query ends($n: String) {
             match { $p: Person { name: $n }  $p knows $f  $f knows $q }
             return { $q.name, count($f) as ways } }""",
        """MATCH (p:Person {name: $n})-[:Knows]->(f:Person)-[:Knows]->(q:Person)
           RETURN q.name, count(*) AS ways""",
        _person,
    ),
    Read(
        "1..3 hops: size of reach",
        """query reach($n: String) {
             match { $p: Person { name: $n }  $p knows{1,3} $q }
             return { count($q) as reached } }""",
        "MATCH (p:Person {name: $n})-[:Knows*SHORTEST 1..3]->(q:Person) RETURN count(q) AS reached",
        _person,
    ),
    Read(
        "2 hops: filtered count",
        """query older($n: String, $x: I32) {
             match { $p: Person { name: $n }  $p knows $f  $f knows $q  $q.age > $x }
             return { count($q) as ways } }""",
        """MATCH (p:Person {name: $n})-[:Knows]->(:Person)-[:Knows]->(q:Person)
           WHERE q.age > $x RETURN count(*) AS ways""",
        lambda draw: {"n": draw.person(), "x": draw.age()},
    ),
    Read(
        "2 hops: all pairs, counted",
        """query pairs() {
             match { $a: Person  $a knows $b  $b knows $c }
             return { count($c) as pairs } }""",
        "MATCH (:Person)-[:Knows]->(:Person)-[:Knows]->(:Person) RETURN count(*) AS pairs",
        _nothing,
    ),
    Read(
        "edges by city of the target",
        """query by_city() {
             match { $a: Person  $a knows $b }
             return { $b.city, count($a) as known } }""",
        "MATCH (b:Person)<-[:Knows]-(a:Person) RETURN b.city, count(*) AS known",
        _nothing,
    ),
    Read(
        "top 10 by in-degree",
        """query popular() {
             match { $a: Person  $a knows $b }
             return { $b.name as name, count($a) as known }
             order { known desc, name } limit 10 }""",
        """MATCH (b:Person)<-[:Knows]-(:Person) WITH b.name AS name, count(*) AS known
           RETURN name, known ORDER BY known DESC, name LIMIT 10""",
        _nothing,
        ordered=True,
    ),
    Read(
        "negation: knowing, no employer",
        """query idle($c: String) {
             match { $p: Person { city: $c }  $p knows $q  not { $p worksAt $f } }
             return { count($q) as pairs } }""",
        """MATCH (p:Person)-[:Knows]->(q:Person)
           WHERE p.city = $c AND NOT EXISTS { MATCH (p)-[:WorksAt]->(:Company) } RETURN count(*) AS pairs""",
        lambda draw: {"c": draw.city()},
    ),
    Read(
        "negation: friends' friends, new",
        """query suggest($n: String) {
             match { $p: Person { name: $n }  $p knows $f  $f knows $q  not { $p knows $q } }
             return { $q.name as name, count($f) as ways }
             order { ways desc, name } limit 10 }""",
        """MATCH (p:Person {name: $n})-[:Knows]->(f:Person)-[:Knows]->(q:Person)
           WHERE NOT (p)-[:Knows]->(q)
           RETURN q.name AS name, count(*) AS ways ORDER BY ways DESC, name LIMIT 10""",
        _person,
        ordered=True,
    ),
)

WRITES = (
    Write(
        "insert one person by key",
        """query add($n: String, $a: I32, $c: String) {
             insert Person { name: $n, age: $a, city: $c } }""",
        "CREATE (:Person {name: $n, age: $a, city: $c})",
        lambda draw: {"n": draw.new_name(), "a": draw.age(), "c": draw.city()},
        goals={"lance": 2.5, "ladybug": None},
    ),
    Write(
        "insert one edge, then 1 hop",
        """query meet($n: String, $m: String) {
             insert Knows { from: $n, to: $m } }""",
        "MATCH (p:Person {name: $n}), (q:Person {name: $m}) CREATE (p)-[:Knows]->(q)",
        lambda draw: dict(zip(("n", "m"), draw.strangers(), strict=True)),
        goals={"ladybug": None},
        then=NEIGHBOURS,
    ),
)

# Cold start: the first query of a new process, with imports and opening. The goal is in milliseconds.
COLD = (POINT, NEIGHBOURS)
COLD_GOAL_MS = 1_000.0
