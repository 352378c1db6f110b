"""Classification of failed obstore calls: refused, lost, not sent, or possibly done.

obstore reports the HTTP status and the kind of transport failure only in the text of its errors, so they are parsed
from there. An unrecognized failure counts as possibly done and not transient, which is the safe choice for both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from obstore.exceptions import AlreadyExistsError, PreconditionError

from omnigraph.errors import StorageError

__all__ = ["ObstoreFailure"]

_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})")
_TRANSPORT = re.compile(r"HttpError \{\s*kind: (\w+)")
_CODE = re.compile(r"<Code>(\w+)</Code>")


@dataclass(frozen=True, slots=True)
class ObstoreFailure:
    """One failed call. `status` is the HTTP status, `transport` the kind of failure when there was no reply."""

    summary: str
    status: int | None
    transport: str | None
    code: str | None
    refused_by_condition: bool
    not_found: bool

    @classmethod
    def of(cls, error: Exception) -> ObstoreFailure:
        """Classify an error of obstore."""
        text = str(error)
        status = _STATUS.search(text)
        transport = _TRANSPORT.search(text)
        code = _CODE.search(text)
        return cls(
            summary=text.partition("\n")[0],
            status=int(status.group(1)) if status else None,
            transport=transport.group(1) if transport else None,
            code=code.group(1) if code else None,
            refused_by_condition=isinstance(error, AlreadyExistsError | PreconditionError),
            not_found=isinstance(error, FileNotFoundError),
        )

    @property
    def no_bucket(self) -> bool:
        """Whether the bucket is missing, which obstore reports like a missing object."""
        return self.code == "NoSuchBucket"

    @property
    def object_missing(self) -> bool:
        """Whether the object does not exist."""
        return self.not_found and not self.no_bucket

    @property
    def condition_failed(self) -> bool:
        """Whether the condition of a conditional put did not hold."""
        return self.refused_by_condition and self.status != 409 and not self.no_bucket

    @property
    def conflict(self) -> bool:
        """Whether the store processed another write of this key at the same time. S3 asks to send it again."""
        return self.status == 409

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later."""
        if self.status is None:
            return self.transport is not None
        busy = self.status in (408, 409, 429) or self.code == "RequestTimeout"
        return busy or (self.status >= 500 and self.status != 501)

    @property
    def may_have_succeeded(self) -> bool:
        """Whether the request may have taken effect: it was sent, and no reply excludes that.

        501 and 503 exclude it: the store does not support the request, or rejected it because of load.
        """
        if self.status is not None:
            return self.status >= 500 and self.status not in (501, 503)
        return self.transport is not None and self.transport != "Connect"

    @property
    def reason(self) -> str:
        """The cause in a few words."""
        if self.status is not None:
            return f"the store returned status {self.status}" + (f" {self.code}" if self.code else "")
        if self.transport is not None:
            return f"the connection failed ({self.transport.lower()})"
        return self.summary

    def as_error(self, action: str) -> StorageError:
        """Return the error to raise; `action` names what failed, such as ``get object `a```."""
        return StorageError(
            f"cannot {action}: {self.reason}",
            transient=self.transient,
            details={"status": self.status, "reason": self.summary},
        )
