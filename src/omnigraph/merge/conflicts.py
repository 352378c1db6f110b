"""What two sides of a merge disagree in, and what the caller decided about it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from omnigraph.catalog.shape import compact_json
from omnigraph.errors import InvalidInput, MergeConflicts
from omnigraph.lang.schema import TypeKind

Choice: TypeAlias = Literal["ours", "theirs"]
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
# A side, or by the id of a conflict a side or {"value": ...}.
Resolve: TypeAlias = str | Mapping[str, Any] | None

CHOICES: Final[tuple[Choice, ...]] = ("ours", "theirs")
_NAMED = 3
_SETTLE = "change one of the branches, or settle them with a resolution"


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """One thing that cannot be decided: of which entity, in which property, and what each side says.

    `entities` are the tables and ids that a choice of a side is applied to where a rule of the schema is broken.
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
    given_id: str | None = field(default=None, compare=False, repr=False)

    @property
    def id(self) -> str:
        """The same for the same disagreement, whenever and wherever it is found; another when a value changed."""
        if self.given_id is not None:
            return self.given_id
        entities = [list(item) for item in self.entities]
        facts = [self.kind, self.entity_kind, self.type_name, self.entity_id, self.property_name, entities]
        text = compact_json([*facts, self.message, self.base, self.ours, self.theirs])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """The wire form."""
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

    @property
    def place(self) -> str:
        """How a summary names it."""
        entity = "" if self.entity_id is None else f", entity id '{self.entity_id}'"
        return f"{self.entity_kind} type '{self.type_name}'{entity} ({self.kind})"


@dataclass(frozen=True, slots=True)
class Given:
    """A value that stands in the place of both sides'."""

    value: Any


@dataclass(frozen=True, slots=True)
class Resolutions:
    """What to do about conflicts: a side for all of them, a side or a value for some."""

    default: Choice | None = None
    by_id: Mapping[str, Choice | Given] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set, compare=False, repr=False)

    @classmethod
    def of(cls, resolve: Resolve) -> Resolutions:
        """Read what a caller gives: a side, or a mapping from conflict ids to a side or ``{"value": ...}``.

        The id ``*`` stands for every conflict that is not named.

        >>> Resolutions.of({"4be2": "theirs", "*": "ours"}).default
        'ours'
        """
        if resolve is None:
            return cls()
        if isinstance(resolve, str):
            return cls(default=_choice("the resolution", resolve))
        if not isinstance(resolve, Mapping):
            raise InvalidInput(
                "a resolution is 'ours', 'theirs', or a mapping from conflict ids to one of them"
            )
        found = {id_: _answer(id_, answer) for id_, answer in resolve.items()}
        default = found.pop("*", None)
        if isinstance(default, Given):
            raise InvalidInput(
                "one value cannot settle every conflict", hint="give '*' a side, or leave it out"
            )
        return cls(default, found)

    def choose(self, conflict: MergeConflict) -> Choice | Given | None:
        """What was decided about a conflict, or None."""
        self._asked.add(conflict.id)
        found = self.by_id.get(conflict.id, self.default)
        if isinstance(found, Given) and not takes_value(conflict):
            raise InvalidInput(
                f"conflict {conflict.id} ({conflict.kind}) is about a whole entity and cannot be given a value",
                details={"conflict": conflict.to_json()},
                hint="settle it with 'ours' or 'theirs'",
            )
        return found

    def check_asked(self) -> None:
        """Refuse answers to questions that nobody asked: a mistyped id would settle its conflict by the default."""
        idle = self.idle()
        if idle:
            raise InvalidInput(
                f"there is no conflict {', '.join(idle)} in this merge",
                details={"unknown_conflicts": idle},
                hint="look at the conflicts again with a dry run; one whose values changed has another id",
            )

    def idle(self) -> list[str]:
        """The ids that were answered and that nobody has asked about so far."""
        return sorted(self.by_id.keys() - self._asked)


def other_side(choice: Choice) -> Choice:
    """The side across."""
    return "ours" if choice == "theirs" else "theirs"


def takes_value(conflict: MergeConflict) -> bool:
    """Whether a conflict is about one property, so that a value can settle it."""
    return conflict.kind in ("divergent_insert", "divergent_update")


def _answer(id_: str, answer: Any) -> Choice | Given:
    if isinstance(answer, Mapping) and set(answer) == {"value"}:
        return Given(answer["value"])
    if isinstance(answer, str):
        return _choice(f"the resolution of conflict {id_}", answer)
    raise InvalidInput(f"the resolution of conflict {id_} must be 'ours', 'theirs' or {{\"value\": ...}}")


def _choice(what: str, text: str) -> Choice:
    for choice in CHOICES:
        if text == choice:
            return choice
    raise InvalidInput(f"{what} must be 'ours' or 'theirs', got '{text}'")


def refuse_conflicts(
    conflicts: Sequence[MergeConflict], total: int | None = None, idle: Sequence[str] = ()
) -> MergeConflicts:
    """The error of a merge that nobody has decided; `total` counts also those that are not listed.

    `idle` are ids that were answered and are none of them.
    """
    total = len(conflicts) if total is None else total
    named = "; ".join(item.place for item in conflicts[:_NAMED])
    more = f"; and {total - _NAMED} more" if total > _NAMED else ""
    return MergeConflicts(
        f"merge conflicts: {named}{more}",
        (item.to_json() for item in conflicts),
        details={"conflicts": total, "unknown_conflicts": list(idle)} if idle else {"conflicts": total},
        hint=f"{_SETTLE}; {', '.join(idle)} is none of them" if idle else _SETTLE,
    )


def in_order(conflicts: Iterable[MergeConflict]) -> list[MergeConflict]:
    """Nodes before edges, by type, entity and property."""
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
