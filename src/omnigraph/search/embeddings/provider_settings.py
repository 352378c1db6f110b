"""The configuration of an embedding provider, read from environment variables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.search.embeddings.embedder import Embedder

Provider: TypeAlias = Literal[
    "openai-compatible", "openai", "gemini", "mock", "onnx", "sentence-transformers"
]
PROVIDERS: Final[tuple[str, ...]] = get_args(Provider)
# The provider that the environment selects, as the name of a provider in a schema.
DEFAULT_PROVIDER: Final = "default"

MOCK_VARIABLE: Final = "OMNIGRAPH_EMBEDDINGS_MOCK"
PROVIDER_VARIABLE: Final = "OMNIGRAPH_EMBED_PROVIDER"
MODEL_VARIABLE: Final = "OMNIGRAPH_EMBED_MODEL"
URL_VARIABLE: Final = "OMNIGRAPH_EMBED_BASE_URL"
MODEL_FOLDER_VARIABLE: Final = "OMNIGRAPH_EMBED_MODEL_DIR"

# Providers that run a model of a local folder.
LOCAL_PROVIDERS: Final = frozenset({"onnx", "sentence-transformers"})
# For each provider over HTTP: its default URL, its default model, and the variables that may hold its API key.
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


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """The configuration of a provider. The API key is not part of the representation or of any message.

    `requests_per_minute` is the most requests that a process sends; 0 sets no limit. `folder` has the models of a
    local provider.
    """

    provider: Provider
    model: str = ""
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    timeout: float = 30.0
    deadline: float = 60.0
    attempts: int = 4
    backoff: float = 0.2
    requests_per_minute: float = 0.0
    folder: str = ""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> EmbeddingSettings:
        """Read the settings from environment variables; raise `InvalidInput` for an unknown provider or an
        invalid value.

        >>> EmbeddingSettings.of({"OMNIGRAPH_EMBEDDINGS_MOCK": "1"}).provider
        'mock'
        """
        variables = {name: value.strip() for name, value in environment.items()}
        if is_mocked(variables):
            return cls("mock", "mock")
        provider = variables.get(PROVIDER_VARIABLE) or "openai-compatible"
        if provider == "mock":
            return cls("mock", "mock")
        if provider in LOCAL_PROVIDERS:
            return cls._of_local_model(cast(Provider, provider), variables)
        if provider not in _DEFAULTS:
            known = ", ".join(PROVIDERS)
            raise InvalidInput(
                f"{PROVIDER_VARIABLE} names an unknown provider '{provider}'", hint=f"use one of {known}"
            )
        base_url, model, keys = _DEFAULTS[provider]
        key = next((variables[name] for name in keys if variables.get(name)), "")
        base_url = variables.get(URL_VARIABLE) or base_url
        if not key and not variables.get(URL_VARIABLE):
            raise InvalidInput(
                f"the embedding provider '{provider}' needs a key",
                hint=f"set {' or '.join(keys)}, or set {MOCK_VARIABLE}=1 for vectors without a model",
            )
        if not key.isascii() or not key.isprintable():
            raise InvalidInput(f"the key of the embedding provider '{provider}' is not ASCII text")
        return cls(
            cast(Provider, provider),
            variables.get(MODEL_VARIABLE) or model,
            base_url.rstrip("/"),
            key,
            _milliseconds(variables, "OMNIGRAPH_EMBED_TIMEOUT_MS", 30_000),
            _milliseconds(variables, "OMNIGRAPH_EMBED_DEADLINE_MS", 60_000) or math.inf,
            max(1, int(_number(variables, "OMNIGRAPH_EMBED_RETRY_ATTEMPTS", 4))),
            _milliseconds(variables, "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS", 200),
            _number(variables, "OMNIGRAPH_EMBED_REQUESTS_PER_MINUTE", 0),
        )

    @classmethod
    def _of_local_model(cls, provider: Provider, variables: Mapping[str, str]) -> EmbeddingSettings:
        folder = variables.get(MODEL_FOLDER_VARIABLE)
        if not folder:
            raise InvalidInput(
                f"the embedding provider '{provider}' needs the folder of its models",
                hint=f"set {MODEL_FOLDER_VARIABLE} to a local folder; each folder in it is a model",
            )
        return cls(provider, variables.get(MODEL_VARIABLE) or "", folder=folder)

    def open(self, *, documents: bool = False) -> Embedder:
        """Return the provider. `documents` selects embeddings of documents rather than of search queries. Sends
        nothing.
        """
        if self.provider == "mock":
            from omnigraph.search.embeddings.embedder import MockEmbedder

            return MockEmbedder()
        if self.provider in LOCAL_PROVIDERS:
            from omnigraph.search.embeddings.local_models import ModelFolder

            return ModelFolder(Path(self.folder), self.model)
        from omnigraph.search.embeddings.http_provider import HttpEmbedder

        return HttpEmbedder(self, documents)


def is_mocked(environment: Mapping[str, str]) -> bool:
    """Return whether a variable selects the mock provider for everything."""
    return environment.get(MOCK_VARIABLE, "").strip().lower() not in ("", "0", "false")


def _milliseconds(variables: Mapping[str, str], variable: str, default: float) -> float:
    return _number(variables, variable, default) / 1000


def _number(variables: Mapping[str, str], variable: str, default: float) -> float:
    text = variables.get(variable) or str(default)
    if not text.isascii() or not text.replace(".", "", 1).isdigit():
        raise InvalidInput(f"{variable} must be a number of at least 0, got '{text}'")
    return float(text)
