"""Embedding providers that are reached over HTTP, and the one that an environment names.

A provider is asked for nothing before the first text: a graph that ranks by no text needs none. Vectors come at
length 1, whatever the provider does, so that distances mean the same for all of them.
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

Provider: TypeAlias = Literal["openai-compatible", "openai", "gemini", "mock"]

MOCK_VARIABLE: Final = "OMNIGRAPH_EMBEDDINGS_MOCK"
PROVIDER_VARIABLE: Final = "OMNIGRAPH_EMBED_PROVIDER"

_VARIABLES = ("OMNIGRAPH_EMBED", "OPENROUTER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
# Where a provider is, what it is asked for when nobody says, and the variables that may hold its key.
_KNOWN: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
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
_TRY_AGAIN = frozenset({408, 409, 425, 429})


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """A provider, where it is, and how long it is waited for. The key is in no text that this makes."""

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
        """The settings that an environment has, or `InvalidInput` for what cannot be meant.

        >>> EmbeddingSettings.of({"OMNIGRAPH_EMBEDDINGS_MOCK": "1"}).provider
        'mock'
        """
        given = {name: value.strip() for name, value in environment.items()}
        if given.get(MOCK_VARIABLE, "").lower() not in ("", "0", "false"):
            return cls("mock", "mock")
        provider = given.get(PROVIDER_VARIABLE) or "openai-compatible"
        if provider == "mock":
            return cls("mock", "mock")
        if provider not in _KNOWN:
            known = ", ".join(get_args(Provider))
            raise InvalidInput(f"{PROVIDER_VARIABLE} is '{provider}'", hint=f"one of {known}")
        base_url, model, keys = _KNOWN[provider]
        key = next((given[name] for name in keys if given.get(name)), "")
        base_url = given.get("OMNIGRAPH_EMBED_BASE_URL") or base_url
        if not key and not given.get("OMNIGRAPH_EMBED_BASE_URL"):
            raise InvalidInput(
                f"the embedding provider '{provider}' needs a key",
                hint=f"set {' or '.join(keys)}, or {MOCK_VARIABLE}=1 for vectors without a model",
            )
        if not key.isascii() or not key.isprintable():
            raise InvalidInput(f"the key of the embedding provider '{provider}' is not ASCII text")
        return cls(
            cast(Provider, provider),
            given.get("OMNIGRAPH_EMBED_MODEL") or model,
            base_url.rstrip("/"),
            key,
            _milliseconds(given, "OMNIGRAPH_EMBED_TIMEOUT_MS", 30_000),
            _milliseconds(given, "OMNIGRAPH_EMBED_DEADLINE_MS", 60_000) or math.inf,
            max(1, int(_number(given, "OMNIGRAPH_EMBED_RETRY_ATTEMPTS", 4))),
            _milliseconds(given, "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS", 200),
        )

    def open(self, *, documents: bool = False) -> Embedder:
        """The provider, for texts to look for or for those to be found. Nothing is sent yet."""
        return MockEmbedder() if self.provider == "mock" else HttpEmbedder(self, documents)


@dataclass(frozen=True)
class EnvironmentEmbedder:
    """The provider that an environment names, which is looked at when the first text comes."""

    environment: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> EnvironmentEmbedder:
        """The provider of an environment, of which no more is kept: a handle takes it along to other processes."""
        return cls({name: value for name, value in environment.items() if name.startswith(_VARIABLES)})

    @cached_property
    def _found(self) -> Embedder:
        return EmbeddingSettings.of(self.environment).open()

    def embed(self, texts: Sequence[str], dim: int, model: str | None) -> npt.NDArray[np.float32]:
        """See `Embedder`."""
        return self._found.embed(texts, dim, model)


@dataclass(frozen=True)
class HttpEmbedder:
    """A provider behind HTTP. `documents` says that the texts are what others look for."""

    settings: EmbeddingSettings
    documents: bool = False

    def embed(self, texts: Sequence[str], dim: int, model: str | None) -> npt.NDArray[np.float32]:
        """See `Embedder`. A provider that cannot be reached or makes no sense is a `StorageError`."""
        found = [
            self._vectors(texts[start : start + _BATCH], dim, model or self.settings.model)
            for start in range(0, len(texts), _BATCH)
        ]
        return to_unit_length(np.concatenate(found)) if found else np.empty((0, dim), np.float32)

    def _vectors(self, texts: Sequence[str], dim: int, model: str) -> npt.NDArray[np.float64]:
        if self.settings.provider == "gemini":
            answer = self._ask(f"/models/{model}:batchEmbedContents", self._gemini(texts, dim, model))
            listed = [item.get("values") for item in _member(answer, "embeddings")]
        else:
            answer = self._ask("/embeddings", {"model": model, "input": list(texts), "dimensions": dim})
            items = _member(answer, "data")
            # They may come in any order; who numbers none gives them in ours.
            by_place = {str(item.get("index", at)): item.get("embedding") for at, item in enumerate(items)}
            listed = [by_place.get(str(place)) for place in range(len(items))]
        return _checked(listed, len(texts), dim)

    def _gemini(self, texts: Sequence[str], dim: int, model: str) -> dict[str, Any]:
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

    def _ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer to a request; one that may go better the next time is sent again."""
        import httpx

        settings = self.settings
        until = time.monotonic() + settings.deadline
        headers = {}
        if settings.api_key:
            gemini = settings.provider == "gemini"
            name, value = ("x-goog-api-key", "") if gemini else ("Authorization", "Bearer ")
            headers[name] = value + settings.api_key
        failure = "nothing was tried"
        for attempt in range(settings.attempts):
            left = until - time.monotonic()
            if left <= 0:
                break
            try:
                response = httpx.post(
                    settings.base_url + path,
                    json=body,
                    headers=headers,
                    timeout=min(settings.timeout, left),
                )
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                failure = f"{type(error).__name__}: {error}"
            else:
                if response.status_code == httpx.codes.OK:
                    return _parsed(response.json)
                failure = f"it answered {response.status_code}"
                if response.status_code < 500 and response.status_code not in _TRY_AGAIN:
                    break
            if attempt + 1 < settings.attempts:
                time.sleep(max(0.0, min(settings.backoff * 2**attempt, until - time.monotonic())))
        raise StorageError(
            f"the embedding provider at {settings.base_url} gave no vectors: {failure}",
            details={"provider": settings.provider},
            hint="look at its address, model and key; vectors in place of texts need no provider",
        )


def _parsed(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ValueError as error:
        raise _senseless("no JSON") from error


def _member(answer: Any, name: str) -> list[dict[str, Any]]:
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise _senseless(f"no list `{name}`")
    return found


def _checked(listed: list[Any], count: int, dim: int) -> npt.NDArray[np.float64]:
    try:
        found = np.array(listed, np.float64)
    except (TypeError, ValueError) as error:
        raise _senseless("something that is no vector") from error
    if found.shape != (count, dim):
        raise _senseless(f"vectors of another shape: {found.shape} where {(count, dim)} was asked for")
    if not np.isfinite(found).all() or not found.any(axis=1).all():
        raise _senseless("a vector without a direction")
    return found


def _senseless(what: str) -> StorageError:
    return StorageError(f"the embedding provider answered {what}", hint="look at its address and model")


def _milliseconds(given: Mapping[str, str], variable: str, default: float) -> float:
    return _number(given, variable, default) / 1000


def _number(given: Mapping[str, str], variable: str, default: float) -> float:
    text = given.get(variable) or str(default)
    if not text.isascii() or not text.replace(".", "", 1).isdigit():
        raise InvalidInput(f"{variable} must be a number of at least 0, not '{text}'")
    return float(text)
