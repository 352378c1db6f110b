"""The specification of which properties of which types are embedded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from omnigraph.errors import InvalidInput

T = TypeVar("T")

DEFAULT_OUTPUT = "build/seed.embedded.jsonl"


@dataclass(frozen=True, slots=True)
class TypeEmbedding:
    """The property of a type that holds the vector, and the properties whose text is embedded."""

    target: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EmbedSpec:
    """The dimension of the vectors, and the embedded types."""

    dimension: int
    types: Mapping[str, TypeEmbedding]

    @classmethod
    def of(cls, document: Any) -> EmbedSpec:
        """Parse ``{dimension, types: {T: {target, fields}}}``. Raises `InvalidInput` if it is invalid.

        >>> EmbedSpec.of({"dimension": 4, "types": {"Doc": {"target": "v", "fields": ["title"]}}}).dimension
        4
        """
        if not isinstance(document, Mapping):
            raise InvalidInput("an embedding spec must be an object with `dimension` and `types`")
        dimension, types = document.get("dimension"), document.get("types")
        if type(dimension) is not int or dimension < 1:
            raise InvalidInput("`dimension` of an embedding spec must be an integer of at least 1")
        if not isinstance(types, Mapping) or not types:
            raise InvalidInput(
                "`types` of an embedding spec must name types, each with `target` and `fields`"
            )
        return cls(dimension, {str(name): _type_embedding(str(name), item) for name, item in types.items()})


@dataclass(frozen=True, slots=True)
class RecordSelector:
    """Selects the records with one value of a property, of one type or of any: ``[Type:]field=value``.

    >>> RecordSelector.parse("Doc:slug=a=b")
    RecordSelector(field='slug', value='a=b', type_name='Doc')
    """

    field: str
    value: str
    type_name: str | None = None

    @classmethod
    def parse(cls, text: str) -> RecordSelector:
        """Parse a selector. Raises `InvalidInput` if it has no field or no value."""
        left, sign, value = text.partition("=")
        type_name, colon, name = left.rpartition(":")
        if not sign or not name.strip() or (colon and not type_name.strip()):
            raise InvalidInput(f"invalid selector '{text}'", hint="field=value or Type:field=value")
        return cls(name.strip(), value.strip(), type_name.strip() or None)

    def matches(self, type_name: str, data: Mapping[str, Any]) -> bool:
        """Return whether a record is selected."""
        if self.type_name not in (None, type_name) or self.field not in data:
            return False
        return text_of(data[self.field]) == self.value


def text_of(value: Any) -> str:
    """Return the text of a JSON value; the text of null is empty.

    >>> text_of(["a", None, 1.5]), text_of(True), text_of(" x ")
    ('a, 1.5', 'true', 'x')
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return ", ".join(part for item in value if (part := text_of(item)))
    return json.dumps(value, ensure_ascii=False)


def read_spec(path: Path) -> EmbedSpec:
    """Read a spec from a JSON or YAML file."""
    return _read(path, EmbedSpec.of)


def read_manifest(path: Path) -> tuple[Path, Path, EmbedSpec]:
    """Read a seed manifest: the file of records, the file to write, and the spec.

    The manifest is YAML with ``sources.raw_seed``, ``artifacts.embedded_seed`` and ``embeddings``, which is a spec.
    Its paths are relative to the manifest.
    """
    source, target, spec = _read(path, _parse_manifest)
    return path.parent / source, path.parent / target, spec


def _read(path: Path, parse: Callable[[Any], T]) -> T:
    """Parse a document. An error names the file."""
    from omnigraph.sources.mapping.document import read_document

    document, _ = read_document(path, {})
    parsed: T = document.located((), lambda: parse(document.value))
    return parsed


def _parse_manifest(document: Any) -> tuple[str, str, EmbedSpec]:
    members = document if isinstance(document, Mapping) else {}
    source = _nested_path(members, "sources", "raw_seed") or _nested_path(members, "seed", "data")
    if source is None:
        raise InvalidInput("a seed manifest needs `sources.raw_seed`, the file of records")
    if "embeddings" not in members:
        raise InvalidInput("a seed manifest needs `embeddings`, with `dimension` and `types`")
    target = _nested_path(members, "artifacts", "embedded_seed") or DEFAULT_OUTPUT
    return source, target, EmbedSpec.of(members["embeddings"])


def _type_embedding(name: str, item: Any) -> TypeEmbedding:
    members = item if isinstance(item, Mapping) else {}
    target, fields = members.get("target"), members.get("fields")
    if not isinstance(target, str) or not target:
        raise InvalidInput(f"type '{name}' of an embedding spec needs `target`, the property for the vector")
    if not isinstance(fields, list) or not fields or not all(isinstance(one, str) and one for one in fields):
        raise InvalidInput(f"type '{name}' of an embedding spec needs `fields`, a list of properties")
    return TypeEmbedding(target, tuple(fields))


def _nested_path(members: Mapping[str, Any], section: str, key: str) -> str | None:
    nested = members.get(section)
    value = nested.get(key) if isinstance(nested, Mapping) else None
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidInput(f"`{section}.{key}` must be the path of a file")
    return value
