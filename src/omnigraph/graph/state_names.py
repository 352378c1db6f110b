"""The grammar of names of states: a base, and suffixes that lead from it to an earlier state.

The base is a commit id, the beginning of one, a tag, a branch, or ``HEAD``. ``~2`` is the first parent of the first
parent, ``^2`` the merged parent, and ``@{...}`` the state of a branch at a time or at a manifest version. This
module reads the text only; `commit_names` finds the commit.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from omnigraph.errors import InvalidInput

HEAD: Final = "HEAD"
# Shorter beginnings of commit ids are not accepted: they are the same for all commits of several months.
MIN_PREFIX: Final = 4
# No state needs more suffixes, and each of them is looked up.
MAX_SUFFIXES: Final = 16
_SUFFIX = re.compile(r"~[0-9]{0,9}|\^[0-9]?|@\{[^{}]*\}")
_SUFFIXES = re.compile(rf"(?:{_SUFFIX.pattern})+\Z")
_PREFIX = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]*", re.IGNORECASE)
_ID_LENGTH = 26


def split_name(name: str) -> tuple[str, list[str]]:
    """Return the base of a name and its suffixes in their order; `InvalidInput` if there are too many.

    >>> split_name("review~2^2"), split_name("main@{2026-05-04T12:00Z}"), split_name("v1.0")
    (('review', ['~2', '^2']), ('main', ['@{2026-05-04T12:00Z}']), ('v1.0', []))
    """
    found = _SUFFIXES.search(name)
    if found is None:
        return name, []
    suffixes = _SUFFIX.findall(found[0])
    if len(suffixes) > MAX_SUFFIXES:
        raise InvalidInput(
            f"the name of a commit has {len(suffixes)} suffixes; at most {MAX_SUFFIXES} are allowed",
            hint="write `~5` instead of `~~~~~`",
        )
    return name[: found.start()], suffixes


def qualify(name: str, branch: str) -> str:
    """Return a name that means on every branch what `name` means on `branch`.

    >>> qualify("HEAD~2", "review"), qualify("@{7}", "review"), qualify("v1.0", "review")
    ('review~2', 'review@{7}', 'v1.0')
    """
    base, suffixes = split_name(name)
    if base == HEAD or (not base and suffixes[:1] and suffixes[0].startswith("@")):
        return branch + "".join(suffixes)
    return name


def id_prefix(text: str) -> str | None:
    """Return the beginning of a commit id in its normal form; None if the text is not one.

    >>> id_prefix("01kaf3"), id_prefix("01K"), id_prefix("cafe")
    ('01KAF3', None, None)
    """
    if not MIN_PREFIX <= len(text) <= _ID_LENGTH or _PREFIX.fullmatch(text) is None:
        return None
    return text.upper()


def abbreviate(ids: list[str], least: int = 10) -> dict[str, str]:
    """Return a short form of each id that distinguishes it from the others, at least `least` characters long.

    The first ten characters of a commit id are its time in milliseconds.

    >>> abbreviate(["01KAF3T2QC7AAAAAAAAAAAAAAA", "01KAF3T2QC7BAAAAAAAAAAAAAA", "01KAG00000AAAAAAAAAAAAAAAA"])
    {'01KAF3T2QC7AAAAAAAAAAAAAAA': '01KAF3T2QC7A', '01KAF3T2QC7BAAAAAAAAAAAAAA': '01KAF3T2QC7B', \
'01KAG00000AAAAAAAAAAAAAAAA': '01KAG00000'}
    """
    ordered = sorted(set(ids))
    shared = [_shared(one, other) for one, other in pairwise(ordered)]
    lengths = {
        id_: max(least, 1 + max(before, after))
        for id_, before, after in zip(ordered, [0, *shared], [*shared, 0], strict=True)
    }
    return {id_: id_[: lengths[id_]] for id_ in ids}


def _shared(one: str, other: str) -> int:
    """Return the number of characters that two texts have in common at their beginning."""
    pairs = zip(one, other, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
