"""The address of a graph or of one of its parts, in one normal form for obstore and Lance.

Three kinds of storage have addresses: a directory on a local disk (`path` or `file://`), named memory that the
whole process shares (`memory://name`), and an S3-compatible bucket (`s3://bucket/prefix`). obstore and Lance
decode URLs differently, so characters that they interpret differently are rejected here. Otherwise one address
could refer to two places.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from omnigraph.errors import InvalidInput

__all__ = ["Location", "Scheme"]

Scheme = Literal["file", "memory", "s3"]

_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://(.*)$", re.DOTALL)
_URL_WITH_ONE_SLASH = re.compile(r"^(file|memory|s3|https?):/", re.IGNORECASE)
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
# Lance decodes these characters as parts of a URL; obstore takes them literally.
_AMBIGUOUS = re.compile(r"[\x00-\x1f\x7f%?#\\]")


@dataclass(frozen=True, slots=True)
class Location:
    """A normalized address. Two spellings of one place are equal.

    `authority` is the name of the bucket or of the memory, and empty for a local disk. `path` is absolute and
    has no symbolic links on a local disk. Otherwise it is a prefix without slashes at its ends, empty for the
    whole bucket.

    >>> Location.parse("s3://bucket//team/graph/").uri
    's3://bucket/team/graph'
    >>> Location.parse("memory://scratch").child("nodes", "01").lance_uri
    'shared-memory://scratch/nodes/01'
    """

    scheme: Scheme
    authority: str
    path: str

    @classmethod
    def parse(cls, uri: str | os.PathLike[str]) -> Location:
        """Parse the address that a user gave. A relative path starts at the working directory.

        A `pathlib` object is a local path. Raises `InvalidInput` for an unknown scheme, a missing bucket or
        name, and characters with a special meaning in URLs. Storage is not accessed, except to resolve symbolic
        links.
        """
        if not isinstance(uri, str):
            return cls._of_path(uri)
        if not uri:
            raise InvalidInput(
                "the address of the graph is empty", hint="give a path, memory:// or s3:// address"
            )
        match = _URL.match(uri)
        if match is None:
            return cls._local(uri, uri)
        scheme, rest = match.group(1).lower(), match.group(2)
        if scheme == "file":
            host, slash, path = rest.partition("/")
            if host not in ("", "localhost") or not slash:
                raise InvalidInput(f"`{_redacted(uri)}` refers to another host", hint="write file:///path")
            return cls._local(unquote("/" + path), uri)
        if scheme in ("s3", "memory"):
            return cls._remote("s3" if scheme == "s3" else "memory", rest, uri)
        raise InvalidInput(
            f"`{scheme}://` is not a storage scheme",
            hint="use a path, file://, memory:// or s3://",
            details={"scheme": scheme},
        )

    @classmethod
    def _of_path(cls, value: object) -> Location:
        path = os.fspath(value) if isinstance(value, os.PathLike) else None
        if not isinstance(path, str):
            raise InvalidInput(f"address: expected a string or a path, got {type(value).__name__}")
        if _URL_WITH_ONE_SLASH.match(path):
            # pathlib collapses the two slashes of a URL. The result would be a local directory named `s3:`.
            raise InvalidInput(f"`{path}` is a URL in a path object", hint="give the address as a string")
        return cls._local(path, path)

    @classmethod
    def _local(cls, path: str, uri: str) -> Location:
        if "\0" in path:
            raise InvalidInput(f"path {uri!r} contains a null character")
        try:
            return cls("file", "", str(Path(path).resolve()))
        except (OSError, RuntimeError) as error:
            # Python before 3.13 reports a loop of symbolic links as RuntimeError.
            raise InvalidInput(f"cannot resolve path `{uri}`: {error}") from error

    @classmethod
    def _remote(cls, scheme: Scheme, rest: str, uri: str) -> Location:
        authority, _, path = rest.partition("/")
        if not _NAME.match(authority):
            part = "bucket" if scheme == "s3" else "name"
            raise InvalidInput(
                f"`{_redacted(uri)}` has no valid {part}", hint=f"write {scheme}://{part}/prefix"
            )
        segments = [segment for segment in path.split("/") if segment]
        if any(segment in (".", "..") for segment in segments) or _AMBIGUOUS.search(path):
            raise InvalidInput(
                f"`{_redacted(uri)}` has a prefix with ambiguous characters",
                hint="avoid . and .. segments, %, ?, #, backslashes and control characters",
            )
        return cls(scheme, authority, "/".join(segments))

    @property
    def is_local(self) -> bool:
        """Whether this is a local disk, where writes must be synced to be durable."""
        return self.scheme == "file"

    @property
    def uri(self) -> str:
        """The canonical address. Parsing it returns an equal location."""
        if self.scheme == "file":
            return self.path
        return f"{self.scheme}://{self.authority}" + (f"/{self.path}" if self.path else "")

    @property
    def lance_uri(self) -> str:
        """The address for Lance, whose own `memory://` is private to one dataset handle."""
        return f"shared-{self.uri}" if self.scheme == "memory" else self.uri

    def child(self, *segments: str) -> Location:
        """Return a location below this one. Segments are internal names, such as `nodes` or a type id."""
        for segment in segments:
            if segment in ("", ".", "..") or "/" in segment or _AMBIGUOUS.search(segment):
                raise InvalidInput(f"`{segment}` is not a valid name of a part of a graph")
        path = "/".join((self.path.rstrip("/"), *segments) if self.path else segments)
        return Location(self.scheme, self.authority, path)

    def __str__(self) -> str:
        return self.uri


def _redacted(uri: str) -> str:
    """Return an address for messages, without user name and password, which may contain slashes."""
    scheme, separator, rest = uri.partition("://")
    _, at, host_and_path = rest.rpartition("@")
    if at:
        return f"{scheme}{separator}…@{host_and_path}"
    return f"{scheme}{separator}…" if ":" in rest.partition("/")[0] else uri
