"""Translation of errors that Lance raises into errors of this package.

Lance reports most failures as `OSError`, `ValueError` or `RuntimeError` and states the cause in the message only.
The functions here therefore search the message for the known causes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lance.commit import CommitConflictError

from omnigraph.errors import NotFound, OmnigraphError, StorageError
from omnigraph.store.request_counts import LanceCall

# Messages about an object that does not exist. A missing bucket, host or column has another message.
_MISSING_OBJECT = re.compile(
    r"\bNot found: |\bwas not found: |Object at location \S+ not found|No data in memory|NoSuchKey"
)
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_RUST_SOURCE_LOCATION = re.compile(r", /[^,]*\.rs:\d+")
# A scan reports an interrupt by the user as an error. Other Lance calls raise KeyboardInterrupt themselves.
_INTERRUPTED = "External error: KeyboardInterrupt"
_TRANSIENT = (
    "timed out",
    "timeout",
    "connection",
    "503",
    "500",
    "502",
    "504",
    "slow down",
    "reset",
    "retries",
)


@contextmanager
def translate_lance_errors(action: str) -> Iterator[None]:
    """Raise errors of Lance as `NotFound` or `StorageError`; `action` names what failed, such as ``read nodes/1``.

    `CommitConflictError` passes unchanged, because its callers handle it.
    """
    try:
        with LanceCall():
            yield
    except (OmnigraphError, CommitConflictError):
        raise
    except (OSError, ValueError, RuntimeError) as error:
        if str(error).startswith(_INTERRUPTED):
            raise KeyboardInterrupt from error
        raise storage_error_from_lance(error, action) from error


def storage_error_from_lance(error: BaseException, action: str) -> OmnigraphError:
    """Return the error to raise for an error of Lance: `NotFound` for a missing object, else `StorageError`."""
    # Lance appends the locations in its own source code to the message.
    text = _RUST_SOURCE_LOCATION.split(str(error), maxsplit=1)[0].strip()
    details: dict[str, Any] = {"doing": action, "cause": text[:500]}
    if isinstance(error, FileNotFoundError) or _MISSING_OBJECT.search(text):
        return NotFound(f"could not {action}: not found", details=details)
    errno = _OS_ERROR.search(text)
    if errno is not None:
        details["errno"] = int(errno[1])
    transient = any(word in text.lower() for word in _TRANSIENT)
    first_line = text.splitlines()[0] if text else type(error).__name__
    return StorageError(f"could not {action}: {first_line[:300]}", details=details, transient=transient)
