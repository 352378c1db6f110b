"""Branch names. A name is data, never a directory: any readable text will do."""

from __future__ import annotations

from omnigraph.errors import InvalidInput

MAIN = "main"
INTERNAL = frozenset({"__schema_apply_lock__"})
MAX_NAME_BYTES = 1024


def check_branch_name(name: str, operation: str) -> str:
    """The name as it is stored, or `InvalidInput`.

    >>> check_branch_name(" review/x ", "create")
    'review/x'
    """
    trimmed = name.strip()
    if not trimmed:
        raise InvalidInput("branch name cannot be empty")
    if trimmed in INTERNAL:
        raise InvalidInput(f"{operation} does not allow internal system ref '{trimmed}'")
    if not trimmed.isprintable():
        raise InvalidInput(f"branch name {trimmed!r} has characters that cannot be shown")
    if any(not segment.strip() for segment in trimmed.split("/")):
        raise InvalidInput(f"branch name '{trimmed}' has an empty part between slashes")
    try:
        size = len(trimmed.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput("branch name is not valid text") from error
    if size > MAX_NAME_BYTES:
        raise InvalidInput(f"branch name is longer than {MAX_NAME_BYTES} bytes")
    return trimmed


def check_movable(name: str, operation: str) -> str:
    """The name of a branch that may be created or deleted: not `main`."""
    trimmed = check_branch_name(name, operation)
    if trimmed == MAIN:
        raise InvalidInput(f"cannot {operation} branch '{MAIN}'")
    return trimmed
