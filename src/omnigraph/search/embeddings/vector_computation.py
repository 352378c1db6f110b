"""The computation of vectors for texts that are stored: each text once, from the cache where it is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.errors import InvalidInput
from omnigraph.lang.schema import Embed
from omnigraph.search.embeddings.embedder import Embedder
from omnigraph.search.embeddings.given_embedders import check_embeddings
from omnigraph.search.embeddings.providers import find_provider
from omnigraph.search.embeddings.vector_cache import FileCache, MemoryCache, vector_key

# Vectors are added to the cache after so many texts, so that an interrupted write does not lose all of them.
_PART = 512


class VectorComputation:
    """Computes vectors with the providers of a graph. Thread-safe. A pickled copy has its own memory cache.

    Vectors of providers over HTTP are also cached in a file.
    """

    def __init__(self, embedder: Embedder | None) -> None:
        self.embedder = embedder
        self._memory = MemoryCache()

    def __reduce__(self) -> tuple[Any, ...]:
        return VectorComputation, (self.embedder,)

    def compute(self, embed: Embed, dim: int, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return one vector per text, in the order of the texts.

        Raises `InvalidInput` if the graph does not have the provider or another model than the schema names, and
        the errors of the provider.
        """
        provider = find_provider(self.embedder, embed.provider, documents=True)
        check_model(provider, embed)
        name = getattr(provider, "cache_key", None)
        file = self._file() if isinstance(name, str) else None
        model = embed.model or getattr(provider, "default_model", None)
        known = str(name) if isinstance(name, str) else f"provider {embed.provider}"
        keys = [vector_key(known, model, dim, text) for text in texts]
        distinct = dict(zip(keys, texts, strict=True))
        found = self._memory.find(list(distinct))
        unknown = [key for key in distinct if key not in found]
        if unknown and file is not None:
            cached = file.find(unknown)
            self._memory.add(cached)
            found.update(cached)
            unknown = [key for key in unknown if key not in found]
        for start in range(0, len(unknown), _PART):
            part = unknown[start : start + _PART]
            vectors = provider.embed([distinct[key] for key in part], dim, embed.model)
            computed = dict(zip(part, check_embeddings(vectors, len(part), dim), strict=True))
            self._memory.add(computed)
            if file is not None:
                file.add(computed)
            found.update(computed)
        result: npt.NDArray[np.float32] = np.empty((len(keys), dim), np.float32)
        for position, key in enumerate(keys):
            result[position] = found[key]
        return result

    def _file(self) -> FileCache | None:
        path = getattr(self.embedder, "cache_file", None)
        return FileCache(path) if isinstance(path, Path) else None


def check_model(provider: Embedder, embed: Embed) -> None:
    """Raise `InvalidInput` if a provider has only one model and the schema names another one."""
    only = getattr(provider, "model", None)
    if isinstance(only, str) and embed.model is not None and only != embed.model:
        raise InvalidInput(
            f"the embedding provider has the model '{only}', but the schema names the model '{embed.model}'",
            details={"provider_model": only, "schema_model": embed.model},
            hint="vectors of two models cannot be compared; change the provider, or the model in the schema",
        )
