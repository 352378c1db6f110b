"""Merge conflicts: changes of both sides that contradict each other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from omnigraph.catalog.shape import compact_json
from omnigraph.errors import MergeConflicts
from omnigraph.lang.schema import TypeKind

ConflictKind: TypeAlias = Literal[
    "divergent_insert",
    "divergent_update",
    "delete_vs_update",
    "orphan_edge",
    "unique_violation",
    "cardinality_violation",
    "value_constraint_violation",
    "schema_conflict",
]

# The number of conflicts that the message of `MergeConflicts` names.
_NAMED = 3
_HINT = "change one of the branches, or resolve them with `resolve`"


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """One conflict: the entity, the property, and the values of the merge base and of both sides.

    For a violated constraint, `entities` are the tables and ids that a resolution applies to. `schema_id` is the id
    of a schema conflict.
    """

    kind: ConflictKind
    entity_kind: TypeKind
    type_name: str
    entity_id: str | None
    message: str
    property_name: str | None = None
    base: Any = None
    ours: Any = None
    theirs: Any = None
    entities: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)
    schema_id: str | None = field(default=None, compare=False, repr=False)

    @property
    def id(self) -> str:
        """A hash of the conflict. It is the same in every merge, and changes with any of the values."""
        if self.schema_id is not None:
            return self.schema_id
        entities = [list(item) for item in self.entities]
        facts = [self.kind, self.entity_kind, self.type_name, self.entity_id, self.property_name, entities]
        text = compact_json([*facts, self.message, self.base, self.ours, self.theirs])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def takes_value(self) -> bool:
        """Whether a value can resolve the conflict: it is about one property."""
        return self.kind in ("divergent_insert", "divergent_update")

    @property
    def summary(self) -> str:
        """The conflict as the message of `MergeConflicts` names it."""
        entity = "" if self.entity_id is None else f", entity id '{self.entity_id}'"
        return f"{self.entity_kind} type '{self.type_name}'{entity} ({self.kind})"

    def to_json(self) -> dict[str, Any]:
        """Return the wire form."""
        return {
            "id": self.id,
            "entity_kind": self.entity_kind,
            "type_name": self.type_name,
            "entity_id": self.entity_id,
            "kind": self.kind,
            "property": self.property_name,
            "message": self.message,
            "base": self.base,
            "ours": self.ours,
            "theirs": self.theirs,
        }


@dataclass(frozen=True)
class UnresolvedConflicts:
    """Conflicts without a resolution. `total` also counts those that are not listed."""

    listed: tuple[MergeConflict, ...] = ()
    total: int = 0

    @classmethod
    def of(cls, conflicts: Iterable[MergeConflict], total: int | None = None) -> UnresolvedConflicts:
        """Return the conflicts in order; without `total` the list is complete."""
        listed = tuple(sort_conflicts(conflicts))
        return cls(listed, len(listed) if total is None else total)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.listed)


def merge_conflicts_error(conflicts: UnresolvedConflicts, unknown: Sequence[str] = ()) -> MergeConflicts:
    """Return the error of a merge with unresolved conflicts.

    `unknown` are ids in the resolutions that are not ids of these conflicts.
    """
    listed, total = conflicts.listed, conflicts.total
    named = "; ".join(item.summary for item in listed[:_NAMED])
    more = f"; and {total - _NAMED} more" if total > _NAMED else ""
    details: dict[str, Any] = {"conflicts": total}
    hint = _HINT
    if unknown:
        details["unknown_conflicts"] = list(unknown)
        hint = f"{_HINT}; no conflict has the id {', '.join(unknown)}"
    return MergeConflicts(
        f"merge conflicts: {named}{more}",
        (item.to_json() for item in listed),
        details=details,
        hint=hint,
    )


def sort_conflicts(conflicts: Iterable[MergeConflict]) -> list[MergeConflict]:
    """Return conflicts of nodes before those of edges, by type, entity and property."""
    return sorted(
        conflicts,
        key=lambda item: (
            item.entity_kind == "edge",
            item.type_name,
            item.entity_id or "",
            item.property_name or "",
            item.message,
        ),
    )
