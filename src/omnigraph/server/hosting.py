"""Which graphs are served: from a file or a folder that names them to open handles."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.api.access import read_policy
from omnigraph.api.entry import open as open_graph
from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.policy.bundle import PolicyBundle, Rule
from omnigraph.policy.gate import Gate
from omnigraph.server.admission import Limits
from omnigraph.server.identity import Identities
from omnigraph.server.stored_queries import StoredQuery, read_stored
from omnigraph.write.mapping_document import read_document

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph

GRAPH_ID = re.compile(r"[a-zA-Z0-9-]{1,64}\Z")
RESERVED_IDS = frozenset({"policies"})
GRAPH_SUFFIX = ".omni"
_OPENED_AT_A_TIME = 4


@dataclass(frozen=True, slots=True)
class GraphSource:
    """A graph that is to be served."""

    id: str
    uri: str
    queries: Path | None = None
    policy: PolicyBundle | None = None


@dataclass(frozen=True, slots=True)
class Hosting:
    """What is to be served, before anything is opened. `policy` decides about the server itself."""

    graphs: tuple[GraphSource, ...]
    policy: PolicyBundle | None = None

    @property
    def has_policy(self) -> bool:
        """Whether any bundle is bound, to the server or to a graph."""
        return self.policy is not None or any(item.policy is not None for item in self.graphs)


@dataclass(frozen=True)
class HostedGraph:
    """A graph that is served, with the gate that its handle obeys; without one everything is allowed."""

    id: str
    graph: Graph = field(repr=False)
    gate: Gate | None = None
    queries: Mapping[str, StoredQuery] = field(default_factory=dict)
    # A cluster applies schemas itself, and would not know of one that was applied here.
    can_apply_schema: bool = True


@dataclass(frozen=True)
class Hosted:
    """Everything that one server answers for. Without identities it is open to all."""

    graphs: Mapping[str, HostedGraph] = field(default_factory=dict)
    identities: Identities = field(default_factory=Identities)
    server_gate: Gate | None = None
    quarantined: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    def close(self) -> None:
        """Close every graph."""
        for item in self.graphs.values():
            item.graph.close()


def check_graph_id(id_: str) -> str:
    """An id that a graph can be served under, or `InvalidInput`."""
    if not GRAPH_ID.match(id_) or id_ in RESERVED_IDS:
        raise InvalidInput(f"'{id_[:80]}' is not a graph id", hint="1 to 64 letters, digits and hyphens")
    return id_


def read_hosting(path: Path, options: Mapping[str, str] | None = None) -> Hosting:
    """What a file says is to be served, or every ``*.omni`` graph of a folder.

    The file is YAML: ``graphs: {id: {uri, queries?, policy?}}`` and ``policy?`` for the server; its paths are
    relative to it. Anything else in it, and a policy that is not acceptable, is `InvalidInput`.
    """
    if path.is_dir():
        found = sorted(path.glob(f"*{GRAPH_SUFFIX}"))
        return Hosting(
            tuple(
                GraphSource(check_graph_id(item.name.removesuffix(GRAPH_SUFFIX)), str(item)) for item in found
            )
        )
    document, base = read_document(path, options or {})
    root = _members(document.value, str(path), ("graphs", "policy"))
    graphs = _members(root.get("graphs"), f"{path}: graphs", None)
    sources = tuple(_source(id_, item, Path(base), options) for id_, item in graphs.items())
    policy = _text(root, "policy", str(path))
    server = None if policy is None else read_policy(Path(base) / policy, options, binding="cluster")
    return Hosting(sources, server)


def open_hosted(
    hosting: Hosting,
    identities: Identities,
    *,
    limits: Limits | None = None,
    options: Mapping[str, str] | None = None,
    require_all: bool = False,
) -> Hosted:
    """Open every graph, some at a time. One that cannot be served is left out, unless all are required."""
    with ThreadPoolExecutor(_OPENED_AT_A_TIME) as pool:
        outcomes = list(pool.map(lambda item: _open(item, identities, options), hosting.graphs))
    hosted = Hosted(
        {item.id: item for item in outcomes if isinstance(item, HostedGraph)},
        identities,
        None if hosting.policy is None else Gate(hosting.policy),
        {
            source.id: outcome.message
            for source, outcome in zip(hosting.graphs, outcomes, strict=True)
            if isinstance(outcome, OmnigraphError)
        },
        limits or Limits(),
    )
    if hosted.graphs and not (require_all and hosted.quarantined):
        return hosted
    hosted.close()
    reasons = [f"graph '{id_}': {reason}" for id_, reason in hosted.quarantined.items()]
    raise InvalidInput(
        "not every graph can be served" if hosted.graphs else "there is no graph that can be served",
        details={"errors": reasons or ["no graphs are named"]},
        hint="; ".join(reasons) or None,
    )


def _open(
    source: GraphSource, identities: Identities, options: Mapping[str, str] | None
) -> HostedGraph | OmnigraphError:
    try:
        # Also without clients: what does not check is not served to anybody.
        queries = {} if source.queries is None else read_stored(source.queries, _schema(source, options))
        policy = source.policy or (_read_only(identities) if identities else None)
        graph = open_graph(source.uri, storage_options=options, policy=policy, graph_id=source.id)
    except OmnigraphError as error:
        return error
    return HostedGraph(source.id, graph, None if policy is None else Gate(policy, source.id), queries)


def _schema(source: GraphSource, options: Mapping[str, str] | None) -> Any:
    with open_graph(source.uri, "r", storage_options=options) as graph:
        return graph.snapshot().catalog.schema


def _read_only(identities: Identities) -> PolicyBundle:
    """What a graph without a bundle allows those who have a token: reading."""
    return PolicyBundle(
        {"known": tuple(sorted(identities.actors))}, rules=(Rule("default", "known", ("read",)),)
    )


def _source(id_: Any, document: Any, base: Path, options: Mapping[str, str] | None) -> GraphSource:
    what = f"graphs.{id_}"
    members = _members(document, what, ("uri", "queries", "policy"))
    uri, queries, policy = (_text(members, name, what) for name in ("uri", "queries", "policy"))
    if uri is None:
        raise InvalidInput(f"{what} names no uri")
    return GraphSource(
        check_graph_id(str(id_)),
        uri if "://" in uri else str(base / uri),
        None if queries is None else base / queries,
        None if policy is None else read_policy(base / policy, options, binding="graph"),
    )


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
