"""Invalid records of a load that is refused: the first of them in input order, and the number of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.sources.rejects import Reject
from omnigraph.sources.row_batch import InputBatch

# The number of invalid records that an error lists, as for violations of constraints.
MAX_LISTED = 100


@dataclass(frozen=True, slots=True)
class InvalidRecords:
    """The first invalid records in input order, and the number of all. Instances can be pickled."""

    listed: tuple[Reject, ...] = ()
    total: int = 0

    def shifted(self, count: int) -> InvalidRecords:
        """Return the records for an input that is preceded by `count` lines or rows."""
        return InvalidRecords(tuple(item.shifted(count) for item in self.listed), self.total)

    @staticmethod
    def join(parts: Iterable[InvalidRecords]) -> InvalidRecords:
        """Return the records of consecutive parts of an input."""
        listed: list[Reject] = []
        total = 0
        for part in parts:
            listed += part.listed[: MAX_LISTED - len(listed)]
            total += part.total
        return InvalidRecords(tuple(listed), total)

    def raise_first(self) -> None:
        """Raise the error of the first record, with the others in `violations`, if there is one."""
        if not self.total:
            return
        error = self.listed[0].error
        assert error is not None, "a reader passes the error with the record"
        if not isinstance(error, InvalidInput):
            raise error
        others = self.total - 1
        if others:
            error = error.with_reason(f"{error.reason} (and {others:,} more {_unit(error, others)})")
        raise error.with_violations(map(_violation, self.listed), self.total, MAX_LISTED)


class InvalidRecordCollector:
    """Collects the invalid records of an input that is read to its end."""

    def __init__(self) -> None:
        self._listed: list[Reject] = []
        self.total = 0

    def add(self, reject: Reject) -> None:
        """Count a record, and keep it if it is one of the first."""
        self.total += 1
        if len(self._listed) < MAX_LISTED:
            self._listed.append(reject)

    def collected(self) -> InvalidRecords:
        """Return the records so far."""
        return InvalidRecords(tuple(self._listed), self.total)

    def until_invalid(self, batches: Iterable[InputBatch]) -> Iterator[InputBatch]:
        """Yield batches until a record is invalid; read the others only for further errors."""
        for batch in batches:
            if not self.total:
                yield batch

    def checked(self, batches: Iterable[InputBatch]) -> Iterator[InputBatch]:
        """Like `until_invalid`, and raise the errors at the end of the input."""
        try:
            yield from self.until_invalid(batches)
        except OmnigraphError:
            # An error that ends the input, such as a damaged file, follows the records that were read before it.
            if not self.total:
                raise
        self.collected().raise_first()


def _unit(error: OmnigraphError, number: int) -> str:
    unit = next((name for name in ("line", "row", "record") if name in error.details), "record")
    return unit if number == 1 else f"{unit}s"


def _violation(reject: Reject) -> dict[str, Any]:
    """Return an invalid record as data: its place, the reason and a hint if there is one."""
    error = reject.error
    assert error is not None, "a reader passes the error with the record"
    syntax = None if error.location is None else error.location.syntax
    return {
        **error.details,
        **({} if syntax is None else {"syntax": syntax}),
        "message": error.reason,
        **({} if error.hint is None else {"hint": error.hint}),
    }
