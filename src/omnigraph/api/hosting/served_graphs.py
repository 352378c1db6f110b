"""Markers of the graphs that a server has served.

A server creates a graph that its configuration declares and that does not exist. If the volume of a graph is not
mounted, the graph does not exist either, and the server would create an empty one. A marker beside the
configuration remembers that the graph has existed. It is not on the volume of the graph, unless the configuration
is there too, and then the server does not start without the volume.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, TypeAlias

from omnigraph.errors import NotFound, OmnigraphError, StorageError
from omnigraph.store.location import Location
from omnigraph.store.objects.object_store import ObjectStore

FOLDER = "__served"
MarkerState: TypeAlias = Literal["creating", "served"]


@dataclass(frozen=True, slots=True)
class ServedGraphs:
    """The markers below one directory or prefix: one object for each graph id and address."""

    store: ObjectStore

    @classmethod
    def at(cls, folder: str, options: Mapping[str, str] | None = None) -> ServedGraphs:
        """Return the markers beside a configuration file. Storage is not accessed."""
        return cls(ObjectStore.open(folder, options))

    def state(self, id_: str, uri: str) -> MarkerState | None:
        """Return the state of a graph at an address; None if it was not served from there before."""
        if Location.parse(uri).scheme == "memory":
            return None
        try:
            body = json.loads(self.store.get(_key(id_, uri)).data)
        except NotFound:
            return None
        except ValueError:
            # A marker that cannot be read still says that there was a graph.
            return "served"
        return "creating" if isinstance(body, dict) and body.get("state") == "creating" else "served"

    def record(self, id_: str, uri: str, state: MarkerState) -> None:
        """Record the state of a graph, unless it is recorded already."""
        if Location.parse(uri).scheme == "memory" or self.state(id_, uri) == state:
            return
        body = {"graph": id_, "uri": Location.parse(uri).uri, "state": state}
        self.store.put(_key(id_, uri), json.dumps(body, indent=2).encode() + b"\n")

    def begin_creation(self, id_: str, uri: str) -> None:
        """Record that a graph is about to be created; `StorageError` if that is impossible."""
        try:
            self.record(id_, uri, "creating")
        except OmnigraphError as error:
            raise StorageError(
                f"the graph is not created, because its marker cannot be written: {error.message}",
                kind=error.kind if isinstance(error, StorageError) else None,
                details=error.details,
                hint=f"make {self.store.location} writable, set OMNIGRAPH_STATE to another directory, or create"
                " the graph with `omnigraph init`",
            ) from error

    def missing_error(self, id_: str, uri: str) -> StorageError:
        """Return the error for a graph that was served before and does not exist now."""
        return StorageError(
            "the graph has been served before and does not exist any more; it is not created again",
            kind="not_found",
            details={"reason": "vanished", "uri": uri},
            hint=f"mount its volume, or restore it; to start with an empty graph, remove {FOLDER}/{_name(id_, uri)}"
            f" in {self.store.location}, or create the graph with `omnigraph init`",
        )


def _key(id_: str, uri: str) -> str:
    return f"{FOLDER}/{_name(id_, uri)}"


def _name(id_: str, uri: str) -> str:
    return f"{id_}-{sha256(Location.parse(uri).uri.encode()).hexdigest()[:12]}.json"
