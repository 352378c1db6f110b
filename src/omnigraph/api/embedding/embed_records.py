"""Compute the embeddings of records in a file before they are loaded, line by line."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias

from omnigraph.api.embedding.embed_spec import EmbedSpec, RecordSelector, text_of
from omnigraph.api.files.local_files import atomic_write
from omnigraph.errors import ErrorLocation, InvalidInput, NotFound

if TYPE_CHECKING:
    from omnigraph.search.embeddings.embedder import Embedder

EmbedMode: TypeAlias = Literal["fill_missing", "reembed_selected", "reembed_all", "clean"]

# The number of texts in one call of the provider, and the number of records that wait for it.
_BATCH_TEXTS, _BATCH_RECORDS = 64, 4096


@dataclass(frozen=True)
class EmbedJob:
    """An input file, an output file, and the records whose vectors change."""

    source: Path
    target: Path
    spec: EmbedSpec
    mode: EmbedMode = "fill_missing"
    types: frozenset[str] = frozenset()
    selectors: Sequence[RecordSelector] = ()

    def selects(self, type_name: str, data: Mapping[str, Any]) -> bool:
        """Return whether the job processes a record."""
        if self.types and type_name not in self.types:
            return False
        return not self.selectors or any(item.matches(type_name, data) for item in self.selectors)


@dataclass
class EmbedCounts:
    """The number of records in the input, and of those that were selected, embedded and cleaned."""

    records: int = 0
    selected_records: int = 0
    embedded_records: int = 0
    cleaned_records: int = 0


def embed_file(job: EmbedJob, embedder: Embedder) -> EmbedCounts:
    """Write the records of the input to the output, which appears when it is complete. Both may be the same file.

    A record that does not change is written as it is. Texts are sent to the provider in batches. The memory is
    bounded for input of any size.
    """
    unknown = sorted(job.types - job.spec.types.keys())
    if unknown:
        raise InvalidInput(f"the embedding spec has no type '{unknown[0]}'")
    if not job.source.is_file():
        raise NotFound(f"no such file: {job.source}")
    job.target.parent.mkdir(parents=True, exist_ok=True)
    with job.source.open(encoding="utf-8", newline="\n") as source, atomic_write(job.target) as target:
        writer = _EmbeddingWriter(job, embedder, target)
        for number, line in enumerate(_lines(source, job.source), 1):
            writer.add(number, line)
        writer.flush()
    return writer.counts


@dataclass
class _PendingLine:
    """A line to write. If it has a text, the vector of the text is set in the record first."""

    line: str
    record: dict[str, Any] | None = None
    target: str = ""
    text: str = ""


@dataclass
class _EmbeddingWriter:
    job: EmbedJob
    embedder: Embedder
    target: IO[str]
    counts: EmbedCounts = field(default_factory=EmbedCounts)
    _pending: deque[_PendingLine] = field(default_factory=deque)
    _texts: int = 0

    def add(self, number: int, line: str) -> None:
        if not line.strip():
            return
        self.counts.records += 1
        self._pending.append(self._process(number, line.rstrip("\r\n")))
        if self._texts >= _BATCH_TEXTS or len(self._pending) >= _BATCH_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Embed the pending texts and write the pending lines."""
        texts = [item.text for item in self._pending if item.text]
        embedded = self.embedder.embed(texts, self.job.spec.dimension, None).tolist() if texts else []
        vectors: Iterator[list[float]] = iter(embedded)
        for item in self._pending:
            line = item.line
            if item.text:
                assert item.record is not None
                item.record["data"][item.target] = next(vectors)
                line = _dump(item.record)
            self.target.write(line + "\n")
        self._pending.clear()
        self._texts = 0

    def _process(self, number: int, line: str) -> _PendingLine:
        record = self._parse(number, line)
        type_name, data = record.get("type"), record.get("data")
        if not isinstance(type_name, str):
            return _PendingLine(line)
        if not isinstance(data, dict):
            raise self._invalid(number, "a record with a type needs the object `data`")
        if not self.job.selects(type_name, data):
            return _PendingLine(line)
        self.counts.selected_records += 1
        embedding = self.job.spec.types.get(type_name)
        if embedding is None:
            return _PendingLine(line)
        if self.job.mode == "clean":
            if embedding.target not in data:
                return _PendingLine(line)
            del data[embedding.target]
            self.counts.cleaned_records += 1
            return _PendingLine(_dump(record))
        text = "\n".join(part for name in embedding.fields if (part := text_of(data.get(name))))
        missing = data.get(embedding.target) in (None, [])
        if not text or (self.job.mode == "fill_missing" and not missing):
            return _PendingLine(line)
        self._texts += 1
        self.counts.embedded_records += 1
        return _PendingLine(line, record, embedding.target, text)

    def _parse(self, number: int, line: str) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._invalid(number, str(error), syntax="JSON") from error
        if not isinstance(record, dict):
            raise self._invalid(number, "a record must be one JSON object")
        return record

    def _invalid(self, number: int, reason: str, syntax: str | None = None) -> InvalidInput:
        location = ErrorLocation(source=str(self.job.source), line=number, syntax=syntax)
        return InvalidInput(reason, location=location)


def _lines(source: Iterable[str], path: Path) -> Iterator[str]:
    try:
        for number, line in enumerate(source):
            yield line.removeprefix("\ufeff") if not number else line
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"invalid UTF-8 at byte {error.start}", location=ErrorLocation(source=str(path))
        ) from error


def _dump(record: Mapping[str, Any]) -> str:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        # The record has a lone surrogate. It stays a JSON escape, and the load reports it with its line.
        return json.dumps(record, separators=(",", ":"))
    return text
