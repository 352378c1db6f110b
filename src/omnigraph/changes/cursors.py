"""Places in the history of a branch as opaque text that a caller keeps.

A token says for which graph, branch and filter it was made, so that one that is used elsewhere is told, and carries
a checksum, so that one that was cut off or mistyped is told as well. It is no secret and no signature.
"""

from __future__ import annotations

import json
from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

from omnigraph.errors import InvalidInput

Use: TypeAlias = Literal["cursor", "feed page", "commit page"]

MAX_CURSOR_BYTES = 4096

_CHECK_BYTES = 8
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Place:
    """The entity that was told last: what comes next is behind it."""

    kind: str
    type_id: str
    id: str


@dataclass(frozen=True, slots=True)
class Scope:
    """What a token was made for. Commit pages belong to no branch: `branch` is the incarnation of one, or empty."""

    graph: str
    branch: str
    filter: str


@dataclass(frozen=True, slots=True)
class Token:
    """A place in history: after the changes of `commit`, or with a `place` within them.

    `cut` is the last commit of the poll that a page of a feed belongs to.
    """

    use: Use
    scope: Scope
    commit: str
    cut: str | None = None
    place: Place | None = None

    def encode(self) -> str:
        """The text: letters, digits, ``-`` and ``_``.

        >>> token = Token("cursor", Scope("g", "b", "f"), "c1")
        >>> Token.decode(token.encode(), "cursor", token.scope) == token
        True
        """
        place = None if self.place is None else [self.place.kind, self.place.type_id, self.place.id]
        scope = [self.scope.graph, self.scope.branch, self.scope.filter]
        body = [_FORMAT, self.use, *scope, self.commit, self.cut, place]
        data = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
        return _armour(data)

    @classmethod
    def decode(cls, text: str, use: Use, scope: Scope) -> Token:
        """Read a text that was made for this use and scope; any other is `InvalidInput`."""
        token = cls._read(text)
        if token.use != use:
            raise rejected(f"it is the text of a {token.use}, and a {use} is needed")
        for part, what in (("graph", "graph"), ("branch", "branch"), ("filter", "filter")):
            if getattr(token.scope, part) != getattr(scope, part):
                again = ", or for an earlier one of its name" if part == "branch" else ""
                raise rejected(f"it was made for another {what}{again}")
        return token

    @classmethod
    def _read(cls, text: str) -> Token:
        data = _unarmour(text)
        try:
            body: Any = json.loads(data)
            format_, use, graph, branch, filter_, commit, cut, place = body
        except (ValueError, TypeError, RecursionError) as error:
            raise rejected("it is not complete") from error
        if format_ != _FORMAT:
            raise rejected(f"it is of format {format_}, which this version does not read")
        return cls(use, Scope(graph, branch, filter_), commit, cut, None if place is None else Place(*place))


def rejected(reason: str) -> InvalidInput:
    """The refusal of a text that marks no place here."""
    return InvalidInput(f"change cursor rejected: {reason}", hint="start again, or take a baseline")


def _armour(data: bytes) -> str:
    return urlsafe_b64encode(blake2b(data, digest_size=_CHECK_BYTES).digest() + data).rstrip(b"=").decode()


def _unarmour(text: str) -> bytes:
    try:
        raw = b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (Base64Error, ValueError) as error:
        raise rejected("it is not one that was given out") from error
    data = raw[_CHECK_BYTES:]
    # Made anew, for the last letter has bits to spare: another letter there would read the same.
    if _armour(data) != text:
        raise rejected("it is damaged or was not given out")
    return data
