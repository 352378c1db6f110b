"""Embedding providers over HTTP, and the selection of a provider by environment variables.

No request is sent before the first text is embedded. Vectors are normalized to length 1 for every provider, so
that distances are comparable.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt

from omnigraph.errors import InvalidInput, StorageError
from omnigraph.search.embedding import Embedder, MockEmbedder, to_unit_length
from omnigraph.search.provider_client import ProviderClient

Provider: TypeAlias = Literal["openai-compatible", "openai", "gemini", "mock"]

MOCK_VARIABLE: Final = "OMNIGRAPH_EMBEDDINGS_MOCK"
PROVIDER_VARIABLE: Final = "OMNIGRAPH_EMBED_PROVIDER"

_VARIABLES = ("OMNIGRAPH_EMBED", "OPENROUTER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
# For each provider: its default URL, its default model, and the variables that may hold its API key.
_DEFAULTS: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "openai-compatible": (
        "https://openrouter.ai/api/v1",
        "openai/text-embedding-3-large",
        ("OPENROUTER_API_KEY", "OPENAI_API_KEY"),
    ),
    "openai": ("https://api.openai.com/v1", "text-embedding-3-large", ("OPENAI_API_KEY",)),
    "gemini": (
        "https://generativelanguage.googleapis.com/v1beta",
        "gemini-embedding-2",
        ("GEMINI_API_KEY",),
    ),
}
_BATCH = 64
_RETRIED_STATUS = frozenset({408, 409, 425, 429})


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """The configuration of a provider. The API key is not part of the representation or of any message."""

    provider: Provider
    model: str = ""
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    timeout: float = 30.0
    deadline: float = 60.0
    attempts: int = 4
    backoff: float = 0.2

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> EmbeddingSettings:
        """Read the settings from environment variables; raise `InvalidInput` for an unknown provider or an
        invalid value.

        >>> EmbeddingSettings.of({"OMNIGRAPH_EMBEDDINGS_MOCK": "1"}).provider
        'mock'
        """
        variables = {name: value.strip() for name, value in environment.items()}
        if variables.get(MOCK_VARIABLE, "").lower() not in ("", "0", "false"):
            return cls("mock", "mock")
        provider = variables.get(PROVIDER_VARIABLE) or "openai-compatible"
        if provider == "mock":
            return cls("mock", "mock")
        if provider not in _DEFAULTS:
            known = ", ".join(get_args(Provider))
            raise InvalidInput(
                f"{PROVIDER_VARIABLE} names an unknown provider '{provider}'", hint=f"use one of {known}"
            )
        base_url, model, keys = _DEFAULTS[provider]
        key = next((variables[name] for name in keys if variables.get(name)), "")
        base_url = variables.get("OMNIGRAPH_EMBED_BASE_URL") or base_url
        if not key and not variables.get("OMNIGRAPH_EMBED_BASE_URL"):
            raise InvalidInput(
                f"the embedding provider '{provider}' needs a key",
                hint=f"set {' or '.join(keys)}, or set {MOCK_VARIABLE}=1 for vectors without a model",
            )
        if not key.isascii() or not key.isprintable():
            raise InvalidInput(f"the key of the embedding provider '{provider}' is not ASCII text")
        return cls(
            cast(Provider, provider),
            variables.get("OMNIGRAPH_EMBED_MODEL") or model,
            base_url.rstrip("/"),
            key,
            _milliseconds(variables, "OMNIGRAPH_EMBED_TIMEOUT_MS", 30_000),
            _milliseconds(variables, "OMNIGRAPH_EMBED_DEADLINE_MS", 60_000) or math.inf,
            max(1, int(_number(variables, "OMNIGRAPH_EMBED_RETRY_ATTEMPTS", 4))),
            _milliseconds(variables, "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS", 200),
        )

    def open(self, *, documents: bool = False) -> Embedder:
        """Return the provider. `documents` selects embeddings of documents rather than of search queries. Sends
        nothing.
        """
        return MockEmbedder() if self.provider == "mock" else HttpEmbedder(self, documents)


@dataclass(frozen=True)
class EnvironmentEmbedder:
    """The provider that environment variables select. The variables are read when the first text is embedded."""

    environment: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> EnvironmentEmbedder:
        """Keep only the variables of embedding providers, because a handle may be sent to other processes."""
        return cls({name: value for name, value in environment.items() if name.startswith(_VARIABLES)})

    @cached_property
    def _provider(self) -> Embedder:
        return EmbeddingSettings.of(self.environment).open()

    def embed(self, texts: Sequence[str], dim: int, model: str | None) -> npt.NDArray[np.float32]:
        """See `Embedder`."""
        return self._provider.embed(texts, dim, model)

    def close(self) -> None:
        """Close the connections to the provider. A later call of `embed` opens new ones."""
        # A provider that was never used is not in the cache of the property.
        provider = self.__dict__.get("_provider")
        if isinstance(provider, HttpEmbedder):
            provider.close()


@dataclass(frozen=True)
class HttpEmbedder:
    """A provider over HTTP. `documents` means that the texts are documents rather than search queries.

    All requests use one connection pool.
    """

    settings: EmbeddingSettings
    documents: bool = False
    _client: ProviderClient = field(default_factory=ProviderClient, init=False, repr=False, compare=False)

    def embed(self, texts: Sequence[str], dim: int, model: str | None) -> npt.NDArray[np.float32]:
        """See `Embedder`. Raises `StorageError` if the provider is unreachable or its response is invalid."""
        batches = [
            self._vectors(texts[start : start + _BATCH], dim, model or self.settings.model)
            for start in range(0, len(texts), _BATCH)
        ]
        return to_unit_length(np.concatenate(batches)) if batches else np.empty((0, dim), np.float32)

    def close(self) -> None:
        """Close the connections to the provider. A later call of `embed` opens new ones."""
        self._client.close()

    def _vectors(self, texts: Sequence[str], dim: int, model: str) -> npt.NDArray[np.float64]:
        if self.settings.provider == "gemini":
            response = self._post(f"/models/{model}:batchEmbedContents", self._gemini_body(texts, dim, model))
            listed = [item.get("values") for item in _list_member(response, "embeddings")]
        else:
            response = self._post("/embeddings", {"model": model, "input": list(texts), "dimensions": dim})
            items = _list_member(response, "data")
            # Items may be in any order. Items without an index are in the order of the texts.
            by_index = {str(item.get("index", at)): item.get("embedding") for at, item in enumerate(items)}
            listed = [by_index.get(str(place)) for place in range(len(items))]
        return _check_vectors(listed, len(texts), dim)

    def _gemini_body(self, texts: Sequence[str], dim: int, model: str) -> dict[str, Any]:
        task = "RETRIEVAL_DOCUMENT" if self.documents else "RETRIEVAL_QUERY"
        return {
            "requests": [
                {
                    "model": f"models/{model}",
                    "content": {"parts": [{"text": text}]},
                    "taskType": task,
                    "outputDimensionality": dim,
                }
                for text in texts
            ]
        }

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a request and return the JSON response. Retries after errors that may be temporary."""
        import httpx

        settings = self.settings
        until = time.monotonic() + settings.deadline
        headers = {}
        if settings.api_key:
            gemini = settings.provider == "gemini"
            name, value = ("x-goog-api-key", "") if gemini else ("Authorization", "Bearer ")
            headers[name] = value + settings.api_key
        failure = "the deadline passed before the first request"
        for attempt in range(settings.attempts):
            left = until - time.monotonic()
            if left <= 0:
                break
            try:
                with self._client.request() as client:
                    response = client.post(
                        settings.base_url + path,
                        json=body,
                        headers=headers,
                        timeout=min(settings.timeout, left),
                    )
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                failure = f"{type(error).__name__}: {error}"
            else:
                if response.status_code == httpx.codes.OK:
                    return _parse(response.json)
                failure = f"HTTP status {response.status_code}"
                if response.status_code < 500 and response.status_code not in _RETRIED_STATUS:
                    break
            if attempt + 1 < settings.attempts:
                time.sleep(max(0.0, min(settings.backoff * 2**attempt, until - time.monotonic())))
        raise StorageError(
            f"the embedding provider at {settings.base_url} returned no vectors: {failure}",
            details={"provider": settings.provider},
            hint="check its URL, model and key; a query with a vector instead of a text needs no provider",
        )


def close_provider(embedder: Embedder | None) -> None:
    """Close the connections of a provider of this module. Other embedders belong to their caller."""
    if isinstance(embedder, EnvironmentEmbedder | HttpEmbedder):
        embedder.close()


def _parse(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ValueError as error:
        raise _invalid_response("no JSON") from error


def _list_member(response: Any, name: str) -> list[dict[str, Any]]:
    items = response.get(name) if isinstance(response, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise _invalid_response(f"no list `{name}`")
    return items


def _check_vectors(listed: list[Any], count: int, dim: int) -> npt.NDArray[np.float64]:
    try:
        vectors = np.array(listed, np.float64)
    except (TypeError, ValueError) as error:
        raise _invalid_response("an item that is not a vector") from error
    if vectors.shape != (count, dim):
        raise _invalid_response(f"vectors of shape {vectors.shape}, expected {(count, dim)}")
    if not np.isfinite(vectors).all() or not vectors.any(axis=1).all():
        raise _invalid_response("a vector that is zero or not finite")
    return vectors


def _invalid_response(content: str) -> StorageError:
    return StorageError(f"the embedding provider returned {content}", hint="check its URL and model")


def _milliseconds(variables: Mapping[str, str], variable: str, default: float) -> float:
    return _number(variables, variable, default) / 1000


def _number(variables: Mapping[str, str], variable: str, default: float) -> float:
    text = variables.get(variable) or str(default)
    if not text.isascii() or not text.replace(".", "", 1).isdigit():
        raise InvalidInput(f"{variable} must be a number of at least 0, got '{text}'")
    return float(text)
