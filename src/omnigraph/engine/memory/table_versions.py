"""What is known about the versions of a table: fragments, positions of rows, and rows that this process wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.engine.memory.memory_cache import MAX_VERSIONS, Cache
from omnigraph.engine.memory.row_numbers import LineageHeads, RowNumbers
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.deletion_files import deleted_offsets
from omnigraph.store.tables.row_addresses import Offsets, fragment_and_offset
from omnigraph.store.tables.table_fragments import TableFragment, list_fragments
from omnigraph.store.tables.tables import Tables

# Larger fragments are read from storage, column by column, when they are needed.
_MAX_KEPT_ROWS = 4_096
_MAX_KEPT_BYTES = 1 << 20
# Versions whose fragments, and small fragments whose rows, stay in memory. A group of writes makes a version and a
# fragment for each of its writes, and a merge compares with a base that is older than several groups.
_KEPT_VERSIONS = 256
# The rows of so many fragments are kept only if they take at most this many bytes each.
_TINY_BYTES = 64 << 10
_NONE = np.zeros(0, np.uint32)


@dataclass(frozen=True)
class _Fragments:
    """The fragments of one version."""

    items: tuple[TableFragment, ...]

    @property
    def nbytes(self) -> int:
        """Estimated bytes."""
        return 200 * len(self.items) + 64


@dataclass(frozen=True)
class _DeletedRows:
    """The offsets of the deleted rows of a fragment."""

    offsets: Offsets

    @property
    def nbytes(self) -> int:
        """Bytes of the offsets."""
        return int(self.offsets.nbytes)


def table_fragments(cache: Cache, tables: Tables, pin: TablePin) -> tuple[TableFragment, ...]:
    """Return the fragments of a table version, in row order."""
    return cache.get_or_build(
        ("fragments", pin.path), pin.version, lambda: _Fragments(list_fragments(tables, pin)), _KEPT_VERSIONS
    ).items


def extend_fragments(
    cache: Cache, tables: Tables, base: TablePin, pin: TablePin, deleted: Collection[int]
) -> tuple[TableFragment, ...]:
    """Return the fragments of a version that was staged on another, given the addresses of the deleted rows.

    The fragments without deleted rows are not described again, and no deletion file is read.
    """
    known: _Fragments | None = cache.get(("fragments", pin.path), base.version)
    if known is None:
        return table_fragments(cache, tables, pin)
    offsets: dict[int, list[int]] = {}
    for address in deleted:
        fragment, offset = fragment_and_offset(address)
        offsets.setdefault(fragment, []).append(offset)
    before = {item.id: item for item in known.items}
    unchanged = {id_: item for id_, item in before.items() if id_ not in offsets} if offsets else before
    found = cache.get_or_build(
        ("fragments", pin.path),
        pin.version,
        lambda: _Fragments(list_fragments(tables, pin, unchanged)),
        _KEPT_VERSIONS,
    ).items
    for item in found if offsets else ():
        if item.id in offsets and item.id in before:
            _keep_deletions(cache, before[item.id], item, offsets[item.id])
    _forget_deletions(cache, known.items, found)
    return found


def _keep_deletions(cache: Cache, before: TableFragment, after: TableFragment, offsets: list[int]) -> None:
    """Keep the deleted rows of a fragment, given those of the version before it and the newly deleted ones."""
    if after.deletions is None:
        return
    family = ("deleted", after.files)
    old: _DeletedRows | None = (
        _DeletedRows(_NONE) if before.deletions is None else cache.get(family, before.deletions)
    )
    if old is None:
        return
    merged = np.union1d(old.offsets, np.array(offsets, np.uint32)).astype(np.uint32)
    if len(merged) == after.physical_rows - after.rows:
        cache.put(family, after.deletions, _DeletedRows(merged))


def deleted_rows(cache: Cache, tables: Tables, pin: TablePin, fragment: TableFragment) -> Offsets:
    """Return the offsets of the deleted rows of a fragment, ascending."""
    if fragment.deletions is None:
        return deleted_offsets(tables, pin, fragment)
    return cache.get_or_build(
        ("deleted", fragment.files),
        fragment.deletions,
        lambda: _DeletedRows(deleted_offsets(tables, pin, fragment)),
    ).offsets


def known_deleted_rows(cache: Cache, fragment: TableFragment) -> Offsets | None:
    """Return the offsets of the deleted rows of a fragment, ascending; None if they are not in memory."""
    if fragment.deletions is None:
        return _NONE
    found: _DeletedRows | None = cache.get(("deleted", fragment.files), fragment.deletions)
    return None if found is None else found.offsets


def row_numbers(cache: Cache, tables: Tables, pin: TablePin) -> RowNumbers:
    """Return the positions of the rows of a table version.

    Versions are numbered one after the other, so that each continues the one before.
    """
    family = ("positions", pin.path)
    known: RowNumbers | None = cache.get(family, pin.version)
    if known is not None:
        return known
    found: list[RowNumbers] = []

    def deleted(fragment: TableFragment) -> Offsets:
        return deleted_rows(cache, tables, pin, fragment)

    def add(old: LineageHeads | None) -> LineageHeads:
        heads = old or LineageHeads()
        numbered: RowNumbers | None = cache.get(family, pin.version)
        if numbered is not None:
            found.append(numbered)
            return heads
        before = heads.items
        heads = heads.add(pin, table_fragments(cache, tables, pin), deleted)
        _forget_deletions(cache, _fragments_of(before), _fragments_of(heads.items))
        ended = {head.lineage for head in before} - {head.lineage for head in heads.items}
        if ended:
            # No later version continues these columns.
            cache.drop(lambda name: name[:2] == ("column", pin.path) and name[-1] in ended)
        found.append(heads.items[-1])
        cache.put(family, pin.version, heads.items[-1])
        return heads

    cache.update(("lineages", pin.path), add)
    return found[0]


def _fragments_of(heads: Sequence[RowNumbers]) -> list[TableFragment]:
    return [item.fragment for head in heads for item in head.items]


def _forget_deletions(cache: Cache, before: Iterable[TableFragment], after: Iterable[TableFragment]) -> None:
    """Forget the deleted rows of fragments that are gone. Another branch that has them reads them again.

    They take a few bytes each, so the budget of the cache does not bound them, and every commit may add some.
    """
    deleted = {item.files for item in before if item.deletions is not None}
    if deleted:
        for files in deleted.difference(item.files for item in after):
            cache.forget(("deleted", files))


def is_small(fragment: TableFragment) -> bool:
    """Return whether the rows of a fragment are kept in memory when they are written or read."""
    return (
        fragment.deletions is None and fragment.rows <= _MAX_KEPT_ROWS and fragment.nbytes <= _MAX_KEPT_BYTES
    )


def keep_written_rows(cache: Cache, path: str, fragment: TableFragment, rows: pa.Table) -> None:
    """Keep the rows of a small fragment, so that further reads of its columns need no storage."""
    if rows.num_rows == fragment.rows and is_small(fragment):
        keep_rows_of_files(cache, path, fragment.files, rows)


def keep_rows_of_files(cache: Cache, path: str, files: str, rows: pa.Table) -> None:
    """Keep all rows of a small fragment, given its data files. No version need name the files yet."""
    versions = _KEPT_VERSIONS if rows.nbytes <= _TINY_BYTES else MAX_VERSIONS
    cache.put(("written", path), files, rows.combine_chunks(), versions)


def written_rows(cache: Cache, path: str, fragment: TableFragment) -> pa.Table | None:
    """Return all rows that were written to a fragment, if they are still in memory."""
    found: pa.Table | None = cache.get(("written", path), fragment.files)
    return found
