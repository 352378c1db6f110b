"""Rejected records: records of an input that a load leaves out, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from omnigraph.errors import ErrorLocation, OmnigraphError

Unit: TypeAlias = Literal["line", "record", "row"]

# The rule of a record that a reader cannot convert to a row.
INVALID_RECORD = "record"


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that a load rejects, and why.

    `place` counts lines, rows or records from 1. `location` is the part of the message that names it. `error` is
    the error of the record where a reader rejected it. `rule` is the constraint that the record breaks, or
    ``record`` if it could not be read. `type` and `id` name the entity where they are known.
    """

    place: int
    reason: str
    record: Any = None
    source: str | None = None
    location: ErrorLocation | None = None
    error: OmnigraphError | None = field(default=None, compare=False, repr=False)
    rule: str = INVALID_RECORD
    type: str | None = None
    id: str | None = None

    @property
    def message(self) -> str:
        """The reason, preceded by the location if there is one."""
        return self.reason if self.location is None else f"{self.location}: {self.reason}"

    def shifted(self, count: int) -> Reject:
        """Return the reject for an input that is preceded by `count` lines or rows."""
        location = None if self.location is None else self.location.shifted(count)
        error = self.error
        if error is not None and error.location is not None:
            error = error.located(error.location.shifted(count))
        return replace(self, place=self.place + count, location=location, error=error)

    def to_json(self) -> dict[str, Any]:
        """Return the line of a file of rejected records."""
        return {
            "source": self.source,
            "line": self.place,
            "type": self.type,
            "id": self.id,
            "rule": self.rule,
            "reason": self.reason,
            "error": self.message,
            "record": self.record,
        }

    def to_state(self) -> dict[str, Any]:
        """Return the fields as JSON, for `from_state`."""
        location = None if self.location is None else asdict(self.location)
        return {
            "place": self.place,
            "reason": self.reason,
            "record": self.record,
            "source": self.source,
            "location": location,
            "rule": self.rule,
            "type": self.type,
            "id": self.id,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Reject:
        """Return the reject that `to_state` wrote."""
        location = state["location"]
        return cls(**{**state, "location": None if location is None else ErrorLocation(**location)})


# Called with each rejected record. Without a callback the first invalid record ends the load.
OnReject: TypeAlias = Callable[[Reject], None]


@dataclass(frozen=True, slots=True)
class RejectHandler:
    """Passes rejected records to a callback, or raises their errors.

    `unit` is what the input numbers, `source` its name in errors. `type_name` is the type of an input that contains
    rows of one type.
    """

    unit: Unit
    source: str | None
    on_reject: OnReject | None
    type_name: str | None = None

    def reject(
        self,
        place: int,
        error: OmnigraphError,
        record: Any = None,
        type_name: str | None = None,
        id_: str | None = None,
    ) -> None:
        """Reject a record; without a callback, raise its error with the location of the record.

        `type_name` and `id_` name the entity, as far as the record has enough of it.
        """
        is_syntax_error = error.location is not None and error.location.syntax is not None
        located = error.located(
            replace(ErrorLocation.at(self.unit, place), type=None if is_syntax_error else self.type_name)
        )
        if self.on_reject is not None:
            self.on_reject(
                Reject(
                    place,
                    error.reason,
                    record,
                    self.source,
                    located.location,
                    located.located(ErrorLocation(source=self.source)),
                    type=type_name or self.type_name,
                    id=id_,
                )
            )
            return
        raise located.located(ErrorLocation(source=self.source)) from error
