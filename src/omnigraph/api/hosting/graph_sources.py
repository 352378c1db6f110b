"""The graphs that a server hosts, with their stored queries, policies and embedding providers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.errors import Conflict, InvalidInput, NotFound, OmnigraphError
from omnigraph.rules.external_blobs import ExternalBlobPolicy

if TYPE_CHECKING:
    from omnigraph.api.hosting.served_graphs import ServedGraphs
    from omnigraph.api.hosting.stored_queries import QuerySources
    from omnigraph.lang.schema import Schema
    from omnigraph.policy.bundle import PolicyBundle

GRAPH_ID = re.compile(r"[a-zA-Z0-9-]{1,64}\Z")
RESERVED_IDS = frozenset({"policies"})


@dataclass(frozen=True, slots=True)
class EmbeddingProfile:
    """An embedding provider of a configuration file. Its key is in an environment variable, never in the file."""

    kind: str
    base_url: str | None = None
    model: str | None = None
    key_variable: str | None = None

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that select this provider, with its key from `environment`."""
        key = "" if self.key_variable is None else environment.get(self.key_variable, "")
        variables = {
            "OMNIGRAPH_EMBED_PROVIDER": self.kind,
            "OMNIGRAPH_EMBED_BASE_URL": self.base_url or "",
            "OMNIGRAPH_EMBED_MODEL": self.model or "",
            "GEMINI_API_KEY" if self.kind == "gemini" else "OPENAI_API_KEY": key,
        }
        return {name: value for name, value in variables.items() if value}


@dataclass(frozen=True, slots=True)
class GraphSource:
    """A graph to host.

    `schema` is the schema with which a missing graph is created. `external_blobs` has the bases below which Blob
    values may be external URIs; the server uses the ``server_safe`` ones. `error` says why the
    graph cannot be hosted, as far as that is known before it is opened. A cluster changes the schema of a graph
    that `is_managed`.
    """

    id: str
    uri: str
    queries: QuerySources | None = None
    policy: PolicyBundle | None = None
    error: OmnigraphError | None = None
    schema: str | Path | None = None
    embedding: EmbeddingProfile | None = None
    external_blobs: ExternalBlobPolicy = field(default_factory=ExternalBlobPolicy)
    is_managed: bool = False

    def create_if_missing(
        self, options: Mapping[str, str] | None = None, markers: ServedGraphs | None = None
    ) -> bool:
        """Create the graph if it does not exist and a schema is configured; return whether it was created.

        Raises `StorageError` if `markers` say that the graph has existed. It is never created again silently.
        """
        state = None if markers is None else markers.state(self.id, self.uri)
        if self.schema is None and state != "served":
            return False
        if self._exists(options):
            return False
        if markers is not None and state == "served":
            raise markers.missing_error(self.id, self.uri)
        assert self.schema is not None
        if markers is not None:
            markers.begin_creation(self.id, self.uri)
        from omnigraph.api.entry import init
        from omnigraph.sources.mapping.document import read_text

        try:
            init(self.uri, read_text(self.schema, options or {}), storage_options=options).close()
        except Conflict:
            return False
        return True

    def _exists(self, options: Mapping[str, str] | None) -> bool:
        from omnigraph.graph.open_storage import connect, open_manifest

        location, root, _ = connect(self.uri, options, "full")
        try:
            open_manifest(root, location)
        except NotFound:
            return False
        return True

    def read_schema(self, options: Mapping[str, str] | None = None) -> Schema:
        """Return the schema of the main branch."""
        from omnigraph.api.entry import open as open_graph

        with open_graph(self.uri, "r", storage_options=options) as graph:
            return graph.snapshot().catalog.schema


@dataclass(frozen=True, slots=True)
class Hosting:
    """The graphs to host, none of them open. `policy` applies to actions of the server itself.

    `folder` is where the configuration is. Markers of served graphs are kept there. `cluster` is the root of the
    cluster whose applied revision this is.
    """

    graphs: tuple[GraphSource, ...]
    policy: PolicyBundle | None = None
    folder: str | None = None
    cluster: str | None = None

    @property
    def has_policy(self) -> bool:
        """Whether the server or a graph has a policy."""
        return self.policy is not None or any(source.policy is not None for source in self.graphs)


def check_graph_id(id_: str) -> str:
    """Return a valid graph id, or raise `InvalidInput`."""
    if not GRAPH_ID.match(id_) or id_ in RESERVED_IDS:
        raise InvalidInput(f"'{id_[:80]}' is not a graph id", hint="1 to 64 letters, digits and hyphens")
    return id_
