"""What is to be served: graphs, their stored queries and policies, as a file or a folder names them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.api.access import read_policy
from omnigraph.errors import InvalidInput, NotFound, OmnigraphError
from omnigraph.store.location import Location

if TYPE_CHECKING:
    from omnigraph.lang.schema import Schema
    from omnigraph.policy.bundle import PolicyBundle
    from omnigraph.write.mapping_document import Document, Way

GRAPH_ID = re.compile(r"[a-zA-Z0-9-]{1,64}\Z")
RESERVED_IDS = frozenset({"policies"})
GRAPH_SUFFIX = ".omni"


@dataclass(frozen=True, slots=True)
class GraphSource:
    """A graph that is to be served. `trouble` is why it cannot be, as far as that is known without opening it."""

    id: str
    uri: str
    queries: str | Path | None = None
    policy: PolicyBundle | None = None
    trouble: OmnigraphError | None = None

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

    The file is YAML, here or in a store: ``graphs: {id: {uri, queries?, policy?}}`` and ``policy?`` for the server;
    its paths are relative to it. Anything else in it, and a policy for the server that is not acceptable, is
    `InvalidInput`. What is wrong with one graph alone, its name in a folder or its policy, is the trouble of that.
    """
    folder = _local(path)
    if folder is not None and folder.is_dir():
        return Hosting(tuple(_found(item) for item in sorted(folder.glob(f"*{GRAPH_SUFFIX}"))))
    document, base = _read(path, options or {})
    root = _members(document, (), document.value, ("graphs", "policy"))
    graphs = document.object(("graphs",), root.get("graphs"))
    sources = tuple(_source(document, id_, graphs[id_], base, options) for id_ in graphs)
    policy = _path(document, ("policy",), root, base)
    if policy is None:
        return Hosting(sources)
    server = document.checked(("policy",), lambda: read_policy(policy, options, binding="cluster"))
    return Hosting(sources, server)


def _found(path: Path) -> GraphSource:
    id_ = path.name.removesuffix(GRAPH_SUFFIX)
    try:
        return GraphSource(check_graph_id(id_), str(path))
    except InvalidInput as error:
        return GraphSource(id_ or path.name, str(path), trouble=error)


def _read(path: str | Path, options: Mapping[str, str]) -> tuple[Document, str]:
    from omnigraph.write.mapping_document import read_document

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
    document.checked(way, lambda: check_graph_id(id_))
    members = _members(document, way, value, ("uri", "queries", "policy"))
    uri, queries, policy = (
        _path(document, (*way, name), members, base) for name in ("uri", "queries", "policy")
    )
    if uri is None:
        raise document.refusal(way, "names no uri")
    if policy is None:
        return GraphSource(id_, str(uri), queries)
    try:
        return GraphSource(id_, str(uri), queries, read_policy(policy, options, binding="graph"))
    except OmnigraphError as error:
        from omnigraph.policy.bundle import PolicyBundle

        # It has a policy, and whoever would open it all the same meets one that allows nothing.
        return GraphSource(id_, str(uri), queries, PolicyBundle(), error)


def _local(path: str | Path) -> Path | None:
    """Where on the disk something is; None for what is in a store."""
    if not _is_address(path):
        return Path(path)
    is_file = str(path).lower().startswith("file://")
    return Path(Location.parse(str(path)).path) if is_file else None


def _is_address(path: str | Path) -> bool:
    return isinstance(path, str) and "://" in path


def _path(document: Document, way: Way, members: Mapping[str, Any], base: str) -> str | Path | None:
    """What a file means by a path: an address stands for itself, and all else is relative to the file."""
    value = members.get(way[-1])
    if value is None:
        return None
    name = document.text(way, value)
    if not name.strip():
        raise document.refusal(way, "a text expected, got a blank one")
    if _is_address(name):
        return name
    if not _is_address(base):
        if name.startswith("~/") or name == "~":
            raise document.refusal(way, "`~` stands for no folder here", "write the whole path")
        return Path(base) / name
    bucket, folder = _key(base)
    inner = posixpath.normpath(posixpath.join(folder, name))
    if inner.startswith(("/", "../")) or inner == "..":
        raise document.refusal(way, f"`{name}` is not a path below {bucket}", "or write a whole address")
    return bucket if inner == "." else f"{bucket}/{inner}"


def _key(address: str) -> tuple[str, str]:
    """An address in a store in two parts: the bucket or memory, and what is in it."""
    scheme, _, rest = address.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key


def _members(document: Document, way: Way, value: Any, known: tuple[str, ...]) -> Mapping[str, Any]:
    found = document.object(way, value)
    for name in found:
        if name not in known:
            raise document.refusal((*way, name), f"unknown member '{name}'", f"known are {', '.join(known)}")
    return found
