"""Embeddings: the provider protocol, and a deterministic provider without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from omnigraph.errors import InvalidInput
from omnigraph.search.vector_distance import sum_squares

_FNV_BASIS = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
_MAX = 2**64 - 1


class Embedder(Protocol):
    """An embedding provider."""

    def embed(self, texts: Sequence[str], dim: int, model: str | None) -> npt.NDArray[np.float32]:
        """Return one vector of `dim` numbers per text, as an array of shape (number of texts, `dim`).

        `model` is the name of the model; None selects the provider's default.
        """


class MockEmbedder:
    """A deterministic provider for tests: equal texts have equal vectors, and different texts unrelated ones.

    The seed is the 64-bit FNV-1a hash of the text's UTF-8 bytes. Each number is derived from the next xorshift64
    state (left 13, right 7, left 17): state 0 maps to -1 and 2**64 - 1 to 1. The vector is then normalized to
    length 1. Zero is a fixed point of xorshift, so a text that hashes to 0 is seeded with FNV's offset basis, as
    the empty text is. The model is ignored.

    >>> MockEmbedder().embed(["hello"], 3, None).round(3)
    array([[-0.423,  0.689,  0.589]], dtype=float32)
    """

    def embed(self, texts: Sequence[str], dim: int, model: str | None) -> npt.NDArray[np.float32]:  # noqa: ARG002
        """See `Embedder`. Raises `InvalidInput` for a text with a lone surrogate and for a `dim` below 1."""
        if dim < 1:
            raise InvalidInput(f"a vector needs at least 1 dimension, got {dim}")
        state = np.array([_fnv1a(text) or _FNV_BASIS for text in texts], np.uint64)
        numbers = np.empty((len(texts), dim))
        for column in range(dim):
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            numbers[:, column] = state / _MAX * 2 - 1
        return to_unit_length(numbers)


def _fnv1a(text: str) -> int:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput("a text to embed must be valid Unicode, without lone surrogates") from error
    value = _FNV_BASIS
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & _MAX
    return value


def to_unit_length(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Normalize each row to length 1. Rows of zeros stay zero."""
    lengths = np.sqrt(sum_squares(rows))
    lengths[lengths == 0] = 1
    return (rows / lengths[:, None]).astype(np.float32)
