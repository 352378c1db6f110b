"""The format version of a graph: which graphs this release can open, and how older ones are migrated.

The registry row holds the version. A version newer than this release is refused. An older supported version is
migrated when the graph is opened for writing: each migration does its work first, and the version is changed last.
Migrations can be repeated, and two processes may run them concurrently. A version that is too old is refused.

| format | since |
|---|---|
| 1 | the first release |
| 2 | rows of `__manifest` have checksums, and commits record the digests of their files |
| 3 | the branches are in buckets instead of the registry, and a branch at rest has no head file |
| 4 | there may be tags, whose commits garbage collection keeps |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from omnigraph.errors import UnsupportedFormat

if TYPE_CHECKING:
    from omnigraph.store.manifest.manifest import Manifest
    from omnigraph.store.manifest.manifest_view import ManifestView

CURRENT = 4
# The first format with checksums of rows.
CHECKSUMS = 2
# The first format with buckets of branches.
BUCKETS = 3
OLDEST_SUPPORTED = 1

# A migration from each supported older format to the next. It does not change the version in the registry.
Migration: TypeAlias = "Callable[[Manifest], None]"


def _accept(_manifest: Manifest) -> None:
    """Change nothing: this release reads what the older format wrote, and new rows have the new form."""


def _move_branches_to_buckets(manifest: Manifest) -> None:
    """Move the branches from the registry to buckets, and set the format in the same swap.

    A release that does not know buckets cannot read the registry any more, so the format must change with it.
    """

    # The format is also printed by commands that open no graph.
    from omnigraph.graph.swap_retries import retry_swap
    from omnigraph.store.manifest.branch_swaps import move_branches_to_buckets

    def move(view: ManifestView) -> None:
        if manifest.registry(view).legacy_branches is not None:
            move_branches_to_buckets(manifest, view, BUCKETS)

    retry_swap(manifest, move)


# Format 2: old rows have no checksum, and old files have no digest until `verify --record` adds it. Format 4: a
# release that does not know tags would remove the data of tagged commits, so it must refuse the graph.
MIGRATIONS: Mapping[int, Migration] = {1: _accept, 2: _move_branches_to_buckets, 3: _accept}


def check_format(version: int, *, current: int = CURRENT, oldest: int = OLDEST_SUPPORTED) -> None:
    """Raise `UnsupportedFormat` for a version that this release cannot read."""
    details = {"format": version, "supported": [oldest, current]}
    if version > current:
        raise UnsupportedFormat(
            f"the graph has format {version}, this release of omnigraph supports up to {current}",
            details=details,
            hint="upgrade omnigraph",
        )
    if version < oldest:
        raise UnsupportedFormat(
            f"the graph has format {version}, this release of omnigraph supports {oldest} and later",
            details=details,
            hint=f"export it with a release that supports format {version}, then load the export into a new graph",
        )


def pending_migrations(
    version: int,
    *,
    current: int = CURRENT,
    oldest: int = OLDEST_SUPPORTED,
    migrations: Mapping[int, Migration] | None = None,
) -> list[tuple[int, Migration]]:
    """Return the migrations from a version to the current one, each with the version that it results in."""
    check_format(version, current=current, oldest=oldest)
    steps = MIGRATIONS if migrations is None else migrations
    return [(number + 1, steps[number]) for number in range(version, current)]
