"""The versions of an entity, and the origins of its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from omnigraph.api.results.commits import Commit, Timestamp

if TYPE_CHECKING:
    from omnigraph.changes.entity_history import FoundOrigin, FoundVersion

VersionOp: TypeAlias = Literal["insert", "update", "delete", "unknown"]


@dataclass(frozen=True, slots=True)
class EntityVersion:
    """A commit that changed a node or edge: the state before and after, and the properties that an update changed.

    An insert has only `after`, a delete only `before`. Both are ``{"properties": {...}}``, for an edge also
    ``{"endpoints": {"from": ..., "to": ...}}``. `op` is ``unknown`` if it would be an insert, but the states before
    were reclaimed or may not be read. With `gap`, states between this version and the one before were reclaimed,
    so the change may have been made by one of their commits.
    """

    commit: Commit
    op: VersionOp
    before: dict[str, dict[str, Any]] | None
    after: dict[str, dict[str, Any]] | None
    changed: tuple[str, ...] = ()
    gap: bool = False

    @classmethod
    def of(cls, found: FoundVersion) -> EntityVersion:
        """Return the public form of a version."""
        return cls(Commit.of(found.commit), found.op, found.before, found.after, found.changed, found.gap)

    @property
    def actor(self) -> str | None:
        """Who made the commit."""
        return self.commit.actor

    @property
    def time(self) -> Timestamp:
        """When the commit was made."""
        return self.commit.created_at


@dataclass(frozen=True, slots=True)
class PropertyOrigin:
    """A property, its present value, and the commit that set it.

    `exact` is false if states before the commit were reclaimed or may not be read: the value may be older.
    """

    property: str
    value: Any
    commit: Commit
    exact: bool = True

    @classmethod
    def of(cls, found: FoundOrigin) -> PropertyOrigin:
        """Return the public form of an origin."""
        return cls(found.property, found.value, Commit.of(found.commit), found.exact)
