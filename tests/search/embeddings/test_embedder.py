"""The mock provider's vectors are a function of the text, the same everywhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import InvalidInput
from omnigraph.search.embeddings.embedder import Embedder, MockEmbedder, _fnv1a, to_unit_length

MASK = 2**64 - 1
EMBEDDER: Embedder = MockEmbedder()


def naive_vector(text: str, dim: int) -> list[float]:
    seed = 14695981039346656037
    for byte in text.encode():
        seed = (seed ^ byte) * 1099511628211 % 2**64
    numbers = []
    for _ in range(dim):
        seed ^= seed << 13 & MASK
        seed ^= seed >> 7
        seed ^= seed << 17 & MASK
        numbers.append(seed / MASK * 2 - 1)
    length = math.sqrt(math.fsum(number * number for number in numbers))
    return [number / length for number in numbers]


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
)
def test_fnv1a_of_published_vectors_matches(text: str, value: int) -> None:
    assert _fnv1a(text) == value


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=20), max_size=5), st.integers(1, 40))
def test_mock_embedding_matches_its_definition(texts: list[str], dim: int) -> None:
    found = EMBEDDER.embed(texts, dim, None)
    assert (found.shape, str(found.dtype)) == ((len(texts), dim), "float32")
    for row, text in zip(found.tolist(), texts, strict=True):
        assert row == pytest.approx(naive_vector(text, dim), abs=1e-7)


def test_mock_embedding_depends_only_on_the_text() -> None:
    texts = [f"text {n}" for n in range(50)]
    together = EMBEDDER.embed(texts, 100, None)
    alone = np.concatenate([EMBEDDER.embed([text], 100, "some-model") for text in texts])
    assert together.tobytes() == alone.tobytes()


def test_mock_embedding_has_unit_length_and_both_signs() -> None:
    found = EMBEDDER.embed([f"text {n}" for n in range(200)], 64, None).astype(np.float64)
    assert np.allclose((found * found).sum(axis=1), 1, atol=1e-6)
    assert abs(found.mean()) < 0.01
    assert len({row.tobytes() for row in found}) == 200


def test_mock_embedding_of_known_text_is_stable() -> None:
    found = EMBEDDER.embed(["omnigraph"], 4, None)[0].tolist()
    assert found == pytest.approx([-0.52871599, 0.51045397, -0.45470702, 0.50312788], abs=1e-7)


def test_mock_embedding_of_text_with_hash_zero_equals_that_of_the_empty_text() -> None:
    assert _fnv1a("77kepQFQ8Kl") == 0
    found = EMBEDDER.embed(["77kepQFQ8Kl", ""], 16, None)
    assert found[0].tolist() == found[1].tolist()
    assert len(set(found[0].tolist())) == 16


def test_to_unit_length_of_zero_row_returns_zeros() -> None:
    assert to_unit_length(np.array([[0.0, 0.0], [3.0, 4.0]])).round(6).tolist() == [
        [0.0, 0.0],
        pytest.approx([0.6, 0.8]),
    ]


def test_mock_embedding_of_lone_surrogate_is_refused() -> None:
    with pytest.raises(InvalidInput, match="lone surrogates"):
        EMBEDDER.embed(["fine", "\ud800"], 3, None)


def test_mock_embedding_with_dimension_zero_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 1 dimension, got 0"):
        EMBEDDER.embed(["a"], 0, None)
