"""The format stamp: which graphs this code can open, and how older ones become current.

The stamp stands in the registry row. Newer than the code is refused in both modes. Older but not below the floor
is migrated on a read-write open: the work first, the stamp last, each step safe to repeat and safe when two
processes do it at once. Below the floor is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from omnigraph.errors import UnsupportedFormat
from omnigraph.store.manifest.manifest import Manifest

CURRENT = 1
FLOOR = 1

# A step from each supported older format to the next. It does its work and leaves the stamp alone.
Step: TypeAlias = Callable[[Manifest], None]
MIGRATIONS: Mapping[int, Step] = {}


def check_format(stamp: int, *, current: int = CURRENT, floor: int = FLOOR) -> None:
    """Refuse a stamp this code cannot read."""
    details = {"format": stamp, "supported": [floor, current]}
    if stamp > current:
        raise UnsupportedFormat(
            f"the graph has format {stamp}, this omnigraph reads up to {current}",
            details=details,
            hint="upgrade omnigraph",
        )
    if stamp < floor:
        raise UnsupportedFormat(
            f"the graph has format {stamp}, this omnigraph reads from {floor} on",
            details=details,
            hint=f"export it with a release that reads format {stamp}, then init a new graph and load the export",
        )


def pending_migrations(
    stamp: int,
    *,
    current: int = CURRENT,
    floor: int = FLOOR,
    migrations: Mapping[int, Step] | None = None,
) -> list[tuple[int, Step]]:
    """The steps between a stamp and the current format, each with the stamp it leads to."""
    check_format(stamp, current=current, floor=floor)
    steps = MIGRATIONS if migrations is None else migrations
    return [(number + 1, steps[number]) for number in range(stamp, current)]
