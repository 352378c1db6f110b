"""The objects of a cluster below its root: the ledger, swapped atomically, and the payloads of its catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from omnigraph.cluster.addresses import kind_of, name_of, query_address
from omnigraph.cluster.configuration.model import graph_uri
from omnigraph.cluster.diagnostics import ClusterFailure, error, reason
from omnigraph.cluster.digests import state_cas
from omnigraph.cluster.ledger.state import STATE_KEY, ClusterState, parse_state
from omnigraph.errors import InvalidInput, NotFound, OmnigraphError
from omnigraph.store.location import Location
from omnigraph.store.objects.object_store import ObjectStore

FOLDER: Final = "__cluster"


@dataclass(frozen=True, slots=True)
class StoredState:
    """The ledger as it was read, with the entity tag that the next write expects. `state` is None if absent."""

    state: ClusterState | None = None
    etag: str | None = None
    cas: str | None = None

    @property
    def or_empty(self) -> ClusterState:
        """The ledger, or an empty one."""
        return self.state or ClusterState()


@dataclass(frozen=True)
class ClusterStorage:
    """The root of a cluster on a disk or in an object store. `options` are storage options."""

    objects: ObjectStore
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def at(cls, root: str, options: Mapping[str, str] | None = None) -> ClusterStorage:
        """Return the storage at a root. Storage is not accessed. Raises `ClusterFailure`."""
        try:
            return cls(ObjectStore.open(Location.parse(root), options), dict(options or {}))
        except InvalidInput as failure:
            raise ClusterFailure(error("storage_root_invalid", root, reason(failure))) from failure

    @property
    def root(self) -> str:
        """The address of the root."""
        return self.objects.location.uri

    def path(self, key: str) -> str:
        """Return the address of an object, for messages."""
        return f"{self.root.rstrip('/')}/{key}"

    def graph_uri(self, graph: str) -> str:
        """Return the storage address of a graph."""
        return graph_uri(self.root, graph)

    def graph_objects(self, graph: str) -> ObjectStore:
        """Return the objects of a graph."""
        return ObjectStore.open(self.graph_uri(graph), self.options)

    # --- ledger --------------------------------------------------------------------------------------------

    def read_state(self) -> StoredState:
        """Return the ledger. Raises `ClusterFailure` if it cannot be read or is invalid."""
        try:
            stored = self.objects.get(STATE_KEY)
        except NotFound:
            return StoredState()
        except OmnigraphError as failure:
            raise ClusterFailure(
                error("state_read_error", self.path(STATE_KEY), reason(failure))
            ) from failure
        return StoredState(parse_state(stored.data), stored.etag, state_cas(stored.data))

    def write_state(self, before: StoredState, after: ClusterState) -> None:
        """Replace the ledger if it is still the one that was read.

        Raises `ClusterFailure`: with `state_cas_mismatch` if another process has written it.
        """
        data = after.to_bytes()
        try:
            is_written = (
                self.objects.create_if_absent(STATE_KEY, data)
                if before.etag is None
                else self.objects.replace_if_matches(STATE_KEY, data, before.etag) is not None
            )
        except OmnigraphError as failure:
            raise ClusterFailure(
                error("state_write_error", self.path(STATE_KEY), reason(failure))
            ) from failure
        if not is_written:
            message = "another process has written the ledger since it was read: run the command again"
            raise ClusterFailure(error("state_cas_mismatch", self.path(STATE_KEY), message))

    # --- catalogue payloads --------------------------------------------------------------------------------

    def read_payload(self, address: str, digest: str) -> bytes:
        """Return the payload of a query or policy. Raises `NotFound` or `StorageError`."""
        return self.objects.get(payload_key(address, digest)).data

    def write_payload(self, address: str, digest: str, data: bytes) -> None:
        """Store the payload of a query or policy. The name contains the digest, so this is idempotent."""
        self.objects.put(payload_key(address, digest), data)


def payload_key(address: str, digest: str) -> str:
    """Return the key of the payload of a query or policy.

    >>> payload_key("query.team.find", "ab12")
    '__cluster/resources/query/team/find/ab12.gq'
    >>> payload_key("policy.base", "ab12")
    '__cluster/resources/policy/base/ab12.yaml'
    """
    if kind_of(address) == "policy":
        return f"{FOLDER}/resources/policy/{name_of(address)}/{digest}.yaml"
    _, graph, name = address.split(".")
    assert address == query_address(graph, name)
    return f"{FOLDER}/resources/query/{graph}/{name}/{digest}.gq"
