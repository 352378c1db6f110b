"""Read the applied revision of a cluster: its graphs, with verified stored queries and policies.

Only the ledger and the payloads are read, never `cluster.yaml`, so edits that are not applied have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from omnigraph.api.hosting.graph_sources import EmbeddingProfile, GraphSource, Hosting, check_graph_id
from omnigraph.api.hosting.stored_queries import QuerySources
from omnigraph.cluster.addresses import (
    CLUSTER,
    graph_address,
    kind_of,
    name_of,
    policy_address,
    query_address,
    schema_address,
)
from omnigraph.cluster.configuration.declared_files import decode, parse_policy
from omnigraph.cluster.diagnostics import ClusterFailure, error, reason
from omnigraph.cluster.digests import digest_of, graph_digest, provider_digest
from omnigraph.cluster.ledger.intents import PendingIntents, read_intents
from omnigraph.cluster.ledger.state import STATE_KEY, AppliedResource, ClusterState
from omnigraph.cluster.ledger.storage import ClusterStorage, payload_key
from omnigraph.errors import InvalidInput, NotFound, OmnigraphError, RecoveryRequired
from omnigraph.policy.bundle import Binding, PolicyBundle
from omnigraph.rules.external_blobs import ExternalBlobPolicy

_CONCURRENT_READS: Final = 8


def read_applied_revision(root: str, options: Mapping[str, str] | None = None) -> Hosting:
    """Return the graphs of the applied revision. Raises `ClusterFailure` if the cluster as a whole is invalid.

    What is wrong with a single graph is the `error` of its source: a pending recovery is `RecoveryRequired`.
    """
    storage = ClusterStorage.at(root, options)
    return hosting_of(storage, read_applied_state(storage), read_intents(storage))


def read_applied_state(storage: ClusterStorage) -> ClusterState:
    """Return the ledger. Raises `ClusterFailure` with `cluster_state_missing` if it is missing or invalid."""
    path = storage.path(STATE_KEY)
    try:
        stored = storage.read_state()
    except ClusterFailure as failure:
        message = f"the ledger cannot be used: {failure.message}"
        raise ClusterFailure(error("cluster_state_missing", path, message)) from failure
    if stored.state is None:
        message = "there is no ledger: run `omnigraph cluster import` and `omnigraph cluster apply`"
        raise ClusterFailure(error("cluster_state_missing", path, message))
    return stored.state


def hosting_of(storage: ClusterStorage, state: ClusterState, pending: PendingIntents) -> Hosting:
    """Return what a server hosts for a ledger. Payloads are read and verified."""
    if pending.unreadable:
        message = "a recovery intent cannot be read, so it may be about any graph: repair or remove it"
        path = storage.path(pending.unreadable[0])
        raise ClusterFailure(error("cluster_recovery_unattributed", path, message))
    if not state.graphs:
        message = "no graph is applied: declare one and run `omnigraph cluster apply`"
        raise ClusterFailure(error("cluster_empty", storage.path(STATE_KEY), message))
    payloads = read_payloads(storage, state)
    policies = bind_policies(state, payloads)
    sources = [
        _GraphReader(storage, state, payloads, policies, pending).source(graph) for graph in state.graphs
    ]
    return Hosting(tuple(sources), policies.get(CLUSTER), cluster=storage.root)


def read_payloads(storage: ClusterStorage, state: ClusterState) -> dict[str, bytes]:
    """Return the verified payload of every query and policy. Raises `ClusterFailure` with all that are wrong."""
    wanted = [
        (address, item.digest)
        for address, item in sorted(state.resources.items())
        if kind_of(address) in ("query", "policy")
    ]
    with ThreadPoolExecutor(_CONCURRENT_READS) as pool:
        found = list(pool.map(partial(_read_payload, storage), wanted))
    failures = [item.diagnostics[0] for item in found if isinstance(item, ClusterFailure)]
    if failures:
        raise ClusterFailure(*failures)
    return {
        address: data for (address, _), data in zip(wanted, found, strict=True) if isinstance(data, bytes)
    }


def _read_payload(storage: ClusterStorage, wanted: tuple[str, str]) -> bytes | ClusterFailure:
    address, digest = wanted
    hint = "run `omnigraph cluster refresh` and `omnigraph cluster apply`"
    try:
        data = storage.read_payload(address, digest)
    except NotFound:
        message = f"{payload_key(address, digest)} is missing: {hint}"
        return ClusterFailure(error("catalog_payload_missing", address, message))
    except OmnigraphError as failure:
        return ClusterFailure(error("catalog_payload_read_error", address, reason(failure)))
    if digest_of(data) != digest:
        message = f"{payload_key(address, digest)} is altered: {hint}"
        return ClusterFailure(error("catalog_payload_digest_mismatch", address, message))
    return data


def bind_policies(state: ClusterState, payloads: Mapping[str, bytes]) -> dict[str, PolicyBundle]:
    """Return the bundle of each scope: the cluster, or the address of a graph. Raises `ClusterFailure`."""
    found: dict[str, PolicyBundle] = {}
    owners: dict[str, str] = {}
    for address, item in sorted(state.resources.items()):
        if kind_of(address) != "policy":
            continue
        if not item.applies_to:
            message = "the ledger does not say what the policy applies to: apply the configuration again"
            raise ClusterFailure(error("policy_bindings_missing", address, message))
        binding: Binding = "cluster" if CLUSTER in item.applies_to else "graph"
        try:
            bundle = parse_policy(payloads[address], policy_address(name_of(address)), binding)
        except OmnigraphError as failure:
            raise ClusterFailure(error("policy_invalid", address, reason(failure))) from failure
        for scope in item.applies_to:
            if scope in found:
                message = f"'{scope}' has the policy '{owners[scope]}' already"
                raise ClusterFailure(error("duplicate_policy_binding", address, message))
            found[scope], owners[scope] = bundle, name_of(address)
    return found


@dataclass(frozen=True)
class _GraphReader:
    storage: ClusterStorage
    state: ClusterState
    payloads: Mapping[str, bytes] = field(repr=False)
    policies: Mapping[str, PolicyBundle]
    pending: PendingIntents

    def source(self, graph: str) -> GraphSource:
        """Return a graph with its queries, its policy, and what is wrong with it."""
        own = self.state.resources[graph_address(graph)]
        found: dict[str, Any] = {"error": None}
        try:
            check_graph_id(graph)
            found["external_blobs"] = own.external_blobs()
            found["embedding"] = self._embedding(graph, own)
            self._check_digest(graph, own, found["external_blobs"])
            found["queries"] = self._queries(graph)
            if intents := self.pending.of(graph):
                raise RecoveryRequired(
                    f"graph '{graph}' has an interrupted {intents[0].kind}",
                    details={"operation_id": intents[0].operation_id},
                    hint="run `omnigraph cluster apply`",
                )
        except OmnigraphError as failure:
            found["error"] = failure
        policy = self.policies.get(graph_address(graph))
        return GraphSource(graph, self.storage.graph_uri(graph), policy=policy, is_managed=True, **found)

    def _embedding(self, graph: str, own: AppliedResource) -> EmbeddingProfile | None:
        address = own.embedding_provider
        if address is None:
            return None
        provider = self.state.resources.get(address)
        if provider is None:
            raise _failure("embedding_provider_missing", graph, f"{address} is not applied")
        profile = provider.embedding_profile
        if profile is None:
            raise _failure(
                "embedding_provider_profile_missing", graph, f"{address} has no profile in the ledger"
            )
        if provider_digest(profile) != provider.digest:
            message = f"the profile of {address} does not match its digest"
            raise _failure("embedding_provider_digest_mismatch", graph, message)
        key = profile.get("api_key")
        variable = None if key is None else key.removeprefix("${").removesuffix("}")
        return EmbeddingProfile(profile["kind"], profile.get("base_url"), profile.get("model"), variable)

    def _check_digest(self, graph: str, own: AppliedResource, external_blobs: ExternalBlobPolicy) -> None:
        """Raise `ClusterFailure` if the composite digest is not that of the parts.

        The parts have digests of their own. Only the policy of external blobs is recorded without one.
        """
        schema = self.state.resources.get(schema_address(graph))
        provider = None
        if own.embedding_provider is not None:
            provider = (own.embedding_provider, self.state.resources[own.embedding_provider].digest)
        queries = self.state.queries_of(graph)
        parts = "" if schema is None else schema.digest
        if schema is None or graph_digest(graph, parts, queries, provider, external_blobs) != own.digest:
            message = "the digest of the graph is not that of its parts: run `omnigraph cluster apply`"
            raise _failure("external_blob_policy_digest_mismatch", graph, message)

    def _queries(self, graph: str) -> QuerySources:
        """Return the stored queries from their verified payloads, which are not read again."""
        names: dict[str, str] = {}
        texts: dict[str, str] = {}
        for name, digest in self.state.queries_of(graph).items():
            address = query_address(graph, name)
            place = payload_key(address, digest)
            names[name] = place
            texts[place] = decode(self.payloads[address], place)
        return QuerySources(tuple(names.values()), dict(names), texts)


def _failure(code: str, graph: str, message: str) -> InvalidInput:
    return ClusterFailure(error(code, graph_address(graph), message))
