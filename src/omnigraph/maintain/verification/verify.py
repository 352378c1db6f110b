"""Verify a graph: check every file and every row that its branches need, and report the extent of any damage.

Nothing is read through caches of open handles. The graph may be so damaged that it cannot be opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property

from omnigraph.engine.engine_choice import RunTasks
from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.graph import idempotency
from omnigraph.graph.branch_names import branch_not_found, normalize_branch_name
from omnigraph.graph.progress import Progress
from omnigraph.graph.publish import now_micros
from omnigraph.graph.swap_retries import retry_swap
from omnigraph.maintain.task_runner import TaskRunner
from omnigraph.maintain.verification.lineage import REBUILD_INDEX, RESTORE, Lineage, reset_remedy
from omnigraph.maintain.verification.report import (
    MAX_COMMITS,
    BranchState,
    Damage,
    DamageKind,
    VerifyReport,
    property_names,
)
from omnigraph.maintain.verification.table_versions import (
    File,
    TableInfo,
    TableVersions,
    Version,
    endpoint_tasks,
    table_infos,
)
from omnigraph.maintain.verification.tasks import EndpointTask, GraphAddress, RowProblem
from omnigraph.maintain.verification.verify_options import VerifyOptions
from omnigraph.store.file_digests import FileDigest, parse_digests
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.manifest import PATH, NotAGraph
from omnigraph.store.manifest.manifest_inspection import ManifestInspection
from omnigraph.store.manifest.records import CommitRecord, TablePin
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.tables.version_files import VersionFile, VersionFiles

# Digests are computed without the interpreter lock. More threads than cores hide the latency of an object store.
_THREADS = min(16, 4 + (os.cpu_count() or 1))


def verify(
    root: LanceRoot,
    objects: ObjectStore,
    options: VerifyOptions,
    *,
    run_on_spark: RunTasks | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check a graph and return the report. Damage is reported and never raised.

    `NotFound` is raised if there is no graph, and `StorageError` if storage does not answer.
    """
    return GraphVerifier(root, objects, options, run_on_spark=run_on_spark, progress=progress).run()


class GraphVerifier:
    """One verification. Its results remain available for a repair."""

    def __init__(
        self,
        root: LanceRoot,
        objects: ObjectStore,
        options: VerifyOptions,
        *,
        run_on_spark: RunTasks | None = None,
        progress: Progress | None = None,
    ) -> None:
        # Without the session of the handle, which may hold what storage no longer has. Memory has no files.
        in_memory = objects.location.scheme == "memory"
        root = root if in_memory else LanceRoot(root.uri, root.options, root.local, root.durable)
        self._options = options
        self._root = root
        self._objects = objects
        self._location = objects.location
        try:
            self.inspection = ManifestInspection(root, objects, quick=options.quick)
        except NotAGraph as error:
            hint = "its initialization was interrupted: run init again" if error.is_incomplete else None
            raise NotFound(f"there is no graph at {objects.location}", hint=hint) from error
        self.lineage = Lineage(self.inspection)
        runner = TaskRunner(root, options.engine, run_on_spark, progress, _THREADS)
        graph = GraphAddress(objects.location.uri, dict(objects.options))
        recorded = self.inspection.recorded_files()
        self.versions = TableVersions(runner, objects, graph, recorded, quick=options.quick)
        self._infos: dict[str, TableInfo] = {}

    # --- scope -------------------------------------------------------------------------------------------

    def head_of(self, branch: str) -> CommitRecord | None:
        """Return the head of a branch; if it cannot be read, the newest commit of the branch in the log."""
        incarnation = self.lineage.branches()[branch]
        head = self.inspection.heads.get(incarnation)
        return self.lineage.newest_of(incarnation) if head is None else head.commit

    def _chosen_branches(self) -> list[str]:
        branches = self.lineage.branches()
        if self._options.branch is None:
            return list(branches)
        name = normalize_branch_name(self._options.branch)
        if name not in branches:
            raise branch_not_found(name, branches)
        return [name]

    def _scope(self, heads: Iterable[CommitRecord]) -> Iterator[CommitRecord]:
        """Yield the commits to check: the heads and tagged commits, or all commits that they reach."""
        waiting, seen = list(heads), set()
        while waiting:
            commit = waiting.pop()
            if commit.id in seen:
                continue
            seen.add(commit.id)
            yield commit
            if self._options.all_commits:
                parents = (self.find_commit(id_) for id_ in (commit.parent, commit.merged_parent) if id_)
                waiting += [parent for parent in parents if parent is not None and parent.id not in seen]

    @cached_property
    def _tagged(self) -> dict[str, CommitRecord]:
        """The commits of tags by the name of the tag, as far as they can be read."""
        found = {entry.commit: self.find_commit(entry.commit) for entry in self.inspection.tags.values()}
        tags = self.inspection.tags.items()
        return {name: commit for name, entry in tags if (commit := found[entry.commit]) is not None}

    def find_commit(self, id_: str) -> CommitRecord | None:
        """Return a commit by its id; None if it does not exist or its row cannot be read."""
        try:
            return self.inspection.manifest.find_commit(self.inspection.view, id_)
        except OmnigraphError as error:
            if getattr(error, "is_refusal", False):
                raise
            return None

    # --- the run -----------------------------------------------------------------------------------------

    def run(self) -> VerifyReport:
        """Check everything in the scope and return the report."""
        branches = self._chosen_branches()
        heads = {name: commit for name in branches if (commit := self.head_of(name)) is not None}
        starts = [*heads.values(), *(self._tagged.values() if self._options.branch is None else ())]
        pins: dict[Version, tuple[TablePin, TableInfo]] = {}
        commits = 0
        for commit in self._scope(starts):
            commits += 1
            pins.update(self._pins(commit))
        self.versions.check(pins)
        required = {(pin.path, pin.version) for start in starts for pin in start.tables.values()}
        reclaimed = {item for item in pins if item not in required and self.versions.is_missing(item)}
        reclaimed -= self._lost_versions(reclaimed)
        present = {item: pin for item, pin in pins.items() if item not in reclaimed}
        rows = self.versions.check_rows(present)
        if not self._options.quick:
            self.versions.check_endpoints(self._endpoint_tasks(starts))
        damage = [*self.lineage.damage(), *self._table_damage(present), *self._key_damage()]
        recorded = self._record(present) if self._options.record else 0
        states = tuple(self._state(name) for name in branches)
        checked = self.versions.results
        unrecorded = sum(self.versions.digest_of(file) is None for file in checked)
        return VerifyReport(
            quick=self._options.quick,
            all_commits=self._options.all_commits,
            commits=commits,
            versions=len(present),
            files=len(checked) + self.inspection.files,
            bytes_read=self._bytes_read(),
            rows=rows,
            not_recorded=unrecorded + self.inspection.unrecorded - recorded,
            recorded=recorded,
            reclaimed=self._count_reclaimed(starts, reclaimed),
            damage=tuple(replace(item, problem=self._without_root(item.problem)) for item in damage),
            branches=states,
            notes=tuple(self._notes(heads)),
        )

    def _endpoint_tasks(self, heads: Iterable[CommitRecord]) -> set[EndpointTask]:
        tasks: set[EndpointTask] = set()
        for commit in self._scope(heads):
            catalog = self.lineage.catalog(commit.schema)
            tasks.update(() if catalog is None else endpoint_tasks(catalog, commit))
        return tasks

    def _lost_versions(self, missing: set[Version]) -> set[Version]:
        """Return the missing versions whose transaction file exists: garbage collection removes both."""
        lost: set[Version] = set()
        names = {(path, version_file(version)): (path, version) for path, version in missing}
        for commit in self.inspection.commits() if missing else ():
            files: dict[str, list[str]] = {}
            for path, digest in parse_digests(commit.files):
                files.setdefault(path, []).append(digest.name)
            for path, items in files.items():
                stored = self.versions.listing(path)
                if any(name.startswith("_transactions/") and name in stored for name in items):
                    lost |= {names[path, name] for name in items if (path, name) in names}
        return lost

    def _count_reclaimed(self, heads: Iterable[CommitRecord], reclaimed: set[Version]) -> int:
        if not reclaimed:
            return 0
        scope = self._scope(heads)
        return sum(any(_version(pin) in reclaimed for pin in item.tables.values()) for item in scope)

    def _pins(self, commit: CommitRecord) -> Iterator[tuple[Version, tuple[TablePin, TableInfo]]]:
        catalog = self.lineage.catalog(commit.schema)
        known: dict[Version, TableInfo] = {}
        if catalog is not None:
            for pin, info in table_infos(catalog, commit):
                known[_version(pin)] = info
                self._infos[pin.path] = info
        for pin in commit.tables.values():
            info = known.get(_version(pin), TableInfo(pin.path, {}, ()))
            yield _version(pin), (pin, info)

    def _without_root(self, text: str) -> str:
        """Return a message without the address of the graph, which clients of a server must not see."""
        return text.replace(f"{self._location.path}/".lstrip("/"), "").replace(f"{self._location.uri}/", "")

    def _bytes_read(self) -> int:
        if self._options.quick:
            return 0
        read = sum(result.size for result in self.versions.results.values() if result.found is not None)
        return read + self.inspection.bytes_read

    def _record(self, pins: Iterable[Version]) -> int:
        """Record the digests of undamaged files of undamaged versions that have none; return their number."""
        files: dict[File, FileDigest] = {}
        for path, version in pins:
            if not self.versions.is_sound((path, version)):
                continue
            for file in self.versions.files_of((path, version)):
                result = self.versions.results.get((path, file.name))
                if result is not None and result.damage is None and result.found is not None:
                    files[path, file.name] = result.found
        old = self.inspection.digests_to_record()
        new: dict[str, list[FileDigest]] = {PATH: old} if old else {}
        for (path, name), digest in files.items():
            if self.versions.digest_of((path, name)) is None:
                new.setdefault(path, []).append(digest)
        if new:
            manifest, now = self.inspection.manifest, now_micros()
            retry_swap(
                manifest,
                lambda _view: manifest.record_files(new, now),
                changed="the recorded digests",
                hint="run the verification again; digests that were recorded are kept",
            )
        return sum(len(digests) for digests in new.values()) + self.inspection.record_version(self._root)

    # --- damage ------------------------------------------------------------------------------------------

    def _key_damage(self) -> Iterator[Damage]:
        """Yield the damaged records of idempotency keys. An altered one could apply a request twice."""
        if self._options.quick:
            return
        names = [item.key for item in self._objects.list(idempotency.PREFIX.rstrip("/"))]

        def find(name: str) -> str | None:
            try:
                return idempotency.find_key_problem(name, self._objects.get(name).data)
            except NotFound:
                # Garbage collection has removed it.
                return None

        with ThreadPoolExecutor(_THREADS) as pool:
            for name, problem in zip(names, pool.map(find, names), strict=True):
                if problem is not None:
                    remedy = "restore the file from a backup; until then a request with its key is refused"
                    yield Damage("altered", problem, name, blocks_reads=False, remedy=remedy)

    def _table_damage(self, pins: Mapping[Version, tuple[TablePin, TableInfo]]) -> Iterator[Damage]:
        damaged: dict[File, tuple[VersionFile, DamageKind, str]] = {}
        for version, (pin, _) in pins.items():
            for file in (
                VersionFile(version_file(version[1]), "version", rows=pin.rows),
                *self.versions.files_of(version),
            ):
                result = self.versions.results.get((version[0], file.name))
                if result is not None and result.damage is not None:
                    damaged.setdefault((version[0], file.name), (file, result.damage, result.problem))
            described = self.versions.described[version]
            key = (version[0], version_file(version[1]))
            if isinstance(described, OmnigraphError) and key not in damaged:
                kind: DamageKind = "missing" if isinstance(described, NotFound) else "unreadable"
                damaged[key] = (VersionFile(key[1], "version", rows=pin.rows), kind, described.message)
        problems = [
            (version, problem) for version in pins for problem in self.versions.row_problems.get(version, ())
        ]
        dangling = list(self.versions.endpoint_problems())
        needing = self._versions_needing(damaged)
        affected = {item for items in needing.values() for item in items}
        affected |= {version for version, _ in problems} | {_version(task.edges) for task, _ in dangling}
        commits = self._commits_pinning(affected)
        for key, (file, kind, problem) in sorted(damaged.items()):
            yield self._file_damage(key, file, kind, problem, needing[key], commits)
        for version, item in problems:
            yield self._row_damage(version, item, commits)
        for task, item in dangling:
            yield self._row_damage(_version(task.edges), item, commits)

    def _versions_needing(self, files: Iterable[File]) -> dict[File, set[Version]]:
        """Return the versions that need each damaged file, including those outside the scope."""
        wanted = set(files)
        paths = {path for path, name in wanted if not name.startswith("_versions/")}
        if paths:
            versions = {
                _version(pin)
                for commit in self.inspection.commits()
                for pin in commit.tables.values()
                if pin.path in paths and version_file(pin.version) in self.versions.listing(pin.path)
            }
            self.versions.describe(versions)
        needing: dict[File, set[Version]] = {file: set() for file in wanted}
        for version, described in self.versions.described.items():
            names = [version_file(version[1])]
            if isinstance(described, VersionFiles):
                names += [file.name for file in described.files]
            for name in names:
                if (version[0], name) in wanted:
                    needing[version[0], name].add(version)
        return needing

    def _commits_pinning(self, versions: set[Version]) -> dict[Version, list[tuple[int, str]]]:
        """Return the commits that pin each version, as times and ids."""
        pinning: dict[Version, list[tuple[int, str]]] = {version: [] for version in versions}
        if versions:
            for commit in self.inspection.commits():
                for pin in commit.tables.values():
                    if _version(pin) in versions:
                        pinning[_version(pin)].append((commit.created_at, commit.id))
        return pinning

    def _file_damage(
        self,
        key: File,
        file: VersionFile,
        kind: DamageKind,
        problem: str,
        versions: set[Version],
        pinning: Mapping[Version, Sequence[tuple[int, str]]],
    ) -> Damage:
        info = self._infos.get(key[0], TableInfo(key[0], {}, ()))
        commits = sorted({item for version in versions for item in pinning[version]}, reverse=True)
        branches = self._branches_pinning(versions)
        if file.kind == "index" and branches:
            remedy = REBUILD_INDEX
        else:
            remedy = RESTORE if not branches or file.kind == "transaction" else reset_remedy(branches[0])
        return Damage(
            kind,
            problem,
            f"{key[0]}/{key[1]}",
            info.key,
            property_names(file.columns, info.properties),
            branches,
            tuple(id_ for _, id_ in commits[:MAX_COMMITS]),
            len(commits),
            file.rows,
            # Lance reads the copy of a transaction inside the manifest file. A query scans the rows if an index
            # cannot be read. An altered index may be readable, and wrong.
            file.kind != "transaction" and (file.kind != "index" or kind == "altered"),
            remedy,
            self._tags_pinning(versions),
        )

    def _row_damage(
        self, version: Version, item: RowProblem, pinning: Mapping[Version, Sequence[tuple[int, str]]]
    ) -> Damage:
        info = self._infos.get(version[0], TableInfo(version[0], {}, ()))
        commits = sorted(pinning[version], reverse=True)
        branches = self._branches_pinning({version})
        reset = reset_remedy(branches[0]) if branches else RESTORE
        loses_rows = item.kind in ("rows", "unreadable")
        remedy = reset if loses_rows else "correct the rows with a mutation or a load"
        return Damage(
            item.kind,
            item.problem,
            None if item.file is None else f"{version[0]}/{item.file}",
            info.key,
            None,
            branches,
            tuple(id_ for _, id_ in commits[:MAX_COMMITS]),
            len(commits),
            item.count,
            loses_rows,
            remedy,
            self._tags_pinning({version}),
        )

    def _branches_pinning(self, versions: set[Version]) -> tuple[str, ...]:
        names = []
        for name in self.lineage.branches():
            head = self.head_of(name)
            if head is not None and any(_version(pin) in versions for pin in head.tables.values()):
                names.append(name)
        return tuple(names)

    def _tags_pinning(self, versions: set[Version]) -> tuple[str, ...]:
        return tuple(
            name
            for name, commit in self._tagged.items()
            if any(_version(pin) in versions for pin in commit.tables.values())
        )

    # --- intact commits ----------------------------------------------------------------------------------

    def is_intact(self, commit: CommitRecord) -> bool:
        """Return whether the schema and all tables of a commit are undamaged. Files are checked if needed."""
        if self.lineage.catalog(commit.schema) is None:
            return False
        self.versions.check(_version(pin) for pin in commit.tables.values())
        return all(self.versions.is_intact(pin) for pin in commit.tables.values())

    def newest_intact(self, branch: str) -> CommitRecord | None:
        """Return the newest intact commit in the first-parent history of a branch; None if there is none."""
        commit = self.head_of(branch)
        while commit is not None:
            if self.is_intact(commit):
                return commit
            commit = None if commit.parent is None else self.find_commit(commit.parent)
        return None

    def _state(self, branch: str) -> BranchState:
        head = self.inspection.heads.get(self.lineage.branches()[branch])
        intact = self.newest_intact(branch)
        newest = None if intact is None else intact.id
        is_intact = head is not None and head.commit.id == newest
        return BranchState(branch, None if head is None else head.commit.id, is_intact, newest)

    def _notes(self, heads: Mapping[str, CommitRecord]) -> Iterator[str]:
        for name in self.inspection.unfinished_swaps:
            yield (
                f"__manifest/{name} has no result: the write is in progress or was interrupted, "
                "or the newest version of __manifest is missing"
            )
        for branch, head in heads.items():
            for pin in head.tables.values():
                described = self.versions.described.get(_version(pin))
                info = self._infos.get(pin.path)
                if not isinstance(described, VersionFiles) or info is None:
                    continue
                partial = [index for index in described.indexes if index.rows < pin.rows]
                if partial:
                    indexed = (property_names(index.columns, info.properties) or "" for index in partial)
                    names = ", ".join(dict.fromkeys(indexed))
                    missing = pin.rows - min(index.rows for index in partial)
                    uncovered = f"{missing} of {pin.rows} rows are not in the indexes on {names}"
                    yield f"{info.key} on branch '{branch}': {uncovered}; `omnigraph optimize` adds them"


def _version(pin: TablePin) -> Version:
    return pin.path, pin.version
