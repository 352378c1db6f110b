"""Recovery intents: what a running graph create, schema apply or graph delete is about to do.

An intent is written before the first change to a graph, and removed after the ledger records the change. An intent
that is found later belongs to an interrupted operation.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from ulid import ULID

from omnigraph.cluster.diagnostics import ClusterFailure, Diagnostic, error, reason, warning
from omnigraph.cluster.ledger.lock import timestamp
from omnigraph.cluster.ledger.storage import FOLDER, ClusterStorage
from omnigraph.errors import NotFound, OmnigraphError

RECOVERIES: Final = f"{FOLDER}/recoveries"
IntentKind: TypeAlias = Literal["graph_create", "schema_apply", "graph_delete"]
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Intent:
    """The intent of one change to one graph."""

    operation_id: str
    started_at: str
    actor: str | None
    kind: IntentKind
    graph_id: str
    graph_uri: str
    observed_manifest_version: int | None
    expected_manifest_version: int | None
    desired_schema_digest: str | None
    state_cas_base: str | None
    approval_id: str | None = None

    @classmethod
    def begin(
        cls,
        kind: IntentKind,
        storage: ClusterStorage,
        graph: str,
        *,
        actor: str | None,
        cas: str | None,
        observed: int | None = None,
        expected: int | None = None,
        digest: str | None = None,
        approval_id: str | None = None,
    ) -> Intent:
        """Return the intent of a change that begins now."""
        return cls(
            str(ULID()),
            timestamp(),
            actor,
            kind,
            graph,
            storage.graph_uri(graph),
            observed,
            expected,
            digest,
            cas,
            approval_id,
        )

    @property
    def key(self) -> str:
        """The key of its object."""
        return f"{RECOVERIES}/{self.operation_id}.json"

    def to_bytes(self) -> bytes:
        """Return the content of its object."""
        return json.dumps({"schema_version": _VERSION, **asdict(self)}, indent=2).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class PendingIntents:
    """The intents of interrupted operations. `unreadable` has the keys of those that cannot be attributed."""

    intents: tuple[Intent, ...] = ()
    unreadable: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    def of(self, graph: str) -> tuple[Intent, ...]:
        """Return the intents of a graph."""
        return tuple(item for item in self.intents if item.graph_id == graph)

    def blocks(self, graph: str) -> bool:
        """Return whether a graph must not be moved. An intent without a graph may be about any."""
        return bool(self.unreadable) or any(item.graph_id == graph for item in self.intents)


def read_intents(storage: ClusterStorage) -> PendingIntents:
    """Return all intents, the oldest first. One that cannot be read is a warning."""
    found: list[Intent] = []
    unreadable: list[str] = []
    diagnostics: list[Diagnostic] = []
    try:
        keys = [info.key for info in storage.objects.list(RECOVERIES)]
    except OmnigraphError as failure:
        diagnostic = error("state_read_error", storage.path(RECOVERIES), reason(failure))
        raise ClusterFailure(diagnostic) from failure
    for key in keys:
        try:
            found.append(_parse(storage.objects.get(key).data))
        except NotFound:
            # Another process removed it since it was listed.
            continue
        except (OmnigraphError, ValueError, TypeError, KeyError, AttributeError) as failure:
            unreadable.append(key)
            text = reason(failure) if isinstance(failure, OmnigraphError) else str(failure)
            message = f"the recovery intent cannot be read, no graph is changed until it is removed: {text}"
            diagnostics.append(warning("recovery_sidecar_read_error", storage.path(key), message))
    return PendingIntents(tuple(found), tuple(unreadable), tuple(diagnostics))


def write_intent(storage: ClusterStorage, intent: Intent) -> None:
    """Store an intent. Raises `ClusterFailure`; then the change must not begin."""
    try:
        storage.objects.put(intent.key, intent.to_bytes())
    except OmnigraphError as failure:
        diagnostic = error("recovery_sidecar_write_error", storage.path(intent.key), reason(failure))
        raise ClusterFailure(diagnostic) from failure


def remove_intents(storage: ClusterStorage, intents: tuple[Intent, ...]) -> tuple[Diagnostic, ...]:
    """Remove intents. A failure is a warning: the next operation removes them."""
    found: list[Diagnostic] = []
    for intent in intents:
        try:
            storage.objects.delete(intent.key)
        except OmnigraphError as failure:
            path = storage.path(intent.key)
            found.append(warning("recovery_sidecar_cleanup_failed", path, reason(failure)))
    return tuple(found)


def _parse(data: bytes) -> Intent:
    document: dict[str, Any] = json.loads(data)
    if document.pop("schema_version") != _VERSION:
        raise ValueError(f"its schema_version is not {_VERSION}")
    found = Intent(**document)
    if document["kind"] not in get_args(IntentKind) or not str(document["graph_id"]):
        raise ValueError("it names no graph or an unknown kind of change")
    return found
