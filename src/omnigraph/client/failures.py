"""What went wrong between a client and a server, as the errors that embedded graphs raise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.api.wire import decode_error
from omnigraph.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    OmnigraphError,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    ResourceLimit,
    StorageError,
)

if TYPE_CHECKING:
    import httpx

RETRY_SECONDS = 60
# A server that takes no work has not done any; all others may have.
_REFUSED = 503
_TRANSIENT = (502, 503, 504)
_SHOWN = 200
_KINDS: Mapping[int, type[OmnigraphError]] = {
    401: PermissionDenied,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
}


def refusal(response: httpx.Response, *, writes: bool = False, key: str | None = None) -> OmnigraphError:
    """The error that a response with another status than success stands for; its body has been read.

    A server of ours says which error it was. Anything else, such as a proxy in between, is known by its status
    alone, and then a failed write may have happened.
    """
    body = _body(response)
    if isinstance(body.get("exception"), Mapping):
        return decode_error(body["exception"])
    status = response.status_code
    text = str(body.get("error") or f"the server answered {status} {response.reason_phrase}".rstrip())
    details = _details(response, body)
    if status == 401:
        return PermissionDenied(text, details=details, hint="give a token that the server knows")
    if status == 413:
        return ResourceLimit(text, details={**details, **(body.get("resource_limit") or {})})
    if status == 429:
        hint = "try again later, or with fewer calls at a time"
        return ResourceLimit(text, details={"retry_after": RETRY_SECONDS, **details}, hint=hint)
    if status < 400:
        where = response.headers.get("location", "somewhere else")
        return InvalidInput(
            f"the server sends its callers to {where}", details=details, hint="use that address"
        )
    if status < 500:
        return _KINDS.get(status, InvalidInput)(text, details=details)
    if writes and status != _REFUSED:
        return _unknown(text, details, key)
    return StorageError(text, transient=status in _TRANSIENT, details=details)


def unreachable(error: Exception, url: str) -> StorageError:
    """Nobody answered at all: nothing was sent."""
    return StorageError(
        f"the server at {url} cannot be reached: {_said(error)}", transient=True, details={"url": url}
    )


def broken(error: Exception, url: str, *, writes: bool = False, key: str | None = None) -> OmnigraphError:
    """The connection broke, or nothing came for too long, after the request was sent, or while it was."""
    text = f"the connection to {url} broke before the answer was complete: {_said(error)}"
    if writes:
        return _unknown(text, {"url": url}, key)
    return StorageError(text, transient=True, details={"url": url})


def garbled(response: httpx.Response) -> StorageError:
    """A success whose body is not what a server of ours sends."""
    return StorageError(
        f"the answer of {response.url.copy_with(query=None)} is not one of an OmniGraph server",
        details={"status": response.status_code, "content_type": response.headers.get("content-type")},
        hint="is the address that of an OmniGraph server of this version?",
    )


def _unknown(text: str, details: Mapping[str, Any], key: str | None) -> OutcomeUnknown:
    if key is None:
        hint = "look at the newest commits of the branch before trying again"
        return OutcomeUnknown(text, details=details, hint=hint)
    hint = "try again with the same idempotency key: the write happens once"
    return OutcomeUnknown(text, details={**details, "idempotency_key": key}, hint=hint)


def _body(response: httpx.Response) -> Mapping[str, Any]:
    try:
        found = response.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        # Not one of ours; the status says what can be said.
        return {}
    return found if isinstance(found, Mapping) else {}


def _details(response: httpx.Response, body: Mapping[str, Any]) -> dict[str, Any]:
    details: dict[str, Any] = {"status": response.status_code}
    if body.get("request_id"):
        details["request_id"] = body["request_id"]
    wait = response.headers.get("retry-after", "")
    if wait.isdigit():
        details["retry_after"] = int(wait)
    return details


def _said(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:_SHOWN]
