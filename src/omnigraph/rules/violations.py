"""Violations of constraints: a bounded number of them in a fixed order, and the count of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ConstraintViolation

# The number of violations that an error lists. A load of a million bad rows must not build a million objects.
MAX_REPORTED = 100


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation of a constraint. `message` is one line of text.

    `position` is the number of the row among the rows that were checked, where it is known. It is not part of the
    wire form.
    """

    rule: str
    table_key: str
    message: str
    id: str | None = None
    property: str | None = None
    value: Any = None
    details: Mapping[str, Any] = field(default_factory=dict)
    position: int | None = None

    def with_origin(self, place: int, source: str | None) -> Violation:
        """Return the violation with the line or row of its record, and the name of the input."""
        return replace(self, details={**self.details, **origin_details(place, source)}, position=None)

    def to_json(self) -> dict[str, Any]:
        """Return the wire form."""
        return {
            "rule": self.rule,
            "type": self.table_key,
            "message": self.message,
            "id": self.id,
            "property": self.property,
            "value": self.value,
            **self.details,
        }


@dataclass(frozen=True)
class Violations:
    """The first violations in the order of type key, id, property and message, and the total number.

    Instances can be pickled, so that tasks can return theirs to be merged.
    """

    reported: tuple[Violation, ...] = ()
    total: int = 0

    def __bool__(self) -> bool:
        """Whether there is any violation."""
        return self.total > 0

    def __iter__(self) -> Iterator[Violation]:
        """Iterate over the reported violations in order."""
        return iter(self.reported)

    @staticmethod
    def merge(parts: Iterable[Violations]) -> Violations:
        """Return the violations of all parts. The result is exact, because each part has its own first ones."""
        reported: list[Violation] = []
        total = 0
        for part in parts:
            total += part.total
            reported += part.reported
        if not total:
            return _NONE
        return Violations(tuple(sorted(reported, key=_order)[:MAX_REPORTED]), total)


_NONE: Final = Violations()


def _order(violation: Violation) -> tuple[str, bool, str, str, str]:
    id_ = violation.id
    return violation.table_key, id_ is None, id_ or "", violation.property or "", violation.message


@dataclass(frozen=True)
class RowOrigins:
    """The places of input rows, and the name of the input if it has one."""

    places: pa.Array
    source: str | None = None

    def slice(self, offset: int, length: int) -> RowOrigins:
        """Return the origins of a range of rows."""
        return RowOrigins(self.places.slice(offset, length), self.source)

    def details(self, positions: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
        """Return the details of violations in the rows at these positions."""
        places = self.places.take(pa.array(positions, pa.int64())).to_pylist()
        return [origin_details(place, self.source) for place in places]


def origin_details(place: int, source: str | None) -> dict[str, Any]:
    """Return the details of a violation that name the place of its row.

    >>> origin_details(3, "people.jsonl"), origin_details(1, None)
    ({'line': 3, 'source': 'people.jsonl'}, {'line': 1})
    """
    return {"line": place} if source is None else {"line": place, "source": source}


def raise_violations(violations: Violations, hint: Callable[[Violation], str | None] | None = None) -> None:
    """Raise `ConstraintViolation` with the message of the first violation, if there is one, and its hint."""
    if violations:
        raise ConstraintViolation(
            violations.reported[0].message,
            [item.to_json() for item in violations],
            details={"violations": violations.total, "limit": MAX_REPORTED},
            hint=None if hint is None else hint(violations.reported[0]),
        )


def violations_at(
    ids: pa.Array | pa.ChunkedArray,
    positions: np.ndarray[Any, Any],
    describe: Callable[[np.ndarray[Any, Any], list[str | None]], Iterable[Violation]],
    limit: int = MAX_REPORTED,
) -> Violations:
    """Return one violation for each position. `describe` gets the positions to report, and the ids there."""
    if not len(positions):
        return Violations()
    chosen = ids.take(pa.array(positions))
    first = positions
    if len(positions) > limit:
        kept = pc.array_sort_indices(chosen).slice(0, limit)
        first, chosen = positions[kept.to_numpy()], chosen.take(kept)
    return Violations(tuple(sorted(describe(first, chosen.to_pylist()), key=_order)), len(positions))


def value_text(value: Any) -> str:
    """Return a JSON value as messages show it: text without quotes.

    >>> value_text("Ann"), value_text(True), value_text(2.0), value_text(["a", 1])
    ('Ann', 'true', '2.0', '(a, 1)')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"({', '.join(map(value_text, value))})"
    return str(value)
