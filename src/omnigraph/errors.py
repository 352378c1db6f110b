"""The exceptions that OmniGraph raises.

Every exception derives from `OmnigraphError`. There is one subclass for each reaction of the caller: correct the
request, read again and retry, look up the outcome, wait, repair. Any other exception that leaves the library is a
defect.

Error codes appear in JSON, in exit messages and in logs. A released code never changes its meaning.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

# The exceptions.
__all__ = [
    "Cancelled",
    "ChangeFeedGap",
    "Conflict",
    "ConstraintViolation",
    "ExternalBlobError",
    "InvalidInput",
    "MergeConflicts",
    "NotFound",
    "OmnigraphError",
    "OutcomeUnknown",
    "PermissionDenied",
    "PreconditionFailed",
    "RecoveryRequired",
    "ResourceLimit",
    "StorageError",
    "UnsupportedFormat",
]

StorageErrorKind: TypeAlias = Literal[
    "transient", "configuration", "not_found", "precondition", "permanent", "unknown"
]
"""The cause of a `StorageError`, by what to do about it. A released kind never changes its meaning."""


@dataclass(frozen=True, slots=True)
class ErrorLocation:
    """The place in an input that an error is about.

    `source` is the name of the input. `line`, `row` and `record` count from 1; an input uses one of them. `column`
    is the name of a table column, or the position in a line of text. `type` and `property` name an element of the
    schema. `syntax` is the format that the input violates at this place.

    >>> str(ErrorLocation(source="people.csv", type="Person", row=3, column="age"))
    "people.csv: Person row 3, column 'age'"
    >>> str(ErrorLocation(line=2, syntax="strict JSON"))
    'invalid strict JSON at line 2'
    """

    source: str | None = None
    line: int | None = None
    row: int | None = None
    record: int | None = None
    column: str | int | None = None
    type: str | None = None
    property: str | None = None
    syntax: str | None = None

    @classmethod
    def at(cls, unit: Literal["line", "row", "record"], number: int) -> ErrorLocation:
        """Return the location of a numbered line, row or record."""
        members: dict[str, Any] = {unit: number}
        return cls(**members)

    def __str__(self) -> str:
        position = self._position()
        place = " ".join(part for part in (self.type, position) if part is not None)
        if self.syntax is not None:
            place = f"invalid {self.syntax} at {place}"
        parts = [place] if place else []
        if self.column is not None:
            parts.append(f"column {self.column!r}")
        if self.property is not None:
            parts.append(f"property '{self.property}'")
        return ": ".join(part for part in (self.source, ", ".join(parts)) if part)

    def _position(self) -> str | None:
        for unit in ("line", "row", "record"):
            number = getattr(self, unit)
            if number is not None:
                return f"{unit} {number}"
        return None

    def shifted(self, count: int) -> ErrorLocation:
        """Return the location for an input that is preceded by `count` lines or rows."""
        return replace(
            self,
            line=None if self.line is None else self.line + count,
            row=None if self.row is None else self.row + count,
        )

    def updated(self, other: ErrorLocation) -> ErrorLocation:
        """Return this location with every field that is set in `other`."""
        return replace(self, **other._set_fields())

    def to_details(self) -> dict[str, Any]:
        """Return the fields that are set, as `OmnigraphError.details` holds them."""
        found = self._set_fields()
        found.pop("syntax", None)
        return found

    def _set_fields(self) -> dict[str, Any]:
        members = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in members.items() if value is not None}


class OmnigraphError(Exception):
    """The base class of every exception that the library raises.

    `code` is the stable name of the error class. `reason` says what is wrong, `location` says where in the input.
    `message` is both in one line. `details` holds the same facts as data, the fields of `location` included. `hint`
    says what to try next, if anything.

    >>> error = NotFound("no branch `reveiw`", hint="did you mean `review`?", details={"branch": "reveiw"})
    >>> error.code
    'not_found'
    >>> print(error)
    no branch `reveiw`
    hint: did you mean `review`?
    >>> InvalidInput("unknown type 'Persn'", location=ErrorLocation(source="people.ndjson", line=3)).message
    "people.ndjson: line 3: unknown type 'Persn'"
    """

    code: ClassVar[str] = "error"

    reason: str
    details: dict[str, Any]
    hint: str | None
    location: ErrorLocation | None

    def __init__(
        self,
        reason: str,
        *,
        details: Mapping[str, Any] | None = None,
        hint: str | None = None,
        location: ErrorLocation | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.details = {**(details or {}), **({} if location is None else location.to_details())}
        self.hint = hint
        self.location = location

    @property
    def message(self) -> str:
        """The reason, preceded by the location if there is one."""
        place = "" if self.location is None else str(self.location)
        return f"{place}: {self.reason}" if place else self.reason

    def located(self, location: ErrorLocation) -> Self:
        """Return a copy of the error with the fields that are set in `location`."""
        found = copy.copy(self)
        found.location = location if self.location is None else self.location.updated(location)
        found.details = {**self.details, **found.location.to_details()}
        return found

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception calls the class with `args` alone, which loses the keyword arguments and fails for a subclass
        # with another constructor. Spark pickles errors to send them from its tasks.
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(kind: type[OmnigraphError], args: tuple[Any, ...], state: dict[str, Any]) -> OmnigraphError:
    """Recreate an error of class `kind` without calling its constructor."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


# --- Invalid requests: correct the request. -----------------------------------------------------------


class InvalidInput(OmnigraphError):
    """The request is invalid.

    Correct it and send it again. The same request fails again in the same way. Nothing was written.

    For a load, `violations` lists the invalid records as data, up to the limit in `details`; `details` also has
    their total number.
    """

    code = "invalid_input"

    violations: tuple[dict[str, Any], ...] = ()

    def with_reason(self, reason: str) -> Self:
        """Return a copy of the error with another reason."""
        found = copy.copy(self)
        found.reason = reason
        return found

    def with_violations(self, violations: Iterable[Mapping[str, Any]], total: int, limit: int) -> Self:
        """Return a copy of the error that lists the invalid records of a load."""
        found = copy.copy(self)
        found.violations = tuple(dict(violation) for violation in violations)
        found.details = {**self.details, "violations": total, "limit": limit}
        return found


class NotFound(OmnigraphError):
    """The request names a graph, branch, commit, type or entity that does not exist.

    Check the name, or create the missing object first. Nothing was written.
    """

    code = "not_found"


class ConstraintViolation(OmnigraphError):
    """The data violates a constraint of the schema.

    `violations` lists the violations as data, up to the limit in `details`; `details` also has their total number.
    Correct the data and write again. The whole write was rolled back.

    >>> first = {"message": "dst 'x' not found in City", "type": "edge:Lives", "line": 3, "source": "in.csv"}
    >>> str(ConstraintViolation(first["message"], [first], details={"violations": 300}))
    "in.csv: Lives line 3: dst 'x' not found in City (and 299 more)"
    """

    code = "constraint_violation"

    violations: tuple[dict[str, Any], ...]

    def __init__(
        self,
        reason: str,
        violations: Iterable[Mapping[str, Any]] = (),
        *,
        details: Mapping[str, Any] | None = None,
        hint: str | None = None,
        location: ErrorLocation | None = None,
    ) -> None:
        super().__init__(reason, details=details, hint=hint, location=location)
        self.violations = tuple(dict(violation) for violation in violations)

    def __str__(self) -> str:
        """Return the message, or the first violation and the number of the others if it is the message."""
        text = self.message
        if self.violations and self.violations[0].get("message") == self.message:
            others = self.details.get("violations", len(self.violations)) - 1
            text = violation_text(self.violations[0]) + (f" (and {others} more)" if others > 0 else "")
        return text if self.hint is None else f"{text}\nhint: {self.hint}"


def violation_text(violation: Mapping[str, Any]) -> str:
    """Return one violation of a `ConstraintViolation` as a line of text: its place in the input and its message.

    The type is part of the place unless the message names it.

    >>> violation_text({"message": "node type 'City' already has id 'x'", "type": "node:City", "line": 3})
    "line 3: node type 'City' already has id 'x'"
    """
    message = str(violation["message"])
    if violation.get("source") is None and violation.get("line") is None:
        return message
    type_name = str(violation.get("type", "")).rpartition(":")[2]
    location = ErrorLocation(
        source=violation.get("source"),
        line=violation.get("line"),
        type=type_name if type_name and type_name not in message else None,
    )
    return f"{location}: {message}"


def invalid_record_text(violation: Mapping[str, Any]) -> str:
    """Return one invalid record of an `InvalidInput` as a line of text.

    >>> invalid_record_text({"message": "expected I32, got true", "type": "City", "row": 3, "column": "area"})
    "City row 3, column 'area': expected I32, got true"
    """
    names = {item.name for item in fields(ErrorLocation)}
    place = str(ErrorLocation(**{name: value for name, value in violation.items() if name in names}))
    return f"{place}: {violation['message']}" if place else str(violation["message"])


class PermissionDenied(OmnigraphError):
    """The access policy denies the action to this actor.

    A retry fails again. Use another actor, or change the policy. Nothing was read or written.
    """

    code = "permission_denied"


class ResourceLimit(OmnigraphError):
    """The request exceeds a limit on memory, rows, time or nesting.

    Request less, split the request, or raise the limit that `details` names. Nothing was committed.
    """

    code = "resource_limit"


class Cancelled(OmnigraphError):
    """The request was cancelled: an administrator ended it, or its client disconnected.

    The request itself is not at fault, and a retry may succeed. Ask the administrator before repeating a request
    that was cancelled on purpose. Nothing was committed.
    """

    code = "cancelled"


# --- Concurrency: read again, then decide. ------------------------------------------------------------


class Conflict(OmnigraphError):
    """A concurrent commit changed the data that this write was based on.

    Read again and retry. `details` names the table and its expected and actual version. Nothing was committed.
    Garbage collection removes the files that were already staged.
    """

    code = "conflict"


class PreconditionFailed(OmnigraphError):
    """The head of the branch is not the commit that the caller required.

    Read the current commit and decide whether to write again. The library never retries such a write. Nothing was
    written.
    """

    code = "precondition_failed"


class MergeConflicts(OmnigraphError):
    """Both sides of a merge changed the same data in different ways.

    `conflicts` lists the conflicts as data. Resolve them with `resolve`, or with writes on one of the branches,
    then merge again. Neither branch changed.
    """

    code = "merge_conflicts"

    conflicts: tuple[dict[str, Any], ...]

    def __init__(
        self,
        reason: str,
        conflicts: Iterable[Mapping[str, Any]] = (),
        *,
        details: Mapping[str, Any] | None = None,
        hint: str | None = None,
        location: ErrorLocation | None = None,
    ) -> None:
        super().__init__(reason, details=details, hint=hint, location=location)
        self.conflicts = tuple(dict(conflict) for conflict in conflicts)


class ChangeFeedGap(OmnigraphError):
    """Garbage collection has removed the data of changes that the caller requested.

    Take a new baseline and continue from its cursor. The changes in between are lost. `details` names the first
    commit whose changes are unreadable. No change after it was returned.
    """

    code = "change_feed_gap"


# --- Storage: look up the outcome, wait, repair or upgrade. -------------------------------------------


class OutcomeUnknown(OmnigraphError):
    """The connection failed during the commit, so the commit may or may not exist.

    Look up the commit id in `details`, or repeat the write with the same idempotency key. A retry without a key can
    apply the write twice. The commit is either complete or absent.
    """

    code = "outcome_unknown"


class RecoveryRequired(OmnigraphError):
    """An interrupted bulk write left an intent that automatic recovery cannot read.

    ``omnigraph repair --confirm --force`` discards it. Mode ``r`` still reads the graph. The intent that `details`
    names is unchanged, and committed data is not affected.
    """

    code = "recovery_required"


class StorageError(OmnigraphError):
    """The storage system failed or refused a request, or a stored file is damaged.

    `kind` states the cause, and `details` repeats it:

    - `transient`: the store is busy or unreachable. The same call may succeed later.
    - `configuration`: the address, the credentials, the permissions or an option are wrong.
    - `not_found`: a bucket, a directory or a file does not exist.
    - `precondition`: an object changed while it was read or written.
    - `permanent`: the disk is full or read-only, the store does not support the request, or a file is damaged.
    - `unknown`: the cause could not be determined.

    `transient` is true for the first kind only. A write that raises this error was not committed. If that is
    uncertain, `OutcomeUnknown` is raised.

    If a file is missing, truncated or altered, `details["reason"]` is ``damaged``. `details` then names the type,
    the property if it is known, the file, the commit and the branch.

    >>> error = StorageError("cannot write: No space left on device", kind="permanent")
    >>> error.kind, error.transient, error.details
    ('permanent', False, {'kind': 'permanent'})
    """

    code = "storage_error"

    kind: StorageErrorKind

    def __init__(
        self,
        reason: str,
        *,
        kind: StorageErrorKind | None = None,
        transient: bool = False,
        details: Mapping[str, Any] | None = None,
        hint: str | None = None,
        location: ErrorLocation | None = None,
    ) -> None:
        """`transient` is short for the kind of that name. Without both, the kind is ``unknown``."""
        self.kind = kind or ("transient" if transient else "unknown")
        super().__init__(reason, details={**(details or {}), "kind": self.kind}, hint=hint, location=location)

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later."""
        return self.kind == "transient"

    @property
    def is_refusal(self) -> bool:
        """Whether storage did not carry out the request, so that the error says nothing about a stored file.

        >>> StorageError("status 403", kind="configuration").is_refusal
        True
        """
        return self.kind in ("transient", "configuration", "precondition")


class ExternalBlobError(OmnigraphError):
    """A Blob value refers to an external object that cannot be found.

    Store the object first, or correct its address or the access to it. `details` has its `uri` and the `reason`.
    Nothing was written.
    """

    code = "external_blob_source"


class UnsupportedFormat(OmnigraphError):
    """The graph has a storage format that this version of OmniGraph does not read.

    If the format is newer, upgrade omnigraph. If it is older, export the graph with a version that reads it and
    load the export. The graph was not changed.
    """

    code = "unsupported_format"
