"""Sorts and groupings over the memory limit of their query: they use temporary files and return the same rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.budget.query_budget import QueryLimits, limit_query
from omnigraph.errors import ResourceLimit

SCHEMA = "node Person { name: String @key  age: I32  city: String? }"
PEOPLE = 1_500
# 1,500 * 500 rows of two positions.
PAIRS = "match { $a: Person  $b: Person  $b.age < 30 }"
MATCHED_BYTES = 24 << 20

QUERIES = {
    "group": "return { $a.city as c, $b.age as x, count($b) as n, min($a.name) as m }"
    " order { n desc, c asc, x asc }",
    "distinct": "return distinct { $a.city as c, $b.age as x } order { c desc, x asc } skip 3 limit 50",
    "total": "return { count($a) as n, sum($b.age) as total, avg($a.age) as mean }",
    "sort": "return { $a.name as a, $b.name as b } order { $b.city desc, $a.age asc, a asc, b desc }"
    " skip 5 limit 40",
}


@pytest.fixture(scope="module")
def graph() -> Iterator[og.Graph]:
    numbers = np.arange(PEOPLE)
    table = pa.table(
        {
            "name": [f"p{number:05}" for number in numbers],
            "age": pa.array(numbers % 90, pa.int32()),
            "city": [None if number % 11 == 0 else f"c{number % 130}" for number in numbers],
        }
    )
    with og.init("memory://spilling", SCHEMA) as opened:
        opened.load({"Person": table})
        yield opened


def text(name: str) -> str:
    return f"query q() {{ {PAIRS} {QUERIES[name]} }}"


@pytest.mark.parametrize("name", QUERIES)
def test_sort_and_grouping_over_the_memory_limit_spill_and_return_the_same_rows(
    graph: og.Graph, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("omnigraph.read.spilling._MIN_DATABASE_BYTES", 1 << 20)
    expected = graph.query(text(name)).rows()
    # The matched rows fit, the sort or the grouping does not.
    limits = QueryLimits(bytes=MATCHED_BYTES + (14 << 20), spilled=0)
    with limit_query(limits), pytest.raises(ResourceLimit) as caught:
        graph.query(text(name))
    assert caught.value.details["resource"] == "query_bytes"
    with limit_query(replace(limits, spilled=None)):
        found = graph.query(text(name)).rows()
    assert found == expected
    assert not list(tmp_path.iterdir())


def test_spilled_result_over_the_memory_limit_is_refused(
    graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("omnigraph.read.spilling._MIN_DATABASE_BYTES", 1 << 20)
    everything = (
        f"query q() {{ {PAIRS} return distinct {{ $a.name as a, $b.name as b }} order {{ a asc, b asc }} }}"
    )
    with (
        limit_query(QueryLimits(bytes=MATCHED_BYTES + (14 << 20))),
        pytest.raises(ResourceLimit) as caught,
    ):
        graph.query(everything)
    assert caught.value.details["resource"] == "query_bytes"
    assert caught.value.hint
    assert not list(tmp_path.iterdir())


def test_spill_beyond_its_disk_space_is_refused(
    graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("omnigraph.read.spilling._MIN_DATABASE_BYTES", 1 << 20)
    limits = QueryLimits(bytes=MATCHED_BYTES + (14 << 20), spilled=100_000)
    with limit_query(limits), pytest.raises(ResourceLimit) as caught:
        graph.query(text("sort"))
    assert caught.value.details["resource"] == "query_spill_bytes"
    assert not list(tmp_path.iterdir())
