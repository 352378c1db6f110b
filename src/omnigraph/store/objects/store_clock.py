"""The clock of the storage system, which stamps every object. Machines may have other clocks."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final
from uuid import uuid4

from omnigraph.store.objects.object_store import ObjectStore

# Objects that are written to read the clock.
PREFIX: Final = "__clock/"
# A difference between the clocks that is reported.
MAX_DIFFERENCE: Final = 60.0
_WARNING: Final = "the clock of this machine"


def read_store_clock(objects: ObjectStore) -> datetime:
    """Return the present time of the storage system. An object is written for this, and removed again.

    Its time comes from a listing, like the times that it is compared with: other requests have another precision.
    """
    key = f"{PREFIX}{uuid4().hex}"
    objects.put(key, str(time.time()).encode())
    try:
        return max(item.last_modified for item in objects.list(PREFIX.rstrip("/")))
    finally:
        objects.delete(key)


def warn_about_clock(warnings: list[str], store_time: datetime | None) -> None:
    """Add a warning if the clock of this machine differs from that of the storage system. It is added only once.

    `store_time` is the present time of the storage system, None if it is not known.

    >>> found: list[str] = []
    >>> warn_about_clock(found, datetime.now().astimezone())
    >>> found
    []
    """
    if store_time is None:
        return
    difference = time.time() - store_time.timestamp()
    if abs(difference) > MAX_DIFFERENCE and not any(text.startswith(_WARNING) for text in warnings):
        direction = "ahead of" if difference > 0 else "behind"
        warnings.append(
            f"{_WARNING} is {abs(difference):.0f} seconds {direction} the clock of the storage system;"
            " commits have wrong times: synchronize the clock"
        )
