"""What is to be served: graphs, their stored queries and policies, as a file or a folder names them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.api.access import read_policy
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.lang.schema import Schema
    from omnigraph.policy.bundle import PolicyBundle

GRAPH_ID = re.compile(r"[a-zA-Z0-9-]{1,64}\Z")
RESERVED_IDS = frozenset({"policies"})
GRAPH_SUFFIX = ".omni"


@dataclass(frozen=True, slots=True)
class GraphSource:
    """A graph that is to be served."""

    id: str
    uri: str
    queries: str | Path | None = None
    policy: PolicyBundle | None = None

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
    its paths are relative to it. Anything else in it, and a policy that is not acceptable, is `InvalidInput`.
    """
    if not _is_address(path) and Path(path).is_dir():
        found = sorted(Path(path).glob(f"*{GRAPH_SUFFIX}"))
        return Hosting(
            tuple(
                GraphSource(check_graph_id(item.name.removesuffix(GRAPH_SUFFIX)), str(item)) for item in found
            )
        )
    from omnigraph.write.mapping_document import read_document

    document, base = read_document(path, options or {})
    root = _members(document.value, str(path), ("graphs", "policy"))
    graphs = _members(root.get("graphs"), f"{path}: graphs", None)
    sources = tuple(_source(id_, item, base, options) for id_, item in graphs.items())
    policy = _text(root, "policy", str(path))
    server = None if policy is None else read_policy(_beside(base, policy), options, binding="cluster")
    return Hosting(sources, server)


def _source(id_: Any, document: Any, base: str, options: Mapping[str, str] | None) -> GraphSource:
    what = f"graphs.{id_}"
    members = _members(document, what, ("uri", "queries", "policy"))
    uri, queries, policy = (_text(members, name, what) for name in ("uri", "queries", "policy"))
    if uri is None:
        raise InvalidInput(f"{what} names no uri")
    return GraphSource(
        check_graph_id(str(id_)),
        str(_beside(base, uri)),
        None if queries is None else _beside(base, queries),
        None if policy is None else read_policy(_beside(base, policy), options, binding="graph"),
    )


def _is_address(path: str | Path) -> bool:
    return isinstance(path, str) and "://" in path


def _beside(base: str, name: str) -> str | Path:
    """What a file means by a path: an address stands for itself, and all else is relative to the file."""
    if _is_address(name):
        return name
    return f"{base}/{name}" if _is_address(base) else Path(base) / name


def _members(document: Any, what: str, known: tuple[str, ...] | None) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise InvalidInput(f"{what} must be a mapping")
    for name in document if known is not None else ():
        if name not in (known or ()):
            raise InvalidInput(f"{what} has an unknown member '{name}'", hint=f"known are {known}")
    return document


def _text(members: Mapping[str, Any], name: str, what: str) -> str | None:
    value = members.get(name)
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise InvalidInput(f"{what}: {name} must be a text")
    return value
