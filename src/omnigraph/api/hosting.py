"""What is to be served: graphs, their stored queries and policies, as a file or a folder names them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.api.access import read_policy
from omnigraph.api.stored_queries import SUFFIX, QueryPlaces
from omnigraph.errors import Conflict, InvalidInput, NotFound, OmnigraphError
from omnigraph.store.location import Location

if TYPE_CHECKING:
    from omnigraph.lang.schema import Schema
    from omnigraph.policy.bundle import PolicyBundle
    from omnigraph.sources.mapping.document import Document, KeyPath

GRAPH_ID = re.compile(r"[a-zA-Z0-9-]{1,64}\Z")
RESERVED_IDS = frozenset({"policies"})
GRAPH_SUFFIX = ".omni"


# The file that declares a folder of graphs, where there is one.
CLUSTER_FILE = "cluster.yaml"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}\Z")
_CLUSTER = ("version", "metadata", "storage", "state", "providers", "graphs", "policies")


@dataclass(frozen=True, slots=True)
class EmbeddingProfile:
    """The embedding provider that a file names; its key is in a variable, and never in the file."""

    kind: str
    base_url: str | None = None
    model: str | None = None
    key_variable: str | None = None

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The variables that choose this provider, with the key that an environment has for it."""
        key = "" if self.key_variable is None else given.get(self.key_variable, "")
        named = {
            "OMNIGRAPH_EMBED_PROVIDER": self.kind,
            "OMNIGRAPH_EMBED_BASE_URL": self.base_url or "",
            "OMNIGRAPH_EMBED_MODEL": self.model or "",
            "GEMINI_API_KEY" if self.kind == "gemini" else "OPENAI_API_KEY": key,
        }
        return {name: value for name, value in named.items() if value}


@dataclass(frozen=True, slots=True)
class GraphSource:
    """A graph that is to be served.

    `schema` is what it is made with when it is not there. `trouble` is why it cannot be served, as far as that is
    known without opening it.
    """

    id: str
    uri: str
    queries: QueryPlaces | None = None
    policy: PolicyBundle | None = None
    trouble: OmnigraphError | None = None
    schema: str | Path | None = None
    embedding: EmbeddingProfile | None = None

    def make(self, options: Mapping[str, str] | None = None) -> bool:
        """Make the graph if it is not there and the schema to begin with is named; whether that was so."""
        if self.schema is None:
            return False
        from omnigraph.api.entry import init
        from omnigraph.sources.mapping.document import read_text

        try:
            init(self.uri, read_text(self.schema, options or {}), storage_options=options).close()
        except Conflict:
            return False
        return True

    def read_schema(self, options: Mapping[str, str] | None = None) -> Schema:
        """The schema that the graph has now."""
        from omnigraph.api.entry import open as open_graph

        with open_graph(self.uri, "r", storage_options=options) as graph:
            return graph.snapshot().catalog.schema


@dataclass(frozen=True, slots=True)
class Hosting:
    """What is to be served, before anything is opened. `policy` decides about the server itself."""

    graphs: tuple[GraphSource, ...]
    policy: PolicyBundle | None = None

    @property
    def has_policy(self) -> bool:
        """Whether any bundle is bound, to the server or to a graph."""
        return self.policy is not None or any(item.policy is not None for item in self.graphs)


def check_graph_id(id_: str) -> str:
    """An id that a graph can be served under, or `InvalidInput`."""
    if not GRAPH_ID.match(id_) or id_ in RESERVED_IDS:
        raise InvalidInput(f"'{id_[:80]}' is not a graph id", hint="1 to 64 letters, digits and hyphens")
    return id_


def read_hosting(path: str | Path, options: Mapping[str, str] | None = None) -> Hosting:
    """What a file says is to be served, or every ``*.omni`` graph of a folder on a local disk.

    The file is YAML, here or in a store: ``graphs: {id: {uri, schema?, queries?, policy?}}`` and ``policy?`` for
    the server; its paths are relative to it. Or it is one with ``version: 1`` that declares a cluster, as does the
    ``cluster.yaml`` of a folder. Anything else in it, and a policy for the server that is not acceptable, is
    `InvalidInput`. What is wrong with one graph alone, its name in a folder or its policy, is the trouble of that.
    """
    folder = _local(path)
    if folder is not None and folder.is_dir():
        declared = folder / CLUSTER_FILE
        if declared.is_file():
            return read_hosting(declared, options)
        return Hosting(tuple(_found(item) for item in sorted(folder.glob(f"*{GRAPH_SUFFIX}"))))
    document, base = _read(path, options or {})
    if isinstance(document.value, Mapping) and "version" in document.value:
        return _cluster(document, base, options)
    root = _members(document, (), document.value, ("graphs", "policy"))
    graphs = document.object(("graphs",), root.get("graphs"))
    sources = tuple(_source(document, id_, graphs[id_], base, options) for id_ in graphs)
    policy = _path(document, ("policy",), root, base)
    if policy is None:
        return Hosting(sources)
    server = document.located(("policy",), lambda: read_policy(policy, options, binding="cluster"))
    return Hosting(sources, server)


def _found(path: Path) -> GraphSource:
    id_ = path.name.removesuffix(GRAPH_SUFFIX)
    try:
        return GraphSource(check_graph_id(id_), str(path))
    except InvalidInput as error:
        return GraphSource(id_ or path.name, str(path), trouble=error)


def _read(path: str | Path, options: Mapping[str, str]) -> tuple[Document, str]:
    from omnigraph.sources.mapping.document import read_document

    if _local(path) is not None:
        return read_document(path, options)
    bucket, key = _key(str(path))
    # What is no address may hold a secret, and is told without it.
    Location.parse(bucket)
    missing = NotFound(
        f"there is no file at {path}",
        hint="graphs in a store are served by a file that names them, such as s3://bucket/site.yaml",
    )
    if not key or key.endswith("/"):
        raise missing
    try:
        return read_document(path, options)
    except NotFound as error:
        raise missing from error


def _source(
    document: Document, id_: str, value: Any, base: str, options: Mapping[str, str] | None
) -> GraphSource:
    way = ("graphs", id_)
    document.located(way, lambda: check_graph_id(id_))
    members = _members(document, way, value, ("uri", "schema", "queries", "policy"))
    uri, schema, policy = (
        _path(document, (*way, name), members, base) for name in ("uri", "schema", "policy")
    )
    if uri is None:
        raise document.error(way, "names no uri")
    source = GraphSource(id_, str(uri), _queries(document, way, members, base), schema=schema)
    return source if policy is None else _bound(source, policy, options)


def _bound(source: GraphSource, policy: str | Path, options: Mapping[str, str] | None) -> GraphSource:
    """A graph with its policy, or with the trouble there is about it."""
    try:
        return replace(source, policy=read_policy(policy, options, binding="graph"))
    except OmnigraphError as error:
        from omnigraph.policy.bundle import PolicyBundle

        # It has a policy, and whoever would open it all the same meets one that allows nothing.
        return replace(source, policy=PolicyBundle(), trouble=error)


def _queries(document: Document, way: KeyPath, members: Mapping[str, Any], base: str) -> QueryPlaces | None:
    """A folder or a file, a list of files, or the files of named queries."""
    way = (*way, "queries")
    value = members.get("queries")
    if isinstance(value, list):
        named = {str(number): item for number, item in enumerate(value)}
        places = (_path(document, (*way, number), named, base) for number in named)
        return QueryPlaces(tuple(place for place in places if place is not None))
    if not isinstance(value, Mapping):
        place = _path(document, way, members, base)
        return None if place is None else QueryPlaces((place,))
    files: dict[str, str | Path] = {}
    for name in document.object(way, value):
        inner = _members(document, (*way, name), value[name], ("file",))
        file = _path(document, (*way, name, "file"), inner, base)
        if file is None or not str(file).endswith(SUFFIX):
            raise document.error((*way, name), f"`file` must name the {SUFFIX} file of the query")
        files[name] = file
    return QueryPlaces(tuple(dict.fromkeys(files.values())), files)


# --- a cluster, as far as serving it goes -------------------------------------------------------------------


def _cluster(document: Document, base: str, options: Mapping[str, str] | None) -> Hosting:
    """The graphs of a cluster at ``graphs/<id>.omni`` of its storage, with the policies that apply to them."""
    root = _members(document, (), document.value, _CLUSTER)
    if type(root["version"]) is not int or root["version"] != 1:
        raise document.error(("version",), "the version of a cluster file must be 1")
    storage = _path(document, ("storage",), root, base) or base
    profiles = _profiles(document, root)
    graphs = document.object(("graphs",), root.get("graphs"))
    sources = {}
    for id_ in graphs:
        way = ("graphs", id_)
        document.located(way, partial(check_graph_id, id_))
        members = _members(document, way, graphs[id_], ("schema", "queries", "embedding_provider"))
        schema = _path(document, (*way, "schema"), members, base)
        if schema is None:
            raise document.error(way, "names no schema")
        named = members.get("embedding_provider")
        profile = None
        if named is not None:
            name = document.text((*way, "embedding_provider"), named).removeprefix("provider.embedding.")
            profile = profiles.get(name)
            if profile is None:
                raise document.error((*way, "embedding_provider"), f"there is no embedding provider '{name}'")
        uri = f"{str(storage).rstrip('/')}/graphs/{id_}{GRAPH_SUFFIX}"
        queries = _queries(document, way, members, base)
        sources[id_] = GraphSource(id_, uri, queries, schema=schema, embedding=profile)
    server = None
    policies = document.object(("policies",), root.get("policies") or {})
    for name in policies:
        way = ("policies", name)
        members = _members(document, way, policies[name], ("file", "applies_to"))
        file = _path(document, (*way, "file"), members, base)
        if file is None:
            raise document.error(way, "names no file")
        for scope in document.texts((*way, "applies_to"), members.get("applies_to")):
            id_ = scope.removeprefix("graph.")
            if scope == "cluster" and server is None:
                server = document.located(way, partial(read_policy, file, options, binding="cluster"))
            elif id_ in sources and sources[id_].policy is None:
                sources[id_] = _bound(sources[id_], file, options)
            elif scope == "cluster" or id_ in sources:
                raise document.error((*way, "applies_to"), f"'{scope}' has a policy already")
            else:
                raise document.error((*way, "applies_to"), f"there is no graph '{id_}'")
    return Hosting(tuple(sources.values()), server)


def _profiles(document: Document, root: Mapping[str, Any]) -> dict[str, EmbeddingProfile]:
    providers = _members(document, ("providers",), root.get("providers") or {}, ("embedding",))
    way = ("providers", "embedding")
    listed = document.object(way, providers.get("embedding") or {})
    found = {}
    for name in listed:
        here = (*way, name)
        known = ("kind", "provider", "base_url", "model", "api_key")
        members = _members(document, here, listed[name], known)
        texts = {
            key: document.text((*here, key), value) for key, value in members.items() if value is not None
        }
        key = _VARIABLE.match(texts["api_key"]) if "api_key" in texts else None
        if "api_key" in texts and key is None:
            raise document.error(
                (*here, "api_key"), "a key does not stand in a file", "name a variable: ${NAME}"
            )
        kind = texts.get("kind") or texts.get("provider") or "openai-compatible"
        variable = None if key is None else key[1]
        found[name] = EmbeddingProfile(kind, texts.get("base_url"), texts.get("model"), variable)
    return found


def _local(path: str | Path) -> Path | None:
    """Where on the disk something is; None for what is in a store."""
    if not _is_address(path):
        return Path(path)
    is_file = str(path).lower().startswith("file://")
    return Path(Location.parse(str(path)).path) if is_file else None


def _is_address(path: str | Path) -> bool:
    return isinstance(path, str) and "://" in path


def _path(document: Document, way: KeyPath, members: Mapping[str, Any], base: str) -> str | Path | None:
    """What a file means by a path: an address stands for itself, and all else is relative to the file."""
    value = members.get(way[-1])
    if value is None:
        return None
    name = document.text(way, value)
    if not name.strip():
        raise document.error(way, "a text expected, got a blank one")
    if _is_address(name):
        return name
    if not _is_address(base):
        if name.startswith("~/") or name == "~":
            raise document.error(way, "`~` stands for no folder here", "write the whole path")
        return Path(base) / name
    bucket, folder = _key(base)
    inner = posixpath.normpath(posixpath.join(folder, name))
    if inner.startswith(("/", "../")) or inner == "..":
        raise document.error(way, f"`{name}` is not a path below {bucket}", "or write a whole address")
    return bucket if inner == "." else f"{bucket}/{inner}"


def _key(address: str) -> tuple[str, str]:
    """An address in a store in two parts: the bucket or memory, and what is in it."""
    scheme, _, rest = address.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key


def _members(document: Document, way: KeyPath, value: Any, known: tuple[str, ...]) -> Mapping[str, Any]:
    found = document.object(way, value)
    for name in found:
        if name not in known:
            raise document.error((*way, name), f"unknown member '{name}'", f"known are {', '.join(known)}")
    return found
