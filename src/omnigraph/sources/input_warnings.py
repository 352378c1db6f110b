"""Values and fields that the permissive reader leaves out: their numbers, and the places of the first of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

WarningKind: TypeAlias = Literal["nulled", "dropped"]

# The number of warnings that a load lists. The counts include all of them.
MAX_LISTED = 100


@dataclass(frozen=True, slots=True)
class InputWarning:
    """One value that was stored as null, or one field that was dropped.

    `record` counts the records of the input from 1. `property` is the name of the field.

    >>> print(InputWarning("nulled", 'expected I32, got "x"; stored as null', "Person", "age", 2, "in.json"))
    in.json: Person record 2, property 'age': expected I32, got "x"; stored as null
    """

    kind: WarningKind
    message: str
    type: str
    property: str
    record: int
    source: str | None = None

    def __str__(self) -> str:
        place = f"{self.type} record {self.record}, property '{self.property}': {self.message}"
        return place if self.source is None else f"{self.source}: {place}"


@dataclass(frozen=True, slots=True)
class InputWarnings:
    """The warnings of a load: how many values were stored as null, how many fields were dropped, and the first
    warnings in input order.
    """

    nulled: int = 0
    dropped: int = 0
    listed: tuple[InputWarning, ...] = ()

    @property
    def total(self) -> int:
        """The number of all warnings."""
        return self.nulled + self.dropped


class WarningCollector:
    """Counts warnings and keeps the first of them."""

    def __init__(self) -> None:
        self._counts: dict[WarningKind, int] = {"nulled": 0, "dropped": 0}
        self._listed: list[InputWarning] = []

    def add(self, kind: WarningKind, describe: Callable[[], InputWarning]) -> None:
        """Count a warning. `describe` is called only for a warning that is listed."""
        self._counts[kind] += 1
        if len(self._listed) < MAX_LISTED:
            self._listed.append(describe())

    def collected(self) -> InputWarnings:
        """Return the warnings so far."""
        return InputWarnings(self._counts["nulled"], self._counts["dropped"], tuple(self._listed))
