"""Every error OmniGraph raises on purpose, grouped by what the caller does about it.

There is one root, `OmnigraphError`, and one class for each different reaction: fix the request, look
something else up, read again and retry, ask for permission, find out what happened. Anything else that
escapes from the library is a defect.

Codes are a contract: they travel in JSON, in exit messages and in logs. They are only ever added to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

__all__ = [
    "ChangeFeedGap",
    "Conflict",
    "ConstraintViolation",
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


class OmnigraphError(Exception):
    """The root of every deliberate error.

    `code` is the stable name of the kind of error, `message` says what happened, `details` holds the same
    facts as data, and `hint`, where there is one, says what to try next.

    >>> error = NotFound("no branch `reveiw`", hint="did you mean `review`?", details={"branch": "reveiw"})
    >>> error.code
    'not_found'
    >>> print(error)
    no branch `reveiw`
    hint: did you mean `review`?
    """

    code: ClassVar[str] = "error"

    message: str
    details: dict[str, Any]
    hint: str | None

    def __init__(
        self, message: str, *, details: Mapping[str, Any] | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = dict(details or {})
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception would call the class with `args` alone, which loses the keyword arguments and breaks
        # every subclass whose constructor takes something else. Errors cross process boundaries in Spark.
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(kind: type[OmnigraphError], args: tuple[Any, ...], state: dict[str, Any]) -> OmnigraphError:
    """Make an error of `kind` again without running its constructor."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


# --- The request is wrong: change it. -----------------------------------------------------------------


class InvalidInput(OmnigraphError):
    """The request cannot be carried out as it stands.

    Correct it and send it again; the same request will fail the same way. Nothing was written.
    """

    code = "invalid_input"


class NotFound(OmnigraphError):
    """The request names a graph, branch, commit, type or entity that does not exist.

    Check the name, or create the thing first. Nothing was written.
    """

    code = "not_found"


class ConstraintViolation(OmnigraphError):
    """The data would break a constraint of the schema.

    `violations` lists what was found, each as data, up to a bound that `details` states. Correct the data
    and write again. The whole write was refused: nothing became visible.
    """

    code = "constraint_violation"

    violations: tuple[dict[str, Any], ...]

    def __init__(
        self,
        message: str,
        violations: Iterable[Mapping[str, Any]] = (),
        *,
        details: Mapping[str, Any] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, details=details, hint=hint)
        self.violations = tuple(dict(violation) for violation in violations)

    def __str__(self) -> str:
        """The message, and where it is that of the first violation alone, its place and how many more there are."""
        around = self._around()
        told = f"{self.message} ({', '.join(around)})" if around else self.message
        return told if self.hint is None else f"{told}\nhint: {self.hint}"

    def _around(self) -> list[str]:
        first = self.violations[0] if self.violations else {}
        if first.get("message") != self.message:
            return []
        found = [str(first["source"])] if first.get("source") else []
        found += [f"line {first['line']}"] if first.get("line") is not None else []
        more = self.details.get("violations", len(self.violations)) - 1
        found += [f"and {more} more"] if more > 0 else []
        kind = str(first.get("type", "")).rpartition(":")[2]
        return [kind, *found] if found and kind and kind not in self.message else found


class PermissionDenied(OmnigraphError):
    """The policy does not let this actor do this.

    Retrying will not help: use another actor, or have the policy changed. Nothing was read or written on
    the actor's behalf.
    """

    code = "permission_denied"


class ResourceLimit(OmnigraphError):
    """The request needs more memory, rows, time or nesting than its limit allows.

    Ask for less, split the request, or raise the limit that `details` names. Nothing became visible.
    """

    code = "resource_limit"


# --- The graph moved: read again, then decide. --------------------------------------------------------


class Conflict(OmnigraphError):
    """Another commit changed what this write was based on.

    Read again and retry. `details` names the table with its expected and actual version. Nothing became
    visible; files that were already staged are unreferenced and go with the next cleanup.
    """

    code = "conflict"


class PreconditionFailed(OmnigraphError):
    """The branch is not at the commit that the caller required.

    Look at the current commit and decide whether the write still makes sense; the library never decides
    that on its own. Nothing was written.
    """

    code = "precondition_failed"


class MergeConflicts(OmnigraphError):
    """Both sides of a merge changed the same thing differently.

    `conflicts` lists them, each as data. Settle them with `resolve`, or with ordinary writes on one of the
    branches, then merge again. Neither branch moved.
    """

    code = "merge_conflicts"

    conflicts: tuple[dict[str, Any], ...]

    def __init__(
        self,
        message: str,
        conflicts: Iterable[Mapping[str, Any]] = (),
        *,
        details: Mapping[str, Any] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, details=details, hint=hint)
        self.conflicts = tuple(dict(conflict) for conflict in conflicts)


class ChangeFeedGap(OmnigraphError):
    """Changes were asked for whose data cleanup has removed.

    Take a baseline and go on from its cursor; the changes in between cannot be told any more. `details` names
    the first commit whose changes are gone. Nothing was read past it.
    """

    code = "change_feed_gap"


# --- Storage stands in the way: find out, wait, repair or upgrade. ------------------------------------


class OutcomeUnknown(OmnigraphError):
    """The connection broke at the moment of the commit, so it may or may not have happened.

    Look up the commit id in `details`, or repeat the write with the same idempotency key. A plain retry
    could apply the write twice. Either the complete commit is there or nothing of it is.
    """

    code = "outcome_unknown"


class RecoveryRequired(OmnigraphError):
    """An interrupted bulk write left an intent that cannot be healed automatically.

    `omnigraph repair --confirm --force` gives it up; reading still works with mode ``r``. The intent named in
    `details` is kept as it is; no committed data is affected.
    """

    code = "recovery_required"


class StorageError(OmnigraphError):
    """The storage below the graph failed or refused.

    When `transient` is true the same call may succeed later; otherwise correct the address, the
    credentials or the disk first. A write that fails with this did not become visible: where that is in
    doubt, `OutcomeUnknown` is raised instead.
    """

    code = "storage_error"

    transient: bool

    def __init__(
        self,
        message: str,
        *,
        transient: bool = False,
        details: Mapping[str, Any] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, details=details, hint=hint)
        self.transient = transient


class UnsupportedFormat(OmnigraphError):
    """The graph was written in a storage format that this version does not read.

    Newer than this version: upgrade omnigraph. Too old: export it with a version that reads it and load
    the export. The graph was not touched.
    """

    code = "unsupported_format"
