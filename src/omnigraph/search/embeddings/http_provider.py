"""Embedding providers over HTTP: the OpenAI-compatible API and Gemini."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.budget.deadline import check_deadline, current_deadline
from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.search.embeddings.embedder import to_unit_length
from omnigraph.search.embeddings.provider_client import ProviderClient
from omnigraph.search.embeddings.provider_settings import EmbeddingSettings
from omnigraph.search.embeddings.request_rate import RequestRate

BATCH = 64
_RETRIED_STATUS = frozenset({408, 409, 425, 429})
# A cancelled request is noticed within this time.
_INTERVAL = 0.1
_TRANSIENT: StorageErrorKind = "transient"
_PERMANENT: StorageErrorKind = "permanent"


@dataclass(frozen=True)
class HttpEmbedder:
    """A provider over HTTP. `documents` means that the texts are documents rather than search queries.

    All requests use one connection pool.
    """

    settings: EmbeddingSettings
    documents: bool = False
    _client: ProviderClient = field(default_factory=ProviderClient, init=False, repr=False, compare=False)
    _rate: RequestRate = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rate", RequestRate(self.settings.requests_per_minute))

    @property
    def cache_key(self) -> str:
        """What determines the vector of a text besides the model and the dimension."""
        return f"{self.settings.provider} {self.settings.base_url}"

    @property
    def default_model(self) -> str:
        """The model that is used when the caller names none."""
        return self.settings.model

    def embed(self, texts: Sequence[str], dim: int, model: str | None) -> npt.NDArray[np.float32]:
        """See `Embedder`. Raises `StorageError` if the provider is unreachable or its response is invalid."""
        batches = [
            self._vectors(texts[start : start + BATCH], dim, model or self.settings.model)
            for start in range(0, len(texts), BATCH)
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
        failure, kind = "the deadline passed before the first request", _TRANSIENT
        wait = 0.0
        for attempt in range(settings.attempts):
            wait = max(wait, self._rate.reserve())
            if not _sleep(wait, until):
                break
            try:
                with self._client.request() as client:
                    response = client.post(
                        settings.base_url + path,
                        json=body,
                        headers=headers,
                        timeout=min(settings.timeout, _left(until)),
                    )
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                failure = f"{type(error).__name__}: {error}"
                wait = settings.backoff * 2**attempt
            else:
                if response.status_code == httpx.codes.OK:
                    return _parse(response.json)
                failure = f"HTTP status {response.status_code}"
                if response.status_code < 500 and response.status_code not in _RETRIED_STATUS:
                    kind = _PERMANENT
                    break
                wait = max(settings.backoff * 2**attempt, _retry_after(response.headers))
        check_deadline()
        raise StorageError(
            f"the embedding provider at {settings.base_url} returned no vectors: {failure}",
            kind=kind,
            details={"provider": settings.provider},
            hint="check its URL, model and key; a query with a vector instead of a text needs no provider",
        )


def _left(until: float) -> float:
    """Return the seconds until a time, or until the deadline of the current work if that is earlier."""
    left = until - time.monotonic()
    found = current_deadline()
    outer = None if found is None else found.left
    return left if outer is None else min(left, outer)


def _sleep(seconds: float, until: float) -> bool:
    """Wait before a request; return whether there is time for it. A cancelled request ends soon."""
    end = time.monotonic() + seconds
    if _left(until) <= seconds:
        return False
    while (rest := end - time.monotonic()) > 0:
        check_deadline()
        time.sleep(min(rest, _INTERVAL))
    return True


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that a provider asks to wait; 0 if it names none."""
    value = headers.get("retry-after", "").strip()
    return float(value) if value.isascii() and value.isdigit() else 0.0


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
    return StorageError(
        f"the embedding provider returned {content}", kind=_PERMANENT, hint="check its URL and model"
    )
