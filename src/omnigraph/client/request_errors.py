"""What went wrong between a client and a server, as the errors that embedded graphs raise."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from omnigraph.errors import (
    Conflict,
    InvalidInput,
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
# Statuses that stand for themselves: the answer is elsewhere, the work was not taken.
_DONE, _REFUSED = 303, 503
_TRANSIENT = (502, 503, 504)
_SHOWN = 200
_LONGEST = 2_000
_KINDS: Mapping[int, type[OmnigraphError]] = {
    401: PermissionDenied,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
}


def refusal(
    response: httpx.Response, *, writes: bool = False, heard: bool = False, key: str | None = None
) -> OmnigraphError:
    """The error that a response with another status than success stands for; its body has been read.

    A server of ours says which error it was. Anything else, such as a proxy in between, is known by its status
    alone, and then a failed write may have happened. `heard` says that an earlier try of the same write may have:
    a server that takes no work now tells nothing of that.
    """
    found = _told(response, writes, key)
    if heard and isinstance(found, StorageError | ResourceLimit | RecoveryRequired):
        return _unknown(found.message, found.details, key)
    return found


def _told(response: httpx.Response, writes: bool, key: str | None) -> OmnigraphError:
    body = _body(response)
    # Somebody else may have a member of that name too.
    with suppress(StorageError):
        return decode_error(body.get("exception"))
    status = response.status_code
    text = str(body.get("error") or f"the server answered {status} {response.reason_phrase}".rstrip())
    text = text[:_LONGEST]
    details = _details(response, body)
    if status == 401:
        hint = "give a token that the server knows: `token` of connect, or `omnigraph login`"
        return PermissionDenied(text, details=details, hint=hint)
    if status == 413:
        limit = body.get("resource_limit")
        return ResourceLimit(text, details={**details, **(limit if isinstance(limit, Mapping) else {})})
    if status == 429:
        hint = "try again later, or with fewer calls at a time"
        return ResourceLimit(text, details={"retry_after": RETRY_SECONDS, **details}, hint=hint)
    if status < 400:
        if writes and status == _DONE:
            return _unknown(text, details, key)
        where = response.headers.get("location", "somewhere else")
        return InvalidInput(
            f"the server sends its callers to {where}", details=details, hint="use that address"
        )
    if status < 500:
        return _KINDS.get(status, InvalidInput)(text, details=details)
    if writes and not (status == _REFUSED and _is_ours(body)):
        return _unknown(text, details, key)
    return StorageError(text, transient=status in _TRANSIENT, details=details)


def unreachable(error: Exception, url: str, *, heard: bool = False, key: str | None = None) -> OmnigraphError:
    """Nobody was there: nothing was sent, unless an earlier try may have been heard."""
    return _lost(f"the server at {url} cannot be reached: {_said(error)}", url, heard, key)


def broken(error: Exception, url: str, *, heard: bool = False, key: str | None = None) -> OmnigraphError:
    """The connection broke, or nothing came for too long. `heard` says that a write may have been sent whole."""
    text = f"the connection to {url} broke before the answer was complete: {_said(error)}"
    return _lost(text, url, heard, key)


def garbled(response: httpx.Response, *, writes: bool = False, key: str | None = None) -> OmnigraphError:
    """A success whose body is not what a server of ours sends, so that nobody knows what a write has done."""
    text = f"the answer of {response.url.copy_with(query=None)} is not one of an OmniGraph server"
    details = {"status": response.status_code, "content_type": response.headers.get("content-type")}
    if writes:
        return _unknown(text, details, key)
    return StorageError(
        text, details=details, hint="is the address that of an OmniGraph server of this version?"
    )


def _lost(text: str, url: str, heard: bool, key: str | None) -> OmnigraphError:
    if heard:
        return _unknown(text, {"url": url}, key)
    return StorageError(text, transient=True, details={"url": url})


def _unknown(text: str, details: Mapping[str, Any], key: str | None) -> OutcomeUnknown:
    if key is None:
        hint = "look at the newest commits of the branch before trying again"
        return OutcomeUnknown(text, details=details, hint=hint)
    hint = "try again with the same idempotency key: the write happens once"
    return OutcomeUnknown(text, details={**details, "idempotency_key": key}, hint=hint)


def _body(response: httpx.Response) -> Mapping[str, Any]:
    try:
        found = response.json()
    except (ValueError, RecursionError):
        # Not one of ours; the status says what can be said.
        return {}
    return found if isinstance(found, Mapping) else {}


def _is_ours(body: Mapping[str, Any]) -> bool:
    """Whether a server of ours takes no work, and has done none; proxies say the same of one that fell silent."""
    return body.keys() == {"error"}


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
