"""A quick check of a graph: whether its manifest and the files of its branch heads are there."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.graph.damage import CommitState, damage_error, reading
from omnigraph.graph.repository import Repository
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.damage import TableDamage, find_missing_file, recorded_sizes

_Version = tuple[str, int]


class HealthCheck:
    """Checks one graph repeatedly.

    The files of a version never change, so they are listed once. On a local disk every check compares their sizes.
    On an object store a check reads the manifest only, and otherwise relies on the damage that requests report.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._files: dict[_Version, dict[str, int | None]] = {}
        self._reported: dict[_Version, tuple[OmnigraphError, object]] = {}

    def report(self, error: OmnigraphError) -> None:
        """Remember a damaged file that a request found, until the file changes or no branch head needs it."""
        version = _version_of(error)
        if version is not None:
            self._reported[version] = (error, self._signature(error))

    def find_problem(self) -> OmnigraphError | None:
        """Return the first problem of the graph; None if there is none. Raises nothing."""
        try:
            return self._find_problem()
        except OmnigraphError as error:
            return error

    def _find_problem(self) -> OmnigraphError | None:
        heads = list(self._heads())
        pins = {
            (pin.path, pin.version): (pin, state) for state in heads for pin in state.commit.tables.values()
        }
        for version, (error, signature) in list(self._reported.items()):
            if version in pins and self._signature(error) == signature:
                return error
            self._reported.pop(version, None)
        for version in self._files.keys() - pins.keys():
            del self._files[version]
        if self._repository.tables.root.local is None:
            return None
        for version, (pin, state) in pins.items():
            with reading(state):
                damage = self._missing_file(version, pin)
            found = None if damage is None else state.table_in(pin.path)
            if damage is not None and found is not None:
                return damage_error(damage, state, found[0], pin)
        return None

    def _heads(self) -> Iterator[CommitState]:
        manifest = self._repository.manifest
        view = manifest.refresh()
        for name in manifest.branches(view):
            yield self._repository.head_snapshot(view, name).state

    def _missing_file(self, version: _Version, pin: TablePin) -> TableDamage | None:
        tables = self._repository.tables
        files = self._files.get(version)
        if files is None:
            files = self._files[version] = recorded_sizes(tables, pin)
        return find_missing_file(tables.root, pin, files)

    def _signature(self, error: OmnigraphError) -> object:
        """Return what changes when the file of an error is restored."""
        try:
            info = self._repository.objects.head(error.details["file"])
        except NotFound:
            return None
        return info.size, info.last_modified, info.etag


def _version_of(error: OmnigraphError) -> _Version | None:
    details = error.details
    if details.get("reason") != "damaged" or "version" not in details:
        return None
    return str(details["dataset"]), int(details["version"])
