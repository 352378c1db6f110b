"""Checks of table versions: their files and their rows. Every file and every version is checked once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.keys import TypeKey, table_id_key
from omnigraph.errors import NotFound, OmnigraphError, StorageError
from omnigraph.lang.schema import EdgeType
from omnigraph.maintain.task_runner import TaskRunner
from omnigraph.maintain.verification.tasks import (
    DescribeTask,
    EndpointTask,
    FileTask,
    GraphAddress,
    RowProblem,
    RowTask,
)
from omnigraph.rules.set_rules import entity_of
from omnigraph.store.file_digests import FileDigest
from omnigraph.store.file_verification import ExpectedFile, FileResult
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.manifest.records import CommitRecord, TablePin
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.tables.version_files import VersionFile, VersionFiles

# One task reads at most this many files and bytes, except for a single larger file.
FILES_PER_TASK = 64
BYTES_PER_TASK = 64 << 20

Version = tuple[str, int]
File = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TableInfo:
    """The type of a table: its name, its properties by physical column, and its unique columns.

    `id_key` is the key that the ids of edges are derived from.
    """

    key: str
    properties: Mapping[str, str]
    uniques: tuple[tuple[str, ...], ...]
    id_key: TypeKey | None = None


class TableVersions:
    """The state of the checks of one verification. `recorded` are the digests of files."""

    def __init__(
        self,
        runner: TaskRunner,
        objects: ObjectStore,
        graph: GraphAddress,
        recorded: Mapping[File, FileDigest],
        *,
        quick: bool,
    ) -> None:
        self._runner = runner
        self._objects = objects
        self._graph = graph
        self._recorded = recorded
        self._quick = quick
        self._is_visible = objects.location.scheme != "memory"
        self._listings: dict[str, dict[str, ObjectInfo]] = {}
        self._recorded_names: dict[str, list[str]] = {}
        for path, name in recorded:
            self._recorded_names.setdefault(path, []).append(name)
        self.described: dict[Version, VersionFiles | OmnigraphError] = {}
        self.results: dict[File, FileResult] = {}
        self.row_problems: dict[Version, list[RowProblem]] = {}
        self._endpoints: dict[EndpointTask, list[RowProblem]] = {}

    # --- files -------------------------------------------------------------------------------------------

    def check(self, versions: Iterable[Version]) -> None:
        """Check the files of versions, as far as they are not checked yet.

        The manifest files of the versions come first: the files that an altered manifest file names mean nothing.
        """
        new = list(dict.fromkeys(versions))
        self.describe(new)
        self._check_files([(path, VersionFile(version_file(version), "version")) for path, version in new])
        self._check_files([(path, file) for path, version in new for file in self.files_of((path, version))])

    def describe(self, versions: Iterable[Version]) -> None:
        """List the files of versions without checking them, as far as they are not listed yet."""
        new = [item for item in dict.fromkeys(versions) if item not in self.described]
        stored = {path: self.stored_names(path) for path, _ in new}
        tasks = [DescribeTask(path, version, stored[path]) for path, version in new]
        for item, result in zip(new, self._runner.run("versions", tasks, 0), strict=True):
            if isinstance(result, StorageError) and result.is_refusal:
                raise result
            self.described[item] = result

    def files_of(self, version: Version) -> Sequence[VersionFile]:
        """Return the files of a version; none if its manifest file cannot be read or is altered."""
        described = self.described.get(version)
        if not isinstance(described, VersionFiles):
            return ()
        result = self.results.get((version[0], version_file(version[1])))
        return () if result is not None and result.damage is not None else described.files

    def stored_names(self, path: str) -> list[str]:
        """Return the names of all files of a table that exist, and of those that have a digest."""
        return sorted({*self.listing(path), *self._recorded_names.get(path, ())})

    def listing(self, path: str) -> Mapping[str, ObjectInfo]:
        """Return the files of a table in storage by name. A graph in memory lists none."""
        if path not in self._listings:
            items = self._objects.list(path) if self._is_visible else ()
            self._listings[path] = {item.key.removeprefix(f"{path}/"): item for item in items}
        return self._listings[path]

    def digest_of(self, file: File) -> FileDigest | None:
        """Return the recorded digest of a file."""
        return self._recorded.get(file)

    def _check_files(self, files: Iterable[tuple[str, VersionFile]]) -> None:
        if not self._is_visible:
            return
        expected: dict[File, ExpectedFile] = {}
        for path, file in files:
            key = (path, file.name)
            if key not in self.results and key not in expected:
                digest = self._recorded.get(key)
                size, text = (file.size, None) if digest is None else (digest.size, digest.digest)
                expected[key] = ExpectedFile(path, file.name, size, text)
        tasks = list(self._file_tasks(expected.values()))
        nbytes = 0 if self._quick else sum(task.rows for task in tasks)
        for task, results in zip(tasks, self._runner.run("files", tasks, nbytes), strict=True):
            if isinstance(results, OmnigraphError):
                raise results
            for (item, _), result in zip(task.files, results, strict=True):
                self.results[item.path, item.name] = result

    def _file_tasks(self, files: Iterable[ExpectedFile]) -> Iterator[FileTask]:
        waiting: list[tuple[ExpectedFile, ObjectInfo | None]] = []
        nbytes = 0
        for file in files:
            info = self.listing(file.path).get(file.name)
            waiting.append((file, info))
            nbytes += 0 if info is None else info.size
            if len(waiting) >= FILES_PER_TASK or nbytes >= BYTES_PER_TASK:
                yield FileTask(self._graph, tuple(waiting), self._quick)
                waiting, nbytes = [], 0
        if waiting:
            yield FileTask(self._graph, tuple(waiting), self._quick)

    # --- states ------------------------------------------------------------------------------------------

    def is_missing(self, version: Version) -> bool:
        """Return whether the manifest file of a checked version does not exist."""
        result = self.results.get((version[0], version_file(version[1])))
        return isinstance(self.described.get(version), NotFound) and (
            result is None or result.damage == "missing"
        )

    def is_readable(self, version: Version) -> bool:
        """Return whether the files of a checked version that hold rows are undamaged."""
        described = self.described.get(version)
        if not isinstance(described, VersionFiles) or (self._is_visible and not self.files_of(version)):
            return False
        results = (
            self.results.get((version[0], file.name))
            for file in described.files
            if file.kind not in ("transaction", "index")
        )
        return all(result is None or result.damage is None for result in results)

    def is_intact(self, pin: TablePin) -> bool:
        """Return whether a checked version is readable and has the number of rows that the commit states."""
        version = (pin.path, pin.version)
        described = self.described.get(version)
        return (
            self.is_readable(version) and isinstance(described, VersionFiles) and described.rows == pin.rows
        )

    def is_sound(self, version: Version) -> bool:
        """Return whether a checked version is readable and no check of its rows failed."""
        return self.is_readable(version) and not self.row_problems.get(version)

    # --- rows --------------------------------------------------------------------------------------------

    def check_rows(self, pins: Mapping[Version, tuple[TablePin, TableInfo]]) -> int:
        """Check the number of rows, ids and unique values of readable versions; return the number of rows."""
        tasks: list[tuple[Version, RowTask]] = []
        for version, (pin, info) in pins.items():
            if version in self.row_problems or not self.is_readable(version):
                continue
            described = self.described[version]
            assert isinstance(described, VersionFiles), "a readable version is described"
            if described.rows != pin.rows:
                problem = f"the version has {described.rows} rows, the commit states {pin.rows}"
                self.row_problems[version] = [RowProblem("rows", problem, abs(described.rows - pin.rows))]
            elif not self._quick:
                tasks.append(
                    (version, RowTask(pin, info.uniques, self._undigested_fragments(described), info.id_key))
                )
        nbytes = sum(self._bytes_of(version) for version, _ in tasks)
        work = [task for _, task in tasks]
        for (version, task), problems in zip(tasks, self._runner.run("rows", work, nbytes), strict=True):
            if isinstance(problems, OmnigraphError):
                if getattr(problems, "is_refusal", False):
                    raise problems
                problems = [RowProblem("unreadable", problems.message, task.rows)]
            self.row_problems[version] = problems
        return sum(task.rows for task in work)

    def _undigested_fragments(self, described: VersionFiles) -> frozenset[int]:
        return frozenset(
            file.fragment
            for file in described.files
            if file.fragment is not None and (described.path, file.name) not in self._recorded
        )

    def _bytes_of(self, version: Version) -> int:
        listing = self.listing(version[0])
        return sum(listing[file.name].size for file in self.files_of(version) if file.name in listing)

    def check_endpoints(self, tasks: Iterable[EndpointTask]) -> None:
        """Check that edges end at nodes, where both tables can be read."""
        new = [
            task for task in tasks if self._has_sound_rows(task.edges) and self._has_sound_rows(task.nodes)
        ]
        nbytes = sum(self._bytes_of((task.edges.path, task.edges.version)) for task in new)
        for task, problems in zip(new, self._runner.run("endpoints", new, nbytes), strict=True):
            if isinstance(problems, OmnigraphError):
                raise problems
            self._endpoints[task] = problems

    def _has_sound_rows(self, pin: TablePin) -> bool:
        version = (pin.path, pin.version)
        kinds = {problem.kind for problem in self.row_problems.get(version, ())}
        return self.is_readable(version) and not kinds & {"unreadable", "rows"}

    def endpoint_problems(self) -> Iterator[tuple[EndpointTask, RowProblem]]:
        """Yield the edges without a node."""
        return ((task, problem) for task, problems in self._endpoints.items() for problem in problems)


def table_infos(catalog: Catalog, commit: CommitRecord) -> Iterator[tuple[TablePin, TableInfo]]:
    """Yield the pins of a commit with the type that its schema gives to each table."""
    for table in catalog.tables.values():
        pin = commit.tables.get(str(table.id))
        if pin is not None:
            names = {column.physical: column.name for column in table.columns}
            uniques = tuple(
                tuple(table.physical(name) for name in columns)
                for columns in entity_of(catalog, table).uniques
                if columns != ("id",)
            )
            id_key = table_id_key(catalog, table) if table.kind == "edge" else None
            yield pin, TableInfo(table.key, names, uniques, id_key)


def endpoint_tasks(catalog: Catalog, commit: CommitRecord) -> Iterator[EndpointTask]:
    """Yield the checks of both ends of all edge types of a commit."""
    for table in catalog.tables.values():
        edge = entity_of(catalog, table)
        edges = commit.tables.get(str(table.id))
        if not isinstance(edge, EdgeType) or edges is None or not edges.rows:
            continue
        for end, node in (("src", edge.source), ("dst", edge.target)):
            nodes = catalog.table("node", node)
            pin = commit.tables.get(str(nodes.id))
            if pin is not None:
                yield EndpointTask(edges, end, pin, nodes.key)
