"""YAML and JSON documents with the line numbers of their keys."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from omnigraph.errors import ErrorLocation, InvalidInput, NotFound, StorageError
from omnigraph.store.location import Location
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.storage_options import StorageOptions

# The keys that lead to a value of a document.
KeyPath: TypeAlias = tuple[str, ...]

# No document has so many values; a few lines of nested aliases can expand to billions.
_MAX_VALUES = 100_000


@dataclass(frozen=True)
class Document:
    """The value of a document and the line of each key."""

    value: Any
    name: str | None = None
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def error(self, path: KeyPath, message: str, hint: str | None = None) -> InvalidInput:
        """Return an error with the location of a value: file, line and key path."""
        return InvalidInput(
            _prefixed(path, message),
            hint=hint,
            details={"path": ".".join(path)},
            location=self._location(path),
        )

    def _location(self, path: KeyPath) -> ErrorLocation:
        line = next(
            (self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines), None
        )
        return ErrorLocation(source="mapping" if self.name is None else self.name, line=line)

    def located(self, path: KeyPath, check: Callable[[], Any]) -> Any:
        """Return the result of a check; add the location of a value to its errors that have none."""
        try:
            return check()
        except (InvalidInput, NotFound) as error:
            if error.location is not None and error.location.source is not None:
                raise
            raise type(error)(
                _prefixed(path, error.message),
                hint=error.hint,
                details={**error.details, "path": ".".join(path)},
                location=self._location(path),
            ) from error

    def object(self, path: KeyPath, value: Any) -> Mapping[str, Any]:
        """Return a value that must be a mapping with text keys."""
        if not isinstance(value, Mapping):
            raise self.error(path, f"expected a mapping, got {_kind(value)}")
        for name in value:
            if not isinstance(name, str):
                raise self.error(path, f"expected a text key, got {name!r}", hint="put it in quotes")
        return value

    def text(self, path: KeyPath, value: Any) -> str:
        """Return a value that must be a non-empty text."""
        if not isinstance(value, str) or not value:
            raise self.error(path, f"expected text, got {_kind(value)}", hint="put it in quotes")
        return value

    def texts(self, path: KeyPath, value: Any) -> tuple[str, ...]:
        """Return a value that must be a text or a list of texts."""
        if not isinstance(value, list | tuple):
            return (self.text(path, value),)
        return tuple(self.text(path, item) for item in value)


def _prefixed(path: KeyPath, message: str) -> str:
    return f"{'.'.join(path)}: {message}" if path else message


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return f"{json.dumps(value)}" if isinstance(value, bool | int | float | str) else type(value).__name__


def read_document(path: str | Path, options: StorageOptions) -> tuple[Document, str]:
    """Read a document; return it and the folder that its relative paths refer to."""
    text, base = _read(path, options)
    return parse_document(str(path), text), base


def read_text(path: str | Path, options: StorageOptions) -> str:
    """Read a UTF-8 file, local or in an object store."""
    return _read(path, options)[0]


def _read(path: str | Path, options: StorageOptions) -> tuple[str, str]:
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
            raise NotFound(f"file `{name}` not found") from error
        except OSError as error:
            raise StorageError(f"cannot read `{name}`: {error}", details={"source": name}) from error
    try:
        return data.decode("utf-8-sig"), base
    except UnicodeDecodeError as error:
        raise InvalidInput(f"`{name}` is not valid UTF-8", details={"source": name}) from error


def parse_document(name: str, text: str) -> Document:
    """Parse a document; it is JSON if its name ends in ``.json``. Raises `InvalidInput`."""
    is_json = name.lower().endswith(".json")
    location = ErrorLocation(source=name)
    try:
        # JSON is valid YAML, except for tabs, which occur between tokens only.
        node = yaml.compose(text.replace("\t", " ") if is_json else text, yaml.SafeLoader)
        if node is not None and _expanded_size(node, {}) > _MAX_VALUES:
            raise InvalidInput(f"more than {_MAX_VALUES:,} values", location=location)
        value = json.loads(text) if is_json else yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        if mark is not None:
            location = ErrorLocation(source=name, line=mark.line + 1)
        raise InvalidInput(getattr(error, "problem", None) or str(error), location=location) from error
    except ValueError as error:
        raise InvalidInput(str(error), location=location) from error
    except RecursionError as error:
        raise InvalidInput("nested too deeply", location=location) from error
    value = {} if value is None else value
    lines: dict[KeyPath, int] = {}
    for path, line in [] if node is None else _key_lines((), node):
        if path in lines:
            failure = Document(value, name, {path: line}).error(
                path, f"duplicate key, also on line {lines[path]}"
            )
            failure.details["duplicate_key"] = True
            raise failure
        lines[path] = line
    return Document(value, name, lines)


def _expanded_size(node: yaml.Node, known: dict[int, float]) -> float:
    """Return the number of values after all aliases are expanded; infinite for a recursive alias."""
    if id(node) not in known:
        known[id(node)] = math.inf
        inner = node.value if isinstance(node, yaml.CollectionNode) else ()
        flat = chain.from_iterable(inner) if isinstance(node, yaml.MappingNode) else inner
        known[id(node)] = 1 + sum(_expanded_size(item, known) for item in flat)
    return known[id(node)]


def _key_lines(path: KeyPath, node: yaml.Node) -> list[tuple[KeyPath, int]]:
    """Return the line of every key and of every item of a list, in document order."""
    found: list[tuple[KeyPath, int]] = []
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            found.append(((*path, str(number)), item.start_mark.line + 1))
            found += _key_lines((*path, str(number)), item)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, str(key.value))
            found.append((inner, key.start_mark.line + 1))
            found += _key_lines(inner, value)
    return found
