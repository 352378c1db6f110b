"""Local models: which folders are models, and what is missing. `scripts/check-onnx` runs a real model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput, NotFound

FILES = {
    "onnx": ("model.onnx", "tokenizer.json"),
    "sentence-transformers": ("modules.json",),
}
LIBRARIES = {"onnx": "tokenizers", "sentence-transformers": "sentence_transformers"}
INSTALL = {"onnx": r"omnigraph\[onnx\]", "sentence-transformers": "pip install sentence-transformers"}


@pytest.mark.parametrize("provider", FILES)
def test_local_model_without_its_library_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    for name in FILES[provider]:
        (tmp_path / "small").mkdir(exist_ok=True)
        (tmp_path / "small" / name).touch()
    for library in ("onnxruntime", *LIBRARIES.values()):
        monkeypatch.setitem(sys.modules, library, None)
    variables = {"OMNIGRAPH_EMBED_PROVIDER": provider, "OMNIGRAPH_EMBED_MODEL_DIR": str(tmp_path)}
    with pytest.raises(InvalidInput, match=INSTALL[provider]):
        og.embedder_of(variables).embed(["tea"], 3, "small")
    with pytest.raises(InvalidInput, match=INSTALL[provider]):
        og.local_embedder(tmp_path / "small").embed(["tea"], 3, None)


@pytest.mark.parametrize("model", ["../small", "/etc", "..", "a/b", ""])
def test_local_model_with_a_path_as_its_name_is_refused(tmp_path: Path, model: str) -> None:
    variables = {"OMNIGRAPH_EMBED_PROVIDER": "onnx", "OMNIGRAPH_EMBED_MODEL_DIR": str(tmp_path / "models")}
    with pytest.raises(InvalidInput, match="not the name of a local model"):
        og.embedder_of(variables).embed(["tea"], 3, model)


def test_local_model_that_is_missing_names_the_folder(tmp_path: Path) -> None:
    variables = {"OMNIGRAPH_EMBED_PROVIDER": "onnx", "OMNIGRAPH_EMBED_MODEL_DIR": str(tmp_path)}
    with pytest.raises(NotFound, match="no embedding model in the folder"):
        og.embedder_of(variables).embed(["tea"], 3, "small")


def test_local_provider_without_a_folder_names_the_variable() -> None:
    with pytest.raises(InvalidInput, match="needs the folder of its models"):
        og.embedder_of({"OMNIGRAPH_EMBED_PROVIDER": "onnx"}).embed(["tea"], 3, "small")
