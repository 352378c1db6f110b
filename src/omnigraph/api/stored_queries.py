"""Stored queries: what ``.gq`` files register for a graph, checked before it is served."""

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

SUFFIX = ".gq"


@dataclass(frozen=True)
class StoredQuery:
    """A query that clients run by its name. `text` is the file that it stands in."""

    name: str
    text: str = field(repr=False)
    checked: ir.CheckedQuery = field(repr=False)

    @property
    def mutates(self) -> bool:
        """Whether it writes."""
        return isinstance(self.checked, ir.MutationQuery)

    @property
    def annotations(self) -> dict[str, str]:
        """What its author says about it, where anything."""
        said = {"description": self.checked.description, "instruction": self.checked.instruction}
        return {name: text for name, text in said.items() if text is not None}

    def to_json(self) -> dict[str, Any]:
        """The entry of the catalogue."""
        params = [_describe_param(param) for param in self.checked.params]
        return {
            "name": self.name,
            "tool_name": self.name,
            **self.annotations,
            "mutation": self.mutates,
            "params": params,
        }


@dataclass(frozen=True, slots=True)
class QueryPlaces:
    """Where the stored queries of a graph stand: folders, and files whose names end in ``.gq``.

    Each is a path, or an address in a store. All queries of them count, or, with `names`, those alone, each of the
    file that is named for it.
    """

    places: tuple[str | Path, ...]
    names: Mapping[str, str | Path] | None = None

    def registers(self, source: Source, name: str) -> bool:
        """Whether a query of a file counts."""
        return self.names is None or (name in self.names and _name_of(self.names[name]) == source.name)

    def missing(self, found: Iterable[str]) -> dict[str, str]:
        """What is wrong about each name that no query was found for."""
        names = sorted(set(self.names or ()) - set(found))
        return {name: f"there is no query '{name}' in the file that it is registered from" for name in names}


def read_stored(
    where: QueryPlaces, schema: Schema, options: Mapping[str, str] | None = None
) -> dict[str, StoredQuery]:
    """Every stored query by name; the first that is not acceptable raises. `options` reach a store."""
    found: dict[str, StoredQuery] = {}
    places: dict[str, str] = {}
    for source in query_files(where, options):
        for query in parse_queries(source).queries:
            if not where.registers(source, query.name):
                continue
            line, column = source.position(query.span.start)
            place = f"{source.name}:{line}:{column}"
            first = places.setdefault(query.name, place)
            if query.name in found:
                raise InvalidInput(
                    f"stored query '{query.name}' is there twice: {first} and {place}",
                    details={"query": query.name},
                )
            found[query.name] = StoredQuery(query.name, source.text, check_query(query, schema, source))
    for text in where.missing(found).values():
        raise InvalidInput(text)
    return dict(sorted(found.items()))


def broken_queries(stored: Iterable[StoredQuery], schema: Schema) -> dict[str, str]:
    """The stored queries that do not fit a schema, by name, with what is wrong with each."""
    names_by_text: dict[str, set[str]] = {}
    for item in stored:
        names_by_text.setdefault(item.text, set()).add(item.name)
    found: dict[str, str] = {}
    for text, names in names_by_text.items():
        source = Source(text)
        for query in parse_queries(source).queries:
            if query.name not in names:
                continue
            try:
                check_query(query, schema, source)
            except LanguageError as error:
                found[query.name] = error.message
    return dict(sorted(found.items()))


def query_files(where: QueryPlaces, options: Mapping[str, str] | None = None) -> Iterator[Source]:
    """The text of every file, those of a folder by name; `InvalidInput` where there is none, or no text."""
    for name, data in chain.from_iterable(_files(place, options or {}) for place in where.places):
        try:
            yield Source(data.decode("utf-8-sig"), name)
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{name} cannot be read as text: {error}") from error


def _files(place: str | Path, options: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    name = _name_of(place)
    return _remote_files(name, options) if "://" in name else _local_files(Path(name))


def _name_of(place: str | Path) -> str:
    """What a place is called in what is said about it: a path on the disk, else its address."""
    parsed = Location.parse(place) if isinstance(place, str) and "://" in place else None
    return parsed.path if parsed is not None and parsed.is_local else str(place)


def _local_files(place: Path) -> Iterator[tuple[str, bytes]]:
    if place.suffix == SUFFIX and not place.is_dir():
        paths = [place]
    elif place.is_dir():
        paths = sorted(place.glob(f"*{SUFFIX}"))
    else:
        raise InvalidInput(f"there is no folder of queries at {place}")
    for path in paths:
        try:
            yield str(path), path.read_bytes()
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error}") from error


def _remote_files(uri: str, options: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    store, key = ObjectStore.split_uri(uri, options)
    folder = key.strip("/")
    if folder.endswith(SUFFIX):
        yield uri, store.get(folder).data
        return
    if not store.exists_any(folder):
        raise InvalidInput(f"there is no folder of queries at {uri}")
    for info in store.list(folder):
        inner = info.key.removeprefix(f"{folder}/")
        if inner.endswith(SUFFIX) and "/" not in inner:
            yield f"{store.location.uri}/{info.key}", store.get(info.key).data


def _describe_param(param: ir.Param) -> dict[str, Any]:
    kind = param.type
    found: dict[str, Any] = {"name": param.name, "kind": kind.kind}
    if kind.is_list:
        found["item_kind"] = TYPE_NAMES[kind.scalar].kind
    if kind.scalar is Scalar.VECTOR:
        found["vector_dim"] = kind.dim
    return {**found, "nullable": kind.nullable}
