"""What a failed obstore call means: refused, lost, never sent, or possibly done.

obstore keeps the HTTP status and the kind of transport failure in the text of its errors only, so they are
read from there. What is not recognised counts as possibly done and not transient, the careful side of both.
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
    """One failed call. `status` is the HTTP status, `transport` the kind of failure when no reply came."""

    summary: str
    status: int | None
    transport: str | None
    code: str | None
    refused_by_condition: bool
    not_found: bool

    @classmethod
    def of(cls, error: Exception) -> ObstoreFailure:
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
        """The bucket itself is missing, which obstore reports like a missing object."""
        return self.code == "NoSuchBucket"

    @property
    def missing(self) -> bool:
        """There is no such object."""
        return self.not_found and not self.no_bucket

    @property
    def lost(self) -> bool:
        """The condition of a conditional put did not hold."""
        return self.refused_by_condition and self.status != 409 and not self.no_bucket

    @property
    def conflict(self) -> bool:
        """The store was busy with another write of this key and decided nothing: S3 wants it sent again."""
        return self.status == 409

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later."""
        if self.status is None:
            return self.transport is not None
        busy = self.status in (408, 409, 429) or self.code == "RequestTimeout"
        return busy or (self.status >= 500 and self.status != 501)

    @property
    def maybe_done(self) -> bool:
        """Whether the request may have taken effect: it was sent, and no answer says otherwise.

        501 and 503 say so: the store does not know the request, or has no time for it.
        """
        if self.status is not None:
            return self.status >= 500 and self.status not in (501, 503)
        return self.transport is not None and self.transport != "Connect"

    def as_error(self, what: str) -> StorageError:
        """The error for a caller who tried to do `what`."""
        if self.status is not None:
            reason = f"the store answered {self.status}" + (f" {self.code}" if self.code else "")
        elif self.transport is not None:
            reason = f"the connection failed ({self.transport.lower()})"
        else:
            reason = self.summary
        return StorageError(
            f"cannot {what}: {reason}",
            transient=self.transient,
            details={"status": self.status, "reason": self.summary},
        )
