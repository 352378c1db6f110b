"""Errors on their way to Spark, which knows them as text alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.errors import ConstraintViolation, OmnigraphError

# A traceback has room for so many.
_VIOLATIONS_TOLD = 20


@contextmanager
def told_in_words() -> Iterator[None]:
    """What goes wrong crosses to Spark as text: all of it, and as little else as can be."""
    try:
        yield
    except OmnigraphError as error:
        if isinstance(error, ConstraintViolation):
            error = _with_violations(error)
        raise error.with_traceback(None) from None


def _with_violations(error: ConstraintViolation) -> ConstraintViolation:
    """The error with its violations in the message."""
    total = error.details.get("violations", len(error.violations))
    if total < 2:
        return error
    shown = [f"  {item['message']}" for item in error.violations[:_VIOLATIONS_TOLD]]
    more = [f"  and {total - len(shown)} more"] if total > len(shown) else []
    message = "\n".join([f"{total} violations:", *shown, *more])
    return ConstraintViolation(message, error.violations, details=error.details, hint=error.hint)
