"""`Result.rerank` orders the rows of a query by the scores of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput

WORDS = "query q() { match { $d: Doc } return { $d.slug as slug, $d.size as size } order { slug } limit 5 }"


@pytest.fixture(scope="module")
def result() -> og.Result:
    graph = og.init("memory://reranking", schema="node Doc { slug: String @key  size: I64? }")
    graph.load(
        {
            "Doc": [
                {"slug": slug, "size": size}
                for slug, size in zip("abcdef", (3, 1, 3, None, 2, 9), strict=True)
            ]
        }
    )
    return graph.query(WORDS)


def sizes(rows: list[dict[str, Any]]) -> list[float]:
    return [row["size"] or 0 for row in rows]


def test_rerank_puts_the_highest_score_first_and_keeps_the_order_of_equal_ones(result: og.Result) -> None:
    assert result.rerank(sizes)["slug"] == ["a", "c", "e", "b", "d"]
    assert result.rerank(lambda rows: [0] * len(rows))["slug"] == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("convert", [np.array, pa.array, tuple, iter])
def test_rerank_returns_the_best_rows_with_their_scores(
    result: og.Result, convert: Callable[..., Any]
) -> None:
    best = result.rerank(lambda rows: convert([float(size) for size in sizes(rows)]), 2, column="score")
    assert best.rows() == [{"slug": "a", "size": 3, "score": 3.0}, {"slug": "c", "size": 3, "score": 3.0}]
    assert best.commit_id == result.commit_id
    assert best.select(["score"]).to_json()["columns"] == ["score"]


def test_rerank_of_no_rows_does_not_call_the_reranker(result: og.Result) -> None:
    def fail(_: object) -> list[float]:
        raise AssertionError

    assert result[:0].rerank(fail, column="score").columns == ["slug", "size", "score"]


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([1.0], "returned 1 scores for 5 rows"),
        ([1.0, 2.0, float("nan"), 3.0, 4.0], "returned nan for row 2, expected a number"),
        ([1.0, None, 2.0, 3.0, 4.0], "returned None for row 1, expected a number"),
    ],
)
def test_rerank_with_invalid_scores_is_refused(result: og.Result, scores: list[float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        result.rerank(lambda _: scores)


def test_rerank_with_a_taken_column_or_a_negative_limit_is_refused(result: og.Result) -> None:
    with pytest.raises(InvalidInput, match="the result has a column 'size'"):
        result.rerank(sizes, column="size")
    with pytest.raises(InvalidInput, match="limit must not be negative"):
        result.rerank(sizes, -1)


def test_rerank_passes_on_an_error_of_the_reranker(result: og.Result) -> None:
    def fail(_: object) -> list[float]:
        raise RuntimeError("the model is not loaded")

    with pytest.raises(RuntimeError, match="the model is not loaded"):
        result.rerank(fail)
