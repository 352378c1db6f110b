"""Approvals of changes that destroy data. An approval is bound to the digests that its author saw."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from ulid import ULID

from omnigraph.cluster.diagnostics import ClusterFailure, Diagnostic, error, reason, warning
from omnigraph.cluster.ledger.lock import timestamp
from omnigraph.cluster.ledger.storage import FOLDER, ClusterStorage
from omnigraph.errors import NotFound, OmnigraphError

APPROVALS: Final = f"{FOLDER}/approvals"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Binding:
    """The state of a change that an approval is for."""

    resource: str
    operation: str
    config_digest: str | None
    before_digest: str | None
    after_digest: str | None


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval of one change by one actor."""

    approval_id: str
    resource: str
    operation: str
    reason: str
    bound_config_digest: str | None
    bound_before_digest: str | None
    bound_after_digest: str | None
    approved_by: str
    created_at: str
    consumed_at: str | None = None
    consumed_by_operation: str | None = None

    @classmethod
    def new(cls, binding: Binding, why: str, actor: str) -> Approval:
        """Return an approval that is given now."""
        return cls(
            str(ULID()),
            binding.resource,
            binding.operation,
            why,
            binding.config_digest,
            binding.before_digest,
            binding.after_digest,
            actor,
            timestamp(),
        )

    @property
    def binding(self) -> Binding:
        """What it is bound to."""
        return Binding(
            self.resource,
            self.operation,
            self.bound_config_digest,
            self.bound_before_digest,
            self.bound_after_digest,
        )

    @property
    def key(self) -> str:
        """The key of its object."""
        return f"{APPROVALS}/{self.approval_id}.json"

    def consumed(self, operation: str) -> Approval:
        """Return the approval after its change is done."""
        return replace(self, consumed_at=timestamp(), consumed_by_operation=operation)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"schema_version": _VERSION, **asdict(self)}

    def to_bytes(self) -> bytes:
        """Return the content of its object."""
        return json.dumps(self.to_json(), indent=2).encode() + b"\n"


def read_approvals(storage: ClusterStorage) -> tuple[tuple[Approval, ...], tuple[Diagnostic, ...]]:
    """Return the approvals that are not consumed. One that cannot be read is ignored with a warning."""
    found: list[Approval] = []
    diagnostics: list[Diagnostic] = []
    try:
        keys = [info.key for info in storage.objects.list(APPROVALS)]
    except OmnigraphError as failure:
        diagnostic = error("state_read_error", storage.path(APPROVALS), reason(failure))
        raise ClusterFailure(diagnostic) from failure
    for key in keys:
        try:
            found.append(_parse(storage.objects.get(key).data))
        except NotFound:
            continue
        except (OmnigraphError, ValueError, TypeError, KeyError, AttributeError) as failure:
            message = f"the approval cannot be read and is ignored: {failure}"
            diagnostics.append(warning("approval_stale", storage.path(key), message))
    return tuple(item for item in found if item.consumed_at is None), tuple(diagnostics)


def find_approval(approvals: Iterable[Approval], binding: Binding) -> Approval | None:
    """Return the newest approval of exactly this change, or None."""
    matching = [item for item in approvals if item.binding == binding]
    return max(matching, key=lambda item: item.approval_id, default=None)


def consume_approvals(approvals: Iterable[Approval], used: Approval, operation: str) -> tuple[Approval, ...]:
    """Return the approvals that an operation uses up: the one that it used, and all others of the same change.

    Otherwise a change that was approved twice could happen again without an approval.
    """
    return tuple(item.consumed(operation) for item in approvals if item.binding == used.binding)


def confirm_approval(storage: ClusterStorage, approval: Approval) -> None:
    """Read an approval again, directly before its change. Raises `ClusterFailure` unless it is unchanged."""
    try:
        stored = _parse(storage.objects.get(approval.key).data)
    except (OmnigraphError, ValueError, TypeError, KeyError, AttributeError):
        stored = None
    if stored != approval:
        message = f"the approval {approval.approval_id} was changed or withdrawn while it was used"
        raise ClusterFailure(error("apply_approval_invariant_violation", approval.resource, message))


def write_approval(storage: ClusterStorage, approval: Approval) -> None:
    """Store an approval. Raises `ClusterFailure`."""
    try:
        storage.objects.put(approval.key, approval.to_bytes())
    except OmnigraphError as failure:
        path = storage.path(approval.key)
        raise ClusterFailure(error("approval_write_error", path, reason(failure))) from failure


def _parse(data: bytes) -> Approval:
    document: dict[str, Any] = json.loads(data)
    if document.pop("schema_version") != _VERSION:
        raise ValueError(f"its schema_version is not {_VERSION}")
    return Approval(**document)
