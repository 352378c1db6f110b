"""Names of branches and tags. A name is data and not a directory, so almost any printable text is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from omnigraph.errors import InvalidInput, NotFound
from omnigraph.graph.argument_checks import require_text
from omnigraph.lang.suggestions import suggestion
from omnigraph.lang.temporal import parse_moment
from omnigraph.store.manifest.records import MAIN_BRANCH

MAIN: Final = MAIN_BRANCH
INTERNAL = frozenset({"__schema_apply_lock__"})
MAX_NAME_BYTES = 1024
# The number of branches that the error for an unknown branch lists.
LISTED_IN_ERRORS: Final = 50
# The exact form of a commit id: 128 bits in Crockford's base 32.
_COMMIT_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_DOT_SEGMENTS = frozenset({".", ".."})
_RELATIVE = ("~", "^", "@{")


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
    return _check_name(normalize_branch_name(name), "branch", operation)


def _check_name(name: str, noun: str, operation: str) -> str:
    if not name:
        raise InvalidInput(f"{noun} name cannot be empty")
    if name in INTERNAL:
        raise InvalidInput(f"{operation} does not allow internal system ref '{name}'")
    if not name.isprintable():
        raise InvalidInput(f"{noun} name {name!r} has unprintable characters")
    if any(not segment.strip() for segment in name.split("/")):
        raise InvalidInput(f"{noun} name '{name}' has an empty segment between slashes")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidInput(f"{noun} name is longer than {MAX_NAME_BYTES} bytes")
    return name


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
    return _check_unambiguous(check_not_main(name, "create"), "branch")


def check_new_tag_name(name: str) -> str:
    """Return the normalized name of a new tag; `InvalidInput` if it is ambiguous.

    A tag stands where a commit or a time may stand, so it has the form of neither. ``~``, ``^``, ``@{`` and
    ``HEAD`` are reserved for commits that are named relative to another state.

    >>> check_new_tag_name(" v1.0 ")
    'v1.0'
    >>> check_new_tag_name("2026-05-04T12:00Z")
    Traceback (most recent call last):
    omnigraph.errors.InvalidInput: tag name '2026-05-04T12:00Z' has the form of a time
    hint: add a prefix, such as at/2026-05-04T12:00Z
    """
    trimmed = _check_name(require_text("tag", name).strip(), "tag", "create")
    if trimmed == MAIN:
        raise InvalidInput(f"cannot create tag '{MAIN}': it is a branch")
    if parse_moment(trimmed) is not None:
        raise InvalidInput(
            f"tag name '{trimmed}' has the form of a time",
            details={"tag": trimmed},
            hint=f"add a prefix, such as at/{trimmed}",
        )
    if trimmed == "HEAD" or any(mark in trimmed for mark in _RELATIVE):
        raise InvalidInput(
            f"tag name '{trimmed}' is reserved for commits relative to another state",
            details={"tag": trimmed},
            hint="use a name other than HEAD, without `~`, `^` and `@{`",
        )
    return _check_unambiguous(trimmed, "tag")


def has_form_of_commit_id(name: str) -> bool:
    """Return whether a text is a commit id by its form. No branch and no tag has such a name."""
    return _COMMIT_ID.fullmatch(name) is not None


def _check_unambiguous(name: str, noun: str) -> str:
    if has_form_of_commit_id(name):
        raise InvalidInput(
            f"{noun} name '{name}' has the form of a commit id",
            details={noun: name},
            hint=f"add a prefix, such as at/{name}",
        )
    if not _DOT_SEGMENTS.isdisjoint(name.split("/")):
        raise InvalidInput(f"{noun} name '{name}' has a segment `.` or `..`")
    return name
