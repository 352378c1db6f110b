"""Which tables upkeep compacts and indexes.

Writes compact their own small fragments. Upkeep does what they leave: it indexes rows that were added since the
last index segment, and compacts fragments that writes do not. An optimize is a commit, so a table is left alone
until the work is worth one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from omnigraph.catalog.catalog import Table
from omnigraph.errors import NotFound
from omnigraph.graph.repository import Repository
from omnigraph.graph.snapshot import Snapshot
from omnigraph.maintain.compaction_policy import groups_to_rewrite
from omnigraph.maintain.optimize import KIND
from omnigraph.store.tables.index_segments import index_name
from omnigraph.store.tables.table_fragments import list_fragments
from omnigraph.store.tables.table_indexes import list_segments

# A scan of fewer rows is about as fast as a lookup in an index.
MIN_UNINDEXED_ROWS: Final = 1 << 16
# Rows without an index are indexed when they are this part of a table.
MIN_UNINDEXED_FRACTION: Final = 0.125
# Writes leave at most 31 fragments of each of three sizes, and one more for each full fragment.
MIN_FRAGMENTS: Final = 128


def find_neglected_branches(repository: Repository, branches: Iterable[str]) -> list[str]:
    """Return those of some branches that have a table to compact or to index. No data is read."""
    found = []
    for branch in sorted(branches):
        try:
            snapshot = repository.snapshot(branch)
        except NotFound:
            # The branch was deleted.
            continue
        if any(is_neglected(snapshot, table) for table in snapshot.catalog.tables.values()):
            found.append(branch)
    return found


def is_neglected(snapshot: Snapshot, table: Table) -> bool:
    """Return whether a table has many rows without an index, or many small fragments."""
    pin = snapshot.pin(table.key)
    with snapshot.reading():
        if pin.rows < MIN_UNINDEXED_ROWS:
            return False
        fragments = list_fragments(snapshot.tables, pin)
        name = index_name(table.physical("id"), KIND)
        covered = {
            id_
            for segment in list_segments(snapshot.tables, pin)
            if segment.index == name
            for id_ in segment.fragments
        }
    unindexed = sum(item.rows for item in fragments if item.id not in covered)
    if unindexed >= max(MIN_UNINDEXED_ROWS, MIN_UNINDEXED_FRACTION * pin.rows):
        return True
    return len(fragments) >= MIN_FRAGMENTS and sum(map(len, groups_to_rewrite(fragments))) >= MIN_FRAGMENTS
