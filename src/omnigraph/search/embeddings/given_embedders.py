"""Embedders that a caller passes: objects, functions, and mappings from the provider names of a schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph.errors import InvalidInput
from omnigraph.search.embeddings.embedder import Embedder
from omnigraph.search.embeddings.provider_settings import DEFAULT_PROVIDER

# A function of the texts, or of the texts, the dimension and the model, that returns a vector per text.
EmbedFunction: TypeAlias = Callable[..., Any]
EmbedderInput: TypeAlias = Embedder | EmbedFunction | Mapping[str, Embedder | EmbedFunction]


@dataclass(frozen=True)
class FunctionEmbedder:
    """A function as an embedder. Its vectors are checked, and used as they are."""

    function: EmbedFunction
    takes_texts_only: bool

    @classmethod
    def of(cls, function: EmbedFunction) -> FunctionEmbedder:
        """Return the embedder of a function. Raises `InvalidInput` for one with other parameters.

        >>> FunctionEmbedder.of(lambda texts: [[len(text), 1.0] for text in texts]).embed(["ab"], 2, None)
        array([[2., 1.]], dtype=float32)
        """
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return cls(function, takes_texts_only=True)
        for count in (3, 1):
            try:
                signature.bind(*range(count))
            except TypeError:
                continue
            return cls(function, takes_texts_only=count == 1)
        raise InvalidInput(
            "an embedding function takes the texts, or the texts, the dimension and the model",
            details={"signature": str(signature)},
        )

    @property
    def model(self) -> str | None:
        """The only model of the function, if it names one in an attribute."""
        found = getattr(self.function, "model", None)
        return found if isinstance(found, str) else None

    def embed(self, texts: Sequence[str], dim: int, model: str | None) -> npt.NDArray[np.float32]:
        """See `Embedder`."""
        given = list(texts)
        return check_embeddings(
            self.function(given) if self.takes_texts_only else self.function(given, dim, model),
            len(given),
            dim,
        )


@dataclass(frozen=True)
class EmbedderMapping:
    """Embedders by the provider names of a schema. The entry ``default`` is used for all other names."""

    embedders: Mapping[str, Embedder]

    def provider_for(self, name: str, *, documents: bool) -> Embedder:  # noqa: ARG002 - part of the protocol
        """See `ProviderRegistry`."""
        found = self.embedders.get(name) or self.embedders.get(DEFAULT_PROVIDER)
        if found is None and name == DEFAULT_PROVIDER and len(self.embedders) == 1:
            found = next(iter(self.embedders.values()))
        if found is None:
            known = ", ".join(f"'{item}'" for item in sorted(self.embedders))
            raise InvalidInput(
                f"the graph has no embedding provider '{name}'",
                hint=f"`embedder=` has {known or 'no entries'}",
            )
        return found

    def embed(self, texts: Sequence[str], dim: int, model: str | None) -> npt.NDArray[np.float32]:
        """See `Embedder`. Uses the default provider."""
        return self.provider_for(DEFAULT_PROVIDER, documents=False).embed(texts, dim, model)


def as_embedder(given: EmbedderInput | None) -> Embedder | None:
    """Return the embedder of an argument; raise `InvalidInput` for a value that is none."""
    if given is None:
        return None
    if isinstance(given, Mapping) and not hasattr(given, "embed"):
        return EmbedderMapping({str(name): _required(item) for name, item in given.items()})
    return _required(given)


def _required(given: Any) -> Embedder:
    if hasattr(given, "embed"):
        embedder: Embedder = given
        return embedder
    if not callable(given):
        raise InvalidInput(
            f"an embedder is a function or an object with the method `embed`, got {type(given).__name__}"
        )
    return FunctionEmbedder.of(given)


def check_embeddings(vectors: Any, count: int, dim: int) -> npt.NDArray[np.float32]:
    """Return the vectors of an embedder as an array; raise `InvalidInput` for another shape or value."""
    try:
        found = np.asarray(vectors, np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidInput("the embedder returned values that are not vectors of numbers") from error
    if found.shape != (count, dim):
        raise InvalidInput(
            f"the embedder returned an array of shape {found.shape}, expected {(count, dim)}: "
            f"one vector of {dim} numbers for each text",
            hint="the dimension of the model must be that of the Vector property",
        )
    if not np.isfinite(found).all():
        raise InvalidInput("the embedder returned a vector with a number that is not finite")
    return found
