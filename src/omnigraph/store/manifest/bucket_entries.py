"""Entries in buckets: finding them by name, and the buckets that a change replaces."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Generic, Protocol, TypeVar

from omnigraph.store.manifest.manifest_files import ManifestFile
from omnigraph.store.manifest.manifest_rows import StoredRows, parse_row
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.name_buckets import KEY_PREFIXES, MAX_ENTRIES, MIN_ENTRIES, Bucket, BucketIndex
from omnigraph.store.manifest.records import Body, encode_body
from omnigraph.store.manifest.row_files import RowFiles, file_path


class Entry(Protocol):
    """The entry of a name, such as that of a branch."""

    def to_body(self) -> Body:
        """Return the JSON form."""
        ...


E = TypeVar("E", bound=Entry)


@dataclass(frozen=True, slots=True)
class BucketChange:
    """The bucket files that a change removes, and the buckets that it adds."""

    removed: tuple[ManifestFile, ...]
    added: tuple[Bucket, ...]


class BucketEntries(Generic[E]):
    """The entries of one kind of buckets in the views of a manifest."""

    def __init__(self, rows: RowFiles, kind: str, parse: Callable[[Body], E]) -> None:
        self._rows = rows
        self._kind = kind
        self._prefix = KEY_PREFIXES[kind]
        self._parse = parse

    def get(self, view: ManifestView, name: str) -> E | None:
        """Return the entry of a name, or None. One bucket is read."""
        index = view.bucket_index(self._kind)
        if not index.files:
            return None
        file = index.files[index.find(name)]
        text = self._rows.read_stored(view, file).get(self._prefix + name)
        return None if text is None else parse_row(file_path(file), name, text, self._parse)

    def all(self, view: ManifestView) -> dict[str, E]:
        """Return all entries by name, sorted."""
        return dict(self.after(view, None))

    def after(self, view: ManifestView, name: str | None) -> Iterator[tuple[str, E]]:
        """Yield the entries after a name in the order of names, or all of them. Buckets are read one by one."""
        index = view.bucket_index(self._kind)
        first = 0 if name is None or not index.files else index.find(name)
        for file in index.files[first:]:
            key_before = None if name is None else self._prefix + name
            for key, text in self._rows.read_stored(view, file).texts_after(key_before):
                found = key.removeprefix(self._prefix)
                yield found, parse_row(file_path(file), found, text, self._parse)

    def names(self, view: ManifestView, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Yield the names that begin with a prefix and come after a name, sorted.

        Buckets are read one by one, and only those whose ranges may have such names.
        """
        index = view.bucket_index(self._kind)
        if not index.files:
            return
        first = index.find(prefix if after is None else max(prefix, after))
        for file in index.files[first:]:
            bound = file.lower_bound
            if bound > prefix and not bound.startswith(prefix):
                return
            keys = self._rows.read_stored(view, file).keys_in_order
            key_before = None if after is None else self._prefix + after
            for key in select_names(keys, self._prefix + prefix, key_before):
                yield key.removeprefix(self._prefix)

    def names_near(self, view: ManifestView, name: str) -> list[str]:
        """Return the names in the bucket of a name, sorted: those with the longest common beginning."""
        index = view.bucket_index(self._kind)
        return self._bucket(view, index.files[index.find(name)]).names if index.files else []

    def change(
        self,
        view: ManifestView,
        entries: Iterable[tuple[str, E | None]],
        touched: Iterable[str] = (),
    ) -> BucketChange:
        """Return the buckets after entries are added, replaced, or removed if None.

        The buckets of the touched names are replaced as well. If there is no bucket yet, the first one is added; a
        caller for which this can happen must ensure that no other process adds one.
        """
        index = view.bucket_index(self._kind)
        if not index.files:
            bucket = Bucket("", kind=self._kind)
            for name, entry in entries:
                if entry is not None:
                    bucket = bucket.with_row(name, encode_body(entry.to_body()))
            return BucketChange((), (bucket,) if bucket.rows else ())
        positions = {index.find(name) for name in touched}
        changed = {position: self._bucket(view, index.files[position]) for position in positions}
        last_added: dict[int, str] = {}
        for name, entry in entries:
            position = index.find(name)
            found = changed.get(position)
            if found is None:
                found = self._bucket(view, index.files[position])
            if entry is None:
                changed[position] = found.without_row(name)
            else:
                if name not in found:
                    last_added[position] = name
                changed[position] = found.with_row(name, encode_body(entry.to_body()))
        joined = self._join_small(view, index, changed)
        removed = tuple(index.files[position] for position in changed)
        added = [
            part
            for position, bucket in sorted(changed.items())
            if position not in joined
            for part in bucket.split(last_added.get(position))
        ]
        # A file has at least one row. The only bucket of tags may become empty.
        return BucketChange(removed, tuple(part for part in added if part.rows))

    def _join_small(self, view: ManifestView, index: BucketIndex, changed: dict[int, Bucket]) -> set[int]:
        """Join small buckets with a neighbour; return the positions of those that have no file any more."""
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
            changed[neighbour] = replace(first, rows=first.rows.followed_by(second.rows))
            joined.add(position)
        return joined

    def _bucket(self, view: ManifestView, file: ManifestFile) -> Bucket:
        return Bucket(file.lower_bound, self._rows.read_stored(view, file), self._kind)


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
    return Bucket(file.lower_bound, StoredRows.encode(rows.items()), file.kind)


def first_buckets(kind: str, entries: Iterable[tuple[str, Entry]]) -> list[Bucket]:
    """Return the buckets of a graph that has none of a kind yet; none without entries."""
    buckets = [Bucket("", kind=kind)]
    for name, entry in sorted(entries, key=lambda item: item[0]):
        buckets[-1:] = buckets[-1].with_row(name, encode_body(entry.to_body())).split(name)
    return [bucket for bucket in buckets if bucket.rows]
