"""The equivalents in `.gq` of Cypher and SQL. Each is checked against the schema, as it is before it is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.foreign.equivalent import equivalent_query, foreign_language
from omnigraph.lang.gq.bare_query import query_source
from omnigraph.lang.gq.check import check_query
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.pg.schema_compiler import load_schema

SCHEMA = load_schema("""
node Person { name: String @key  age: I32? }
node Company { slug: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Company
""")

CYPHER = [
    ("MATCH (p:Person) RETURN p", "match { $p: Person } return { $p.* }"),
    (
        (
            "match (p:person)-[:KNOWS]->(f) where p.age > 30 and f.name starts with 'A' "
            "return p.name, f.name as friend order by friend desc, p.name skip 1 limit 10;"
        ),
        (
            'match { $p: Person  $p knows $f  $p.age > 30 and $f.name starts_with "A" } '
            "return { $p.name, $f.name as friend } order { friend desc, $p.name } skip 1 limit 10"
        ),
    ),
    (
        "MATCH (p:Person {name: 'Ann'})-[:KNOWS*1..3]-(f) RETURN DISTINCT f.name",
        'match { $p: Person { name: "Ann" }  $p <knows>{1,3} $f } return distinct { $f.name }',
    ),
    ("MATCH (p:Person)-[:KNOWS*2]->(f) RETURN f", "match { $p: Person  $p knows{2,2} $f } return { $f.* }"),
    (
        "MATCH (c:Company)<-[k:WORKS_AT]-(:Person) RETURN c.slug, count(*) AS n ORDER BY n DESC",
        (
            "match { $c: Company  $n1: Person  $n1 $k:worksAt $c } "
            "return { $c.slug, count($c) as n } order { n desc }"
        ),
    ),
    (
        (
            "MATCH (p:Person) OPTIONAL MATCH (p)-[:WORKS_AT]->(c:Company) "
            'WHERE c.slug <> "it\'s" RETURN p.name, c.slug'
        ),
        (
            'match { $p: Person  optional { $c: Company  $p worksAt $c  $c.slug != "it\'s" } } '
            "return { $p.name, $c.slug }"
        ),
    ),
    ("CREATE (p:Person {name: 'Ann', age: -3})", 'insert Person { name: "Ann", age: -3 }'),
    (
        "MATCH (p:Person {name: 'Ann'}) SET p.age = 3",
        'update Person set { age: 3 } where name = "Ann"',
    ),
    ("MATCH (p:Person) WHERE p.age IS NULL DETACH DELETE p", "delete Person where age is null"),
]
SQL = [
    ("SELECT * FROM persons", "match { $p: Person } return { $p.* }"),
    (
        (
            "select name, age from Person as x where x.age >= 3 and (name in ('a', 'b') or name like 'A%') "
            "order by age desc limit 5 offset 2"
        ),
        (
            'match { $x: Person  $x.age >= 3 and ($x.name in ["a", "b"] or $x.name starts_with "A") } '
            "return { $x.name, $x.age } order { $x.age desc } skip 2 limit 5"
        ),
    ),
    (
        "SELECT age, count(*) AS n FROM Person GROUP BY age ORDER BY n",
        "match { $p: Person } return { $p.age, count($p) as n } order { n }",
    ),
    (
        "INSERT INTO Person (name, age) VALUES ('Ann', 3), ('it''s', NULL)",
        'insert Person { name: "Ann", age: 3 } insert Person { name: "it\'s", age: null }',
    ),
    ("UPDATE Person SET age = 3 WHERE name = 'Ann'", 'update Person set { age: 3 } where name = "Ann"'),
    ("-- all\nDELETE FROM works_at WHERE from = 'x'", 'delete WorksAt where from = "x"'),
]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [("Cypher", *pair) for pair in CYPHER] + [("SQL", *pair) for pair in SQL],
)
def test_common_query_has_an_equivalent_that_passes_the_type_checker(
    language: str, text: str, expected: str
) -> None:
    assert foreign_language(text) == language
    assert equivalent_query(text, language, SCHEMA) == expected
    source = query_source(expected)
    check_query(parse_queries(source).queries[0], SCHEMA, source)


@pytest.mark.parametrize(
    "text",
    [
        "MERGE (p:Person {name: 'x'})",
        "MATCH (p:Ghost) RETURN p",
        "MATCH (p:Person) WITH p RETURN p",
        "MATCH (p:Person) DELETE p",
        "SELECT a.name FROM Person a JOIN Person b ON a.name = b.name",
        "SELECT name FROM Person WHERE age BETWEEN 1 AND 2",
        "SELECT name FROM Person WHERE name LIKE '%x_'",
        "SELECT name || 'x' FROM Person",
        "UPDATE Person SET age = age + 1 WHERE name = 'x'",
        "SELECT * FROM Person WHERE name = 'unterminated",
    ],
)
def test_query_without_a_simple_equivalent_has_none(text: str) -> None:
    assert equivalent_query(text, str(foreign_language(text)), SCHEMA) is None


WORDS = [
    "MATCH",
    "(",
    "p",
    ":",
    "Person",
    ")",
    "-",
    "[",
    "KNOWS",
    "]",
    "->",
    "WHERE",
    ".",
    "name",
    "=",
    "'x'",
    "{",
    "}",
]
WORDS += [
    "RETURN",
    ",",
    "AS",
    "ORDER",
    "BY",
    "SELECT",
    "*",
    "FROM",
    "IN",
    "LIKE",
    "INSERT",
    "INTO",
    "VALUES",
    "count",
]


@given(st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join), st.sampled_from(["Cypher", "SQL"]))
def test_translation_of_any_text_raises_nothing(text: str, language: str) -> None:
    first = "MATCH (p:Person) " if language == "Cypher" else "SELECT "
    for candidate in (text, first + text):
        equivalent_query(candidate, language, SCHEMA)
