"""Connecting to the storage of a graph, and the checks before it is used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import get_args

from omnigraph.errors import InvalidInput, NotFound, PermissionDenied
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.location import Location
from omnigraph.store.manifest.manifest import Manifest, NotAGraph
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.storage_options import StorageOptions
from omnigraph.store.sync import Durability


def connect(
    uri: str | os.PathLike[str], options: StorageOptions | None, durability: Durability
) -> tuple[Location, LanceRoot, ObjectStore]:
    """Return the location, table root and object store of an address. Storage is not accessed."""
    check_choice("durability", durability, get_args(Durability))
    location = Location.parse(uri)
    objects = ObjectStore.open(location, options, durability=durability)
    return location, LanceRoot.at(location, options or {}, durability), objects


def check_choice(name: str, value: str, known: Sequence[str]) -> None:
    """Raise `InvalidInput` unless an argument has one of the known values.

    A misspelled mode or durability would otherwise act like the default.
    """
    if value not in known:
        raise InvalidInput(f"unknown {name} {value!r}", hint=f"use one of {', '.join(known)}")


def check_process(opener: int) -> None:
    """Raise `InvalidInput` if a handle was opened by another process, given by its id.

    The threads of Lance do not survive a fork. A call in the child process could hang or crash.
    """
    if opener != os.getpid():
        raise InvalidInput(
            "the graph was opened before this process was forked",
            hint="start processes with `spawn` or `forkserver`, and open the graph in each of them",
        )


def check_writable(location: Location, mode: str, action: str, *, is_backup: bool) -> None:
    """Raise `PermissionDenied` if a handle must not change the graph."""
    if is_backup:
        raise PermissionDenied(
            f"cannot {action}: {location} is a backup, which can only be read",
            hint="restore it to another place with `omnigraph restore`, and write there",
        )
    if mode == "r":
        raise PermissionDenied(
            f"cannot {action}: the graph is open for reading only", hint="open it with mode='rw'"
        )


def open_manifest(root: LanceRoot, location: Location) -> Manifest:
    """Open the manifest of a graph; `NotFound` if there is no graph."""
    try:
        return Manifest.open(root)
    except NotAGraph as error:
        incomplete = "its initialization was interrupted: run init again"
        raise NotFound(
            f"there is no graph at {location}",
            details={"uri": str(location)},
            hint=incomplete if error.is_incomplete else "create one with init",
        ) from error
