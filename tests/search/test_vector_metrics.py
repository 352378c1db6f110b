"""The metric of a vector property: declared in the schema, used by `nearest`, and named by a function."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.pg.format_schema import format_schema
from tests.differential.naive_text import vector_distance

VECTORS = {"a": (1.0, 0.0), "b": (0.25, 3.0), "c": (9.0, 1.0), "d": (-1.0, 0.5)}
QUERY = (1.0, 0.25)


def schema(metric: str) -> str:
    return f'node Doc {{ name: String @key v: Vector(2) @index(metric: {metric}, kind: hnsw) @description("x") }}'


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_nearest_with_a_declared_metric_ranks_by_it(tmp_path: Path, metric: str) -> None:
    graph = og.init(str(tmp_path / "g"), schema(metric))
    for name, vector in VECTORS.items():
        insert = "query add($n: String, $v: Vector(2)) { insert Doc { name: $n, v: $v } }"
        graph.mutate(insert, {"n": name, "v": list(vector)})
    ask = """query ask($q: Vector(2)) { match { $d: Doc }
        return { $d.name as name, nearest($d.v, $q) as near, l2($d.v, $q) as l2,
                 cosine($d.v, $q) as cosine, dot($d.v, $q) as dot }
        order { nearest($d.v, $q) } limit 3 }"""
    rows = graph.query(ask, {"q": list(QUERY)}).rows()
    expected = sorted(VECTORS, key=lambda name: vector_distance(VECTORS[name], QUERY, metric))
    assert [row["name"] for row in rows] == expected[:3]
    for row in rows:
        assert row["near"] == row[metric]
        for each in ("l2", "cosine", "dot"):
            assert math.isclose(row[each], vector_distance(VECTORS[row["name"]], QUERY, each), abs_tol=1e-12)
    by_function = graph.query(ask.replace("order { nearest", f"order {{ {metric}"), {"q": list(QUERY)}).rows()
    assert by_function == rows


def test_format_schema_with_index_options_keeps_them() -> None:
    text = format_schema(schema("cosine"))
    assert '  v: Vector(2) @index(metric: cosine, kind: hnsw) @description("x")\n' in text
    assert format_schema(text) == text


def test_schema_apply_with_another_metric_changes_the_ranking(tmp_path: Path) -> None:
    graph = og.init(str(tmp_path / "g"), schema("cosine"))
    insert = "query add($n: String, $v: Vector(2)) { insert Doc { name: $n, v: $v } }"
    for name, vector in VECTORS.items():
        graph.mutate(insert, {"n": name, "v": list(vector)})
    ask = "query ask() { match { $d: Doc } return { $d.name as n } order { nearest($d.v, [1.0, 0.25]) } limit 1 }"
    assert graph.query(ask).rows() == [{"n": "c"}]
    graph.branches.create("other")
    graph.schema.apply(schema("l2"), branch="other")
    assert graph.query(ask, branch="other").rows() == [{"n": "a"}]
    assert graph.query(ask).rows() == [{"n": "c"}]
    graph.branches.merge("other")
    assert graph.query(ask).rows() == [{"n": "a"}]


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("@index(metric: euclid)", "metric must be one of l2, cosine, dot, got euclid"),
        ("@index(probes: many)", "has unknown option 'probes'"),
        ("@index(metric: l2, metric: dot)", "declares 'metric' multiple times"),
    ],
)
def test_schema_with_an_invalid_index_option_is_rejected(
    tmp_path: Path, annotation: str, message: str
) -> None:
    with pytest.raises(LanguageError, match=message):
        og.init(str(tmp_path / "g"), f"node Doc {{ v: Vector(2) {annotation} }}")


def test_schema_with_an_option_on_another_property_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(LanguageError, match="only the @index of a Vector property"):
        og.init(str(tmp_path / "g"), "node Doc { name: String @index(metric: l2) }")
