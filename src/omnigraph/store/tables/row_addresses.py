"""Row addresses of Lance: the fragment id in the upper 32 bits, the row's offset in its files in the lower 32."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

ROW_ADDRESS = "_rowaddr"

Addresses: TypeAlias = npt.NDArray[np.uint64]
Offsets: TypeAlias = npt.NDArray[np.uint32]

_FRAGMENT_SHIFT = np.uint64(32)
_OFFSET_MASK = np.uint64(0xFFFFFFFF)


def make_addresses(fragment: int, offsets: npt.NDArray[np.unsignedinteger]) -> Addresses:
    """Return the addresses of some rows of a fragment.

    >>> make_addresses(1, np.array([0, 2], np.uint32)).tolist()
    [4294967296, 4294967298]
    """
    return (np.uint64(fragment) << _FRAGMENT_SHIFT) | offsets.astype(np.uint64)


def fragments_of(addresses: Addresses) -> npt.NDArray[np.uint64]:
    """Return the fragment id of each address."""
    return addresses >> _FRAGMENT_SHIFT


def offsets_of(addresses: Addresses) -> Offsets:
    """Return the offset of each address in its fragment."""
    return (addresses & _OFFSET_MASK).astype(np.uint32)


def fragment_and_offset(address: int) -> tuple[int, int]:
    """Return the fragment id and the offset of one address.

    >>> fragment_and_offset((3 << 32) + 7)
    (3, 7)
    """
    return divmod(address, 1 << 32)
