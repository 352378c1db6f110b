"""Records of embeddings: which model and which text a stored vector belongs to.

A record is the text ``MODEL DIGEST`` in a property next to the vector. It depends only on the model that the schema
names and on the text, so it is compared on any branch, after any merge and in any past state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import Enum
from typing import Any, Final

import pyarrow as pa

from omnigraph.lang.schema import Embed

# The digest of a vector that was given without its text.
GIVEN: Final = "given"


def embedding_record(embed: Embed, text: str) -> str:
    """Return the record of the vector of a text.

    >>> embedding_record(Embed("body", "small", "openai"), "tea")
    'small 833ede412aad05219a1b924c1fe8a5cd'
    """
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{embed.recorded_model} {digest}"


def given_record(embed: Embed) -> str:
    """Return the record of a vector that was given without its text.

    >>> given_record(Embed("body", None, "mock"))
    'mock given'
    """
    return f"{embed.recorded_model} {GIVEN}"


def recorded_model(record: str) -> str:
    """Return the model of a record; model names may have spaces.

    >>> recorded_model("my model 5936df6e0d6bf1f6fdd7af0a51e7f36f")
    'my model'
    """
    return record.rpartition(" ")[0]


def record_array(embed: Embed, texts: Iterable[Any]) -> pa.Array:
    """Return the records of given vectors with these texts; a text may be null."""
    given = given_record(embed)
    return pa.array([given if text is None else embedding_record(embed, text) for text in texts], pa.string())


class EmbeddingState(Enum):
    """How the vector of a row relates to its text and to the model of the schema.

    A vector is `UNRECORDED` if it was stored before its property had a provider. A row without a text needs no
    vector: its state is `EMPTY`.
    """

    CURRENT = "current"
    STALE = "stale"
    MISSING = "missing"
    UNRECORDED = "unrecorded"
    EMPTY = "empty"


def state_of(embed: Embed, text: str | None, record: str | None, *, has_vector: bool) -> EmbeddingState:
    """Return the state of the vector of a row.

    >>> embed = Embed("body", "small", "openai")
    >>> state_of(embed, "tea", embedding_record(embed, "coffee"), has_vector=True)
    <EmbeddingState.STALE: 'stale'>
    """
    if not has_vector:
        return EmbeddingState.EMPTY if text is None else EmbeddingState.MISSING
    if record is None:
        return EmbeddingState.UNRECORDED
    if record == given_record(embed) or (text is not None and record == embedding_record(embed, text)):
        return EmbeddingState.CURRENT
    return EmbeddingState.STALE
