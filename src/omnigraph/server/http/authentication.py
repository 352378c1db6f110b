"""Who calls: bearer tokens, kept as digests only, each of one actor."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph.client.entry import check_token
from omnigraph.errors import InvalidInput
from omnigraph.server.http.error_responses import Refused

PREFIX = "OMNIGRAPH_SERVER_BEARER_TOKEN"
DEFAULT_ACTOR = "default"
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


@dataclass(frozen=True, slots=True)
class Identities:
    """Everybody who has a token. No token can be read back out of it.

    >>> known = Identities.of({"ann": "s3cret"})
    >>> known.identify("s3cret"), known.identify("guess")
    ('ann', None)
    """

    _digests: tuple[tuple[bytes, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, tokens: Mapping[str, str]) -> Identities:
        """The owners of tokens, by actor; `InvalidInput` when a token does not name exactly one actor."""
        found: dict[bytes, str] = {}
        seen: set[str] = set()
        for given, token in tokens.items():
            actor = given.strip()
            if not actor:
                raise InvalidInput("bearer tokens: an actor is blank")
            if not actor.isprintable():
                raise InvalidInput(f"bearer tokens: actor {actor!r} has characters that cannot be shown")
            if not token.strip():
                raise InvalidInput(f"bearer tokens: the token of actor '{actor}' is blank")
            try:
                check_token(token)
            except InvalidInput as error:
                raise InvalidInput(
                    f"bearer tokens: the token of actor '{actor}' cannot be sent", hint=error.message
                ) from None
            if actor in seen:
                raise InvalidInput(f"bearer tokens: actor '{actor}' has two tokens")
            digest = _digest(token.strip())
            if digest in found:
                raise InvalidInput(f"bearer tokens: actors '{found[digest]}' and '{actor}' share a token")
            seen.add(actor)
            found[digest] = actor
        return cls(tuple(found.items()))

    @property
    def actors(self) -> frozenset[str]:
        """Everybody's name."""
        return frozenset(actor for _, actor in self._digests)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def identify(self, token: str) -> str | None:
        """Whose token it is. Every digest is compared, so that the time taken tells nothing."""
        given = _digest(token)
        owner = None
        for digest, actor in self._digests:
            if hmac.compare_digest(digest, given):
                owner = actor
        return owner

    def authenticate(self, headers: list[str]) -> str:
        """The actor that the ``Authorization`` headers of a request prove, or a 401."""
        scheme, _, token = headers[0].strip().partition(" ") if len(headers) == 1 else ("", "", "")
        if scheme.lower() != "bearer" or not token.strip():
            raise Refused(401, "missing bearer token", headers=_CHALLENGE)
        actor = self.identify(token.strip())
        if actor is None:
            raise Refused(401, "invalid bearer token", headers=_CHALLENGE)
        return actor


def read_identities(environment: Mapping[str, str]) -> Identities:
    """The tokens that the environment names: a file, else a JSON object, and one token of `default`."""
    if environment.get(f"{PREFIX}S_AWS_SECRET"):
        raise InvalidInput(
            f"{PREFIX}S_AWS_SECRET is set, and this build reads no secrets of AWS",
            hint=f"write the object to a file and name it in {PREFIX}S_FILE",
        )
    tokens: dict[str, str] = {}
    if path := environment.get(f"{PREFIX}S_FILE"):
        tokens = _read_object(_read_file(path), f"{PREFIX}S_FILE")
    elif text := environment.get(f"{PREFIX}S_JSON"):
        tokens = _read_object(text, f"{PREFIX}S_JSON")
    if (single := environment.get(PREFIX)) is not None:
        if any(actor.strip() == DEFAULT_ACTOR for actor in tokens):
            raise InvalidInput(f"bearer tokens: actor '{DEFAULT_ACTOR}' has two tokens")
        tokens[DEFAULT_ACTOR] = single
    return Identities.of(tokens)


def _read_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{PREFIX}S_FILE: {path} cannot be read") from error


def _read_object(text: str, name: str) -> dict[str, str]:
    # What is wrong is told without the text, which is secret.
    try:
        found = json.loads(text, object_pairs_hook=_pairs)
    except (ValueError, RecursionError):
        raise InvalidInput(f"{name} holds no JSON object from actors to tokens") from None
    if not isinstance(found, dict) or not all(isinstance(item, str) for item in found.values()):
        raise InvalidInput(f"{name} must be a JSON object from actors to tokens")
    return found


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidInput("bearer tokens: one actor is named twice")
    return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
