"""Texts that callers give: what a commit records must be readable to everybody who lists it later."""

from __future__ import annotations

from omnigraph.errors import InvalidInput


def check_text(name: str, value: str | None) -> str | None:
    """The value of an argument when it is a text or nothing; else `InvalidInput`.

    >>> check_text("message", "first")
    'first'
    """
    return None if value is None else require_text(name, value)


def require_text(name: str, value: str) -> str:
    """The value of an argument when it is a text, which half a surrogate pair is not; else `InvalidInput`."""
    # Annotations keep nobody from passing a number, and storage would take it.
    if not isinstance(value, str):
        raise InvalidInput(f"`{name}` is a text, not {_kind_of(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"`{name}` is not valid Unicode text") from error
    return value


def _kind_of(value: object) -> str:
    return "None" if value is None else f"a value of {type(value).__name__}"
