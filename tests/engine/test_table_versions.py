"""Fragments and deletions that writes add to the cache, compared with what storage has."""

from __future__ import annotations

import random
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.memory.row_numbers import RowNumbers
from omnigraph.engine.memory.table_versions import deleted_rows, table_fragments
from omnigraph.store.tables.deletion_files import deleted_offsets
from omnigraph.store.tables.table_fragments import list_fragments
from omnigraph.store.tables.tables import COMPACT_AT

SCHEMA = "node Person { name: String @key  age: I32? }\n"
PUT = "query put($n: String, $a: I32) { insert Person { name: $n, age: $a } }"
SET = "query set($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
REMOVE = "query remove($n: String) { delete Person where name = $n }"


@pytest.mark.parametrize("seed", [1, 2])
def test_fragments_and_deletions_learned_from_writes_equal_those_in_storage(seed: int) -> None:
    chance = random.Random(seed)
    with og.init(f"memory://versions-{seed}", schema=SCHEMA) as graph:
        graph.load({"Person": [{"name": f"p{number}", "age": 0} for number in range(40)]})
        graph.query('query find() { match { $p: Person { name: "p1" } } return { $p.age } }')
        for number in range(COMPACT_AT + 8):
            name = f"p{chance.randrange(60)}"
            chosen, params = chance.choice([(PUT, {"a": number}), (SET, {"a": number}), (REMOVE, {})])
            graph.mutate(chosen, {"n": name, **params})
            check_cache(graph)


def check_cache(graph: Any) -> None:
    snapshot = graph._repository.snapshot()
    cache, pin = graph._reader.cache, snapshot.pin("node:Person")
    stored = list_fragments(snapshot.tables, pin)
    assert table_fragments(cache, snapshot.tables, pin) == stored
    for fragment in stored:
        found = deleted_rows(cache, snapshot.tables, pin, fragment)
        assert found.tolist() == deleted_offsets(snapshot.tables, pin, fragment).tolist()


def cached_numbers(graph: Any) -> RowNumbers:
    found: RowNumbers = graph._reader.session(graph._repository.snapshot()).table("node:Person").numbers
    return found


def test_column_of_a_fragment_with_many_deleted_rows_is_extended_after_each_update() -> None:
    with og.init("memory://versions-deleted", schema=SCHEMA) as graph:
        graph.load({"Person": [{"name": f"p{number}", "age": number % 10} for number in range(1_000)]})
        graph.mutate("query shrink() { delete Person where age > 2 }")
        with og.open(graph.uri, upkeep="off") as reader:
            ages = "query ages() { match { $p: Person } return { sum($p.age) as total } }"
            reader.query(ages)
            lineage = cached_numbers(reader).lineage
            assert cached_numbers(reader).size > 2 * cached_numbers(reader).num_rows
            for number in range(4):
                graph.mutate(SET, {"n": f"p{10 * number}", "a": 1})
                reader.query(ages)
                assert cached_numbers(reader).lineage == lineage


def test_columns_of_lineages_that_no_version_continues_are_dropped() -> None:
    with og.init("memory://versions-lineages", schema=SCHEMA) as graph:
        for number in range(14):
            people = [{"name": f"p{number}-{place}", "age": place} for place in range(300)]
            graph.load({"Person": people}, mode="overwrite")
            graph.query("query ages() { match { $p: Person } return { $p.age } }")
        families: list[Any] = [key[0] for key in graph._reader.cache._pool._entries]
        lineages = {family[-1] for _, family in families if family[0] == "column"}
        assert cached_numbers(graph).lineage in lineages
        assert len(lineages) <= 4


def test_deleted_rows_of_fragments_that_are_gone_are_forgotten() -> None:
    with og.init("memory://versions-gone", schema=SCHEMA) as graph:
        graph.load({"Person": [{"name": f"p{number}", "age": 0} for number in range(8)]})
        for number in range(4 * COMPACT_AT):
            graph.mutate(SET, {"n": f"p{number % 8}", "a": number})
            graph.query('query find() { match { $p: Person { name: "p1" } } return { $p.age } }')
        families: list[Any] = [key[0] for key in graph._reader.cache._pool._entries]
        remembered = {family[1] for _, family in families if family[0] == "deleted"}
        pin = graph._repository.snapshot().pin("node:Person")
        fragments = table_fragments(graph._reader.cache, graph._repository.snapshot().tables, pin)
        assert remembered <= {item.files for item in fragments}
