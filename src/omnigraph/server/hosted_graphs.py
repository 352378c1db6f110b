"""Which graphs are served: from what is to be served to open handles."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from omnigraph.api.entry import embedder_of, open_with
from omnigraph.api.hosting import GraphSource, Hosting
from omnigraph.api.stored_queries import StoredQuery, read_stored
from omnigraph.engine.memory.memory_cache import Memory
from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.lang.diagnostics import LanguageError
from omnigraph.policy.bundle import PolicyBundle, Rule
from omnigraph.policy.gate import Gate
from omnigraph.read.blob_values import BlobsInUse
from omnigraph.read.reader import Reader, default_budget
from omnigraph.server.http.authentication import Identities
from omnigraph.server.limits import Limits
from omnigraph.server.logs import LOGGER

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph

_OPENED_AT_A_TIME = 4
# How many bytes of blobs may be in use, in times of what reads may keep.
_BLOBS = 2


@dataclass(frozen=True)
class HostedGraph:
    """A graph that is served, with the gate that its handle obeys; without one everything is allowed."""

    id: str
    graph: Graph = field(repr=False)
    gate: Gate | None = None
    queries: Mapping[str, StoredQuery] = field(default_factory=dict)
    # A cluster applies schemas itself, and would not know of one that was applied here.
    can_apply_schema: bool = True
    reader: Reader = field(default_factory=Reader, repr=False)


@dataclass(frozen=True)
class Hosted:
    """Everything that one server answers for. Without identities it is open to all.

    What reads keep is in one memory for all graphs; `blobs` are values of bytes, also those on the way to clients.
    """

    graphs: Mapping[str, HostedGraph] = field(default_factory=dict)
    identities: Identities = field(default_factory=Identities)
    server_gate: Gate | None = None
    quarantined: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    blobs: BlobsInUse = field(default_factory=lambda: BlobsInUse(_BLOBS * default_budget()), repr=False)

    def close(self) -> None:
        """Close every graph."""
        for item in self.graphs.values():
            item.graph.close()
            item.reader.close()


def open_hosted(
    hosting: Hosting,
    identities: Identities,
    *,
    limits: Limits | None = None,
    options: Mapping[str, str] | None = None,
    require_all: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Hosted:
    """Open every graph, some at a time. One that cannot be served is left out, unless all are required.

    What their reads keep is in one memory, whose size is one of the limits. The environment names the embedding
    provider, and has the keys of those that graphs have of their own.
    """
    limits = limits or Limits()
    memory = Memory(limits.cache or default_budget())
    with ThreadPoolExecutor(_OPENED_AT_A_TIME) as pool:
        open_ = partial(
            _open, identities=identities, options=options, memory=memory, environment=environment or {}
        )
        outcomes = list(pool.map(open_, hosting.graphs))
    hosted = Hosted(
        {item.id: item for item in outcomes if isinstance(item, HostedGraph)},
        identities,
        None if hosting.policy is None else Gate(hosting.policy).prepare(),
        {
            source.id: _reason(outcome)
            for source, outcome in zip(hosting.graphs, outcomes, strict=True)
            if isinstance(outcome, OmnigraphError)
        },
        limits,
        BlobsInUse(_BLOBS * memory.budget),
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
    source: GraphSource,
    identities: Identities,
    options: Mapping[str, str] | None,
    memory: Memory,
    environment: Mapping[str, str],
) -> HostedGraph | OmnigraphError:
    if source.trouble is not None:
        return source.trouble
    try:
        if source.make(options):
            LOGGER.info("graph was made", extra={"fields": {"graph_id": source.id}})
        # Also without clients: what does not check is not served to anybody.
        queries = (
            {}
            if source.queries is None
            else read_stored(source.queries, source.read_schema(options), options)
        )
        policy = source.policy or (_read_only(identities) if identities else None)
        # Now, and not in the first request, which would keep all others waiting.
        gate = None if policy is None else Gate(policy, source.id).prepare()
        own = source.embedding
        reader = Reader(memory, embedder_of(environment if own is None else own.environment(environment)))
        graph = open_with(reader, source.uri, storage_options=options, gate=gate)
    except OmnigraphError as error:
        return error
    return HostedGraph(source.id, graph, gate, queries, reader=reader)


def _reason(error: OmnigraphError) -> str:
    """Why a graph is not served, in one line; of a text with its place, as `omnigraph lint` tells it."""
    where = ""
    if isinstance(error, LanguageError):
        where = f"{error.diagnostics[0].file}:{error.line}:{error.column}: "
    return f"{where}{error.message}" + ("" if error.hint is None else f" ({error.hint})")


def _read_only(identities: Identities) -> PolicyBundle:
    """What a graph without a bundle allows those who have a token: reading."""
    return PolicyBundle(
        {"known": tuple(sorted(identities.actors))}, rules=(Rule("default", "known", ("read",)),)
    )
