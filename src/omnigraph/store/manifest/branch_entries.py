"""The branches of a graph: finding entries in their buckets, and the buckets that a change replaces.

Formats before 3 have no buckets. Their registry holds all branches, and every branch has a head file.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from omnigraph.store.manifest.branch_buckets import KEY_PREFIX, MAX_ENTRIES, MIN_ENTRIES, Bucket
from omnigraph.store.manifest.manifest_files import ManifestFile
from omnigraph.store.manifest.manifest_rows import StoredRows, parse_row
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import BranchEntry, Registry, encode_body
from omnigraph.store.manifest.row_files import RowFiles, file_path


@dataclass(frozen=True, slots=True)
class BucketChange:
    """The bucket files that a change removes, and the buckets that it adds."""

    removed: tuple[ManifestFile, ...]
    added: tuple[Bucket, ...]


class BranchEntries:
    """The entries of branches in the views of a manifest."""

    def __init__(self, rows: RowFiles, registry: Callable[[ManifestView], Registry]) -> None:
        self._rows = rows
        self._registry = registry

    def get(self, view: ManifestView, name: str) -> BranchEntry | None:
        """Return the entry of a branch, or None if there is no such branch. One bucket is read."""
        if not view.buckets.files:
            return self._of_registry(view).get(name)
        file = view.buckets.files[view.buckets.find(name)]
        text = self._rows.read_stored(view, file).get(KEY_PREFIX + name)
        return None if text is None else parse_row(file_path(file), name, text, BranchEntry.from_body)

    def all(self, view: ManifestView) -> dict[str, BranchEntry]:
        """Return all entries by branch name, sorted."""
        return dict(self.after(view, None))

    def after(self, view: ManifestView, name: str | None) -> Iterator[tuple[str, BranchEntry]]:
        """Yield the entries after a name in the order of names, or all of them. Buckets are read one by one."""
        index = view.buckets
        if not index.files:
            entries = self._of_registry(view).items()
            yield from sorted(item for item in entries if name is None or item[0] > name)
            return
        first = 0 if name is None else index.find(name)
        for file in index.files[first:]:
            key_before = None if name is None else KEY_PREFIX + name
            for key, text in self._rows.read_stored(view, file).texts_after(key_before):
                branch = key.removeprefix(KEY_PREFIX)
                yield branch, parse_row(file_path(file), branch, text, BranchEntry.from_body)

    def names(self, view: ManifestView, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Yield the names that begin with a prefix and come after a name, sorted.

        Buckets are read one by one, and only those whose ranges may have such names.
        """
        index = view.buckets
        if not index.files:
            yield from select_names(sorted(self._of_registry(view)), prefix, after)
            return
        first = index.find(prefix if after is None else max(prefix, after))
        for file in index.files[first:]:
            bound = file.lower_bound
            if bound > prefix and not bound.startswith(prefix):
                return
            keys = self._rows.read_stored(view, file).keys_in_order
            for key in select_names(keys, KEY_PREFIX + prefix, None if after is None else KEY_PREFIX + after):
                yield key.removeprefix(KEY_PREFIX)

    def names_near(self, view: ManifestView, name: str) -> list[str]:
        """Return the names in the bucket of a name, sorted: those with the longest common beginning."""
        index = view.buckets
        if not index.files:
            return sorted(self._of_registry(view))
        return self._bucket(view, index.files[index.find(name)]).names

    def change(
        self,
        view: ManifestView,
        entries: Iterable[tuple[str, BranchEntry | None]],
        touched: Iterable[str] = (),
    ) -> BucketChange:
        """Return the buckets after entries are added, replaced, or removed if None.

        The buckets of the touched names are replaced as well.
        """
        index = view.buckets
        positions = {index.find(name) for name in touched}
        changed = {position: self._bucket(view, index.files[position]) for position in positions}
        last_added: dict[int, str] = {}
        for name, entry in entries:
            position = index.find(name)
            bucket = changed.get(position)
            if bucket is None:
                bucket = self._bucket(view, index.files[position])
            if entry is None:
                changed[position] = bucket.without_row(name)
            else:
                if KEY_PREFIX + name not in bucket.rows:
                    last_added[position] = name
                changed[position] = bucket.with_row(name, encode_body(entry.to_body()))
        joined = self._join_small(view, changed)
        removed = tuple(index.files[position] for position in changed)
        added = [
            part
            for position, bucket in sorted(changed.items())
            if position not in joined
            for part in bucket.split(last_added.get(position))
        ]
        return BucketChange(removed, tuple(added))

    def _join_small(self, view: ManifestView, changed: dict[int, Bucket]) -> set[int]:
        """Join small buckets with a neighbour; return the positions of those that have no file any more."""
        index = view.buckets
        joined: set[int] = set()
        for position in sorted(changed, reverse=True):
            bucket = changed[position]
            neighbour = position - 1 if position else 1
            if len(bucket.rows) >= MIN_ENTRIES or neighbour >= len(index.files) or neighbour in joined:
                continue
            other = changed.get(neighbour)
            if other is None:
                other = self._bucket(view, index.files[neighbour])
            # An empty bucket always joins, because a file has at least one row.
            if bucket.rows and len(other.rows) + len(bucket.rows) > MAX_ENTRIES // 2:
                continue
            first, second = sorted((other, bucket), key=lambda item: item.lower)
            changed[neighbour] = Bucket(first.lower, first.rows.followed_by(second.rows))
            joined.add(position)
        return joined

    def _bucket(self, view: ManifestView, file: ManifestFile) -> Bucket:
        return Bucket(file.lower_bound, self._rows.read_stored(view, file))

    def _of_registry(self, view: ManifestView) -> Mapping[str, BranchEntry]:
        return self._registry(view).legacy_branches or {}


def select_names(names: Sequence[str], prefix: str, after: str | None) -> Iterator[str]:
    """Yield the names that begin with a prefix and come after a name, given sorted names.

    >>> list(select_names(["agent-1", "agent-2", "agent-3", "main"], "agent-", "agent-1"))
    ['agent-2', 'agent-3']
    """
    first = bisect_left(names, prefix)
    if after is not None:
        first = max(first, bisect_right(names, after))
    for name in islice(names, first, None):
        # Names with the same prefix follow each other.
        if not name.startswith(prefix):
            return
        yield name


def parse_bucket(file: ManifestFile, rows: Mapping[str, str]) -> Bucket:
    """Return the bucket that a file holds, given its rows by key."""
    return Bucket(file.lower_bound, StoredRows.encode(rows.items()))


def first_buckets(entries: Iterable[tuple[str, BranchEntry]]) -> list[Bucket]:
    """Return the buckets of a graph that has none yet."""
    buckets = [Bucket("")]
    for name, entry in sorted(entries):
        buckets[-1:] = buckets[-1].with_row(name, encode_body(entry.to_body())).split(name)
    return buckets
