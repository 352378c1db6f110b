"""Reads with hardly any memory to keep things in give the rows that they give with plenty."""

from __future__ import annotations

import pytest

import omnigraph as og
from omnigraph.search.embeddings.embedder import MockEmbedder
from tests.differential.comparing import explain_difference
from tests.differential.engine_rows import engine_rows
from tests.differential.golden import Case, check_text, expected_result, load_cases, load_graph
from tests.differential.stored import stored_graph
from tests.support.places import fresh_memory

SCHEMA = """
node Person { name: String @key  age: I32?  size: I32? }
edge Knows: Person -> Person
"""
SOME = [case for case in load_cases() if case.error is None][::4]


@pytest.fixture(scope="module")
def small_handles() -> dict[tuple[str, int], og.LocalGraph]:
    return {}


@pytest.mark.parametrize("cache_bytes", [0, 20_000])
@pytest.mark.parametrize("case", SOME, ids=str)
def test_reads_of_the_corpus_give_their_rows_with_hardly_any_memory(
    case: Case, cache_bytes: int, small_handles: dict[tuple[str, int], og.LocalGraph]
) -> None:
    graph = small_handles.get((case.graph, cache_bytes))
    if graph is None:
        uri = stored_graph(load_graph(case.graph), fresh_memory(), "half indexed").location.uri
        graph = og.open(uri, mode="r", cache_bytes=cache_bytes, embedder=MockEmbedder())
        small_handles[case.graph, cache_bytes] = graph
    query = check_text(case.text, load_graph(case.graph))
    expected = expected_result(case, query)
    assert explain_difference(query, expected, engine_rows(graph, case.text, case.params)) is None
    assert graph._reader.stats().nbytes <= cache_bytes


def test_a_table_larger_than_the_cache_is_answered_like_one_that_fits() -> None:
    large = og.init(fresh_memory(), schema=SCHEMA)
    names = [f"p{number:05}" for number in range(6_000)]
    people = [{"name": name, "age": place % 90, "size": place} for place, name in enumerate(names)]
    links = [{"from": names[place], "to": names[place * 7 % 6_000]} for place in range(0, 6_000, 2)]
    large.load({"Person": people, "Knows": links})
    small = og.open(large.uri, mode="r", cache_bytes=64_000)
    for text in (
        "query a() { match { $p: Person  $p.age = 7 } return { $p.name, $p.size } order { $p.name } }",
        'query b() { match { $p: Person { name: "p00014" }  $q knows $p } return { $q.name } order { $q.name } }',
        "query c() { match { $p: Person  $p knows $q } return { $q.age, count($p) as n } order { $q.age } }",
        "query d() { match { $p: Person } return { $p.name } order { $p.age desc } limit 9 }",
        'query e() { match { $p: Person { name: "p00002" }  $p knows{1,3} $q } return { count($q) as n } }',
    ):
        expected = large.query(text).rows()
        assert expected
        for _ in range(4):
            assert small.query(text).rows() == expected
    assert small._reader.stats().nbytes <= 64_000 < large._reader.stats().nbytes


def test_what_storage_can_only_narrow_down_is_checked_again() -> None:
    schema = "node Item { name: String @key  count: I32?  weight: F64? }"
    graph = og.init(fresh_memory(), schema=schema, cache_bytes=0)
    graph.load({"Item": [{"name": f"i{place}", "count": place, "weight": 6.5} for place in range(10)]})
    text = (
        "query q() { match { $i: Item  $i.count > 3  $i.weight > $i.count } return { max($i.count) as n } }"
    )
    assert "(recheck)" in graph.explain(text)
    assert graph.query(text).rows() == [{"n": 6}]
