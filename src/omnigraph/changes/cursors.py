"""Positions in the history of a branch as opaque text: cursors and page tokens.

A token records the graph, the branch and the filter that it was made for, so that its use elsewhere is rejected. A
checksum detects truncated and mistyped tokens. Tokens are neither secret nor signed.
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

_CHECKSUM_BYTES = 8
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class EntityKey:
    """The kind, type and id of an entity. Changes of a commit are ordered by it."""

    kind: str
    type_id: str
    id: str

    @property
    def order(self) -> tuple[bool, str, str]:
        """The sort key: nodes before edges, then by type id and id."""
        return self.kind != "node", self.type_id, self.id


@dataclass(frozen=True, slots=True)
class TokenScope:
    """What a token is valid for. `branch` is the incarnation of a branch, empty for pages of a commit."""

    graph: str
    branch: str
    filter: str


@dataclass(frozen=True, slots=True)
class Token:
    """A position in history: after the changes of `commit`, or with `after` within them, after that entity.

    `cut` is the last commit of the poll that a page of a feed belongs to.
    """

    use: Use
    scope: TokenScope
    commit: str
    cut: str | None = None
    after: EntityKey | None = None

    def encode(self) -> str:
        """Return the token as text: letters, digits, ``-`` and ``_``.

        >>> token = Token("cursor", TokenScope("g", "b", "f"), "c1")
        >>> Token.decode(token.encode(), "cursor", token.scope) == token
        True
        """
        after = None if self.after is None else [self.after.kind, self.after.type_id, self.after.id]
        scope = [self.scope.graph, self.scope.branch, self.scope.filter]
        body = [_FORMAT, self.use, *scope, self.commit, self.cut, after]
        return _encode(json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode())

    @classmethod
    def decode(cls, text: str, use: Use, scope: TokenScope) -> Token:
        """Read a token; raise `InvalidInput` unless it was made for this use and scope."""
        token = cls._parse(text)
        if token.use != use:
            raise rejected(f"expected a {use}, got a {token.use}")
        if token.scope.graph != scope.graph:
            raise rejected("it belongs to another graph")
        if token.scope.branch != scope.branch:
            raise rejected("it belongs to another branch, or to an earlier branch of the same name")
        if token.scope.filter != scope.filter:
            raise rejected("it was made with another filter")
        return token

    @classmethod
    def _parse(cls, text: str) -> Token:
        data = _decode(text)
        try:
            body: Any = json.loads(data)
            format_, use, graph, branch, filter_, commit, cut, after = body
        except (ValueError, TypeError, RecursionError) as error:
            raise rejected("it is incomplete") from error
        if format_ != _FORMAT:
            raise rejected(f"it has format {format_}, which this version does not support")
        entity = None if after is None else EntityKey(*after)
        return cls(use, TokenScope(graph, branch, filter_), commit, cut, entity)


def rejected(reason: str) -> InvalidInput:
    """Return the error for a cursor or page token that cannot be used."""
    return InvalidInput(f"change cursor rejected: {reason}", hint="start again, or take a baseline")


def _encode(data: bytes) -> str:
    checksum = blake2b(data, digest_size=_CHECKSUM_BYTES).digest()
    return urlsafe_b64encode(checksum + data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        raw = b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (Base64Error, ValueError) as error:
        raise rejected("it is not a token of this graph") from error
    data = raw[_CHECKSUM_BYTES:]
    # Compare encoded texts: the last character has unused bits, so other characters decode to the same bytes.
    if _encode(data) != text:
        raise rejected("it is damaged or not a token of this graph")
    return data
