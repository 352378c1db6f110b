"""Positions of the rows of a table that stay the same from version to version.

A fragment has one position for each row ever written to it. A new version keeps the positions of the fragments
that it shares with the version before, and its new fragments get positions behind all others. A deleted row leaves
its position unused, and so does a fragment that a compaction replaced. Structures over positions, such as cached
columns and adjacencies, are therefore extended by the rows of a commit and never renumbered.

Positions ascend in the order in which the rows are stored, so results are in the same order whatever versions were
read before. The versions that share positions are a *lineage*. Within a lineage versions are numbered in the order
in which they were first read: a position that is unused in one of them is unused in all later ones, and no position
is used for another row. A version starts a new lineage if it has rows that the versions before it do not have at
these positions, or if too many positions are unused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.errors import NotFound, StorageError
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.row_addresses import Addresses, Offsets, fragments_of, offsets_of
from omnigraph.store.tables.table_fragments import TableFragment

Positions = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_NONE: Positions = np.zeros(0, np.int64)
# Equals no name of a deletion file.
_UNKNOWN = ""
# At least this many positions may belong to fragments that are gone, and as many as there are rows.
_MIN_UNUSED = 256
# A version that lacks more rows of the version before starts a new lineage, unless they are few.
_MAX_LOST_SHARE = 16
_FEW_LOST = 4_096
# Versions that new ones may continue, so that branches read in turn do not displace each other.
_MAX_HEADS = 4
_BYTES_PER_FRAGMENT = 400
# A difference of at most this many rows is kept: one read compares two versions for endpoints and adjacencies.
_MAX_KEPT_CHANGES = 4_096

_LINEAGES = itertools.count()
_SERIALS = itertools.count()


@dataclass(frozen=True, eq=False)
class NumberedFragment:
    """A fragment, and the position of its first row."""

    fragment: TableFragment
    start: int
    _read_deleted: Callable[[TableFragment], Offsets]

    @cached_property
    def deleted(self) -> Offsets:
        """The offsets of the deleted rows, ascending. Read at the first use."""
        return self._read_deleted(self.fragment)

    @property
    def num_deleted(self) -> int:
        """The number of deleted rows."""
        return self.fragment.physical_rows - self.fragment.rows

    def rows(self) -> Positions:
        """Return the positions of the live rows, ascending."""
        if not self.num_deleted:
            return np.arange(self.start, self.start + self.fragment.physical_rows)
        live = np.ones(self.fragment.physical_rows, np.bool_)
        live[self.deleted] = False
        return self.start + np.flatnonzero(live)


@dataclass(frozen=True, eq=False)
class RowNumbers:
    """The positions of the rows of one version. `size` is greater than all of them.

    Versions with equal `lineage` share positions. Equal `serial` means the same rows at the same positions.
    """

    pin: TablePin
    lineage: int
    serial: int
    items: tuple[NumberedFragment, ...]
    size: int

    @property
    def token(self) -> tuple[int, int]:
        """The version of cached values over these positions."""
        return self.lineage, self.serial

    @cached_property
    def num_rows(self) -> int:
        """The number of rows."""
        return sum(item.fragment.rows for item in self.items)

    @property
    def is_dense(self) -> bool:
        """Whether every position has a row."""
        return self.num_rows == self.size

    @cached_property
    def nbytes(self) -> int:
        """Estimated bytes."""
        return _BYTES_PER_FRAGMENT * (len(self.items) + 1) + sum(4 * item.num_deleted for item in self.items)

    @cached_property
    def by_file(self) -> dict[str, NumberedFragment]:
        """The fragments by their files."""
        return {item.fragment.files: item for item in self.items}

    @cached_property
    def _starts(self) -> Positions:
        return np.array([item.start for item in self.items], np.int64)

    @cached_property
    def _fragment_ids(self) -> Addresses:
        return np.array([item.fragment.id for item in self.items], np.uint64)

    def all_rows(self) -> Positions:
        """Return the positions of all rows, ascending."""
        if self.is_dense:
            return np.arange(self.size)
        return np.concatenate([_NONE, *(item.rows() for item in self.items)])

    def live_mask(self) -> Mask | None:
        """Return which positions have a row; None if all have one."""
        if self.is_dense:
            return None
        mask = np.zeros(self.size, np.bool_)
        for item in self.items:
            mask[item.start : item.start + item.fragment.physical_rows] = True
            if item.num_deleted:
                mask[item.start + item.deleted.astype(np.int64)] = False
        return mask

    def addresses(self, positions: Positions) -> Addresses:
        """Return the storage addresses of rows."""
        places = np.searchsorted(self._starts, positions, side="right") - 1
        offsets = (positions - self._starts[places]).astype(np.uint64)
        return (self._fragment_ids[places] << np.uint64(32)) | offsets

    def positions(self, addresses: Addresses) -> Positions:
        """Return the positions of rows of this version by their storage addresses."""
        order = np.argsort(self._fragment_ids)
        places = order[np.searchsorted(self._fragment_ids, fragments_of(addresses), sorter=order)]
        return self._starts[places] + offsets_of(addresses).astype(np.int64)

    def continues(self, older: RowNumbers) -> bool:
        """Return whether values over the positions of another version hold for the rows that both have."""
        return older.lineage == self.lineage and older.serial <= self.serial


def changed_rows(old: RowNumbers, new: RowNumbers) -> tuple[Positions, Positions]:
    """Return the positions of the rows that an older version of the lineage has alone, and of those it lacks.

    The cost follows the changed rows and the deleted rows of the fragments that lost rows.
    """
    if old.serial == new.serial:
        return _NONE, _NONE
    known: tuple[int, tuple[Positions, Positions]] | None = new.__dict__.get("_changes")
    if known is not None and known[0] == old.serial:
        return known[1]
    lost: list[Positions] = []
    gained: list[Positions] = []
    for item in old.items:
        now = new.by_file.get(item.fragment.files)
        if now is item:
            continue
        if now is None or now.start != item.start:
            lost.append(item.rows())
        elif now.num_deleted != item.num_deleted:
            lost.append(item.start + np.setdiff1d(now.deleted, item.deleted, True).astype(np.int64))
    for item in new.items:
        before = old.by_file.get(item.fragment.files)
        if before is None or before.start != item.start:
            gained.append(item.rows())
    changes = np.concatenate([_NONE, *lost]), np.concatenate([_NONE, *gained])
    if len(changes[0]) + len(changes[1]) <= _MAX_KEPT_CHANGES:
        new.__dict__["_changes"] = (old.serial, changes)
    return changes


@dataclass(frozen=True, eq=False)
class LineageHeads:
    """The last version of each lineage of a table, the most recent one last."""

    items: tuple[RowNumbers, ...] = ()

    @property
    def nbytes(self) -> int:
        """Estimated bytes."""
        return sum(item.nbytes for item in self.items)

    def add(
        self,
        pin: TablePin,
        fragments: Sequence[TableFragment],
        deleted: Callable[[TableFragment], Offsets],
    ) -> LineageHeads:
        """Return the heads with a version: it continues the head that it shares most rows with, if there is one."""
        for head in sorted(self.items, key=lambda item: _unshared_rows(item, fragments)):
            found = _continue(head, pin, fragments, deleted)
            if found is not None:
                return LineageHeads((*(item for item in self.items if item is not head), found))
        return LineageHeads((*self.items[1 - _MAX_HEADS :], _start(pin, fragments, deleted)))


def _unshared_rows(head: RowNumbers, fragments: Sequence[TableFragment]) -> int:
    """Return how many rows are in fragments that a head does not have in the same state. No file is read."""
    known = {files: item.fragment.deletions for files, item in head.by_file.items()}
    return sum(item.rows for item in fragments if known.get(item.files, _UNKNOWN) != item.deletions)


def _start(
    pin: TablePin, fragments: Sequence[TableFragment], deleted: Callable[[TableFragment], Offsets]
) -> RowNumbers:
    items: list[NumberedFragment] = []
    size = 0
    for fragment in fragments:
        items.append(NumberedFragment(fragment, size, deleted))
        size += fragment.physical_rows
    return RowNumbers(pin, next(_LINEAGES), next(_SERIALS), tuple(items), size)


def _only_lost(before: NumberedFragment, after: NumberedFragment) -> bool:
    """Return whether every row that was deleted before is deleted."""
    if not before.num_deleted:
        return True
    try:
        return not len(np.setdiff1d(before.deleted, after.deleted, True))
    except (NotFound, StorageError):
        # Garbage collection has removed the older deletion file.
        return False


def _continue(
    head: RowNumbers,
    pin: TablePin,
    fragments: Sequence[TableFragment],
    deleted: Callable[[TableFragment], Offsets],
) -> RowNumbers | None:
    """Return the positions of a version in the lineage of a head; None if it must start a new one."""
    items: list[NumberedFragment] = []
    size, last, changed, kept = head.size, -1, 0, 0
    for fragment in fragments:
        known = head.by_file.get(fragment.files)
        if known is None:
            item = NumberedFragment(fragment, size, deleted)
            size += fragment.physical_rows
            changed += fragment.rows
        else:
            item = NumberedFragment(fragment, known.start, deleted)
            if fragment.deletions == known.fragment.deletions:
                item = known if fragment.id == known.fragment.id else item
            elif not _only_lost(known, item):
                return None
            kept += fragment.rows
        if item.start <= last:
            return None
        last = item.start
        items.append(item)
    rows = sum(fragment.rows for fragment in fragments)
    lost = head.num_rows - kept
    # A new lineage has positions for the deleted rows of the present fragments too.
    unused = size - sum(fragment.physical_rows for fragment in fragments)
    if unused > max(_MIN_UNUSED, rows) or lost > max(_FEW_LOST, rows // _MAX_LOST_SHARE):
        return None
    serial = next(_SERIALS) if lost or changed else head.serial
    return RowNumbers(pin, head.lineage, serial, tuple(items), size)
