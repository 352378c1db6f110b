"""The history of a cluster: every ledger that was ever written, with its operation and actor.

An entry is written before its ledger. Entries form a chain by the identity of the ledger file, from the present
ledger back to the first. An entry whose ledger was never written is not in the chain and is ignored.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from omnigraph.cluster.diagnostics import ClusterFailure, error, reason
from omnigraph.cluster.digests import state_cas
from omnigraph.cluster.ledger.lock import timestamp
from omnigraph.cluster.ledger.state import ClusterState, parse_state
from omnigraph.cluster.ledger.storage import FOLDER, ClusterStorage, StoredState
from omnigraph.errors import NotFound, OmnigraphError

HISTORY: Final = f"{FOLDER}/history"
_VERSION: Final = 1
_REVISION_DIGITS: Final = 10
_CAS_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One ledger of the past. `state` is the text of its file."""

    revision: int
    operation: str
    actor: str | None
    written_at: str
    previous_cas: str | None
    state: str

    @property
    def cas(self) -> str:
        """The identity of its ledger."""
        return state_cas(self.state.encode())

    def read_state(self) -> ClusterState:
        """Return its ledger."""
        return parse_state(self.state.encode())

    def to_json(self) -> dict[str, Any]:
        """Return the entry for output, without the ledger itself."""
        state = self.read_state()
        return {
            "state_revision": self.revision,
            "operation": self.operation,
            "actor": self.actor,
            "written_at": self.written_at,
            "state_cas": self.cas,
            "config_digest": state.config_digest,
            "resource_count": len(state.resources),
        }


def commit_ledger(
    storage: ClusterStorage, before: StoredState, after: ClusterState, operation: str, actor: str | None
) -> StoredState:
    """Write the next ledger and its entry in the history; return it as stored.

    Raises `ClusterFailure`: with `state_cas_mismatch` if another process has written the ledger. The ledger is
    unchanged then.
    """
    written = replace(after, state_revision=before.or_empty.state_revision + 1)
    text = written.to_bytes().decode()
    entry = HistoryEntry(written.state_revision, operation, actor, timestamp(), before.cas, text)
    document = {
        "version": _VERSION,
        "state_revision": entry.revision,
        "operation": operation,
        "actor": actor,
        "written_at": entry.written_at,
        "previous_cas": entry.previous_cas,
        "state": text,
    }
    try:
        # Its name has the digest of the ledger, so an entry that exists is of an earlier attempt to write the same.
        storage.objects.create_if_absent(_key(entry), json.dumps(document, indent=2).encode() + b"\n")
    except OmnigraphError as failure:
        raise ClusterFailure(
            error("state_write_error", storage.path(_key(entry)), reason(failure))
        ) from failure
    storage.write_state(before, written)
    return StoredState(written, None, entry.cas)


def read_history(storage: ClusterStorage, cas: str | None) -> tuple[HistoryEntry, ...]:
    """Return the entries that lead to the ledger with an identity, the newest first.

    The chain ends at the first entry that is missing or damaged.
    """
    names: dict[str, str] = {}
    try:
        for info in storage.objects.list(HISTORY):
            names[info.key.rpartition("-")[2].removesuffix(".json")] = info.key
        found: list[HistoryEntry] = []
        while cas is not None:
            key = names.get(_short(cas))
            entry = None if key is None else _read(storage, key)
            if entry is None or entry.cas != cas:
                break
            found.append(entry)
            cas = entry.previous_cas
    except OmnigraphError as failure:
        raise ClusterFailure(error("state_read_error", storage.path(HISTORY), reason(failure))) from failure
    return tuple(found)


def _read(storage: ClusterStorage, key: str) -> HistoryEntry | None:
    try:
        document = json.loads(storage.objects.get(key).data)
        return HistoryEntry(
            document["state_revision"],
            document["operation"],
            document["actor"],
            document["written_at"],
            document["previous_cas"],
            document["state"],
        )
    except (NotFound, ValueError, TypeError, KeyError):
        return None


def _key(entry: HistoryEntry) -> str:
    return f"{HISTORY}/{entry.revision:0{_REVISION_DIGITS}d}-{_short(entry.cas)}.json"


def _short(cas: str) -> str:
    return cas.removeprefix("sha256:")[:_CAS_DIGITS]
