"""The errors of HTTP requests, as the classes that local graphs raise."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from omnigraph.errors import (
    Cancelled,
    Conflict,
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
from omnigraph.protocol.codec import decode_error

if TYPE_CHECKING:
    import httpx

RETRY_SECONDS = 60
_SEE_OTHER, _UNAVAILABLE = 303, 503
_TRANSIENT = (502, 503, 504)
# The length of foreign messages that an error repeats.
_CAUSE_LENGTH = 200
_MESSAGE_LENGTH = 2_000
_ERRORS_BY_STATUS: Mapping[int, type[OmnigraphError]] = {
    401: PermissionDenied,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    499: Cancelled,
}


def response_error(
    response: httpx.Response, *, writes: bool = False, may_have_applied: bool = False, key: str | None = None
) -> OmnigraphError:
    """Return the error for a response that is not a success. Its body has been read.

    An OmniGraph server names the error. A response of anything else, such as a proxy, is mapped by its status, and
    then a failed write may have been applied. `may_have_applied` says that an earlier attempt of the same write may
    have been applied. Then an error that only refuses this attempt leaves the outcome unknown.
    """
    error = _decode_or_map(response, writes, key)
    if may_have_applied and isinstance(error, StorageError | ResourceLimit | Cancelled | RecoveryRequired):
        return _outcome_unknown(error.message, error.details, key)
    return error


def _decode_or_map(response: httpx.Response, writes: bool, key: str | None) -> OmnigraphError:
    body = _json_body(response)
    # The body of another server may have an `exception` member too.
    with suppress(StorageError):
        return decode_error(body.get("exception"))
    status = response.status_code
    text = str(body.get("error") or f"the server responded {status} {response.reason_phrase}".rstrip())
    text = text[:_MESSAGE_LENGTH]
    details = _details(response, body)
    if status == 401:
        hint = "pass a valid bearer token: `token` of connect, or `omnigraph login`"
        return PermissionDenied(text, details=details, hint=hint)
    if "merge_conflicts" in body and isinstance(body["merge_conflicts"], list) and body["merge_conflicts"]:
        return MergeConflicts(text, body["merge_conflicts"], details=details)
    if isinstance(body.get("precondition_failure"), Mapping):
        return PreconditionFailed(text, details={**details, **body["precondition_failure"]})
    if isinstance(body.get("recovery_required"), Mapping):
        return RecoveryRequired(text, details={**details, **body["recovery_required"]})
    if status == 413:
        limit = body.get("resource_limit")
        return ResourceLimit(text, details={**details, **(limit if isinstance(limit, Mapping) else {})})
    if status == 429:
        hint = "retry later, or with fewer concurrent calls"
        return ResourceLimit(text, details={"retry_after": RETRY_SECONDS, **details}, hint=hint)
    if status < 400:
        if writes and status == _SEE_OTHER:
            return _outcome_unknown(text, details, key)
        target = response.headers.get("location", "another address")
        return InvalidInput(f"the server redirects to {target}", details=details, hint="use that address")
    if status < 500:
        return _ERRORS_BY_STATUS.get(status, InvalidInput)(text, details=details)
    if writes and not (status == _UNAVAILABLE and _is_from_omnigraph(body)):
        return _outcome_unknown(text, details, key)
    return StorageError(text, transient=status in _TRANSIENT, details=details)


def server_unreachable(
    error: Exception, url: str, *, may_have_applied: bool = False, key: str | None = None
) -> OmnigraphError:
    """Return the error for a failed connection. Nothing was sent, but an earlier attempt may have been applied."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return StorageError(
            f"the TLS certificate of {url} is not trusted: {_cause(error)}",
            kind="configuration",
            details={"url": url},
            hint="pass `ca_file` of connect or set SSL_CERT_FILE to the certificate authority of the server",
        )
    text = f"the server at {url} cannot be reached: {_cause(error)}"
    return _lost(text, url, may_have_applied, key)


def connection_lost(
    error: Exception, url: str, *, may_have_applied: bool = False, key: str | None = None
) -> OmnigraphError:
    """Return the error for a connection that broke or timed out. `may_have_applied` says that a write was sent."""
    text = f"the connection to {url} broke before the response was complete: {_cause(error)}"
    return _lost(text, url, may_have_applied, key)


def unexpected_response(
    response: httpx.Response, *, writes: bool = False, key: str | None = None
) -> OmnigraphError:
    """Return the error for a success that an OmniGraph server would not send. The outcome of a write is unknown."""
    text = f"the response of {response.url.copy_with(query=None)} is not from an OmniGraph server"
    details = {"status": response.status_code, "content_type": response.headers.get("content-type")}
    if writes:
        return _outcome_unknown(text, details, key)
    return StorageError(
        text, details=details, hint="check that the address is that of an OmniGraph server of this version"
    )


def _lost(text: str, url: str, may_have_applied: bool, key: str | None) -> OmnigraphError:
    if may_have_applied:
        return _outcome_unknown(text, {"url": url}, key)
    return StorageError(text, transient=True, details={"url": url})


def _outcome_unknown(text: str, details: Mapping[str, Any], key: str | None) -> OutcomeUnknown:
    if key is None:
        hint = "look at the newest commits of the branch before you retry"
        return OutcomeUnknown(text, details=details, hint=hint)
    hint = "retry with the same idempotency key: the write is applied once"
    return OutcomeUnknown(text, details={**details, "idempotency_key": key}, hint=hint)


def _json_body(response: httpx.Response) -> Mapping[str, Any]:
    try:
        body = response.json()
    except (ValueError, RecursionError):
        # Not from an OmniGraph server. The status is all that is known.
        return {}
    return body if isinstance(body, Mapping) else {}


def _is_from_omnigraph(body: Mapping[str, Any]) -> bool:
    """Return whether an OmniGraph server refused the request. A proxy responds 503 also after it forwarded it."""
    return body.keys() == {"error"}


def _details(response: httpx.Response, body: Mapping[str, Any]) -> dict[str, Any]:
    details: dict[str, Any] = {"status": response.status_code}
    if body.get("request_id"):
        details["request_id"] = body["request_id"]
    wait = response.headers.get("retry-after", "")
    if wait.isdigit():
        details["retry_after"] = int(wait)
    return details


def _cause(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:_CAUSE_LENGTH]
