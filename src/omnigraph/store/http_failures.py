"""The cause of a failed HTTP request to an object store, read from the message of obstore or Lance.

Both libraries send requests with the `object_store` crate. It reports the HTTP status, the error code of S3 and the
kind of transport failure only as text. obstore appends the debug form of the error, which states more than the
message; Lance does not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from omnigraph.errors import StorageErrorKind

__all__ = ["HttpFailure"]

_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_TRANSPORT = re.compile(r"HttpError \{\s*kind: (\w+)")
_SENT_TO = re.compile(r"Error performing [A-Z]+ (https?://[^/\s]+)")
_UNSENT = re.compile(r"HTTP error: (builder error|error sending request|[a-z][a-z ]+)")
# The message of the operating system or of the name resolution, in the debug form.
_OS_MESSAGE = re.compile(r'message: "([^"]+)"|error: "(failed to lookup [^"]+)"')
_METADATA_SERVICE = "169.254.169.254"

_BAD_CREDENTIALS = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
)
_WRONG_REGION = frozenset(
    {"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"}
)


@dataclass(frozen=True, slots=True)
class HttpFailure:
    """One failed request.

    `status` and `code` are those of the reply. `transport` is the kind of failure when there was no reply, in lower
    case: `connect`, `timeout`, `request`, `scheme`, `credentials` or another word of the library. `cause` is the
    message of the operating system. `origin` is the address that the request was sent to.

    >>> failure = HttpFailure.parse(
    ...     "Error performing GET http://127.0.0.1:9000/b in 24µs - HTTP error: builder error"
    ... )
    >>> failure.kind, failure.reason
    ('configuration', 'the URL scheme of http://127.0.0.1:9000 is not allowed')
    """

    status: int | None
    code: str | None
    transport: str | None
    cause: str | None = None
    origin: str | None = None

    @classmethod
    def parse(cls, text: str) -> HttpFailure | None:
        """Return the failure that a message describes; None if it is not about an HTTP request."""
        status = _STATUS.search(text)
        origin = _SENT_TO.search(text)
        transport = None if status else _transport(text, None if origin is None else origin[1])
        if status is None and transport is None:
            return None
        code = _CODE.search(text)
        cause = _OS_MESSAGE.search(text)
        return cls(
            status=int(status[1]) if status else None,
            code=code[1] if code else None,
            transport=transport,
            cause=None if cause is None else cause[1] or cause[2],
            origin=None if origin is None else origin[1],
        )

    @property
    def kind(self) -> StorageErrorKind:
        """The kind of the error to raise."""
        if self.status is None:
            return "configuration" if self.transport in ("scheme", "credentials") else "transient"
        if self.status == 412:
            return "precondition"
        if self.status in (408, 409, 429) or self.code == "RequestTimeout":
            return "transient"
        if self.status >= 500:
            return "permanent" if self.status == 501 else "transient"
        if self.status in (401, 403) or self.code in _BAD_CREDENTIALS | _WRONG_REGION:
            return "configuration"
        return "not_found" if self.status == 404 else "permanent"

    @property
    def reason(self) -> str:
        """The cause in a few words."""
        if self.status is not None:
            return f"the store returned status {self.status}" + (f" {self.code}" if self.code else "")
        if self.transport == "credentials":
            return "no credentials were found, and the metadata service of the machine did not reply"
        if self.transport == "scheme":
            return f"the URL scheme of {self.origin or 'the endpoint'} is not allowed"
        place = "" if self.origin is None else f", {self.origin}"
        return f"the connection failed ({self.transport}{place})" + (f": {self.cause}" if self.cause else "")

    @property
    def hint(self) -> str | None:
        """What to check, if the cause is known."""
        if self.transport == "scheme":
            return "use an https:// endpoint, or set the storage option allow_http or AWS_ALLOW_HTTP to true"
        if self.code == "NoSuchBucket":
            return "check the name of the bucket and the endpoint"
        if self.code in _WRONG_REGION:
            return "check the storage option region or AWS_REGION"
        if self.transport == "credentials" or self.status == 401 or self.code in _BAD_CREDENTIALS:
            return (
                "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the storage options of the same names"
            )
        if self.status == 403:
            return "check that the credentials may access the bucket"
        if self.transport in ("connect", "request"):
            return "check that the server runs and that the endpoint is right"
        return None


def _transport(text: str, origin: str | None) -> str | None:
    """Return the kind of failure without a reply."""
    known = _TRANSPORT.search(text)
    unsent = _UNSENT.search(text)
    if known is None and unsent is None:
        return None
    if origin is not None and _METADATA_SERVICE in origin:
        return "credentials"
    if "BadScheme" in text or (unsent is not None and unsent[1] == "builder error"):
        return "scheme"
    if known is not None:
        return known[1].lower()
    assert unsent is not None
    return "request" if unsent[1] == "error sending request" else unsent[1].strip()
