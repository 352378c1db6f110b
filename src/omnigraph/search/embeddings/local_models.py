"""Embedding models that run in this process, from local folders. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from omnigraph.errors import InvalidInput, NotFound
from omnigraph.extras import requires
from omnigraph.search.embeddings.embedder import Embedder, to_unit_length
from omnigraph.search.embeddings.given_embedders import check_embeddings

_BATCH = 32
_MAX_TOKENS = 512
_ONNX_FILES: Final = ("model.onnx", "onnx/model.onnx")
_SENTENCE_TRANSFORMERS: Final = "sentence_transformers"
_SENTENCE_TRANSFORMERS_FILE: Final = "modules.json"


def open_local_model(path: Path) -> Embedder:
    """Return the model in a local folder. Raises `NotFound` if the folder has none.

    A folder with ``model.onnx`` and ``tokenizer.json`` runs with onnxruntime, one with ``modules.json`` with
    sentence-transformers.
    """
    if any((path / name).is_file() for name in _ONNX_FILES) and (path / "tokenizer.json").is_file():
        return OnnxEmbedder(path)
    if (path / _SENTENCE_TRANSFORMERS_FILE).is_file():
        return SentenceTransformerEmbedder(path)
    raise NotFound(
        f"no embedding model in the folder {path}",
        hint="it needs model.onnx and tokenizer.json, or the files of a sentence-transformers model",
    )


@dataclass(frozen=True)
class ModelFolder:
    """A folder of local models. The name of a model is that of its folder."""

    path: Path
    default_model: str = ""

    @cached_property
    def _opened(self) -> dict[str, Embedder]:
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        return ModelFolder, (self.path, self.default_model)

    def embed(self, texts: Sequence[str], dim: int, model: str | None) -> npt.NDArray[np.float32]:
        """See `Embedder`. Raises `InvalidInput` for a name that is not that of a folder directly below."""
        name = model or self.default_model
        if not name or name in (".", "..") or Path(name).name != name:
            raise InvalidInput(
                f"'{name}' is not the name of a local model",
                hint="the name is that of a folder in the folder of models, without slashes",
            )
        if name not in self._opened:
            self._opened[name] = open_local_model(self.path / name)
        return self._opened[name].embed(texts, dim, None)


@dataclass(frozen=True)
class OnnxEmbedder:
    """A model in ONNX format with a tokenizer file. Pickles to its path."""

    path: Path

    def __reduce__(self) -> tuple[Any, ...]:
        return OnnxEmbedder, (self.path,)

    @cached_property
    def _session(self) -> Any:
        with requires("onnx", "an ONNX embedding model"):
            import onnxruntime
        file = next(self.path / name for name in _ONNX_FILES if (self.path / name).is_file())
        return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])

    @cached_property
    def _tokenizer(self) -> Any:
        with requires("onnx", "an ONNX embedding model"):
            import tokenizers
        found = tokenizers.Tokenizer.from_file(str(self.path / "tokenizer.json"))
        found.enable_truncation(max_length=_MAX_TOKENS)
        found.enable_padding()
        return found

    def embed(self, texts: Sequence[str], dim: int, model: str | None) -> npt.NDArray[np.float32]:  # noqa: ARG002 - the folder has one model
        """See `Embedder`. Token vectors are averaged; vectors are normalized to length 1."""
        # Texts of a similar length need the least padding. The order does not change a vector.
        order = sorted(range(len(texts)), key=lambda position: len(texts[position]))
        found: npt.NDArray[np.float32] = np.empty((len(texts), dim), np.float32)
        for start in range(0, len(order), _BATCH):
            part = order[start : start + _BATCH]
            vectors = self._run([texts[position] for position in part])
            found[part] = to_unit_length(check_embeddings(vectors, len(part), dim).astype(np.float64))
        return found

    def _run(self, texts: list[str]) -> npt.NDArray[np.float32]:
        encoded = self._tokenizer.encode_batch(texts)
        mask = np.array([item.attention_mask for item in encoded], np.int64)
        inputs = {
            "input_ids": np.array([item.ids for item in encoded], np.int64),
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(mask),
        }
        wanted = {item.name for item in self._session.get_inputs()}
        names = [item.name for item in self._session.get_outputs()]
        output = "sentence_embedding" if "sentence_embedding" in names else names[0]
        given = {name: values for name, values in inputs.items() if name in wanted}
        (vectors,) = self._session.run([output], given)
        if vectors.ndim == 3:
            weights = mask[:, :, None].astype(np.float32)
            vectors = (vectors * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
        return cast("npt.NDArray[np.float32]", vectors)


@dataclass(frozen=True)
class SentenceTransformerEmbedder:
    """A model of sentence-transformers in a local folder. Pickles to its path."""

    path: Path

    def __reduce__(self) -> tuple[Any, ...]:
        return SentenceTransformerEmbedder, (self.path,)

    @cached_property
    def _model(self) -> Any:
        # Not an extra: it installs a deep learning framework, in a variant that depends on the machine.
        try:
            sentence_transformers = import_module(_SENTENCE_TRANSFORMERS)
        except ModuleNotFoundError as error:
            raise InvalidInput(
                "a sentence-transformers model needs sentence_transformers; "
                "install it with: pip install sentence-transformers",
                details={"library": "sentence_transformers"},
            ) from error
        # `local_files_only` keeps the library from asking a hub for the model or a part of it.
        return sentence_transformers.SentenceTransformer(str(self.path), local_files_only=True)

    def embed(self, texts: Sequence[str], dim: int, model: str | None) -> npt.NDArray[np.float32]:  # noqa: ARG002 - the folder has one model
        """See `Embedder`. Vectors are normalized to length 1."""
        vectors = self._model.encode(list(texts), batch_size=_BATCH, show_progress_bar=False)
        return to_unit_length(check_embeddings(vectors, len(texts), dim).astype(np.float64))
