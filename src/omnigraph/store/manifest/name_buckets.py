"""Buckets: each file of kind `branches` or `tags` holds the branches or the tags of one range of names.

A graph may have ten thousand branches, and few of them move at any time. A bucket holds an entry for each branch of
its range. The entry of a branch at rest names its head commit; the entry of a branch that moves names none, and the
head is alone in a file of its own. The entry of a tag names its commit. The buckets of one kind in a view cover all
names: a bucket begins at its lower bound and ends where the next one begins.

Creating, deleting and the first write of a branch replace its bucket, and so do creating and deleting a tag. A
bucket that is too large is split. A bucket that becomes small is joined with the one before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from omnigraph.store.manifest.manifest_files import BUCKETS, TAGS, ManifestFile, bound_part
from omnigraph.store.manifest.manifest_rows import StoredRows

# The key of a row is this prefix, by the kind of the file, and the name of the branch or tag.
KEY_PREFIXES: Final[Mapping[str, str]] = {BUCKETS: "branch:", TAGS: "tag:"}

# Larger buckets take longer to write; smaller ones are more files, which every version of the manifest lists.
MAX_ENTRIES: Final = 256
# A bucket with fewer entries is joined with the one before it, if both fit into half a bucket.
MIN_ENTRIES: Final = 16
# The lower bound is part of the file name, in hexadecimal.
_MAX_BOUND_BYTES: Final = 56


@dataclass(frozen=True, slots=True)
class Bucket:
    """The rows of a bucket. `lower` is the lower bound of its range of names. A key is a prefix and a name."""

    lower: str
    rows: StoredRows = field(default_factory=StoredRows)
    kind: str = BUCKETS

    @property
    def prefix(self) -> str:
        """The beginning of all keys."""
        return KEY_PREFIXES[self.kind]

    @property
    def names(self) -> list[str]:
        """The names of the branches or tags, sorted."""
        return [key.removeprefix(self.prefix) for key in self.rows]

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.rows

    def with_row(self, name: str, text: str) -> Bucket:
        """Return the bucket with an entry added or replaced."""
        return replace(self, rows=self.rows.with_row(self.prefix + name, text))

    def without_row(self, name: str) -> Bucket:
        """Return the bucket without an entry."""
        return replace(self, rows=self.rows.without_row(self.prefix + name))

    def split(self, added: str | None = None) -> list[Bucket]:
        """Return the bucket, or its two parts if it is too large.

        If `added` is one of the last names, the first part keeps most of them: names that are created in ascending
        order fill most of their buckets, and a later name between them does not split a bucket again.
        """
        if len(self.rows) <= MAX_ENTRIES:
            return [self]
        names = self.names
        middle = len(names) // 2
        if added is not None and added >= names[-max(1, len(names) // 16)]:
            middle = len(names) - max(1, len(names) // 8)
        positions = sorted(range(1, len(names)), key=lambda position: abs(position - middle))
        for position in positions:
            bound = shortest_separator(names[position - 1], names[position])
            if len(bound.encode()) <= _MAX_BOUND_BYTES:
                first = self.rows.part(0, position)
                second = self.rows.part(position, len(names))
                return [replace(self, rows=first), replace(self, lower=bound, rows=second)]
        # All names begin with the same long text. The bucket stays large.
        return [self]


def shortest_separator(before: str, after: str) -> str:
    """Return the shortest text that is greater than `before` and not greater than `after`.

    >>> shortest_separator("agent-17", "agent-203")
    'agent-2'
    """
    length = next(
        (index for index, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before)
    )
    return after[: length + 1]


class BucketIndex:
    """The bucket files of one kind in a view, ordered by their lower bounds."""

    def __init__(self, files: Iterable[ManifestFile]) -> None:
        # The bounds in file names have the same order as the bounds, and need not be decoded for every view.
        self.files: Sequence[ManifestFile] = sorted(files, key=_bound_part_of)
        self._parts = [_bound_part_of(file) for file in self.files]

    @cached_property
    def bounds(self) -> Sequence[str]:
        """The lower bounds of the buckets, in ascending order."""
        return [file.lower_bound for file in self.files]

    def find(self, name: str) -> int:
        """Return the position of the bucket whose range has a name."""
        # The first bucket begins at the empty text.
        return bisect_right(self._parts, bound_part(name)) - 1


def _bound_part_of(file: ManifestFile) -> str:
    return file.parts[0]
