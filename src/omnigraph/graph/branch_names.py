"""Branch names. A name is data and not a directory, so almost any printable text is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from omnigraph.errors import InvalidInput, NotFound
from omnigraph.graph.argument_checks import require_text
from omnigraph.lang.suggestions import suggestion
from omnigraph.store.manifest.records import MAIN_BRANCH

MAIN: Final = MAIN_BRANCH
INTERNAL = frozenset({"__schema_apply_lock__"})
MAX_NAME_BYTES = 1024
# The number of branches that the error for an unknown branch lists.
LISTED_IN_ERRORS: Final = 50
# The exact form of a commit id: 128 bits in Crockford's base 32.
_COMMIT_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_DOT_SEGMENTS = frozenset({".", ".."})


def normalize_branch_name(name: str) -> str:
    """Return a branch name without surrounding spaces; `InvalidInput` if it is not a string.

    >>> normalize_branch_name(" main ")
    'main'
    """
    return require_text("branch", name).strip()


def check_branch_name(name: str, operation: str) -> str:
    """Return the normalized name of a branch; `InvalidInput` if it is not a valid name.

    >>> check_branch_name(" review/x ", "create")
    'review/x'
    """
    trimmed = normalize_branch_name(name)
    if not trimmed:
        raise InvalidInput("branch name cannot be empty")
    if trimmed in INTERNAL:
        raise InvalidInput(f"{operation} does not allow internal system ref '{trimmed}'")
    if not trimmed.isprintable():
        raise InvalidInput(f"branch name {trimmed!r} has unprintable characters")
    if any(not segment.strip() for segment in trimmed.split("/")):
        raise InvalidInput(f"branch name '{trimmed}' has an empty segment between slashes")
    if len(trimmed.encode()) > MAX_NAME_BYTES:
        raise InvalidInput(f"branch name is longer than {MAX_NAME_BYTES} bytes")
    return trimmed


def check_not_main(name: str, operation: str) -> str:
    """Return the normalized name of a branch that may be created or deleted; `InvalidInput` for `main`."""
    trimmed = check_branch_name(name, operation)
    if trimmed == MAIN:
        raise InvalidInput(f"cannot {operation} branch '{MAIN}'")
    return trimmed


def branch_not_found(name: str, known: Iterable[str]) -> NotFound:
    """Return the error for an unknown branch, with the most similar known name as a hint."""
    names = sorted(known)
    return NotFound(
        f"branch '{name}' not found",
        details={"branch": name, "branches": names[:LISTED_IN_ERRORS]},
        hint=suggestion(name, names),
    )


def check_new_name(name: str) -> str:
    """Return the normalized name of a new branch; `InvalidInput` if it is ambiguous.

    A name in the form of a commit id is ambiguous, because many calls take a branch or a commit. A segment ``.`` or
    ``..`` is ambiguous, because HTTP clients remove it from the path of a URL.

    >>> check_new_name("01JBZ8Q0000000000000000000 ")
    Traceback (most recent call last):
    omnigraph.errors.InvalidInput: branch name '01JBZ8Q0000000000000000000' has the form of a commit id
    hint: add a prefix, such as at/01JBZ8Q0000000000000000000
    """
    trimmed = check_not_main(name, "create")
    if _COMMIT_ID.fullmatch(trimmed):
        raise InvalidInput(
            f"branch name '{trimmed}' has the form of a commit id",
            details={"branch": trimmed},
            hint=f"add a prefix, such as at/{trimmed}",
        )
    if not _DOT_SEGMENTS.isdisjoint(trimmed.split("/")):
        raise InvalidInput(f"branch name '{trimmed}' has a segment `.` or `..`")
    return trimmed
