"""The external-blob policy: below which addresses the objects may be that a Blob value refers to.

A Blob value is bytes, or the URI of an object outside the graph. A server answers a read of such a value with a
redirect to its URI, so a graph accepts no URI by default. The policy lists the bases below which URIs are accepted.
It is checked when a URI enters the graph, and again before a server redirects to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, Literal, TypeAlias

from omnigraph.errors import InvalidInput

Scope: TypeAlias = Literal["server_safe", "embedded_only"]
# A base as callers give it: its URI, or its URI and scope.
GivenBase: TypeAlias = "str | Mapping[str, str] | ExternalBlobBase"

SCOPES: Final[tuple[Scope, ...]] = ("server_safe", "embedded_only")
# Codes of the diagnostics of a configuration.
INVALID_BASE: Final = "invalid_external_blob_base"
INVALID_POLICY: Final = "invalid_external_blob_policy"
DEFAULT_DENY: Final = "external_blob_ingress_default_deny"

# The schemes of each scope. A server never refers a client to files of its own machine.
_SCHEMES: Final[Mapping[Scope, tuple[str, ...]]] = {
    "server_safe": ("s3", "https", "http"),
    "embedded_only": ("file", "memory"),
}
_URI = re.compile(r"([a-z][a-z0-9+.-]*)://([^/]*)/(.*)\Z", re.DOTALL)
_AUTHORITY = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?(:[0-9]{1,5})?\Z")
# Control characters could end a header; a backslash is a slash to some clients.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\\?#]")
_ENCODED_SEPARATOR = re.compile(r"%(2e|2f|5c|00)", re.IGNORECASE)
_MAX_URI_BYTES = 2_048


@dataclass(frozen=True, slots=True)
class ExternalBlobBase:
    """A base: its canonical URI, with a slash at its end, and its scope.

    The objects of a ``server_safe`` base are in an object store. An ``embedded_only`` base is a folder or a memory
    of the process that opens the graph. A server ignores it.
    """

    uri: str
    scope: Scope

    @classmethod
    def of(cls, given: GivenBase) -> ExternalBlobBase:
        """Return a base, given as a URI or as ``{"base": uri, "scope": scope}``. Raises `InvalidInput`.

        The scope of a URI without one is the scope of its scheme.

        >>> ExternalBlobBase.of("s3://assets/k/")
        ExternalBlobBase(uri='s3://assets/k/', scope='server_safe')
        """
        if isinstance(given, ExternalBlobBase):
            return given
        uri, scope = (given, None) if isinstance(given, str) else _members(given)
        problem = _malformed(uri) if uri.endswith("/") else "it does not end with '/'"
        if problem is not None:
            raise _invalid(INVALID_BASE, f"invalid base '{_shown(uri)}' of external blobs: {problem}")
        scheme = uri.partition(":")[0]
        own = next(item for item in SCOPES if scheme in _SCHEMES[item])
        if scope is not None and scope != own:
            expected = f"'{scope}' bases have {' or '.join(f'{item}://' for item in _SCHEMES[scope])}"
            raise _invalid(INVALID_BASE, f"invalid base '{uri}' of external blobs: {expected}")
        return cls(uri, own)

    def contains(self, uri: str) -> bool:
        """Return whether a URI is below this base."""
        return uri.startswith(self.uri) and len(uri) > len(self.uri)


@dataclass(frozen=True, slots=True)
class ExternalBlobPolicy:
    """The bases below which a graph accepts external blobs. Without a base every URI is refused.

    >>> policy = ExternalBlobPolicy.of(["s3://assets/k/"])
    >>> policy.refusal("s3://assets/k/photo.png") is None
    True
    >>> policy.refusal("s3://assets/k/../private/key")
    "'s3://assets/k/../private/key' is not a valid external URI: it has an empty, '.' or '..' segment"
    >>> ExternalBlobPolicy().refusal("https://example.org/x")
    "external URI 'https://example.org/x' is not allowed"
    """

    bases: tuple[ExternalBlobBase, ...] = ()

    @classmethod
    def of(cls, given: Iterable[GivenBase] | ExternalBlobPolicy | None) -> ExternalBlobPolicy:
        """Return the policy that allows these bases. Raises `InvalidInput` for an invalid or overlapping base."""
        if isinstance(given, ExternalBlobPolicy):
            return given
        if given is None:
            return cls()
        if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
            raise _invalid(INVALID_POLICY, "external blobs: expected a list of bases")
        bases = tuple(ExternalBlobBase.of(item) for item in given)
        for one, other in combinations(bases, 2):
            if one.uri.startswith(other.uri) or other.uri.startswith(one.uri):
                raise _invalid(
                    INVALID_POLICY, f"bases '{one.uri}' and '{other.uri}' of external blobs overlap"
                )
        return cls(bases)

    @property
    def server_safe(self) -> ExternalBlobPolicy:
        """The policy that a server applies: without the bases that only an embedded graph may use."""
        return ExternalBlobPolicy(tuple(base for base in self.bases if base.scope == "server_safe"))

    def refusal(self, uri: str) -> str | None:
        """Return why a URI is refused, or None if it is below an allowed base."""
        problem = "it names a folder" if uri.endswith("/") else _malformed(uri)
        if problem is not None:
            return f"'{_shown(uri)}' is not a valid external URI: {problem}"
        if any(base.contains(uri) for base in self.bases):
            return None
        return f"external URI '{_shown(uri)}' is not allowed"

    def check(self, uri: str) -> None:
        """Raise `InvalidInput` for a URI that is refused."""
        reason = self.refusal(uri)
        if reason is not None:
            raise InvalidInput(reason, details={"uri": _shown(uri)}, hint=self.hint)

    @property
    def hint(self) -> str:
        """What to do about a URI that is refused."""
        if not self.bases:
            return (
                "write bytes as 'base64:…'; external URIs need an allowed base (`external_blobs`, in Spark "
                "writes the option `externalBlobs`)"
            )
        return f"write bytes as 'base64:…', or a URI below {', '.join(base.uri for base in self.bases)}"

    def to_json(self) -> dict[str, Any] | None:
        """Return the policy as a cluster records it; None if it refuses every URI."""
        if not self.bases:
            return None
        return {"mode": "allow", "bases": [{"uri": base.uri, "scope": base.scope} for base in self.bases]}

    def digest_input(self) -> bytes:
        """Return the part of a graph's composite digest for this policy; empty if it refuses every URI.

        >>> ExternalBlobPolicy.of(["s3://a/"]).digest_input()
        b'external_blob_policy\\x00{"mode":"allow","bases":[{"uri":"s3://a/","scope":"server_safe"}]}\\x00'
        """
        document = self.to_json()
        if document is None:
            return b""
        return b"external_blob_policy\0" + json.dumps(document, separators=(",", ":")).encode() + b"\0"


def read_policy_member(value: Any) -> ExternalBlobPolicy:
    """Return the policy of an ``external_blobs`` member: ``{"allow": [{"base": uri, "scope": scope}]}``.

    Raises `InvalidInput` whose details have the code of the diagnostic.
    """
    if value is None:
        return ExternalBlobPolicy()
    allowed = value.get("allow") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or set(value) - {"allow"} or isinstance(allowed, str):
        raise _invalid(INVALID_POLICY, "expected a mapping with the member `allow`")
    if allowed is not None and not isinstance(allowed, Sequence):
        raise _invalid(INVALID_POLICY, "`allow`: expected a list")
    items = allowed or []
    if not all(isinstance(item, Mapping) and "scope" in item for item in items):
        raise _invalid(INVALID_POLICY, "`allow`: expected mappings with `base` and `scope`")
    return ExternalBlobPolicy.of(items)


def _members(given: Any) -> tuple[str, Scope | None]:
    known = isinstance(given, Mapping) and set(given) <= {"base", "scope"}
    if not known or not isinstance(given.get("base"), str):
        raise _invalid(INVALID_POLICY, "external blobs: expected a base as {base, scope}")
    scope = given.get("scope")
    if scope is not None and scope not in SCOPES:
        raise _invalid(
            INVALID_POLICY, f"external blobs: expected the scope {' or '.join(SCOPES)}, got {scope!r}"
        )
    return given["base"], scope


def _malformed(uri: str) -> str | None:
    """Return why a text is not a canonical absolute URI of a known scheme, or None."""
    if len(uri.encode("utf-8", "replace")) > _MAX_URI_BYTES:
        return f"it is longer than {_MAX_URI_BYTES:,} bytes"
    match = _URI.match(uri)
    known = [scheme for schemes in _SCHEMES.values() for scheme in schemes]
    if match is None or match[1] not in known:
        return f"expected {', '.join(f'{scheme}://' for scheme in known)} and a path"
    scheme, authority, path = match.groups()
    if "@" in authority:
        return "it has credentials"
    if bool(authority) == (scheme == "file") or (authority and not _AUTHORITY.match(authority)):
        return "its host, bucket or name is not in canonical form"
    if _FORBIDDEN.search(path):
        return "it has a query, a fragment, a backslash or a control character"
    if _ENCODED_SEPARATOR.search(path):
        return "it has an encoded dot, slash or backslash"
    if any(segment in ("", ".", "..") for segment in path.removesuffix("/").split("/")) and path:
        return "it has an empty, '.' or '..' segment"
    return None


def _shown(uri: str) -> str:
    """Return a URI as messages show it: without a user name and password, and truncated."""
    scheme, separator, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    shown = f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}" if separator else uri
    text = shown.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 200 else f"{text[:200]}…"


def _invalid(code: str, reason: str) -> InvalidInput:
    return InvalidInput(reason, details={"code": code})
