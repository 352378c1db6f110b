"""What two branches did to a schema that cannot both be had, and the choice between them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from omnigraph.catalog.schema_merge.three_way import Side, ThreeWay
from omnigraph.catalog.shape import compact_json
from omnigraph.errors import InvalidInput

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SchemaConflict:
    """Two changes of one aspect of a thing that exclude each other.

    `entity` is ``node:Person``, ``node:Person.age`` or ``schema``; `base`, `ours` and `theirs` show the
    three states, None where there is nothing. The `id` is made from all of these and so is the same in
    every attempt at the same merge.
    """

    id: str
    entity: str
    aspect: str
    message: str
    base: str | None
    ours: str | None
    theirs: str | None


class Decisions:
    """Chooses a side wherever a merge has to, and keeps what nobody has decided yet."""

    def __init__(self, choose: Mapping[str, Side]) -> None:
        for name, side in choose.items():
            if side not in ("ours", "theirs"):
                raise InvalidInput(f"conflict '{name}' is decided by 'ours' or 'theirs', not by '{side}'")
        self._choose = choose
        self._open: dict[str, SchemaConflict] = {}

    @property
    def conflicts(self) -> tuple[SchemaConflict, ...]:
        """Everything undecided, by entity and aspect."""
        found = self._open.values()
        return tuple(sorted(found, key=lambda item: (item.entity, item.aspect, item.id)))

    def pick(self, entity: str, aspect: str, message: str, texts: ThreeWay[str]) -> Side:
        """The side that a conflict was decided for; ours, for the time being, when it was not."""
        content = compact_json([entity, aspect, *texts.parts]).encode("utf-8", "surrogatepass")
        name = f"schema:{hashlib.sha256(content).hexdigest()[:12]}"
        if name in self._choose:
            return self._choose[name]
        self._open.setdefault(name, SchemaConflict(name, entity, aspect, message, *texts.parts))
        return "ours"

    def settle(
        self, entity: str, aspect: str, states: ThreeWay[T], texts: ThreeWay[str], *, fresh: bool
    ) -> Side:
        """The side whose state is the merged one: the one that changed it, or any if both agree.

        A state may be None, which is one like any other. With `fresh` there is no base, so that whatever
        differs is a conflict.

        >>> states = ThreeWay("I32", "I32", "I64")
        >>> Decisions({}).settle("node:A.x", "type", states, states, fresh=False)
        'theirs'
        """
        if states.ours == states.theirs or (not fresh and states.theirs == states.base):
            return "ours"
        if not fresh and states.ours == states.base:
            return "theirs"
        verb = "declare" if fresh else "changed"
        message = f"both sides {verb} the {aspect} of {entity} differently"
        return self.pick(entity, aspect, message, texts)
