"""Suggestions of known names for misspelled ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def nearest_name(name: str, known: Sequence[str]) -> str | None:
    """Return the known name most similar to `name`, or None when none is similar.

    >>> nearest_name("naem", ["age", "name"])
    'name'
    """
    folded = {item.lower(): item for item in known}
    if name.lower() in folded:
        return folded[name.lower()]
    close = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """Return the hint ``did you mean `x`?`` for an unknown name, or None.

    >>> suggestion("naem", ["age", "name"])
    'did you mean `name`?'
    """
    nearest = nearest_name(name, list(known))
    return f"did you mean `{nearest}`?" if nearest else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean `x`?`` to end a message with, or an empty string.

    >>> did_you_mean("naem", ["age", "name"])
    '; did you mean `name`?'
    """
    hint = suggestion(name, known)
    return f"; {hint}" if hint else ""
