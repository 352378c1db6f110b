"""Errors for Spark, which transfers only their text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.errors import ConstraintViolation, OmnigraphError

# The number of violations that a message lists.
_MAX_VIOLATIONS = 20


@contextmanager
def raise_readable_errors() -> Iterator[None]:
    """Raise errors without traceback and with all details in the message, because Spark transfers only text."""
    try:
        yield
    except OmnigraphError as error:
        if isinstance(error, ConstraintViolation):
            error = _with_violations(error)
        raise error.with_traceback(None) from None


def _with_violations(error: ConstraintViolation) -> ConstraintViolation:
    """Return the error with its violations in the message."""
    total = error.details.get("violations", len(error.violations))
    if total < 2:
        return error
    shown = [f"  {item['message']}" for item in error.violations[:_MAX_VIOLATIONS]]
    more = [f"  and {total - len(shown)} more"] if total > len(shown) else []
    # The reason of a load with too many rejected rows is not one of its violations.
    first = f"{error.reason}:" if "max_rejects" in error.details else f"{total} violations:"
    message = "\n".join([first, *shown, *more])
    return ConstraintViolation(message, error.violations, details=error.details, hint=error.hint)
