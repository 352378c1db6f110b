"""A planned change of one resource, and a whole plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Operation: TypeAlias = Literal["create", "update", "delete"]
Disposition: TypeAlias = Literal["applied", "derived", "blocked", "deferred"]
MetadataChange: TypeAlias = Literal["policy_bindings", "embedding_profile"]


@dataclass(frozen=True, slots=True)
class Migration:
    """The migration of the schema of a live graph: whether it is possible, its steps, and the steps as text."""

    supported: bool
    steps: tuple[Mapping[str, Any], ...]
    lines: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "supported": self.supported,
            "step_count": len(self.steps),
            "steps": [dict(step) for step in self.steps],
        }


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one resource. `disposition` is what apply does with it; `reason` is why it does not apply it."""

    resource: str
    operation: Operation
    before_digest: str | None = None
    after_digest: str | None = None
    disposition: Disposition | None = None
    reason: str | None = None
    binding_change: bool = False
    metadata_change: MetadataChange | None = None
    migration: Migration | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, without absent members."""
        members: dict[str, Any] = {
            "resource": self.resource,
            "operation": self.operation,
            "before_digest": self.before_digest,
            "after_digest": self.after_digest,
            "disposition": self.disposition,
            "reason": self.reason,
            "binding_change": self.binding_change or None,
            "metadata_change": self.metadata_change,
            "migration": None if self.migration is None else self.migration.to_json(),
        }
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ApprovalGate:
    """A change that needs an approval."""

    resource: str
    reason: str
    satisfied: bool

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"resource": self.resource, "reason": self.reason, "satisfied": self.satisfied}


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes between the ledger and the configuration, in the order of their kinds."""

    changes: tuple[Change, ...] = ()
    blast_radius: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    approvals_required: tuple[ApprovalGate, ...] = ()

    def find(self, resource: str) -> Change | None:
        """Return the change of a resource, or None."""
        return next((item for item in self.changes if item.resource == resource), None)
