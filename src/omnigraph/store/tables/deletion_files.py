"""Deletion files of fragments: the offsets of deleted rows.

Lance has no public function that returns them. Scanning the row addresses of a fragment gives the offsets of its
live rows, at a cost that follows the size of the fragment. Lance stores few deletions as an Arrow file with one
column, and many as a Roaring bitmap in its portable format.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.errors import OmnigraphError
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.row_addresses import Offsets
from omnigraph.store.tables.table_fragments import TableFragment, live_offsets
from omnigraph.store.tables.tables import Tables

_NO_RUNS = 12_346
_WITH_RUNS = 12_347
# Containers of at most this many values are sorted arrays, larger ones are bit sets of 65,536 bits.
_MAX_ARRAY = 4_096
_BITMAP_BYTES = 8_192
_NO_OFFSETS_BELOW = 4
# On an object store a scan of at most this many addresses takes less time than a request. Lance then keeps the
# deletion file that it has read for the next operation on the fragment.
_MAX_SCANNED = 1 << 20
_NONE = np.zeros(0, np.uint32)


def deleted_offsets(tables: Tables, pin: TablePin, fragment: TableFragment) -> Offsets:
    """Return the offsets of a fragment's deleted rows, ascending. Costs as much as its deletion file is long."""
    if fragment.deletions is None:
        return _NONE
    expected = fragment.physical_rows - fragment.rows
    data = _read(tables, pin, fragment)
    if data is not None:
        try:
            found = _parse_arrow(data) if fragment.deletions.endswith(".arrow") else parse_bitmap(data)
        except (OSError, pa.ArrowException, ValueError, IndexError):
            found = _NONE
        if len(found) == expected and (not len(found) or found[-1] < fragment.physical_rows):
            return found
    # A fragment that is scanned, an unknown format, or a damaged file, for which Lance raises.
    live = live_offsets(tables, pin, fragment)
    deleted = np.ones(fragment.physical_rows, np.bool_)
    deleted[live] = False
    return np.flatnonzero(deleted).astype(np.uint32)


def _read(tables: Tables, pin: TablePin, fragment: TableFragment) -> bytes | None:
    key = f"{pin.path}/{fragment.deletions}"
    try:
        if tables.root.local is not None:
            return (tables.root.local / key).read_bytes()
        if tables.root.objects is not None and fragment.physical_rows > _MAX_SCANNED:
            return tables.root.objects.get(key).data
    except (OSError, OmnigraphError):
        pass
    return None


def _parse_arrow(data: bytes) -> Offsets:
    rows = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    return np.sort(rows.column(0).to_numpy().astype(np.uint32))


def parse_bitmap(data: bytes) -> Offsets:
    """Return the values of a Roaring bitmap in its portable format, ascending. `ValueError` for other bytes.

    >>> parse_bitmap(bytes.fromhex("3a300000 01000000 0000 0100 10000000 0500 0700")).tolist()
    [5, 7]
    """
    cookie = int(np.frombuffer(data, "<u4", 1)[0])
    runs = np.zeros(0, np.uint8)
    if cookie & 0xFFFF == _WITH_RUNS:
        count, at = (cookie >> 16) + 1, 4
        width = (count + 7) // 8
        runs = np.unpackbits(np.frombuffer(data, np.uint8, width, at), bitorder="little")
        at += width
    elif cookie == _NO_RUNS:
        count, at = int(np.frombuffer(data, "<u4", 1, 4)[0]), 8
    else:
        raise ValueError(f"{cookie} does not start a Roaring bitmap")
    header = np.frombuffer(data, "<u2", 2 * count, at).astype(np.uint32)
    at += 4 * count
    if not len(runs) or count >= _NO_OFFSETS_BELOW:
        at += 4 * count
    parts: list[Offsets] = []
    for number in range(count):
        high, size = header[2 * number] << np.uint32(16), int(header[2 * number + 1]) + 1
        if len(runs) and runs[number]:
            pairs = int(np.frombuffer(data, "<u2", 1, at)[0])
            bounds = np.frombuffer(data, "<u2", 2 * pairs, at + 2).astype(np.uint32).reshape(-1, 2)
            low = np.concatenate([_NONE, *(np.arange(a, a + b + 1, dtype=np.uint32) for a, b in bounds)])
            at += 2 + 4 * pairs
        elif size <= _MAX_ARRAY:
            low = np.frombuffer(data, "<u2", size, at).astype(np.uint32)
            at += 2 * size
        else:
            bits = np.frombuffer(data, np.uint8, _BITMAP_BYTES, at)
            low = np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.uint32)
            at += _BITMAP_BYTES
        parts.append(high | low)
    return np.concatenate([_NONE, *parts])
