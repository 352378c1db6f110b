"""Where a graph or one of its parts lives, in one normal form for every library below.

Three kinds of storage have an address: a folder on a local disk (`path` or `file://`), named memory that
the whole process shares (`memory://name`), and an S3-compatible bucket (`s3://bucket/prefix`). The same
address is given to obstore and to Lance, which decode URLs differently, so characters that they would
disagree about are refused here instead of leading to two different places.
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

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://(.*)$", re.DOTALL)
_BROKEN_URL = re.compile(r"^(file|memory|s3|https?):/", re.IGNORECASE)
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
# Lance reads these addresses as URLs, obstore as plain keys.
_AMBIGUOUS = re.compile(r"[\x00-\x1f\x7f%?#\\]")


@dataclass(frozen=True, slots=True)
class Location:
    """A normalised address; two spellings of one place are equal.

    `authority` is the bucket or the memory's name, and empty for a local disk. `path` is absolute and free of
    links for a local disk, and otherwise a prefix without slashes at its ends, empty for the whole bucket.

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
        """The location that a user's address names; a relative path counts from the working directory.

        An object of `pathlib` names a local path. Raises `InvalidInput` for another scheme, a missing bucket or
        name, and characters that have a second meaning in URLs. Nothing is looked up except the links on a local
        path.
        """
        if not isinstance(uri, str):
            return cls._of_path(uri)
        if not uri:
            raise InvalidInput("the address of the graph is empty")
        match = _SCHEME.match(uri)
        if match is None:
            return cls._local(uri, uri)
        scheme, rest = match.group(1).lower(), match.group(2)
        if scheme == "file":
            host, slash, path = rest.partition("/")
            if host not in ("", "localhost") or not slash:
                raise InvalidInput(f"`{_shown(uri)}` names a file on another host", hint="write file:///path")
            return cls._local(unquote("/" + path), uri)
        if scheme in ("s3", "memory"):
            return cls._remote("s3" if scheme == "s3" else "memory", rest, uri)
        raise InvalidInput(
            f"`{scheme}://` is not a storage scheme", hint="use a path, file://, memory:// or s3://"
        )

    @classmethod
    def _of_path(cls, given: object) -> Location:
        path = os.fspath(given) if isinstance(given, os.PathLike) else None
        if not isinstance(path, str):
            raise InvalidInput(f"an address is a text or a path, not a value of {type(given).__name__}")
        if _BROKEN_URL.match(path):
            # Two slashes are one in a path, so that this would be a local folder of an odd name.
            raise InvalidInput(f"`{path}` is no path", hint="give an address with :// as a text")
        return cls._local(path, path)

    @classmethod
    def _local(cls, path: str, uri: str) -> Location:
        if "\0" in path:
            raise InvalidInput(f"`{uri!r}` is not a path")
        try:
            return cls("file", "", str(Path(path).resolve()))
        except (OSError, RuntimeError) as error:
            # The latter is how links that lead in a circle are told before Python 3.13.
            raise InvalidInput(f"`{uri}` cannot be followed: {error}") from error

    @classmethod
    def _remote(cls, scheme: Scheme, rest: str, uri: str) -> Location:
        authority, _, path = rest.partition("/")
        if not _NAME.match(authority):
            what = "bucket" if scheme == "s3" else "name"
            raise InvalidInput(f"`{_shown(uri)}` has no valid {what}", hint=f"write {scheme}://{what}/prefix")
        segments = [segment for segment in path.split("/") if segment]
        if any(segment in (".", "..") for segment in segments) or _AMBIGUOUS.search(path):
            raise InvalidInput(
                f"`{_shown(uri)}` has a prefix that storage libraries read differently",
                hint="avoid . and .. segments, %, ?, #, backslashes and control characters",
            )
        return cls(scheme, authority, "/".join(segments))

    @property
    def is_local(self) -> bool:
        """Whether this is a local disk, where durability needs a sync."""
        return self.scheme == "file"

    @property
    def uri(self) -> str:
        """The one spelling of this location; parsing it gives the same location again."""
        if self.scheme == "file":
            return self.path
        return f"{self.scheme}://{self.authority}" + (f"/{self.path}" if self.path else "")

    @property
    def lance_uri(self) -> str:
        """The same place in Lance's terms, whose own `memory://` is private to one handle."""
        return f"shared-{self.uri}" if self.scheme == "memory" else self.uri

    def child(self, *segments: str) -> Location:
        """A location below this one; segments are names of ours, such as `nodes` or a type id."""
        for segment in segments:
            if segment in ("", ".", "..") or "/" in segment or _AMBIGUOUS.search(segment):
                raise InvalidInput(f"`{segment}` is not a name inside a graph")
        path = "/".join((self.path.rstrip("/"), *segments) if self.path else segments)
        return Location(self.scheme, self.authority, path)

    def __str__(self) -> str:
        return self.uri


def _shown(uri: str) -> str:
    """An address for messages: without a user and a password, which may have slashes in them."""
    scheme, separator, rest = uri.partition("://")
    _, at, place = rest.rpartition("@")
    if at:
        return f"{scheme}{separator}…@{place}"
    return f"{scheme}{separator}…" if ":" in rest.partition("/")[0] else uri
