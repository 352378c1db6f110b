"""Hosted graphs: opening the graphs of a configuration, with their policies and stored queries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from omnigraph.api.entry import embedder_of, open_with
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.api.hosting.served_graphs import ServedGraphs
from omnigraph.api.hosting.stored_queries import StoredQuery, read_stored_queries
from omnigraph.engine.memory.memory_cache import CachePool
from omnigraph.errors import InvalidInput, OmnigraphError, StorageError
from omnigraph.lang.diagnostics import LanguageError
from omnigraph.lang.types import Scalar
from omnigraph.maintain.upkeep_mode import UpkeepMode
from omnigraph.policy.bundle import PolicyBundle, Rule
from omnigraph.policy.gate import Gate, NoPolicy
from omnigraph.read.reader import Reader, default_budget
from omnigraph.rules.external_blobs import DEFAULT_DENY
from omnigraph.server.http.authentication import TokenRegistry
from omnigraph.server.limits import ServerLimits
from omnigraph.server.logs import LOGGER

if TYPE_CHECKING:
    from omnigraph.api.local.local_graph import LocalGraph

_CONCURRENT_OPENS = 4
# The time in which requests that are running end.
RETIRE_SECONDS = 300.0
# The code of the diagnostic.
NO_HEALTHY_GRAPHS = "cluster_no_healthy_graphs"
NO_GRAPH_POLICY = NoPolicy(
    "no policy is configured for the graph, so actors with a token may only read",
    "set `policy` of the graph in the configuration file to a policy that allows the action",
)
NO_SERVER_POLICY = NoPolicy(
    "no policy is configured for the server",
    "set `policy` of the configuration file to a policy with a rule that allows `graph_list`",
)


@dataclass(frozen=True)
class HostedGraph:
    """An open graph. Without a gate every action is allowed."""

    id: str
    graph: LocalGraph = field(repr=False)
    gate: Gate | None = None
    queries: Mapping[str, StoredQuery] = field(default_factory=dict)
    # False if a cluster manages the schema.
    can_apply_schema: bool = True
    reader: Reader = field(default_factory=Reader, repr=False)
    # What it was opened from; None for a graph that is never opened again.
    source: GraphSource | None = field(default=None, repr=False)

    def close(self) -> None:
        """Close the graph."""
        self.graph.close()
        self.reader.close()


@dataclass
class ServerResources:
    """Graphs, tokens, policy and limits of one server. Without tokens the server is unauthenticated.

    `quarantined` maps the ids of graphs that are not served to the reasons. `damaged` has the errors of those whose
    storage is damaged or gone.
    """

    graphs: dict[str, HostedGraph] = field(default_factory=dict)
    tokens: TokenRegistry = field(default_factory=TokenRegistry)
    server_gate: Gate | None = None
    quarantined: Mapping[str, str] = field(default_factory=dict)
    limits: ServerLimits = field(default_factory=ServerLimits)
    damaged: Mapping[str, StorageError] = field(default_factory=dict)
    opener: GraphOpener | None = field(default=None, repr=False)
    # Graphs that are not served any more. Running requests may still use them.
    _retired: list[HostedGraph] = field(default_factory=list, repr=False)
    _observer: Callable[[HostedGraph], None] | None = field(default=None, repr=False)

    def observe(self, observer: Callable[[HostedGraph], None]) -> None:
        """Call a function with every graph that is served, now or after a reload."""
        self._observer = observer
        for item in self.graphs.values():
            observer(item)

    def replace_access(
        self, tokens: TokenRegistry, server_gate: Gate | None, gates: Mapping[str, Gate | None]
    ) -> None:
        """Replace tokens and policies. Requests that are authorized already continue as they are."""
        self.tokens, self.server_gate = tokens, server_gate
        for id_, gate in gates.items():
            self.graphs[id_] = replace(self.graphs[id_], gate=gate)

    def replace_graphs(
        self, graphs: Mapping[str, HostedGraph], refused: Mapping[str, OmnigraphError]
    ) -> None:
        """Serve these graphs and no others. `refused` has the errors of the graphs that cannot be served.

        A request that is running keeps the graph, the queries and the policy that it began with. A graph that is
        not served any more is closed after `RETIRE_SECONDS`.
        """
        retired = [
            item
            for id_, item in self.graphs.items()
            if id_ not in graphs or graphs[id_].graph is not item.graph
        ]
        self._retired += retired
        if self._observer is not None:
            for item in graphs.values():
                self._observer(item)
        for item in retired:
            timer = threading.Timer(RETIRE_SECONDS, item.close)
            timer.daemon = True
            timer.start()
        for id_ in self.graphs.keys() - graphs.keys():
            del self.graphs[id_]
        self.graphs.update(graphs)
        self.quarantined = {id_: _reason(failure) for id_, failure in refused.items()}
        self.damaged = {id_: failure for id_, failure in refused.items() if isinstance(failure, StorageError)}

    def close(self) -> None:
        """Close every graph."""
        for item in (*self.graphs.values(), *self._retired):
            item.close()


@dataclass(frozen=True)
class GraphOpener:
    """Opens graphs with what all graphs of a server share: storage options, the read cache, the environment."""

    options: Mapping[str, str] | None
    memory: CachePool
    environment: Mapping[str, str]
    markers: ServedGraphs | None
    upkeep: UpkeepMode | None

    def open(self, source: GraphSource, tokens: TokenRegistry) -> HostedGraph | OmnigraphError:
        """Open a graph, creating it if the configuration says so; return the error if that fails."""
        return _open(source, tokens, self.options, self.memory, self.environment, self.markers, self.upkeep)

    def update(self, served: HostedGraph, source: GraphSource, tokens: TokenRegistry) -> HostedGraph:
        """Return a served graph with the queries and the policy of `source`. Raises the error of an invalid one.

        The graph stays open unless its address, its embedding provider or its external blobs differ.
        """
        before = served.source
        if before is None or (before.uri, before.embedding, before.external_blobs) != (
            source.uri,
            source.embedding,
            source.external_blobs,
        ):
            opened = self.open(replace(source, error=None), tokens)
            if isinstance(opened, OmnigraphError):
                raise opened
            return opened
        schema = served.graph.authorized_view(None, frozenset(), None).snapshot().catalog.schema
        queries = {} if source.queries is None else read_stored_queries(source.queries, schema, self.options)
        return replace(served, gate=graph_gate(source, tokens), queries=queries, source=source)


def open_graphs(
    hosting: Hosting,
    tokens: TokenRegistry,
    *,
    limits: ServerLimits | None = None,
    options: Mapping[str, str] | None = None,
    require_all: bool = False,
    allow_none: bool = False,
    only_reads: bool = False,
    environment: Mapping[str, str] | None = None,
) -> ServerResources:
    """Open the graphs of a configuration. All graphs share one read cache.

    A graph that cannot be opened is quarantined. Raises `InvalidInput`, with every graph closed again, if no
    graph can be opened, unless `allow_none` is true, or if `require_all` is true and one is quarantined. `options`
    are storage options.
    With `only_reads` no upkeep is performed, which another process does.
    `environment` selects the embedding provider and has the API keys. Markers of served graphs are kept in the
    folder of the configuration, or in the folder that ``OMNIGRAPH_STATE`` names.
    """
    limits = limits or ServerLimits()
    environment = environment or {}
    folder = environment.get("OMNIGRAPH_STATE") or hosting.folder
    markers = None if folder is None else ServedGraphs.at(folder, options)
    memory = CachePool(limits.cache_bytes or default_budget())
    opener = GraphOpener(options, memory, environment, markers, "off" if only_reads else None)
    with ThreadPoolExecutor(_CONCURRENT_OPENS) as pool:
        outcomes = list(pool.map(partial(opener.open, tokens=tokens), hosting.graphs))
    sources = list(zip(hosting.graphs, outcomes, strict=True))
    resources = ServerResources(
        {item.id: item for item in outcomes if isinstance(item, HostedGraph)},
        tokens,
        server_gate(hosting, tokens),
        {source.id: _reason(outcome) for source, outcome in sources if isinstance(outcome, OmnigraphError)},
        limits,
        {source.id: outcome for source, outcome in sources if isinstance(outcome, StorageError)},
        opener,
    )
    if (resources.graphs or allow_none) and not (require_all and resources.quarantined):
        return resources
    resources.close()
    reasons = [f"graph '{id_}': {reason}" for id_, reason in resources.quarantined.items()]
    code = "" if resources.graphs or hosting.cluster is None else f"{NO_HEALTHY_GRAPHS}: "
    raise InvalidInput(
        code + ("not every graph can be served" if resources.graphs else "no graph can be served"),
        details={"errors": reasons or ["the configuration lists no graphs"]},
        hint="; ".join(reasons)
        or "name graphs in the configuration, or give the folder that contains the *.omni graphs",
    )


def _open(
    source: GraphSource,
    tokens: TokenRegistry,
    options: Mapping[str, str] | None,
    memory: CachePool,
    environment: Mapping[str, str],
    markers: ServedGraphs | None,
    upkeep: UpkeepMode | None,
) -> HostedGraph | OmnigraphError:
    if source.error is not None:
        return source.error
    try:
        if source.create_if_missing(options, markers):
            LOGGER.info("graph created", extra={"fields": {"graph_id": source.id}})
        queries = (
            {}
            if source.queries is None
            else read_stored_queries(source.queries, source.read_schema(options), options)
        )
        gate = graph_gate(source, tokens)
        own = source.embedding
        reader = Reader(memory, embedder_of(environment if own is None else own.environment(environment)))
        graph = open_with(
            reader,
            source.uri,
            storage_options=options,
            gate=gate,
            external_blobs=source.external_blobs.server_safe,
            upkeep=upkeep,
        )
        _record_served(source, markers)
        if not source.external_blobs.bases and _has_blobs(graph):
            fields = {"graph_id": source.id, "code": DEFAULT_DENY}
            LOGGER.warning(
                "external URIs of Blob values are refused: no base is allowed", extra={"fields": fields}
            )
    except OmnigraphError as error:
        return error
    return HostedGraph(
        source.id,
        graph,
        gate,
        queries,
        can_apply_schema=not source.is_managed,
        reader=reader,
        source=source,
    )


def _has_blobs(graph: LocalGraph) -> bool:
    view = graph.authorized_view(None, frozenset(), None)
    tables = view.snapshot().catalog.tables.values()
    return any(column.type.scalar is Scalar.BLOB for table in tables for column in table.columns)


def _record_served(source: GraphSource, markers: ServedGraphs | None) -> None:
    """Write the marker of a graph. Without it, a server without the volume would create the graph again."""
    if markers is None:
        return
    try:
        markers.record(source.id, source.uri, "served")
    except OmnigraphError as error:
        if source.schema is None:
            # The server never creates this graph.
            return
        fields = {"graph_id": source.id, "error": str(error)}
        LOGGER.warning("cannot record that the graph is served", extra={"fields": fields})


def _reason(error: OmnigraphError) -> str:
    """Return why a graph is quarantined, in one line; with file, line and column for a query or schema text."""
    position = ""
    if isinstance(error, LanguageError):
        position = f"{error.diagnostics[0].file}:{error.line}:{error.column}: "
    return f"{position}{error.message}" + ("" if error.hint is None else f" ({error.hint})")


def graph_gate(source: GraphSource, tokens: TokenRegistry) -> Gate | None:
    """Return the policy gate of a graph; None on an unauthenticated server, where every action is allowed.

    The rules are compiled here, because the first request would delay all others.
    """
    if source.policy is not None:
        return Gate(source.policy, source.id).prepare()
    if not tokens:
        return None
    return Gate(_read_only_policy(tokens), source.id, NO_GRAPH_POLICY).prepare()


def server_gate(hosting: Hosting, tokens: TokenRegistry) -> Gate | None:
    """Return the policy gate of the server; None on an unauthenticated server, where every action is allowed."""
    if hosting.policy is not None:
        return Gate(hosting.policy).prepare()
    if not tokens:
        return None
    return Gate(PolicyBundle(_known_actors(tokens)), absence=NO_SERVER_POLICY).prepare()


def _read_only_policy(tokens: TokenRegistry) -> PolicyBundle:
    """Return the policy of a graph without one: every actor with a token may read."""
    return PolicyBundle(_known_actors(tokens), rules=(Rule("default", "known", ("read",)),))


def _known_actors(tokens: TokenRegistry) -> dict[str, tuple[str, ...]]:
    return {"known": tuple(sorted(tokens.actors))}
