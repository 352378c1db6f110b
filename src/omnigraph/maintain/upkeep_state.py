"""The object that processes share for the upkeep of a graph: who performs it, and what the last pass has done.

The object is a hint. Upkeep is correct without it, and when two processes perform it at the same time. An object
that cannot be parsed is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from omnigraph.errors import NotFound
from omnigraph.graph.recovery.leases import Lease
from omnigraph.lang.temporal import epoch_micros
from omnigraph.maintain.thinning import ThinnedBranch
from omnigraph.store.manifest.records import encode_body
from omnigraph.store.objects.object_store import ObjectStore

KEY: Final = "__upkeep/state.json"


@dataclass(frozen=True, slots=True)
class UpkeepState:
    """The state of upkeep. `next_version` is the version of `__manifest` from which on the next pass is due.

    `lease` is that of the process that performs a pass, or None. `thinned` has the thinned commits of each branch,
    by incarnation, for a window of `window` microseconds.
    """

    next_version: int = 0
    lease: Lease | None = None
    window: int = 0
    thinned: Mapping[str, ThinnedBranch] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the JSON form."""
        body: dict[str, Any] = {
            "next_version": self.next_version,
            "lease": None if self.lease is None else json.loads(self.lease.to_bytes()),
            "window": self.window,
            "thinned": {name: branch.to_json() for name, branch in self.thinned.items()},
        }
        return encode_body(body).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> UpkeepState:
        """Parse the JSON form. An object that cannot be parsed is a state without a pass."""
        try:
            body = json.loads(data)
            lease = body["lease"]
            return cls(
                int(body["next_version"]),
                None if lease is None else Lease.from_bytes(encode_body(lease).encode()),
                int(body["window"]),
                {name: ThinnedBranch.from_json(item) for name, item in body["thinned"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()


@dataclass
class UpkeepClaim:
    """The right of this process to perform a pass, most of the time the only one."""

    objects: ObjectStore
    state: UpkeepState
    _etag: str

    @classmethod
    def acquire(cls, objects: ObjectStore, graph_id: str, version: int) -> UpkeepClaim | UpkeepState:
        """Claim the pass that is due at a version of `__manifest`.

        Returns the present state if no pass is due or if another process performs one.
        """
        lease = Lease.new("upkeep", graph_id)
        try:
            stored = objects.get(KEY)
        except NotFound:
            state = UpkeepState(lease=lease)
            if not objects.create_if_absent(KEY, state.to_bytes()):
                return UpkeepState()
            return cls(objects, state, objects.get(KEY).etag)
        before = UpkeepState.from_bytes(stored.data)
        if version < before.next_version:
            return before
        if before.lease is not None:
            try:
                modified = epoch_micros(objects.head(KEY).last_modified)
            except NotFound:
                return before
            if before.lease.is_live(modified):
                return before
        state = replace(before, lease=lease)
        etag = objects.replace_if_matches(KEY, state.to_bytes(), stored.etag)
        return before if etag is None else cls(objects, state, etag)

    def release(self, state: UpkeepState) -> None:
        """Store the state after a pass. If another process took over the claim, its state stays."""
        self.objects.replace_if_matches(KEY, replace(state, lease=None).to_bytes(), self._etag)
