"""The document that a mapping is written in: its values, and the lines on which they stand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from omnigraph.errors import InvalidInput, NotFound, StorageError
from omnigraph.store.location import Location
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.storage_options import StorageOptions

# Where something stands in a mapping: the names that lead there.
KeyPath: TypeAlias = tuple[str, ...]

# Far more than a document has; a few lines of aliases would be billions.
_MOST_VALUES = 100_000


@dataclass(frozen=True)
class Document:
    """What a mapping says, and the lines on which it does."""

    value: Any
    name: str | None = None
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def error(self, way: KeyPath, message: str, hint: str | None = None) -> InvalidInput:
        """An error that names the place: file, line, and the names that lead there."""
        return InvalidInput(
            f"{self._place(way)}: {message}", hint=hint, details={"source": self.name, "path": ".".join(way)}
        )

    def _place(self, way: KeyPath) -> str:
        line = next(
            (self.lines[way[:end]] for end in range(len(way), 0, -1) if way[:end] in self.lines), None
        )
        where = "mapping" if self.name is None else self.name
        where += "" if line is None else f", line {line}"
        return f"{where}: {'.'.join(way)}" if way else where

    def located(self, way: KeyPath, check: Callable[[], Any]) -> Any:
        """What a check gives; what it refuses is told with the place."""
        try:
            return check()
        except (InvalidInput, NotFound) as error:
            message = f"{self._place(way)}: {error.message}"
            details = {**error.details, "source": self.name, "path": ".".join(way)}
            raise type(error)(message, hint=error.hint, details=details) from error

    def object(self, way: KeyPath, value: Any) -> Mapping[str, Any]:
        """A value that must be names with values."""
        if not isinstance(value, Mapping):
            raise self.error(way, f"names with values expected, got {_kind(value)}")
        for name in value:
            if not isinstance(name, str):
                raise self.error(way, f"a name is a text, got {name!r}", hint="put it in quotes")
        return value

    def text(self, way: KeyPath, value: Any) -> str:
        """A value that must be a text."""
        if not isinstance(value, str) or not value:
            raise self.error(way, f"a text expected, got {_kind(value)}", hint="put it in quotes")
        return value

    def texts(self, way: KeyPath, value: Any) -> tuple[str, ...]:
        """A text, or a list of texts."""
        if not isinstance(value, list | tuple):
            return (self.text(way, value),)
        return tuple(self.text(way, item) for item in value)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return f"{json.dumps(value)}" if isinstance(value, bool | int | float | str) else type(value).__name__


def read_document(path: str | Path, options: StorageOptions) -> tuple[Document, str]:
    """The document in a file, and the folder that its paths are relative to."""
    text, base = _text_in(path, options)
    return _parse(str(path), text), base


def read_text(path: str | Path, options: StorageOptions) -> str:
    """The text of a file, on a disk or in a store."""
    return _text_in(path, options)[0]


def _text_in(path: str | Path, options: StorageOptions) -> tuple[str, str]:
    name = str(path)
    if isinstance(path, str) and name.partition("://")[0].lower() in ("s3", "memory") and "://" in name:
        store, key = ObjectStore.split_uri(name, options)
        data, base = store.get(key).data, name.rpartition("/")[0]
    else:
        local = Path(Location.parse(name).path) if isinstance(path, str) and "://" in name else Path(name)
        base = str(local.parent)
        try:
            data = local.read_bytes()
        except FileNotFoundError as error:
            raise NotFound(f"there is no file `{name}`") from error
        except OSError as error:
            raise StorageError(f"`{name}` cannot be read: {error}", details={"source": name}) from error
    try:
        return data.decode("utf-8-sig"), base
    except UnicodeDecodeError as error:
        raise InvalidInput(f"`{name}` is no text in UTF-8", details={"source": name}) from error


def _parse(name: str, text: str) -> Document:
    is_json = name.lower().endswith(".json")
    try:
        # JSON is YAML, except for tabs, which stand between its tokens only.
        node = yaml.compose(text.replace("\t", " ") if is_json else text, yaml.SafeLoader)
        if node is not None and _written_out(node, {}) > _MOST_VALUES:
            raise InvalidInput(f"{name}: more than {_MOST_VALUES:,} values", details={"source": name})
        value = json.loads(text) if is_json else yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        problem = getattr(error, "problem", None) or str(error)
        raise InvalidInput(f"{name}{line}: {problem}", details={"source": name}) from error
    except ValueError as error:
        raise InvalidInput(f"{name}: {error}", details={"source": name}) from error
    except RecursionError as error:
        raise InvalidInput(f"{name}: too deeply nested", details={"source": name}) from error
    lines: dict[KeyPath, int] = {}
    document = Document({} if value is None else value, name, lines)
    if node is not None:
        _find_lines(document, (), node, lines)
    return document


def _written_out(node: yaml.Node, known: dict[int, float]) -> float:
    """How many values there are once every alias is written out; without end when one holds itself."""
    if id(node) not in known:
        known[id(node)] = math.inf
        inner = node.value if isinstance(node, yaml.CollectionNode) else ()
        flat = chain.from_iterable(inner) if isinstance(node, yaml.MappingNode) else inner
        known[id(node)] = 1 + sum(_written_out(item, known) for item in flat)
    return known[id(node)]


def _find_lines(document: Document, way: KeyPath, node: yaml.Node, lines: dict[KeyPath, int]) -> None:
    """Note the line of every name; one that stands twice in one place is refused, since the last would win."""
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            _find_lines(document, (*way, str(number)), item, lines)
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        inner = (*way, str(key.value))
        known = lines.get(inner)
        lines[inner] = key.start_mark.line + 1
        if known is not None:
            raise document.error(inner, f"is already on line {known}")
        _find_lines(document, inner, value, lines)
