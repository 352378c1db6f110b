"""Stored queries: what a folder of ``.gq`` files registers for a graph, checked before it is served."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.lang import query_ast as ast
from omnigraph.lang.check import check_query
from omnigraph.lang.query_parser import parse_queries
from omnigraph.lang.source import Source, did_you_mean
from omnigraph.lang.types import MAPPINGS, Scalar
from omnigraph.store.objects import ObjectStore

if TYPE_CHECKING:
    from omnigraph.lang.schema import Schema

SUFFIX = ".gq"
SEVERAL = "query file contains multiple queries; pass --name"
IS_READ = "mutation execution called on a read query; use query instead"


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

    def to_json(self) -> dict[str, Any]:
        """The entry of the catalogue."""
        found: dict[str, Any] = {"name": self.name, "tool_name": self.name}
        for member in ("description", "instruction"):
            if getattr(self.checked, member) is not None:
                found[member] = getattr(self.checked, member)
        params = [_describe_param(param) for param in self.checked.params]
        return {**found, "mutation": self.mutates, "params": params}


def read_stored(
    folder: str | Path, schema: Schema, options: Mapping[str, str] | None = None
) -> dict[str, StoredQuery]:
    """Every query of every ``.gq`` file of a folder by name; the first that is not acceptable raises.

    The folder is a path, or the address of one in a store that is reached with `options`.
    """
    found: dict[str, StoredQuery] = {}
    for query in _read_files(folder, schema, options or {}):
        if query.name in found:
            raise InvalidInput(f"stored query '{query.name}' is there twice", details={"query": query.name})
        found[query.name] = query
    return dict(sorted(found.items()))


def _read_files(folder: str | Path, schema: Schema, options: Mapping[str, str]) -> Iterator[StoredQuery]:
    remote = isinstance(folder, str) and "://" in folder
    for name, data in _remote_files(str(folder), options) if remote else _local_files(Path(folder)):
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{name} cannot be read as text: {error}") from error
        source = Source(text, name)
        for query in parse_queries(source).queries:
            yield StoredQuery(query.name, text, check_query(query, schema, source))


def _local_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    if not folder.is_dir():
        raise InvalidInput(f"there is no folder of queries at {folder}")
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            yield str(path), path.read_bytes()
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error}") from error


def _remote_files(uri: str, options: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    store, key = ObjectStore.holding(uri, options)
    folder = key.strip("/")
    if not store.exists_any(folder):
        raise InvalidInput(f"there is no folder of queries at {uri}")
    for info in store.list(folder):
        inner = info.key.removeprefix(f"{folder}/")
        if inner.endswith(SUFFIX) and "/" not in inner:
            yield f"{store.location.uri}/{info.key}", store.get(info.key).data


def choose_query(text: str, name: str | None, *, mutation: bool) -> str:
    """The name of the query that a text of a client means, when it is of the right kind, else `InvalidInput`.

    >>> choose_query("query all() { match { $p: Person } return { $p.name } }", None, mutation=False)
    'all'
    """
    queries = _outline(text)
    if not queries:
        raise InvalidInput("the text holds no query")
    if name is None and len(queries) > 1:
        raise InvalidInput(SEVERAL, details={"queries": [found for found, _ in queries]})
    chosen = next((item for item in queries if name is None or item[0] == name), None)
    if chosen is None:
        raise InvalidInput(
            f"no query is called `{name}`{did_you_mean(str(name), [found for found, _ in queries])}"
        )
    found, mutates = chosen
    if mutates and not mutation:
        raise InvalidInput(
            f"query '{found}' contains mutations (insert/update/delete); use POST /mutate for write queries"
        )
    if mutation and not mutates:
        raise InvalidInput(IS_READ)
    return found


@lru_cache(maxsize=512)
def _outline(text: str) -> tuple[tuple[str, bool], ...]:
    queries = parse_queries(Source(text, "<query>")).queries
    return tuple((query.name, isinstance(query.body, ast.Mutation)) for query in queries)


def _describe_param(param: ir.Param) -> dict[str, Any]:
    kind = param.type
    found: dict[str, Any] = {"name": param.name, "kind": kind.kind}
    if kind.is_list:
        found["item_kind"] = MAPPINGS[kind.scalar].kind
    if kind.scalar is Scalar.VECTOR:
        found["vector_dim"] = kind.dim
    return {**found, "nullable": kind.nullable}
