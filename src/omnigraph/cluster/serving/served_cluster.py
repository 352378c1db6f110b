"""Find the cluster at an address, and notice when another revision is applied to it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from omnigraph.api.hosting.graph_sources import Hosting
from omnigraph.api.hosting.hosting_config import read_hosting
from omnigraph.cluster.configuration.members import Findings
from omnigraph.cluster.configuration.read_configuration import (
    CONFIG_FILE,
    read_config_document,
    read_storage_root,
)
from omnigraph.cluster.diagnostics import ClusterFailure
from omnigraph.cluster.ledger.intents import RECOVERIES
from omnigraph.cluster.ledger.state import STATE_KEY
from omnigraph.cluster.ledger.storage import FOLDER, ClusterStorage
from omnigraph.cluster.serving.applied_revision import read_applied_revision
from omnigraph.errors import NotFound, OmnigraphError, RecoveryRequired
from omnigraph.sources.mapping.document import read_document
from omnigraph.store.location import Location

_FILES: Final = (".yaml", ".yml", ".json")


def find_cluster_root(address: str | Path, options: Mapping[str, str] | None = None) -> str | None:
    """Return the root that holds the ledger of the cluster at an address, or None if there is no cluster.

    A directory with `cluster.yaml` or a ledger is a cluster, and so is such a file itself. An address in an object
    store is the root of a cluster unless it names a file. Of `cluster.yaml` only `storage` is read.
    """
    name = str(address)
    is_address = isinstance(address, str) and "://" in address
    if is_address and not name.lower().startswith("file://"):
        return _find_remote(name, options or {})
    place = Path(Location.parse(name).path) if is_address else Path(name)
    if place.is_file():
        document = _read(place)
        is_cluster = isinstance(document, Mapping) and "version" in document
        return _storage_of(place.parent, document) if is_cluster else None
    if (place / CONFIG_FILE).is_file():
        try:
            return _storage_of(place, read_config_document(place))
        except ClusterFailure:
            # An edit that is not applied must not keep a server from starting.
            if (place / STATE_KEY).is_file():
                return str(place.resolve())
            raise
    return str(place.resolve()) if (place / FOLDER).is_dir() else None


def _find_remote(address: str, options: Mapping[str, str]) -> str | None:
    if not address.lower().endswith(_FILES):
        return address
    document, folder = read_document(address, options)
    value = document.value
    if not isinstance(value, Mapping) or "version" not in value:
        return None
    storage = value.get("storage")
    return storage if isinstance(storage, str) and "://" in storage else folder


def _read(place: Path) -> Any:
    try:
        return read_document(place, {})[0].value
    except OmnigraphError:
        return None


def _storage_of(folder: Path, document: Any) -> str:
    findings = Findings()
    root = read_storage_root(folder, document, findings)
    if findings.recorded:
        raise ClusterFailure(*findings.recorded)
    return root


def read_hosting_at(address: str | Path, options: Mapping[str, str] | None = None) -> Hosting:
    """Return what is hosted at an address: the applied revision of a cluster, or the graphs of a site file."""
    root = find_cluster_root(address, options)
    return read_hosting(address, options) if root is None else read_applied_revision(root, options)


@dataclass
class ServedCluster:
    """The cluster that a server follows. Not shared between threads."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    _is_pending: bool = False

    def read(self) -> Hosting:
        """Return the applied revision."""
        hosting = read_applied_revision(self.root, self.options)
        self._is_pending = any(isinstance(source.error, RecoveryRequired) for source in hosting.graphs)
        return hosting

    def fingerprint(self) -> Hashable:
        """Return a value that changes with the applied revision, with one request.

        While an operation on a graph is pending, it also changes when the operation is settled.
        """
        objects = ClusterStorage.at(self.root, self.options).objects
        try:
            etag = objects.get(STATE_KEY).etag
        except NotFound:
            etag = None
        pending = tuple(info.key for info in objects.list(RECOVERIES)) if self._is_pending else ()
        return etag, pending
