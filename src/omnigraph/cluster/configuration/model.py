"""The declared configuration as frozen data, with its digests and dependencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from omnigraph.cluster.addresses import (
    CLUSTER,
    graph_address,
    policy_address,
    query_address,
    schema_address,
    sort_key,
)
from omnigraph.cluster.digests import config_digest, digest_of, graph_digest, provider_digest
from omnigraph.rules.external_blobs import ExternalBlobPolicy


@dataclass(frozen=True, slots=True)
class DeclaredFile:
    """A file that the configuration names, as it was read."""

    path: Path
    data: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return digest_of(self.data)


@dataclass(frozen=True, slots=True)
class DeclaredGraph:
    """A graph: its schema, its stored queries by name, the address of its provider, and its external blobs."""

    id: str
    schema: DeclaredFile
    queries: Mapping[str, DeclaredFile]
    provider: str | None = None
    external_blobs: ExternalBlobPolicy = field(default_factory=ExternalBlobPolicy)


@dataclass(frozen=True, slots=True)
class DeclaredPolicy:
    """A policy bundle, and the addresses that it applies to: graphs, or the cluster."""

    name: str
    file: DeclaredFile
    applies_to: tuple[str, ...]


@dataclass(frozen=True)
class Configuration:
    """A valid configuration. `document` is the parsed YAML, `storage` the root that holds ledger and graphs."""

    folder: Path
    document: Any = field(repr=False)
    storage: str
    uses_lock: bool = True
    providers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    graphs: Mapping[str, DeclaredGraph] = field(default_factory=dict)
    policies: Mapping[str, DeclaredPolicy] = field(default_factory=dict)

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """The digest of every resource, by address."""
        found = {address: provider_digest(profile) for address, profile in self.providers.items()}
        for graph in self.graphs.values():
            found[schema_address(graph.id)] = graph.schema.digest
            queries = {name: file.digest for name, file in graph.queries.items()}
            found |= {query_address(graph.id, name): digest for name, digest in queries.items()}
            provider = None if graph.provider is None else (graph.provider, found[graph.provider])
            found[graph_address(graph.id)] = graph_digest(
                graph.id, graph.schema.digest, queries, provider, graph.external_blobs
            )
        for policy in self.policies.values():
            found[policy_address(policy.name)] = policy.file.digest
        return {address: found[address] for address in sorted(found, key=sort_key)}

    @cached_property
    def digest(self) -> str:
        """The digest of the configuration."""
        return config_digest(self.document, self.digests)

    @cached_property
    def files(self) -> Mapping[str, DeclaredFile]:
        """The file of each schema, query and policy, by address."""
        found = {schema_address(graph.id): graph.schema for graph in self.graphs.values()}
        for graph in self.graphs.values():
            found |= {query_address(graph.id, name): file for name, file in graph.queries.items()}
        return found | {policy_address(policy.name): policy.file for policy in self.policies.values()}

    @cached_property
    def dependencies(self) -> tuple[tuple[str, str], ...]:
        """Pairs of addresses, the first of which depends on the second."""
        found: list[tuple[str, str]] = []
        for graph in self.graphs.values():
            own, schema = graph_address(graph.id), schema_address(graph.id)
            found.append((schema, own))
            for name in graph.queries:
                found += [(query_address(graph.id, name), own), (query_address(graph.id, name), schema)]
            if graph.provider is not None:
                found.append((own, graph.provider))
        for policy in self.policies.values():
            found += [(policy_address(policy.name), to) for to in policy.applies_to if to != CLUSTER]
        return tuple(sorted(found))

    def graph_uri(self, graph: str) -> str:
        """Return the storage address of a graph."""
        return graph_uri(self.storage, graph)


def graph_uri(storage: str, graph: str) -> str:
    """Return the storage address of a graph below the root of a cluster.

    >>> graph_uri("s3://bucket/team/", "knowledge")
    's3://bucket/team/graphs/knowledge.omni'
    """
    return f"{storage.rstrip('/')}/graphs/{graph}.omni"
