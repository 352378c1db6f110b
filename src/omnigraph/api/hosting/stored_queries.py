"""Stored queries: the queries of ``.gq`` files that clients run by name, type-checked before a graph is hosted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.gq.check import check_query
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.source import Source
from omnigraph.lang.types import TYPE_NAMES, Scalar
from omnigraph.store.location import Location
from omnigraph.store.objects.object_store import ObjectStore

if TYPE_CHECKING:
    from omnigraph.lang.schema import Schema

QUERY_SUFFIX = ".gq"


@dataclass(frozen=True)
class StoredQuery:
    """A query that clients run by its name. `text` is the whole file that contains it."""

    name: str
    text: str = field(repr=False)
    checked: ir.CheckedQuery = field(repr=False)

    @property
    def mutates(self) -> bool:
        """Whether the query is a mutation."""
        return isinstance(self.checked, ir.MutationQuery)

    @property
    def annotations(self) -> dict[str, str]:
        """The description and the instruction of the query, if it has them."""
        texts = {"description": self.checked.description, "instruction": self.checked.instruction}
        return {name: text for name, text in texts.items() if text is not None}

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the query catalog."""
        params = [describe_param(param) for param in self.checked.params]
        return {
            "name": self.name,
            "tool_name": self.name,
            **self.annotations,
            "mutation": self.mutates,
            "params": params,
        }


@dataclass(frozen=True, slots=True)
class QuerySources:
    """The files with the stored queries of a graph: folders, and files whose names end in ``.gq``.

    Each is a path or an address in an object store. All their queries are stored queries. With `names` only these
    are, each from the file that is given for it. `texts` has the files that were read already.
    """

    paths: tuple[str | Path, ...]
    names: Mapping[str, str | Path] | None = None
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)

    def includes(self, source: Source, name: str) -> bool:
        """Return whether a query of a file is a stored query."""
        return self.names is None or (name in self.names and _display_name(self.names[name]) == source.name)

    def missing(self, found: Iterable[str]) -> dict[str, str]:
        """Return the error for each name whose query was not found."""
        names = sorted(set(self.names or ()) - set(found))
        return {name: f"no query '{name}' in the file that it is registered from" for name in names}


def read_stored_queries(
    sources: QuerySources, schema: Schema, options: Mapping[str, str] | None = None
) -> dict[str, StoredQuery]:
    """Read and type-check the stored queries; return them by name. `options` are storage options.

    Raises `InvalidInput` or `LanguageError` for the first invalid query.
    """
    stored: dict[str, StoredQuery] = {}
    locations: dict[str, str] = {}
    for source in read_query_files(sources, options):
        for query in parse_queries(source).queries:
            if not sources.includes(source, query.name):
                continue
            line, column = source.position(query.span.start)
            location = f"{source.name}:{line}:{column}"
            first = locations.setdefault(query.name, location)
            if query.name in stored:
                raise InvalidInput(
                    f"duplicate stored query '{query.name}': {first} and {location}",
                    details={"query": query.name},
                )
            stored[query.name] = StoredQuery(query.name, source.text, check_query(query, schema, source))
    for text in sources.missing(stored).values():
        raise InvalidInput(text)
    return dict(sorted(stored.items()))


def broken_queries(stored: Iterable[StoredQuery], schema: Schema) -> dict[str, str]:
    """Return the error of each stored query that does not type-check with a schema, by name."""
    names_by_text: dict[str, set[str]] = {}
    for item in stored:
        names_by_text.setdefault(item.text, set()).add(item.name)
    errors: dict[str, str] = {}
    for text, names in names_by_text.items():
        source = Source(text)
        for query in parse_queries(source).queries:
            if query.name not in names:
                continue
            try:
                check_query(query, schema, source)
            except LanguageError as error:
                errors[query.name] = error.message
    return dict(sorted(errors.items()))


def read_query_files(sources: QuerySources, options: Mapping[str, str] | None = None) -> Iterator[Source]:
    """Yield the text of every file, those of a folder by name.

    Raises `InvalidInput` if a folder does not exist or a file is not UTF-8 text.
    """
    for path in sources.paths:
        if str(path) in sources.texts:
            yield Source(sources.texts[str(path)], str(path))
    unread = (path for path in sources.paths if str(path) not in sources.texts)
    for name, data in chain.from_iterable(_read_files(path, options or {}) for path in unread):
        try:
            yield Source(data.decode("utf-8-sig"), name)
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{name} is not UTF-8 text: {error}") from error


def _read_files(path: str | Path, options: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    name = _display_name(path)
    return _remote_files(name, options) if "://" in name else _local_files(Path(name))


def _display_name(path: str | Path) -> str:
    """Return the name of a file in messages: the path of a local file, otherwise the address."""
    location = Location.parse(path) if isinstance(path, str) and "://" in path else None
    return location.path if location is not None and location.is_local else str(path)


def _local_files(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.suffix == QUERY_SUFFIX and not path.is_dir():
        files = [path]
    elif path.is_dir():
        files = sorted(path.glob(f"*{QUERY_SUFFIX}"))
    else:
        raise InvalidInput(f"no folder of queries at {path}")
    for file in files:
        try:
            yield str(file), file.read_bytes()
        except OSError as error:
            raise InvalidInput(f"cannot read {file}: {error}") from error


def _remote_files(uri: str, options: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    store, key = ObjectStore.split_uri(uri, options)
    folder = key.strip("/")
    if folder.endswith(QUERY_SUFFIX):
        yield uri, store.get(folder).data
        return
    if not store.exists_any(folder):
        raise InvalidInput(f"no folder of queries at {uri}")
    for info in store.list(folder):
        inner = info.key.removeprefix(f"{folder}/")
        if inner.endswith(QUERY_SUFFIX) and "/" not in inner:
            yield f"{store.location.uri}/{info.key}", store.get(info.key).data


def describe_param(param: ir.Param) -> dict[str, Any]:
    """Return the entry of a parameter in the query catalog."""
    kind = param.type
    entry: dict[str, Any] = {"name": param.name, "kind": kind.kind}
    if kind.is_list:
        entry["item_kind"] = TYPE_NAMES[kind.scalar].kind
    if kind.scalar is Scalar.VECTOR:
        entry["vector_dim"] = kind.dim
    return {**entry, "nullable": kind.nullable}
