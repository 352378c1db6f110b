"""The nearest rows found with bounds in single precision are those of exact distances."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.lang.schema import METRICS, Metric
from omnigraph.search import nearest_rows
from omnigraph.search.nearest_rows import NearestRows
from omnigraph.search.vector_distance import nearest_distances

DIMENSION = 24
Found = list[tuple[int, float]]


def exact(vectors: pa.Array, query: list[float], metric: Metric, count: int) -> Found:
    """Return the rows with the smallest distances, and those with the same distance as the last of them."""
    rows, distances = nearest_distances(vectors, np.arange(len(vectors)), query, metric)
    order = np.argsort(distances, kind="stable")
    last = distances[order][count - 1] if len(order) >= count else np.nan
    kept = order if np.isnan(last) else order[distances[order] <= last]
    return [(int(rows[place]), float(distances[place])) for place in np.sort(kept)]


def found(vectors: pa.Array, query: list[float], metric: Metric, count: int, batch: int) -> Found:
    """Return the same with bounds, from batches."""
    nearest = NearestRows(query, metric, count)
    for start in range(0, len(vectors), batch):
        part = vectors[start : start + batch]
        nearest.add(np.arange(start, start + len(part)), part)
    rows, distances = nearest.result()
    return list(zip(rows.tolist(), distances.tolist(), strict=True))


def column(numbers: np.ndarray, nulls: np.ndarray | None = None) -> pa.Array:
    mask = None if nulls is None else pa.array(nulls)
    return pa.FixedSizeListArray.from_arrays(
        pa.array(numbers.astype(np.float32).ravel()), DIMENSION, mask=mask
    )


def unusual(kind: str, drawn: np.random.Generator) -> tuple[np.ndarray, list[float]]:
    """Return vectors that are hard to compare in single precision, and a query."""
    numbers = drawn.normal(size=(300, DIMENSION))
    query = drawn.normal(size=DIMENSION)
    if kind == "far from the origin":
        numbers, query = numbers * 1e-3 + 1e4, query * 1e-3 + 1e4
    elif kind == "equal":
        numbers = numbers[drawn.integers(0, 7, 300)]
    elif kind == "of any length":
        numbers = numbers * 10.0 ** drawn.integers(-44, 38, (300, 1))
    elif kind == "tiny":
        numbers, query = numbers * 1e-40, query * 1e-40
    elif kind == "huge":
        numbers, query = numbers * 1e37, query * 1e37
    elif kind == "zero, infinite and NaN":
        numbers[::3] = 0.0
        numbers[1::9, 3] = np.nan
        numbers[2::9, 5] = np.inf
        numbers[5::9, 7] = -np.inf
    return numbers, [float(item) for item in query]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "kind",
    ["usual", "far from the origin", "equal", "of any length", "tiny", "huge", "zero, infinite and NaN"],
)
def test_nearest_rows_of_any_vectors_are_those_of_exact_distances(kind: str, metric: Metric) -> None:
    drawn = np.random.default_rng(7)
    numbers, query = unusual(kind, drawn)
    for nulls in (None, drawn.random(300) < 0.2):
        vectors = column(numbers, nulls)
        for count, batch in ((1, 300), (7, 64), (40, 100), (290, 300), (400, 300)):
            np.testing.assert_array_equal(
                np.array(found(vectors, query, metric, count, batch)),
                np.array(exact(vectors, query, metric, count)),
            )


def test_nearest_rows_of_many_compute_few_exact_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, query = unusual("usual", np.random.default_rng(3))
    compared: list[int] = []

    def count_distances(*arguments: object) -> tuple[np.ndarray, np.ndarray]:
        compared.append(len(arguments[1]))  # type: ignore[arg-type]
        return nearest_distances(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(nearest_rows, "nearest_distances", count_distances)
    found(column(numbers), query, "l2", 5, 50)
    assert sum(compared) < 40
