"""The providers of a graph: one for all properties, or several that the schema names.

No request is sent before the first text is embedded. Vectors are normalized to length 1 for every provider of this
package, so that distances are comparable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from omnigraph.errors import InvalidInput
from omnigraph.search.embeddings.embedder import Embedder, MockEmbedder
from omnigraph.search.embeddings.provider_settings import (
    DEFAULT_PROVIDER,
    MODEL_VARIABLE,
    PROVIDER_VARIABLE,
    PROVIDERS,
    URL_VARIABLE,
    EmbeddingSettings,
    is_mocked,
)

CACHE_VARIABLE: Final = "OMNIGRAPH_EMBED_CACHE"
_VARIABLES = ("OMNIGRAPH_EMBED", "OPENROUTER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")


@runtime_checkable
class ProviderRegistry(Protocol):
    """An embedder that has a provider for each name in a schema."""

    def provider_for(self, name: str, *, documents: bool) -> Embedder:
        """Return the provider with a name; raise `InvalidInput` if there is none. Sends nothing."""


def find_provider(embedder: Embedder | None, name: str | None, *, documents: bool = False) -> Embedder:
    """Return the provider that a graph uses for a name in its schema; None is the default provider.

    An embedder without names is used for every name. Without an embedder only the mock provider exists. Raises
    `InvalidInput` if there is no provider.
    """
    if embedder is None:
        if name == "mock":
            return MockEmbedder()
        provider = "no embedding provider" if name is None else f"no embedding provider '{name}'"
        raise InvalidInput(
            f"the graph has {provider}",
            hint="open it with `embedder=`, or give vectors; the command line reads OMNIGRAPH_EMBED_PROVIDER",
        )
    if isinstance(embedder, ProviderRegistry):
        return embedder.provider_for(DEFAULT_PROVIDER if name is None else name, documents=documents)
    return embedder


@dataclass(frozen=True)
class EnvironmentEmbedder:
    """The providers that environment variables configure. The variables are read when a text is embedded."""

    environment: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> EnvironmentEmbedder:
        """Keep only the variables of embedding providers, because a handle may be sent to other processes."""
        kept = {name: value for name, value in environment.items() if name.startswith(_VARIABLES)}
        return cls({CACHE_VARIABLE: _default_cache(environment), **kept})

    def __reduce__(self) -> tuple[Any, ...]:
        return EnvironmentEmbedder, (dict(self.environment),)

    @property
    def cache_file(self) -> Path | None:
        """The file with cached vectors; None without a cache."""
        folder = self.environment.get(CACHE_VARIABLE, "").strip()
        return None if folder.lower() in ("", "0", "off") else Path(folder) / "embeddings-1.sqlite"

    @cached_property
    def _opened(self) -> dict[tuple[str, bool], Embedder]:
        return {}

    def provider_for(self, name: str, *, documents: bool) -> Embedder:
        """See `ProviderRegistry`. Settings of another provider than the selected one do not apply to it."""
        key = name, documents
        if key not in self._opened:
            self._opened[key] = EmbeddingSettings.of(self._variables_for(name)).open(documents=documents)
        return self._opened[key]

    def _variables_for(self, name: str) -> Mapping[str, str]:
        selected = self.environment.get(PROVIDER_VARIABLE, "").strip() or "openai-compatible"
        if name in (DEFAULT_PROVIDER, selected) or is_mocked(self.environment):
            return self.environment
        if name not in PROVIDERS:
            known = ", ".join([DEFAULT_PROVIDER, *PROVIDERS])
            raise InvalidInput(
                f"the schema names an embedding provider '{name}' that the environment does not have",
                hint=f"use one of {known}; in Python, pass `embedder={{'{name}': …}}`",
            )
        other = {
            key: value for key, value in self.environment.items() if key not in (URL_VARIABLE, MODEL_VARIABLE)
        }
        return {**other, PROVIDER_VARIABLE: name}

    def embed(self, texts: Sequence[str], dim: int, model: str | None) -> npt.NDArray[np.float32]:
        """See `Embedder`."""
        return self.provider_for(DEFAULT_PROVIDER, documents=False).embed(texts, dim, model)

    def close(self) -> None:
        """Close the connections to the providers. A later call of `embed` opens new ones."""
        for provider in self._opened.values():
            close_provider(provider)


def close_provider(embedder: Embedder | None) -> None:
    """Close the connections of a provider of this package. Other embedders belong to their caller."""
    from omnigraph.search.embeddings.http_provider import HttpEmbedder

    if isinstance(embedder, EnvironmentEmbedder | HttpEmbedder):
        embedder.close()


def _default_cache(environment: Mapping[str, str]) -> str:
    """Return the folder of cached vectors: that of the user's caches."""
    folder = environment.get("XDG_CACHE_HOME", "").strip()
    if not folder and environment.get("HOME", "").strip():
        folder = str(Path(environment["HOME"]) / ".cache")
    return str(Path(folder) / "omnigraph") if folder else ""
