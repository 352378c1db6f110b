"""Checks of string arguments that are recorded in commits."""

from __future__ import annotations

from omnigraph.errors import InvalidInput


def check_text(name: str, value: str | None) -> str | None:
    """Return the value of an optional string argument; `InvalidInput` if it is not a valid string.

    >>> check_text("message", "first")
    'first'
    """
    return None if value is None else require_text(name, value)


def require_text(name: str, value: str) -> str:
    """Return the value of a string argument; `InvalidInput` if it is not a string or has a lone surrogate."""
    # Without this check a number would be recorded as it is.
    if not isinstance(value, str):
        raise InvalidInput(f"`{name}`: expected a string, got {_type_name(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"`{name}` is not valid Unicode text") from error
    return value


def _type_name(value: object) -> str:
    return "None" if value is None else type(value).__name__
