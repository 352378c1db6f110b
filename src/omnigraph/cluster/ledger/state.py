"""The ledger of a cluster: which resources are applied, and what is known about them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from omnigraph.cluster.addresses import graph_of, name_of
from omnigraph.cluster.diagnostics import ClusterFailure, error
from omnigraph.cluster.digests import graph_digest
from omnigraph.rules.external_blobs import ExternalBlobPolicy

STATE_KEY: Final = "__cluster/state.json"
VERSION: Final = 1
StatusName: TypeAlias = Literal["pending", "planned", "applying", "applied", "drifted", "blocked", "error"]


@dataclass(frozen=True, slots=True)
class AppliedResource:
    """An applied resource. `applies_to` is for policies, `embedding_profile` for providers, the rest for graphs."""

    digest: str
    applies_to: tuple[str, ...] | None = None
    embedding_provider: str | None = None
    embedding_profile: Mapping[str, str] | None = None
    external_blob_policy: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, without absent members."""
        members: dict[str, Any] = {
            "digest": self.digest,
            "applies_to": None if self.applies_to is None else list(self.applies_to),
            "embedding_provider": self.embedding_provider,
            "embedding_profile": None if self.embedding_profile is None else dict(self.embedding_profile),
            "external_blob_policy": self.external_blob_policy,
        }
        return {name: value for name, value in members.items() if value is not None}

    def external_blobs(self) -> ExternalBlobPolicy:
        """Return the recorded policy of external blobs. Raises `InvalidInput` if it is invalid."""
        bases = (self.external_blob_policy or {}).get("bases", [])
        return ExternalBlobPolicy.of([{"base": item["uri"], "scope": item["scope"]} for item in bases])


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """The status of a resource after the last operation."""

    status: StatusName
    conditions: tuple[str, ...] = ()
    message: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, without absent members."""
        found: dict[str, Any] = {"status": self.status}
        if self.conditions:
            found["conditions"] = list(self.conditions)
        if self.message is not None:
            found["message"] = self.message
        return found


@dataclass(frozen=True)
class ClusterState:
    """The ledger. `state_revision` grows by one with each write."""

    state_revision: int = 0
    config_digest: str | None = None
    resources: Mapping[str, AppliedResource] = field(default_factory=dict)
    resource_statuses: Mapping[str, ResourceStatus] = field(default_factory=dict)
    approval_records: Mapping[str, Any] = field(default_factory=dict)
    recovery_records: Mapping[str, Any] = field(default_factory=dict)
    observations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digests(self) -> dict[str, str]:
        """The applied digests by address."""
        return {address: item.digest for address, item in self.resources.items()}

    @property
    def graphs(self) -> list[str]:
        """The ids of the applied graphs."""
        return sorted(name_of(address) for address in self.resources if address.startswith("graph."))

    def queries_of(self, graph: str) -> dict[str, str]:
        """Return the applied digest of each stored query of a graph, by name."""
        prefix = f"query.{graph}."
        found = {a: item for a, item in self.resources.items() if a.startswith(prefix)}
        return {name_of(address): item.digest for address, item in found.items()}

    def with_resources(self, changed: Mapping[str, AppliedResource | None]) -> ClusterState:
        """Return the ledger with resources set, or removed where the value is None."""
        merged = {**self.resources, **changed}
        return replace(self, resources={a: item for a, item in merged.items() if item is not None})

    def with_statuses(self, changed: Mapping[str, ResourceStatus | None]) -> ClusterState:
        """Return the ledger with statuses set, or removed where the value is None."""
        merged = {**self.resource_statuses, **changed}
        return replace(self, resource_statuses={a: item for a, item in merged.items() if item is not None})

    def with_approvals(self, records: Iterable[Mapping[str, Any]]) -> ClusterState:
        """Return the ledger with records of used approvals."""
        added = {str(record["approval_id"]): dict(record) for record in records}
        return replace(self, approval_records={**self.approval_records, **added})

    def without_graph(self, graph: str) -> ClusterState:
        """Return the ledger without a graph, its schema and its queries."""
        return replace(
            self,
            resources={a: item for a, item in self.resources.items() if graph_of(a) != graph},
            resource_statuses={a: s for a, s in self.resource_statuses.items() if graph_of(a) != graph},
            observations={a: item for a, item in self.observations.items() if graph_of(a) != graph},
        )

    def with_graph_digest(self, graph: str) -> ClusterState:
        """Return the ledger with the composite digest of a graph computed from its applied parts."""
        own = self.resources.get(f"graph.{graph}")
        schema = self.resources.get(f"schema.{graph}")
        if own is None or schema is None:
            return self
        provider = self.resources.get(own.embedding_provider or "")
        digest = graph_digest(
            graph,
            schema.digest,
            self.queries_of(graph),
            None
            if own.embedding_provider is None or provider is None
            else (own.embedding_provider, provider.digest),
            own.external_blobs(),
        )
        return self.with_resources({f"graph.{graph}": replace(own, digest=digest)})

    def to_bytes(self) -> bytes:
        """Return the content of the state file."""
        document = {
            "version": VERSION,
            "state_revision": self.state_revision,
            "applied_revision": {
                "config_digest": self.config_digest,
                "resources": {a: item.to_json() for a, item in sorted(self.resources.items())},
            },
            "resource_statuses": {a: item.to_json() for a, item in sorted(self.resource_statuses.items())},
            "approval_records": self.approval_records,
            "recovery_records": self.recovery_records,
            "observations": self.observations,
        }
        return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"


def parse_state(data: bytes) -> ClusterState:
    """Parse a state file. Unknown members are refused. Raises `ClusterFailure`."""
    try:
        document = json.loads(data)
        return _StateParser().parse(document)
    except ClusterFailure:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as failure:
        message = (
            f"the ledger is not valid: {failure}; restore the file from a copy, or from __cluster/history"
        )
        raise ClusterFailure(error("invalid_state_json", STATE_KEY, message)) from failure


class _StateParser:
    def parse(self, document: Any) -> ClusterState:
        if not isinstance(document, dict):
            raise ValueError("expected a JSON object")
        version = document.get("version")
        if version != VERSION or type(version) is not int:
            message = f"the ledger has version {version!r}, this release reads version {VERSION}"
            raise ClusterFailure(error("unsupported_state_version", STATE_KEY, message))
        self._check(
            document,
            "the ledger",
            "version state_revision applied_revision resource_statuses approval_records recovery_records"
            " observations",
        )
        revision = document["state_revision"]
        if type(revision) is not int or revision < 1:
            raise ValueError(f"state_revision must be a positive integer, got {revision!r}")
        applied = document["applied_revision"]
        self._check(applied, "applied_revision", "config_digest resources")
        config = applied.get("config_digest")
        if config is not None and not isinstance(config, str):
            raise ValueError("config_digest must be text or null")
        return ClusterState(
            revision,
            config,
            {a: self._resource(a, item) for a, item in self._mapping(applied, "resources").items()},
            {a: self._status(a, item) for a, item in self._mapping(document, "resource_statuses").items()},
            self._mapping(document, "approval_records"),
            self._mapping(document, "recovery_records"),
            self._mapping(document, "observations"),
        )

    def _resource(self, address: str, item: Any) -> AppliedResource:
        self._check(
            item,
            address,
            "digest applies_to embedding_provider embedding_profile external_blob_policy",
        )
        applies_to = item.get("applies_to")
        if not isinstance(item["digest"], str):
            raise ValueError(f"{address}: digest must be text")
        if applies_to is not None and not (
            isinstance(applies_to, list) and all(isinstance(to, str) for to in applies_to)
        ):
            raise ValueError(f"{address}: applies_to must be a list of texts")
        for name, kind in (
            ("embedding_provider", str),
            ("embedding_profile", dict),
            ("external_blob_policy", dict),
        ):
            if not isinstance(item.get(name), kind | None):
                raise ValueError(f"{address}: {name} is not a {kind.__name__}")
        return AppliedResource(
            item["digest"],
            None if applies_to is None else tuple(applies_to),
            item.get("embedding_provider"),
            item.get("embedding_profile"),
            item.get("external_blob_policy"),
        )

    def _status(self, address: str, item: Any) -> ResourceStatus:
        self._check(item, address, "status conditions message")
        if item["status"] not in get_args(StatusName):
            raise ValueError(f"{address}: unknown status {item['status']!r}")
        conditions = item.get("conditions", [])
        if not isinstance(conditions, list):
            raise ValueError(f"{address}: conditions must be a list")
        return ResourceStatus(
            cast(StatusName, item["status"]), tuple(map(str, conditions)), item.get("message")
        )

    def _mapping(self, document: dict[str, Any], name: str) -> dict[str, Any]:
        found = document.get(name, {})
        if not isinstance(found, dict):
            raise ValueError(f"{name} must be an object")
        return found

    def _check(self, document: Any, name: str, known: str) -> None:
        if not isinstance(document, dict):
            raise ValueError(f"{name} must be an object")
        unknown = sorted(document.keys() - set(known.split()))
        if unknown:
            raise ValueError(f"{name} has an unknown member '{unknown[0]}'")
