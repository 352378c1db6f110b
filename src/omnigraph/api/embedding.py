"""Filling the vectors of records before they are loaded: a file of records to another, line by line."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from omnigraph.api.files import replacing
from omnigraph.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from omnigraph.search.embedding import Embedder

T = TypeVar("T")
Mode: TypeAlias = Literal["fill_missing", "reembed_selected", "reembed_all", "clean"]

# So many texts are sent to a provider at a time, and so many records are held meanwhile.
_TEXTS, _RECORDS = 64, 4096


@dataclass(frozen=True, slots=True)
class TypeEmbedding:
    """Of a type: the property that holds the vector, and those whose text it stands for."""

    target: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EmbedSpec:
    """Which types have a vector, of how many numbers."""

    dimension: int
    types: Mapping[str, TypeEmbedding]

    @classmethod
    def of(cls, document: Any) -> EmbedSpec:
        """Read ``{dimension, types: {T: {target, fields}}}``, or refuse it with `InvalidInput`.

        >>> EmbedSpec.of({"dimension": 4, "types": {"Doc": {"target": "v", "fields": ["title"]}}}).dimension
        4
        """
        if not isinstance(document, Mapping):
            raise InvalidInput("an embedding spec is an object with `dimension` and `types`")
        dimension, types = document.get("dimension"), document.get("types")
        if type(dimension) is not int or dimension < 1:
            raise InvalidInput("`dimension` of an embedding spec must be a whole number of at least 1")
        if not isinstance(types, Mapping) or not types:
            raise InvalidInput(
                "`types` of an embedding spec must name types, each with `target` and `fields`"
            )
        return cls(dimension, {str(name): _type_embedding(str(name), item) for name, item in types.items()})


@dataclass(frozen=True, slots=True)
class Selector:
    """Records of one value of a property, of one type or of any: ``Type:field=value`` or ``field=value``.

    >>> Selector.parse("Doc:slug=a=b")
    Selector(field='slug', value='a=b', type_name='Doc')
    """

    field: str
    value: str
    type_name: str | None = None

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Read the text of one."""
        left, sign, value = text.partition("=")
        type_name, colon, name = left.rpartition(":")
        if not sign or not name.strip() or (colon and not type_name.strip()):
            raise InvalidInput(f"'{text}' selects nothing", hint="field=value or Type:field=value")
        return cls(name.strip(), value.strip(), type_name.strip() or None)

    def takes(self, type_name: str, data: Mapping[str, Any]) -> bool:
        """Whether a record is one of them."""
        if self.type_name not in (None, type_name) or self.field not in data:
            return False
        return text_of(data[self.field]) == self.value


@dataclass(frozen=True)
class EmbedJob:
    """What to do with which records of a file."""

    source: Path
    target: Path
    spec: EmbedSpec
    mode: Mode = "fill_missing"
    types: frozenset[str] = frozenset()
    selectors: Sequence[Selector] = ()

    def selects(self, type_name: str, data: Mapping[str, Any]) -> bool:
        """Whether a record is looked at."""
        if self.types and type_name not in self.types:
            return False
        return not self.selectors or any(item.takes(type_name, data) for item in self.selectors)


@dataclass
class Embedded:
    """How many records there were, and what became of them."""

    records: int = 0
    selected_records: int = 0
    embedded_records: int = 0
    cleaned_records: int = 0


def read_spec(path: Path) -> EmbedSpec:
    """The spec that a file of JSON or YAML holds."""
    return _read(path, EmbedSpec.of)


def read_manifest(path: Path) -> tuple[Path, Path, EmbedSpec]:
    """The records, the file to write and the spec that a manifest of seeds names, beside it.

    It is YAML: ``sources.raw_seed``, ``artifacts.embedded_seed`` and ``embeddings``, which is a spec.
    """
    source, target, spec = _read(path, _manifest)
    return path.parent / source, path.parent / target, spec


def embed_file(job: EmbedJob, embedder: Embedder) -> Embedded:
    """Write the records of a file to another, which appears when it is complete; both may be the same one.

    Records that are not changed are written as they stand. Texts go to the provider many at a time; what is held
    meanwhile is bounded, however large the file.
    """
    unknown = sorted(job.types - job.spec.types.keys())
    if unknown:
        raise InvalidInput(f"the embedding spec has no type '{unknown[0]}'")
    if not job.source.is_file():
        raise NotFound(f"there is no file `{job.source}`")
    job.target.parent.mkdir(parents=True, exist_ok=True)
    with job.source.open(encoding="utf-8", newline="\n") as source, replacing(job.target) as target:
        work = _Work(job, embedder, target)
        for number, line in enumerate(_lines(source, job.source), 1):
            work.take(number, line)
        work.finish()
    return work.done


@dataclass
class _Waiting:
    """A line to write; one with a text is written with the vector that the text gets."""

    line: str
    record: dict[str, Any] | None = None
    target: str = ""
    text: str = ""


@dataclass
class _Work:
    job: EmbedJob
    embedder: Embedder
    target: IO[str]
    done: Embedded = field(default_factory=Embedded)
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _texts: int = 0

    def take(self, number: int, line: str) -> None:
        if not line.strip():
            return
        self.done.records += 1
        self._waiting.append(self._decide(number, line.rstrip("\r\n")))
        if self._texts >= _TEXTS or len(self._waiting) >= _RECORDS:
            self.finish()

    def finish(self) -> None:
        """Write what waits."""
        texts = [item.text for item in self._waiting if item.text]
        found = self.embedder.embed(texts, self.job.spec.dimension, None).tolist() if texts else []
        vectors: Iterator[list[float]] = iter(found)
        for item in self._waiting:
            line = item.line
            if item.text:
                assert item.record is not None
                item.record["data"][item.target] = next(vectors)
                line = _dumped(item.record)
            self.target.write(line + "\n")
        self._waiting.clear()
        self._texts = 0

    def _decide(self, number: int, line: str) -> _Waiting:
        record = _parsed(number, line)
        type_name, data = record.get("type"), record.get("data")
        if not isinstance(type_name, str):
            return _Waiting(line)
        if not isinstance(data, dict):
            raise InvalidInput(f"line {number}: a record of a type needs the object `data`")
        if not self.job.selects(type_name, data):
            return _Waiting(line)
        self.done.selected_records += 1
        wanted = self.job.spec.types.get(type_name)
        if wanted is None:
            return _Waiting(line)
        if self.job.mode == "clean":
            if wanted.target not in data:
                return _Waiting(line)
            del data[wanted.target]
            self.done.cleaned_records += 1
            return _Waiting(_dumped(record))
        text = "\n".join(part for name in wanted.fields if (part := text_of(data.get(name))))
        missing = data.get(wanted.target) in (None, [])
        if not text or (self.job.mode == "fill_missing" and not missing):
            return _Waiting(line)
        self._texts += 1
        self.done.embedded_records += 1
        return _Waiting(line, record, wanted.target, text)


def text_of(value: Any) -> str:
    """The text of a value of JSON; an empty one for null.

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


def _lines(source: Iterable[str], path: Path) -> Iterator[str]:
    try:
        for number, line in enumerate(source):
            yield line.removeprefix("\ufeff") if not number else line
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: invalid UTF-8 at byte {error.start}") from error


def _parsed(number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"line {number} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidInput(f"line {number} is not one JSON object")
    return found


def _dumped(record: Mapping[str, Any]) -> str:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        # An escape may spell half a character, which a load refuses with its place; here it stays an escape.
        return json.dumps(record, separators=(",", ":"))
    return text


def _read(path: Path, read: Callable[[Any], T]) -> T:
    """What is read from a document; what is wrong with it is told with the file."""
    from omnigraph.sources.mapping.document import read_document

    document, _ = read_document(path, {})
    found: T = document.located((), lambda: read(document.value))
    return found


def _manifest(document: Any) -> tuple[str, str, EmbedSpec]:
    members = document if isinstance(document, Mapping) else {}
    source = _nested(members, "sources", "raw_seed") or _nested(members, "seed", "data")
    if source is None:
        raise InvalidInput("a manifest of seeds needs `sources.raw_seed`, the file of records")
    if "embeddings" not in members:
        raise InvalidInput("a manifest of seeds needs `embeddings`, with `dimension` and `types`")
    target = _nested(members, "artifacts", "embedded_seed") or "build/seed.embedded.jsonl"
    return source, target, EmbedSpec.of(members["embeddings"])


def _type_embedding(name: str, item: Any) -> TypeEmbedding:
    found = item if isinstance(item, Mapping) else {}
    target, fields = found.get("target"), found.get("fields")
    if not isinstance(target, str) or not target:
        raise InvalidInput(f"type '{name}' of an embedding spec needs `target`, the property for the vector")
    if not isinstance(fields, list) or not fields or not all(isinstance(one, str) and one for one in fields):
        raise InvalidInput(f"type '{name}' of an embedding spec needs `fields`, a list of properties")
    return TypeEmbedding(target, tuple(fields))


def _nested(members: Mapping[str, Any], section: str, key: str) -> str | None:
    found = members.get(section)
    value = found.get(key) if isinstance(found, Mapping) else None
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidInput(f"`{section}.{key}` must be the path of a file")
    return value
