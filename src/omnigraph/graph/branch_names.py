"""Branch names. A name is data, never a directory: any readable text will do."""

from __future__ import annotations

import re
from collections.abc import Iterable

from omnigraph.errors import InvalidInput, NotFound
from omnigraph.graph.argument_checks import require_text
from omnigraph.lang.suggestions import suggestion

MAIN = "main"
INTERNAL = frozenset({"__schema_apply_lock__"})
MAX_NAME_BYTES = 1024
# How commits are named, to the letter: in Crockford's base 32, of 128 bits.
_COMMIT_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_LEFT_OUT = frozenset({".", ".."})


def stored_name(name: str) -> str:
    """A branch as it is stored, without spaces around it; `InvalidInput` when that is no text.

    >>> stored_name(" main ")
    'main'
    """
    return require_text("branch", name).strip()


def check_branch_name(name: str, operation: str) -> str:
    """The name as it is stored, or `InvalidInput`.

    >>> check_branch_name(" review/x ", "create")
    'review/x'
    """
    trimmed = stored_name(name)
    if not trimmed:
        raise InvalidInput("branch name cannot be empty")
    if trimmed in INTERNAL:
        raise InvalidInput(f"{operation} does not allow internal system ref '{trimmed}'")
    if not trimmed.isprintable():
        raise InvalidInput(f"branch name {trimmed!r} has characters that cannot be shown")
    if any(not segment.strip() for segment in trimmed.split("/")):
        raise InvalidInput(f"branch name '{trimmed}' has an empty part between slashes")
    if len(trimmed.encode()) > MAX_NAME_BYTES:
        raise InvalidInput(f"branch name is longer than {MAX_NAME_BYTES} bytes")
    return trimmed


def check_movable(name: str, operation: str) -> str:
    """The name of a branch that may be created or deleted: not `main`."""
    trimmed = check_branch_name(name, operation)
    if trimmed == MAIN:
        raise InvalidInput(f"cannot {operation} branch '{MAIN}'")
    return trimmed


def no_branch(name: str, known: Iterable[str]) -> NotFound:
    """The error of a branch that is none of the known ones, with the nearest of them."""
    names = sorted(known)
    return NotFound(
        f"branch '{name}' not found",
        details={"branch": name, "branches": names[:50]},
        hint=suggestion(name, names),
    )


def check_new_name(name: str) -> str:
    """The name of a branch to be: none that reads as the id of a commit, because many calls take either.

    Nor one with a part ``.`` or ``..``: clients of HTTP leave those out of a path, and reach something else.

    >>> check_new_name("01JBZ8Q0000000000000000000 ")
    Traceback (most recent call last):
    omnigraph.errors.InvalidInput: branch name '01JBZ8Q0000000000000000000' reads as the id of a commit
    hint: put something before it, such as at/01JBZ8Q0000000000000000000
    """
    trimmed = check_movable(name, "create")
    if _COMMIT_ID.fullmatch(trimmed):
        raise InvalidInput(
            f"branch name '{trimmed}' reads as the id of a commit",
            details={"branch": trimmed},
            hint=f"put something before it, such as at/{trimmed}",
        )
    if not _LEFT_OUT.isdisjoint(trimmed.split("/")):
        raise InvalidInput(f"branch name '{trimmed}' has a part that is only dots")
    return trimmed
