"""Schema conflicts and their resolution."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from omnigraph.catalog.schema_merge.three_way import Side, ThreeWay
from omnigraph.catalog.shape import compact_json
from omnigraph.errors import InvalidInput

T = TypeVar("T")

# The entity and the aspect of a schema conflict.
UndecidedAspect: TypeAlias = tuple[str, str]
# The entity of a conflict about the schema as a whole.
WHOLE_SCHEMA: Final = "schema"


@dataclass(frozen=True, slots=True)
class SchemaConflict:
    """Incompatible changes of one aspect of a type, a property or the schema.

    `entity` is ``node:Person``, ``node:Person.age`` or ``schema``. `base`, `ours` and `theirs` are the three states
    as text, None where the entity does not exist. The `id` is a hash of entity, aspect and states, so that it is
    the same in every attempt at the same merge.
    """

    id: str
    entity: str
    aspect: str
    message: str
    base: str | None
    ours: str | None
    theirs: str | None


class ConflictResolver:
    """Chooses a side for every aspect of a merge and collects the unresolved conflicts.

    `undecided` are aspects in which several merge bases disagree: any difference between the sides is a conflict.
    """

    def __init__(
        self, choose: Mapping[str, Side], undecided: Collection[UndecidedAspect] = frozenset()
    ) -> None:
        for name, side in choose.items():
            if side not in ("ours", "theirs"):
                raise InvalidInput(
                    f"resolution of conflict '{name}': expected 'ours' or 'theirs', got '{side}'"
                )
        self._choose = choose
        self._undecided = frozenset(undecided)
        self._undecided_entities = frozenset(entity for entity, _ in undecided)
        self._unresolved: dict[str, SchemaConflict] = {}

    @property
    def conflicts(self) -> tuple[SchemaConflict, ...]:
        """Unresolved conflicts, ordered by entity and aspect."""
        unresolved = self._unresolved.values()
        return tuple(sorted(unresolved, key=lambda item: (item.entity, item.aspect, item.id)))

    def is_undecided(self, entity: str, aspect: str | None = None) -> bool:
        """Whether the merge bases disagree on an aspect of an entity; without an aspect, on any aspect of it."""
        if WHOLE_SCHEMA in self._undecided_entities:
            return True
        if aspect is None:
            return entity in self._undecided_entities
        return (entity, aspect) in self._undecided

    def resolve(self, entity: str, aspect: str, message: str, texts: ThreeWay[str]) -> Side:
        """Return the chosen side of a conflict; record an unresolved conflict and return ours."""
        content = compact_json([entity, aspect, *texts.parts]).encode("utf-8", "surrogatepass")
        name = f"schema:{hashlib.sha256(content).hexdigest()[:12]}"
        if name in self._choose:
            return self._choose[name]
        self._unresolved.setdefault(name, SchemaConflict(name, entity, aspect, message, *texts.parts))
        return "ours"

    def choose_side(
        self, entity: str, aspect: str, states: ThreeWay[T], texts: ThreeWay[str], *, added: bool
    ) -> Side:
        """Return the side with the merged state: the side that changed it, or ours if both sides agree.

        None is a valid state. With `added` there is no state in the merge base, so that any difference is a
        conflict.

        >>> states = ThreeWay("I32", "I32", "I64")
        >>> ConflictResolver({}).choose_side("node:A.x", "type", states, states, added=False)
        'theirs'
        """
        added = added or self.is_undecided(entity, aspect)
        if states.ours == states.theirs or (not added and states.theirs == states.base):
            return "ours"
        if not added and states.ours == states.base:
            return "theirs"
        verb = "declare" if added else "changed"
        message = f"both sides {verb} the {aspect} of {entity} differently"
        return self.resolve(entity, aspect, message, texts)
