"""Failures as HTTP has them: one place where an error becomes a status and the one JSON shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException

from omnigraph.errors import (
    ChangeFeedGap,
    Conflict,
    ConstraintViolation,
    InvalidInput,
    MergeConflicts,
    NotFound,
    OmnigraphError,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    RecoveryRequired,
    ResourceLimit,
    StorageError,
)
from omnigraph.lang.diagnostics import LanguageError

CODES: Mapping[int, str] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "bad_request",
    415: "bad_request",
    416: "bad_request",
    429: "too_many_requests",
    500: "internal",
}
RETRY_SECONDS = 60
UNFORESEEN = "internal error"
STORAGE_FAILED = "the storage of the graph failed"


class Refused(HTTPException):
    """A refusal that only HTTP knows: of a token, a media type, the size of a body, too many requests.

    `members` are those of the body besides the text and the code.
    """

    def __init__(
        self,
        status: int,
        text: str,
        members: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, text, None if headers is None else dict(headers))
        self.members = dict(members or {})


def too_large(resource: str, limit: int, actual: int | None) -> Refused:
    """The refusal of a body that is larger than its route takes."""
    found = {"resource": resource, "limit": limit, "actual": actual}
    return Refused(413, f"the request body is larger than {limit:,} bytes", {"resource_limit": found})


def http_failure(error: HTTPException) -> tuple[int, dict[str, Any]]:
    """The status and the body of a refusal of HTTP."""
    members = error.members if isinstance(error, Refused) else {}
    return error.status_code, _body(str(error.detail), CODES.get(error.status_code), members)


def failure(error: OmnigraphError) -> tuple[int, dict[str, Any]]:
    """The status and the body of an error of the library.

    What went wrong below the graph is for the log: only its kind is told.

    >>> failure(NotFound("branch 'x' not found"))
    (404, {'error': "branch 'x' not found", 'code': 'not_found'})
    >>> failure(PreconditionFailed("moved on", details={"expected": "a", "actual": "b"}))
    (412, {'error': 'moved on', 'precondition_failure': {'expected': 'a', 'actual': 'b'}})
    """
    status, members = _status(error)
    # These four are told apart by their member; clients of old know no code for them.
    code = None if status in (410, 412, 424, 503) else CODES[status]
    text = STORAGE_FAILED if status == 500 and not isinstance(error, OutcomeUnknown) else error.message
    return status, _body(text, code, {**members, **(_advice(error) if status < 500 else {})})


def shown(error: OmnigraphError) -> OmnigraphError:
    """An error as it may be told to clients whole: of what happened below the graph, no more than `failure` tells.

    >>> shown(StorageError("no such bucket: ours", transient=True, details={"bucket": "ours"})).message
    'the storage of the graph failed'
    """
    match error:
        case RecoveryRequired():
            return RecoveryRequired(error.message, details=_some(error.details, "operation_id"))
        case OutcomeUnknown():
            return OutcomeUnknown(error.message, details=_some(error.details, "commit_id"))
        case StorageError():
            return StorageError(STORAGE_FAILED, transient=error.transient)
    return error if _status(error)[0] < 500 else type(error)(STORAGE_FAILED)


def _advice(error: OmnigraphError) -> dict[str, Any]:
    """What helps to put a request right: what to try, and where a text is wrong, by the names of the exact form."""
    found: dict[str, Any] = {} if error.hint is None else {"hint": error.hint}
    if isinstance(error, LanguageError):
        found["diagnostics"] = [
            {
                "line": item.line,
                "column": item.column,
                "message": item.text,
                **({} if item.hint is None else {"hint": item.hint}),
            }
            for item in error.diagnostics
        ]
    return found


def _some(details: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: details[name] for name in names if name in details}


def _body(text: str, code: str | None, members: Mapping[str, Any]) -> dict[str, Any]:
    return {"error": text, **({} if code is None else {"code": code}), **members}


def _status(error: OmnigraphError) -> tuple[int, dict[str, Any]]:
    details = error.details
    match error:
        case ConstraintViolation():
            return _violated(error)
        case InvalidInput():
            return 400, {}
        case PermissionDenied():
            return 403, {}
        case NotFound():
            return 404, {}
        case MergeConflicts():
            return 409, {"merge_conflicts": list(error.conflicts)}
        case Conflict():
            return 409, _conflict(details)
        case PreconditionFailed():
            return 412, {"precondition_failure": _some(details, "expected", "actual")}
        case ChangeFeedGap():
            return 410, {"change_feed_gap": details.get("change_feed_gap", {})}
        case ResourceLimit():
            return 413, _limited(details)
        case RecoveryRequired():
            return 503, {"recovery_required": {"operation_id": details.get("operation_id")}}
        case OutcomeUnknown():
            return 500, {"outcome_unknown": {"graph_commit_id": details.get("commit_id")}}
        case _:
            return 500, {}


def _violated(error: ConstraintViolation) -> tuple[int, dict[str, Any]]:
    """An id that is taken is a conflict with what is there; anything else is wrong by itself."""
    first = error.violations[0] if error.violations else {}
    if first.get("rule") != "key":
        return 400, {}
    return 409, {"key_conflict": {**_type_of(str(first["type"])), "entity_id": first.get("id")}}


def _conflict(details: Mapping[str, Any]) -> dict[str, Any]:
    if "change_diff_refusal" in details:
        return {"change_diff_refusal": details["change_diff_refusal"]}
    if "table_key" not in details:
        return {}
    key, expected, actual = (details.get(name) for name in ("table_key", "expected", "actual"))
    members: dict[str, Any] = {
        "manifest_conflict": {"table_key": key, "expected": expected, "actual": actual},
        "read_set_conflict": {"member": key, "expected": expected, "actual": actual},
    }
    if ":" in str(key):
        members["published_dataset_version_conflict"] = {
            **_type_of(str(key)),
            "expected_published_dataset_version": expected,
            "actual_published_dataset_version": actual,
        }
    return members


def _limited(details: Mapping[str, Any]) -> dict[str, Any]:
    if "resource" not in details:
        return {}
    return {"resource_limit": {name: details.get(name) for name in ("resource", "limit", "actual")}}


def _type_of(table_key: str) -> dict[str, str]:
    kind, _, name = table_key.partition(":")
    return {"entity_kind": kind, "type_name": name}
