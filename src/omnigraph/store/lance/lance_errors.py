"""Translation of errors that Lance raises into errors of this package.

Lance reports most failures as `OSError`, `ValueError` or `RuntimeError` and states the cause in the message only.
The functions here therefore search the message for the known causes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from lance.commit import CommitConflictError

from omnigraph.errors import NotFound, OmnigraphError, StorageError, StorageErrorKind
from omnigraph.store.http_failures import HttpFailure
from omnigraph.store.request_counts import LanceCall
from omnigraph.store.sync import kind_of_errno

# Messages about an object that does not exist. A missing bucket, host or column has another message.
_MISSING_OBJECT = re.compile(
    r"\bNot found: |\bwas not found: |Object at location \S+ not found|No data in memory|NoSuchKey"
)
# A file of a dataset in a message, relative to the directory of the dataset.
_FILE = re.compile(r"\b((?:data|_deletions|_indices|_versions|_transactions)/[\w./-]+\.\w+)")
# The dataset that an action is about.
_DATASET = re.compile(r"\b((?:nodes|edges)/[\w-]+|__manifest)\b")
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_RUST_SOURCE_LOCATION = re.compile(r", /[^,]*\.rs:\d+")
# A scan reports an interrupt by the user as an error. Other Lance calls raise KeyboardInterrupt themselves.
_INTERRUPTED = "External error: KeyboardInterrupt"
# pyo3 raises a panic of Rust code as a BaseException. Its class cannot be imported.
_PANIC = "PanicException"
_TRANSIENT = ("timed out", "timeout", "connection reset", "slow down")
_ERRORS = (OSError, ValueError, RuntimeError, pa.ArrowException)


@contextmanager
def translate_lance_errors(action: str) -> Iterator[None]:
    """Raise errors of Lance as `NotFound` or `StorageError`; `action` names what failed, such as ``read nodes/1``.

    A panic of Lance becomes a `StorageError` too. `CommitConflictError` passes unchanged for its callers.
    """
    try:
        with LanceCall():
            yield
    except (OmnigraphError, CommitConflictError):
        raise
    except _ERRORS as error:
        if str(error).startswith(_INTERRUPTED):
            raise KeyboardInterrupt from error
        raise storage_error_from_lance(error, action) from error
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise storage_error_from_lance(error, action) from error


def storage_error_from_lance(error: BaseException, action: str) -> OmnigraphError:
    """Return the error to raise for an error of Lance: `NotFound` for a missing object, else `StorageError`.

    `details` has the dataset that the action names, and the file that the message names, relative to its dataset.
    """
    # Lance appends the locations in its own source code to the message.
    text = _RUST_SOURCE_LOCATION.split(str(error), maxsplit=1)[0].strip()
    details: dict[str, Any] = {"doing": action, "cause": text[:500]}
    dataset, file = _DATASET.search(action), _FILE.search(text)
    if dataset is not None:
        details["dataset"] = dataset[1]
    if file is not None:
        details["file"] = file[1]
    failure = HttpFailure.parse(text)
    no_bucket = failure is not None and failure.code == "NoSuchBucket"
    if not no_bucket and (isinstance(error, FileNotFoundError) or _MISSING_OBJECT.search(text)):
        return NotFound(f"could not {action}: not found", details=details)
    if failure is not None:
        details["status"] = failure.status
        return StorageError(
            f"could not {action}: {failure.reason}", kind=failure.kind, details=details, hint=failure.hint
        )
    first_line = text.splitlines()[0] if text else type(error).__name__
    return StorageError(
        f"could not {action}: {first_line[:300]}", details=details, kind=_local_kind(error, text, details)
    )


def _local_kind(error: BaseException, text: str, details: dict[str, Any]) -> StorageErrorKind:
    """Return the kind of a failure that is not about an HTTP request. `details` gets the error number, if any."""
    number = _OS_ERROR.search(text)
    if number is not None:
        details["errno"] = int(number[1])
        return kind_of_errno(int(number[1]))
    if isinstance(error, OSError) and any(word in text.lower() for word in _TRANSIENT):
        return "transient"
    return "unknown"
