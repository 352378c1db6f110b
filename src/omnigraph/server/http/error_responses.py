"""Error responses: the HTTP status and the JSON body of every error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException

from omnigraph.errors import (
    Cancelled,
    ChangeFeedGap,
    Conflict,
    ConstraintViolation,
    ExternalBlobError,
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
# Statuses whose body has a details member in place of a code.
_WITHOUT_CODE = frozenset({410, 412, 424, 499, 503})
RETRY_SECONDS = 60
INTERNAL_ERROR = "internal error"
STORAGE_FAILURE = "storage failure; see the server log"


class HttpError(HTTPException):
    """An error that has no class in the library, such as an invalid token or an unsupported media type.

    `members` are members of the body besides `error` and `code`.
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


def body_too_large(resource: str, limit: int, actual: int) -> HttpError:
    """Return the 413 of a body that exceeds the limit of its route."""
    details = {"resource": resource, "limit": limit, "actual": actual}
    return HttpError(413, f"the request body is larger than {limit:,} bytes", {"resource_limit": details})


def render_http_error(error: HTTPException) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of an HTTP error."""
    members = error.members if isinstance(error, HttpError) else {}
    return error.status_code, _body(str(error.detail), CODES.get(error.status_code), members)


def render_error(error: OmnigraphError) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of a library error.

    The body of a storage error names no buckets and no paths outside of the graph. They are logged.

    >>> render_error(NotFound("branch 'x' not found"))
    (404, {'error': "branch 'x' not found", 'code': 'not_found'})
    >>> render_error(PreconditionFailed("head moved", details={"expected": "a", "actual": "b"}))
    (412, {'error': 'head moved', 'precondition_failure': {'expected': 'a', 'actual': 'b'}})
    """
    status, members = _classify(error)
    code = None if status in _WITHOUT_CODE else CODES[status]
    text = public_text(error) if status == 500 else error.message
    return status, _body(text, code, {**members, **(_advice(error) if status < 500 else {})})


def public_text(error: OmnigraphError) -> str:
    """Return the message of an error with status 500, without addresses of the storage.

    >>> public_text(StorageError("/srv/x", details={"reason": "damaged", "type": "City", "file": "nodes/1/a"}))
    "type 'City' is damaged: nodes/1/a cannot be read; see the server log"
    """
    if isinstance(error, OutcomeUnknown):
        return error.message
    match error.details.get("reason"):
        case "damaged":
            name = error.details.get("type")
            subject = "the graph" if name is None else f"type '{name}'"
            return f"{subject} is damaged: {error.details.get('file')} cannot be read; see the server log"
        case "vanished":
            return "the storage of the graph is gone; see the server log"
    return STORAGE_FAILURE


def redact(error: OmnigraphError) -> OmnigraphError:
    """Return an error without the details that `render_error` leaves out.

    >>> redact(StorageError("no such bucket: private", transient=True, details={"bucket": "private"})).message
    'storage failure; see the server log'
    """
    match error:
        case RecoveryRequired():
            return RecoveryRequired(error.message, details=_pick(error.details, "operation_id"))
        case OutcomeUnknown():
            return OutcomeUnknown(error.message, details=_pick(error.details, "commit_id"))
        case StorageError():
            members = ("reason", "type", "property", "file", "commit_id", "branch")
            details = _pick(error.details, *members) if _is_public(error) else {}
            return StorageError(public_text(error), kind=error.kind, details=details)
    return error if _classify(error)[0] < 500 else type(error)(STORAGE_FAILURE)


def _advice(error: OmnigraphError) -> dict[str, Any]:
    """Return the members that help to correct a request: hint, diagnostics and violations."""
    members: dict[str, Any] = {} if error.hint is None else {"hint": error.hint}
    if isinstance(error, InvalidInput | ConstraintViolation) and error.violations:
        members["violations"] = [_violation(item) for item in error.violations]
        members["violation_count"] = error.details.get("violations", len(error.violations))
    if isinstance(error, LanguageError):
        members["diagnostics"] = [
            {
                "line": item.line,
                "column": item.column,
                "message": item.text,
                **({} if item.hint is None else {"hint": item.hint}),
            }
            for item in error.diagnostics
        ]
    return members


def _violation(violation: Mapping[str, Any]) -> dict[str, Any]:
    """Return a violation under public names.

    >>> _violation({"message": "expected I32", "type": "node:City", "id": "Bern", "line": 2, "value": None})
    {'message': 'expected I32', 'line': 2, 'entity_kind': 'node', 'type_name': 'City', 'entity_id': 'Bern'}
    """
    names = ("message", "rule", "property", "source", "line", "row", "record", "column", "hint")
    shown = _pick(violation, *names)
    kind, _, type_name = str(violation.get("type") or "").rpartition(":")
    shown |= {"entity_kind": kind or None, "type_name": type_name or None, "entity_id": violation.get("id")}
    return {name: value for name, value in shown.items() if value is not None}


def _pick(details: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: details[name] for name in names if name in details}


def _body(text: str, code: str | None, members: Mapping[str, Any]) -> dict[str, Any]:
    return {"error": text, **({} if code is None else {"code": code}), **members}


def _classify(error: OmnigraphError) -> tuple[int, dict[str, Any]]:
    """Return the status of an error and the details member of its kind."""
    details = error.details
    match error:
        case ConstraintViolation():
            return _constraint_violation(error)
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
            return 412, {"precondition_failure": _pick(details, "expected", "actual")}
        case ChangeFeedGap():
            return 410, {"change_feed_gap": details.get("change_feed_gap", {})}
        case Cancelled():
            # Not a registered status; proxies and RPC gateways use it for requests that were cancelled.
            return 499, {"cancelled": _pick(details, "reason")}
        case ResourceLimit():
            return 413, _resource_limit(details)
        case ExternalBlobError():
            return 424, {"external_blob_source": _pick(details, "uri", "reason")}
        case RecoveryRequired():
            return 503, {"recovery_required": {"operation_id": details.get("operation_id")}}
        case OutcomeUnknown():
            return 500, {"outcome_unknown": {"graph_commit_id": details.get("commit_id")}}
        case StorageError():
            return 500, {"storage_failure": _storage_failure(error)}
        case _:
            return 500, {}


def _is_public(error: StorageError) -> bool:
    return error.details.get("reason") in ("damaged", "vanished")


def _storage_failure(error: StorageError) -> dict[str, Any]:
    names = {
        "reason": "reason",
        "type": "type_name",
        "property": "property",
        "file": "file",
        "commit_id": "graph_commit_id",
        "branch": "graph_branch",
    }
    shown = _pick(error.details, *names) if _is_public(error) else {}
    return {"kind": error.kind, **{names[name]: value for name, value in shown.items()}}


def _constraint_violation(error: ConstraintViolation) -> tuple[int, dict[str, Any]]:
    """An id that exists already is a conflict; any other violation is an invalid request."""
    first = error.violations[0] if error.violations else {}
    if first.get("rule") != "key" or "max_rejects" in error.details:
        return 400, {}
    return 409, {"key_conflict": {**_split_key(str(first["type"])), "entity_id": first.get("id")}}


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
            **_split_key(str(key)),
            # A type that the branch did not have, or no longer has, counts as version 0.
            "expected_published_dataset_version": int(expected or 0),
            "actual_published_dataset_version": int(actual or 0),
        }
    return members


def _resource_limit(details: Mapping[str, Any]) -> dict[str, Any]:
    """The documented numbers are integers, so fractions of seconds are rounded up."""
    if "resource" not in details:
        return {}
    limit = math.ceil(details["limit"])
    # A reader that stops at its limit does not know the size of the rest.
    actual = details.get("actual")
    return {
        "resource_limit": {
            "resource": details["resource"],
            "limit": limit,
            "actual": limit + 1 if actual is None else math.ceil(actual),
        }
    }


def _split_key(table_key: str) -> dict[str, str]:
    kind, _, name = table_key.partition(":")
    return {"entity_kind": kind, "type_name": name}
