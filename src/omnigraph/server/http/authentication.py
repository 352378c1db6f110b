"""Authentication with bearer tokens. A token identifies one actor and is stored only as a digest."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from omnigraph.client.entry import check_token
from omnigraph.errors import InvalidInput
from omnigraph.server.http.aws_secrets import SecretVersion, read_interval, read_secret
from omnigraph.server.http.error_responses import HttpError

PREFIX = "OMNIGRAPH_SERVER_BEARER_TOKEN"
AWS_VARIABLE = f"{PREFIX}S_AWS_SECRET"
DEFAULT_ACTOR = "default"
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


@dataclass(frozen=True, slots=True)
class TokenRegistry:
    """Bearer tokens and their actors. It stores SHA-256 digests of the tokens, not the tokens.

    >>> registry = TokenRegistry.of({"ann": "s3cret"})
    >>> registry.identify("s3cret"), registry.identify("guess")
    ('ann', None)
    """

    _digests: tuple[tuple[bytes, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, tokens: Mapping[str, str]) -> TokenRegistry:
        """Return the registry of a mapping from actors to tokens; `InvalidInput` unless each token is unique."""
        digests: dict[bytes, str] = {}
        actors: set[str] = set()
        for name, token in tokens.items():
            actor = name.strip()
            if not actor:
                raise InvalidInput("bearer tokens: an actor is blank")
            if not actor.isprintable():
                raise InvalidInput(f"bearer tokens: actor {actor!r} has unprintable characters")
            if not token.strip():
                raise InvalidInput(f"bearer tokens: the token of actor '{actor}' is blank")
            try:
                check_token(token)
            except InvalidInput as error:
                raise InvalidInput(
                    f"bearer tokens: the token of actor '{actor}' cannot be sent in a header",
                    hint=error.message,
                ) from None
            if actor in actors:
                raise InvalidInput(f"bearer tokens: actor '{actor}' has two tokens")
            digest = _digest(token.strip())
            if digest in digests:
                raise InvalidInput(f"bearer tokens: actors '{digests[digest]}' and '{actor}' share a token")
            actors.add(actor)
            digests[digest] = actor
        return cls(tuple(digests.items()))

    @property
    def actors(self) -> frozenset[str]:
        """The actors that have a token."""
        return frozenset(actor for _, actor in self._digests)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def identify(self, token: str) -> str | None:
        """Return the actor of a token, or None. The comparison takes the same time for every token."""
        given = _digest(token)
        owner = None
        for digest, actor in self._digests:
            if hmac.compare_digest(digest, given):
                owner = actor
        return owner

    def authenticate(self, headers: list[str]) -> str:
        """Return the actor of the ``Authorization`` headers of a request; `HttpError` with 401 if there is none."""
        scheme, _, token = headers[0].strip().partition(" ") if len(headers) == 1 else ("", "", "")
        if scheme.lower() != "bearer" or not token.strip():
            raise HttpError(401, "missing bearer token", headers=_CHALLENGE)
        actor = self.identify(token.strip())
        if actor is None:
            raise HttpError(401, "invalid bearer token", headers=_CHALLENGE)
        return actor


def read_tokens(environment: Mapping[str, str]) -> TokenRegistry:
    """Return the tokens that environment variables configure.

    A secret of AWS Secrets Manager has all tokens. Without one they come from a JSON file or, without a file, from
    an inline JSON object, and a single token for the actor `default` is added to them. Raises `InvalidInput` for
    invalid tokens.
    """
    if secret := environment.get(AWS_VARIABLE):
        return TokenRegistry.of(_parse_object(read_secret(secret), AWS_VARIABLE))
    tokens: dict[str, str] = {}
    if path := environment.get(f"{PREFIX}S_FILE"):
        tokens = _parse_object(_read_file(path), f"{PREFIX}S_FILE")
    elif text := environment.get(f"{PREFIX}S_JSON"):
        tokens = _parse_object(text, f"{PREFIX}S_JSON")
    if (single := environment.get(PREFIX)) is not None:
        if any(actor.strip() == DEFAULT_ACTOR for actor in tokens):
            raise InvalidInput(f"bearer tokens: actor '{DEFAULT_ACTOR}' has two tokens")
        tokens[DEFAULT_ACTOR] = single
    return TokenRegistry.of(tokens)


def follow_tokens(environment: Mapping[str, str]) -> Callable[[], Hashable]:
    """Return a function that returns a value that changes with the tokens of a secret or of a file."""
    if secret := environment.get(AWS_VARIABLE):
        return SecretVersion(secret, read_interval(environment)).read
    path = environment.get(f"{PREFIX}S_FILE")
    return (lambda: None) if not path else partial(_stat, path)


def _stat(path: str) -> tuple[int, ...]:
    """Return a value that changes when a file is replaced or written."""
    try:
        found = Path(path).stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{PREFIX}S_FILE: {path} cannot be read") from error


def _parse_object(text: str, name: str) -> dict[str, str]:
    # Messages and tracebacks must not quote the text, which contains secrets.
    try:
        tokens = json.loads(text, object_pairs_hook=_check_unique)
    except (ValueError, RecursionError):
        raise InvalidInput(f"{name} is not valid JSON; expected an object from actors to tokens") from None
    if not isinstance(tokens, dict) or not all(isinstance(token, str) for token in tokens.values()):
        raise InvalidInput(f"{name} must be a JSON object from actors to tokens")
    return tokens


def _check_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise InvalidInput("bearer tokens: an actor occurs twice")
    return members


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
