"""What validation found: violations in a fixed order, bounded in number, all of them counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ConstraintViolation
from omnigraph.rules.delta import Violation

# So many violations are reported one by one; a load of a million bad rows must not become a million objects.
REPORTED = 100


@dataclass(frozen=True)
class Findings:
    """The first violations in the order of type key, id, property and message, and how many there are in all.

    A value that can be pickled, so that tasks can send theirs to be merged.
    """

    violations: tuple[Violation, ...] = ()
    total: int = 0

    def __bool__(self) -> bool:
        """Whether anything was found."""
        return self.total > 0

    def __iter__(self) -> Iterator[Violation]:
        """The reported violations, in order."""
        return iter(self.violations)

    @staticmethod
    def merge(parts: Iterable[Findings]) -> Findings:
        """All findings as one. Exact, because each part holds its own first ones."""
        shown: list[Violation] = []
        total = 0
        for part in parts:
            total += part.total
            shown += part.violations
        return Findings(tuple(sorted(shown, key=_order)[:REPORTED]), total)


def _order(found: Violation) -> tuple[str, bool, str, str, str]:
    return found.table_key, found.id is None, found.id or "", found.property or "", found.message


@dataclass(frozen=True)
class Origin:
    """Where rows of an input come from: the place of each, and the name of the input if it has one."""

    places: pa.Array
    source: str | None = None

    def slice(self, offset: int, length: int) -> Origin:
        """The origin of some of the rows."""
        return Origin(self.places.slice(offset, length), self.source)

    def details(self, positions: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
        """What violations at these positions say about their origin."""
        places = self.places.take(pa.array(positions, pa.int64())).to_pylist()
        return [origin_details(place, self.source) for place in places]


def origin_details(place: int, source: str | None) -> dict[str, Any]:
    """The origin of one row, as violations carry it.

    >>> origin_details(3, "people.jsonl"), origin_details(1, None)
    ({'line': 3, 'source': 'people.jsonl'}, {'line': 1})
    """
    return {"line": place} if source is None else {"line": place, "source": source}


def refuse(found: Findings) -> None:
    """Raise `ConstraintViolation` with the message of the first violation, if there is one."""
    if found:
        raise ConstraintViolation(
            found.violations[0].message,
            [item.to_json() for item in found],
            details={"violations": found.total, "limit": REPORTED},
        )


def report(
    ids: pa.Array | pa.ChunkedArray,
    positions: np.ndarray[Any, Any],
    describe: Callable[[np.ndarray[Any, Any], list[str | None]], Iterable[Violation]],
    limit: int = REPORTED,
) -> Findings:
    """One violation for each position. `describe` gets only those to be reported, and their ids."""
    if not len(positions):
        return Findings()
    chosen = ids.take(pa.array(positions))
    first = positions
    if len(positions) > limit:
        kept = pc.array_sort_indices(chosen).slice(0, limit)
        first, chosen = positions[kept.to_numpy()], chosen.take(kept)
    return Findings(tuple(sorted(describe(first, chosen.to_pylist()), key=_order)), len(positions))


def text_of(value: Any) -> str:
    """A JSON value in a message: text plain, without quotes.

    >>> text_of("Ann"), text_of(True), text_of(2.0), text_of(["a", 1])
    ('Ann', 'true', '2.0', '(a, 1)')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"({', '.join(map(text_of, value))})"
    return str(value)
