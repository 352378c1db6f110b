"""Change records: what happened to an entity, the commit that caused it, and the filter of changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from omnigraph.changes.cursors import EntityKey
from omnigraph.errors import InvalidInput
from omnigraph.lang.suggestions import did_you_mean

if TYPE_CHECKING:
    from omnigraph.store.manifest.records import CommitRecord

Kind: TypeAlias = Literal["node", "edge"]
Op: TypeAlias = Literal["insert", "update", "delete"]
# {"properties": {…}}, and for an edge also {"endpoints": {"from": …, "to": …}}; the values are JSON.
Image: TypeAlias = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class EntityChange:
    """A change of one node or edge. An insert has only `after`, a delete only `before`.

    `changed` names the properties that an update changed, including ``from`` and ``to`` of an edge. `type_id`
    does not change when the type is renamed, but differs after the type was dropped and declared again.
    """

    kind: Kind
    type_name: str
    type_id: str
    id: str
    op: Op
    before: Image | None = None
    after: Image | None = None
    changed: tuple[str, ...] = ()

    @property
    def key(self) -> EntityKey:
        """The key of the entity."""
        return EntityKey(self.kind, self.type_id, self.id)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        found: dict[str, Any] = {
            "kind": self.kind,
            "type": {"id": self.type_id, "name": self.type_name},
            "id": self.id,
            "op": self.op,
        }
        if self.before is not None:
            found["before"] = self.before
        if self.after is not None:
            found["after"] = self.after
        return found


@dataclass(frozen=True, slots=True)
class ChangeCause:
    """The commit that made changes. `authored_at` is in microseconds since 1970."""

    graph_commit_id: str
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    authored_branch: str
    actor_id: str | None
    authored_at: int

    @classmethod
    def of(cls, commit: CommitRecord) -> ChangeCause:
        """Return the cause for a commit."""
        return cls(
            commit.id, commit.parent, commit.merged_parent, commit.branch, commit.actor, commit.created_at
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, without members that are None."""
        found = {
            "graph_commit_id": self.graph_commit_id,
            "parent_commit_id": self.parent_commit_id,
            "merged_parent_commit_id": self.merged_parent_commit_id,
            "authored_branch": self.authored_branch,
            "actor_id": self.actor_id,
            "authored_at": self.authored_at,
        }
        return {key: value for key, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ChangeBlock:
    """A commit and its changes, or a page of them."""

    cause: ChangeCause
    changes: tuple[EntityChange, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"cause": self.cause.to_json(), "changes": [change.to_json() for change in self.changes]}


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """A filter of changes. An empty part selects everything. Each part is sorted and without repeats."""

    kinds: tuple[Kind, ...] = ()
    types: tuple[str, ...] = ()
    ops: tuple[Op, ...] = ()

    @classmethod
    def of(
        cls,
        kinds: Iterable[Kind] | None = None,
        types: Iterable[str] | None = None,
        ops: Iterable[Op] | None = None,
    ) -> ChangeFilter:
        """Return a filter; raise `InvalidInput` for an unknown kind or operation and for an empty list.

        >>> ChangeFilter.of(ops=["update", "insert", "update"])
        ChangeFilter(kinds=(), types=(), ops=('insert', 'update'))
        """
        found = {"kinds": _listed(kinds), "types": _listed(types), "ops": _listed(ops)}
        for part, known in (("kinds", get_args(Kind)), ("ops", get_args(Op))):
            for name in found[part]:
                if name not in known:
                    raise InvalidInput(f"unknown {part[:-1]} '{name}'", hint=f"use one of {', '.join(known)}")
        return cls(**found)

    def check_types(self, known: Iterable[str]) -> None:
        """Raise `InvalidInput` if a type of the filter is not among the known types."""
        names = sorted(set(known))
        for name in self.types:
            if name not in names:
                raise InvalidInput(f"unknown type '{name}'{did_you_mean(name, names)}")

    def selects_table(self, kind: str, names: Sequence[str]) -> bool:
        """Return whether the filter selects changes of a type that has the given names."""
        return (not self.kinds or kind in self.kinds) and (
            not self.types or any(name in self.types for name in names)
        )

    @property
    def fingerprint(self) -> str:
        """A short text that is equal for equal filters."""
        parts = [self.kinds, self.types, self.ops]
        return sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()[:16]


EVERYTHING: Final = ChangeFilter()


def _listed(names: Iterable[Any] | None) -> tuple[Any, ...]:
    if names is None:
        return ()
    if isinstance(names, str):
        raise InvalidInput(f"expected a list of names, got the text '{names}'")
    found = tuple(sorted(set(names)))
    if not found:
        raise InvalidInput("an empty list of names selects nothing", hint="omit it to select everything")
    return found
