"""Rows by address, from one version of a table to another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.table_parts import list_parts, live_rows
from omnigraph.store.tables.tables import Tables
from omnigraph.store.tables.version_diff import Addresses

_FRAGMENT_BITS = np.uint64(32)
_PLACE = np.uint64(0xFFFFFFFF)


def carry_addresses(
    tables: Tables, before: TablePin, after: TablePin, addresses: Addresses
) -> tuple[Addresses, npt.NDArray[np.bool_]]:
    """Where the stored rows of one version are in another, and which of them are there at all.

    A row that was stored again elsewhere counts as not there. No data file is read for it.
    """
    carried = np.zeros(len(addresses), np.uint64)
    found = np.zeros(len(addresses), bool)
    if before.path != after.path:
        return carried, found
    new = {part.files: part for part in list_parts(tables, after)}
    fragments = addresses >> _FRAGMENT_BITS
    for part in list_parts(tables, before):
        mine = np.flatnonzero(fragments == np.uint64(part.fragment_id))
        other = new.get(part.files)
        if not len(mine) or other is None:
            continue
        places = addresses[mine] & _PLACE
        if other.deletions != part.deletions and other.deletions is not None:
            alive = np.isin(places, live_rows(tables, after, other))
            mine, places = mine[alive], places[alive]
        carried[mine] = (np.uint64(other.fragment_id) << _FRAGMENT_BITS) | places
        found[mine] = True
    return carried, found
