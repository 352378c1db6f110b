"""The way to a graph's storage: what is asked for is checked, and of several initialisers one has won."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import get_args

from omnigraph.errors import Conflict, InvalidInput, NotFound
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.location import Location
from omnigraph.store.manifest.manifest import Manifest, NotAGraph, Uncertain
from omnigraph.store.manifest.records import Registry
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.storage_options import StorageOptions
from omnigraph.store.sync import Durability


def connect(
    uri: str | os.PathLike[str], options: StorageOptions | None, durability: Durability
) -> tuple[Location, LanceRoot, ObjectStore]:
    """Where an address leads, for tables and for objects. Nothing is looked at."""
    check_one_of("durability", durability, get_args(Durability))
    location = Location.parse(uri)
    objects = ObjectStore.open(location, options, durability=durability)
    return location, LanceRoot.at(location, options or {}, durability), objects


def check_one_of(name: str, value: str, known: Sequence[str]) -> None:
    """`InvalidInput` unless an argument has one of the values that it can have.

    A misspelt one must not pass for another: it would write where reading was meant, or not sync.
    """
    if value not in known:
        raise InvalidInput(f"unknown {name} {value!r}", hint=f"one of {', '.join(known)}")


def check_process(opener: int) -> None:
    """`InvalidInput` unless this is the process that opened a handle, by its number.

    Lance and its threads do not survive a fork: what is begun in the child may never end, or end the child.
    """
    if opener != os.getpid():
        raise InvalidInput(
            "the graph was opened by another process, which this one was forked from",
            hint="start processes with `spawn` or `forkserver`, and open the graph in each of them",
        )


def check_free(root: LanceRoot, location: Location) -> None:
    """`Conflict` when there is a graph at a place where one is to be made."""
    try:
        Manifest.open(root)
    except NotAGraph:
        return
    raise _already_there(location)


def _already_there(location: Location) -> Conflict:
    return Conflict(f"there is a graph at {location} already", details={"uri": str(location)})


def open_manifest(root: LanceRoot, location: Location) -> Manifest:
    """The manifest of a graph, or `NotFound`."""
    try:
        return Manifest.open(root)
    except NotAGraph as error:
        again = "its initialisation was interrupted: run init again"
        raise NotFound(
            f"there is no graph at {location}",
            details={"uri": str(location)},
            hint=again if error.half_made else "make one with init",
        ) from error


def settle_init(root: LanceRoot, registry: Registry, location: Location, error: Exception) -> Manifest:
    """After a lost or silent swap: the graph that is there is ours if it bears the identity we gave it."""
    try:
        manifest = Manifest.open(root)
    except NotAGraph:
        if isinstance(error, Uncertain):
            raise error.error from error
        raise InvalidInput(f"{location} holds something that is not a graph") from error
    if manifest.registry(manifest.view).graph_id != registry.graph_id:
        raise _already_there(location) from error
    return manifest
