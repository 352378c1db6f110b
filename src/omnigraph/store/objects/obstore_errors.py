"""Classification of failed obstore calls: refused, lost, not sent, or possibly done.

A request that failed in an unrecognized way counts as possibly done. A failure that is not about an HTTP request
has the kind `unknown` and is not repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

from obstore.exceptions import AlreadyExistsError, PreconditionError

from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.store.http_failures import HttpFailure

__all__ = ["ObstoreFailure"]


@dataclass(frozen=True, slots=True)
class ObstoreFailure:
    """One failed call. `http` is None if the failure is not about an HTTP request."""

    summary: str
    http: HttpFailure | None
    refused_by_condition: bool
    not_found: bool

    @classmethod
    def of(cls, error: Exception) -> ObstoreFailure:
        """Classify an error of obstore."""
        text = str(error)
        return cls(
            summary=text.partition("\n")[0],
            http=HttpFailure.parse(text),
            refused_by_condition=isinstance(error, AlreadyExistsError | PreconditionError),
            not_found=isinstance(error, FileNotFoundError),
        )

    @property
    def status(self) -> int | None:
        """The HTTP status of the reply."""
        return None if self.http is None else self.http.status

    @property
    def code(self) -> str | None:
        """The error code of S3 in the reply."""
        return None if self.http is None else self.http.code

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
    def kind(self) -> StorageErrorKind:
        """The kind of the error to raise."""
        if self.http is not None:
            return self.http.kind
        if self.refused_by_condition:
            return "precondition"
        return "not_found" if self.not_found else "unknown"

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later."""
        return self.kind == "transient"

    @property
    def may_have_succeeded(self) -> bool:
        """Whether the request may have taken effect: it was sent, and no reply excludes that.

        501 and 503 exclude it: the store does not support the request, or rejected it because of load.
        """
        if self.http is None:
            return False
        if self.http.status is not None:
            return self.http.status >= 500 and self.http.status not in (501, 503)
        return self.http.transport not in ("connect", "scheme", "credentials")

    @property
    def reason(self) -> str:
        """The cause in a few words."""
        return self.summary if self.http is None else self.http.reason

    def as_error(self, action: str) -> StorageError:
        """Return the error to raise; `action` names what failed, such as ``get object `a```."""
        return StorageError(
            f"cannot {action}: {self.reason}",
            kind=self.kind,
            details={"status": self.status, "cause": self.summary},
            hint=None if self.http is None else self.http.hint,
        )
