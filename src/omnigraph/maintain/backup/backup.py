"""Backup, restore and clone: copy the files of commits, check them, and publish them with one compare-and-swap.

The copy is consistent because it is made from one version of `__manifest`: the files that its commits name are
complete and immutable. A lease holds back garbage collection meanwhile. Files are copied under their own names, and
the `__manifest` of the target names them only after all of them were checked. Until then the target is what it was
before, whenever the run is interrupted; the next run copies only what is missing.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

from omnigraph.errors import Conflict, NotFound, OmnigraphError, OutcomeUnknown, StorageError
from omnigraph.graph import idempotency
from omnigraph.graph.branch_names import MAIN
from omnigraph.graph.format_version import CHECKSUMS
from omnigraph.graph.history import ancestors_by_distance, branch_heads, get_commit
from omnigraph.graph.leases import HeldLease, TargetLock, has_unfinished_copy, hold_lease
from omnigraph.graph.open_storage import check_choice
from omnigraph.graph.progress import Progress
from omnigraph.graph.publish import now_micros
from omnigraph.graph.repository import Repository
from omnigraph.maintain.backup.copy_files import (
    CopiedFile,
    CopyCounts,
    FileCopier,
    HeadDataMissing,
    TablePlan,
    check_sizes,
    not_verified,
    plan_table,
    run_parallel,
)
from omnigraph.maintain.backup.copy_report import CopyReport, Operation, Verification
from omnigraph.maintain.backup.copy_target import CopyTarget, check_locations, graph_exists
from omnigraph.maintain.backup.selection import Selection, select_commits
from omnigraph.maintain.verification.verify import VerifyRequest, verify
from omnigraph.store.file_digests import FileDigest, parse_digests
from omnigraph.store.manifest.manifest import (
    Manifest,
    ManifestChange,
    ManifestView,
    SwapLost,
    SwapOutcomeUnknown,
)
from omnigraph.store.manifest.manifest_copy import CopiedManifestFile, describe_files
from omnigraph.store.manifest.manifest_files import ManifestFile, new_id
from omnigraph.store.manifest.records import BackupMark, BranchEntry, HeadRecord, Registry
from omnigraph.store.storage_options import StorageOptions
from omnigraph.store.sync import Durability
from omnigraph.store.tables.table_files import TableFiles

# How often a run starts again because a branch moved and the data of its former head was removed.
_ATTEMPTS = 5
# A lease that names more commits would be a large object; it holds all commits instead.
_MAX_HELD_COMMITS = 10_000
# Old versions of the `__manifest` of a backup are removed after this many runs.
_REMOVE_VERSIONS_EVERY = 32


def backup(
    source: Repository,
    uri: str | os.PathLike[str],
    *,
    options: StorageOptions | None = None,
    durability: Durability = "full",
    since: str | None = None,
    verify: Verification = "quick",
    progress: Progress | None = None,
) -> CopyReport:
    """Bring a backup up to date, or create it in an empty place.

    The backup has every commit of every branch, and the data of all commits whose data the graph still has. With
    `since` it has the data of that commit, of all commits that are not its ancestors, and of merge bases. What the
    target has already stays there. Raises `Conflict` if the target is another graph, is not a backup, has commits
    that the source lacks, or is being written.
    """
    target = CopyTarget.at(uri, options, durability)
    return _Backup(source, target, verify, progress, since).run()


def restore(
    source: Repository,
    uri: str | os.PathLike[str],
    *,
    options: StorageOptions | None = None,
    durability: Durability = "full",
    verify: Verification = "quick",
    progress: Progress | None = None,
) -> CopyReport:
    """Copy a backup, or any other graph, into an empty place as a graph that can be written.

    It has the id, the branches and the history of the source. Raises `Conflict` or `InvalidInput` if the place is
    not empty. An interrupted restore leaves nothing that can be opened; the next call completes it.
    """
    target = CopyTarget.at(uri, options, durability)
    return _Restore(source, target, verify, progress).run()


def clone(
    source: Repository,
    uri: str | os.PathLike[str],
    *,
    branch: str = MAIN,
    history: bool = True,
    options: StorageOptions | None = None,
    durability: Durability = "full",
    verify: Verification = "quick",
    progress: Progress | None = None,
) -> CopyReport:
    """Create a new graph in an empty place whose `main` is the head of one branch.

    The graph has an id of its own, one branch, and the commits of the history of that branch. Without `history`
    only the head has data. Raises the same errors as `restore`.
    """
    target = CopyTarget.at(uri, options, durability)
    return _Clone(source, target, verify, progress, branch, history).run()


@dataclass(frozen=True)
class _State:
    """One version of the source, and the manifest of the target if there is a copy with `commits` commits."""

    view: ManifestView
    registry: Registry
    heads: Sequence[HeadRecord]
    copy: Manifest | None
    commits: int


class _Copy(ABC):
    """One run. A subclass decides what is copied and what the target becomes."""

    operation: Operation

    def __init__(
        self, source: Repository, target: CopyTarget, verify: Verification, progress: Progress | None
    ) -> None:
        check_choice("verify", verify, get_args(Verification))
        check_locations(source.location, target.location)
        self.source = source
        self.target = target
        self._verify = verify
        self._progress = progress
        self._warnings: list[str] = []

    # --- decided by the operation ------------------------------------------------------------------------

    @abstractmethod
    def check_target(self, state: _State) -> CopyReport | None:
        """Raise if the target must not be written. Return a report if an earlier run has completed the work."""

    @abstractmethod
    def select(self, state: _State) -> Selection:
        """Return the commits whose data the target needs and may lack."""

    @abstractmethod
    def manifest_files(self, state: _State) -> Sequence[ManifestFile]:
        """Return the files of the source's `__manifest` that become files of the target's."""

    @abstractmethod
    def publish(self, state: _State, selection: Selection, files: Sequence[CopiedManifestFile]) -> Manifest:
        """Make the copy visible with one compare-and-swap; return the manifest of the target."""

    def is_current(self, state: _State) -> bool:  # noqa: ARG002 - a target that exists is not written otherwise
        """Return whether the target has this version of the source already."""
        return False

    # --- the run -----------------------------------------------------------------------------------------

    def run(self) -> CopyReport:
        """Copy, check and publish."""
        self.source.check_usable()
        first = self._state(self.source.manifest.refresh())
        done = self.check_target(first)
        if done is not None:
            return done
        graph_id = first.registry.graph_id
        lock = TargetLock.acquire(self.target.objects, self.operation, graph_id, resume=first.copy is None)
        finished = False
        try:
            if lock.taken_over:
                self.target.remove_temporary_files()
            with self._lease(graph_id) as lease:
                report = self._attempts(lock, lease)
            finished = True
        finally:
            lock.release(finished=finished)
        return report

    @contextmanager
    def _lease(self, graph_id: str) -> Iterator[HeldLease | None]:
        held = hold_lease(self.source.objects, self.operation, graph_id)
        try:
            lease = held.__enter__()
        except OmnigraphError as error:
            # The source may be on read-only storage. Files that disappear meanwhile are noticed.
            self._warnings.append(
                f"no lease holds back garbage collection of {self.source.location}: {error.message}"
            )
            yield None
            return
        try:
            yield lease
        finally:
            held.__exit__(None, None, None)

    def _attempts(self, lock: TargetLock, lease: HeldLease | None) -> CopyReport:
        missing: Exception | None = None
        last_version = 0
        for _ in range(_ATTEMPTS):
            state = self._state(self.source.manifest.refresh())
            if state.view.version == last_version:
                # No branch has moved, so the file is missing for good.
                break
            last_version = state.view.version
            done = self.check_target(state)
            if done is not None:
                return done
            try:
                report = self._attempt(state, lock, lease)
            except (HeadDataMissing, NotFound) as error:
                # A branch moved and the version of its former head was removed. The next attempt sees its new head.
                missing = error
            else:
                self._verify_target()
                return report
        raise StorageError(
            f"a file of {self.source.location} that the head of a branch needs does not exist: {missing}",
            details={"uri": str(self.source.location)},
            hint="run `omnigraph verify`; if the graph is intact, run the command again",
        )

    def _attempt(self, state: _State, lock: TargetLock, lease: HeldLease | None) -> CopyReport:
        selection = self.select(state)
        if lease is not None and len(selection.commits) <= _MAX_HELD_COMMITS:
            lease.narrow(selection.commits)
        copier = FileCopier(
            self.source.objects, self.target.objects, self._digests(state, selection), self._progress
        )
        # First, because a manifest removes its old files by itself. They are small.
        files = self._copy_manifest(state, copier)
        plans = self._copy_tables(state, selection, copier)
        if not any(plan.missing for plan in plans) and self.is_current(state):
            return self._report(state.copy, state, copier, published=False)
        keys = self._copy_idempotency_keys(copier)
        self._check(plans, copier)
        untrusted = [file.key for plan in plans for file in (*plan.missing, *plan.untrusted)]
        self.target.sync([*untrusted, *(file.key for file in files), *keys])
        lock.check()
        try:
            copy = self.publish(state, selection, files)
        except SwapLost as error:
            raise Conflict(
                f"another process published to {self.target.location} meanwhile",
                details={"uri": str(self.target.location)},
                hint="run the command again",
            ) from error
        except SwapOutcomeUnknown as error:
            raise OutcomeUnknown(
                f"storage did not reply to the publish: {error.error.message}",
                details={"cause": error.error.message},
                hint="run the command again; it copies nothing twice",
            ) from error
        return self._report(copy, state, copier, published=True)

    def _state(self, view: ManifestView) -> _State:
        manifest, copy = self.source.manifest, self.target.open_manifest()
        commits = 0 if copy is None else _commit_count(copy.view)
        registry = manifest.registry(view)
        # The rows that a copy adds to its manifest have checksums, whatever the format of the source.
        registry = replace(registry, format=max(registry.format, CHECKSUMS))
        return _State(view, registry, branch_heads(manifest, view), copy, commits)

    def _digests(self, state: _State, selection: Selection) -> Mapping[tuple[str, str], FileDigest]:
        """Return the recorded digests of the files to copy."""
        if state.copy is None:
            return self.source.manifest.recorded_files(state.view)
        # The target lacks what the selected commits introduced, and reading the whole log would take longer.
        return {(path, file.name): file for text in selection.recorded for path, file in parse_digests(text)}

    def _copy_tables(self, state: _State, selection: Selection, copier: FileCopier) -> list[TablePlan]:
        """Copy the table files that the target lacks. Version files follow the files that they need."""
        published_at = None
        if state.copy is not None:
            mark = state.copy.registry(state.copy.view).backup
            published_at = None if mark is None else mark.created_at
        source = TableFiles(self.source.tables.root, self.source.objects)
        plan = partial(plan_table, source, self.target.files, published_at=published_at)
        copy = partial(self._copy_table, plan, copier)
        plans = run_parallel(copy, selection.pins.items())
        for item in plans:
            for file in item.present:
                if file.key not in copier.copied:
                    copier.counts.add_skipped(file.size)
        return plans

    def _copy_table(
        self,
        make_plan: Callable[[str, Mapping[int, bool]], TablePlan],
        copier: FileCopier,
        table: tuple[str, Mapping[int, bool]],
    ) -> TablePlan:
        missing: NotFound | None = None
        for _ in range(_ATTEMPTS):
            plan = self._distrust(make_plan(*table), copier)
            try:
                copier.copy(file for file in plan.missing if not file.is_version)
                copier.copy(file for file in plan.missing if file.is_version)
            except NotFound as error:
                # Garbage collection that began before the lease removed an old version, so plan without it.
                missing = error
            else:
                return plan
        assert missing is not None, "there was an attempt"
        raise missing

    @staticmethod
    def _distrust(plan: TablePlan, copier: FileCopier) -> TablePlan:
        """Return the plan with files of an interrupted run copied again if their content is not as recorded."""
        wrong = copier.read_back(file for file in plan.untrusted if file.key not in copier.copied)
        if not wrong:
            return plan
        return replace(
            plan,
            missing=(*plan.missing, *wrong),
            present=tuple(file for file in plan.present if file not in wrong),
            untrusted=tuple(file for file in plan.untrusted if file not in wrong),
        )

    def _copy_manifest(self, state: _State, copier: FileCopier) -> list[CopiedManifestFile]:
        """Copy the files of `__manifest` that the manifest of the target does not name."""
        known = set() if state.copy is None else {file.name for file in state.copy.view.files}
        files = [file for file in self.manifest_files(state) if file.name not in known]
        described = describe_files(state.view, files)
        copier.copy(CopiedFile(item.key, item.size) for item in described)
        return described

    def _copy_idempotency_keys(self, copier: FileCopier) -> list[str]:
        """Copy the keys of requests, so that a request that is sent to the restored graph again has no effect."""
        folder = idempotency.PREFIX.rstrip("/")
        known = {item.key for item in self.target.objects.list(folder)}
        new = [
            CopiedFile(item.key, item.size)
            for item in self.source.objects.list(folder)
            if item.key not in known
        ]
        copier.copy(new)
        return [file.key for file in new]

    def _check(self, plans: Sequence[TablePlan], copier: FileCopier) -> None:
        check_sizes(self.target.files, plans)
        if self._verify == "full":
            files = [file for plan in plans for file in (*plan.missing, *plan.present)]
            for file in copier.read_back(files):
                raise not_verified(file, "its content is not the recorded one")

    def _verify_target(self) -> None:
        """With full verification, check every file and row of the whole target, also what earlier runs copied."""
        if self._verify != "full":
            return
        request = VerifyRequest(all_commits=True, engine="local")
        found = verify(self.target.root, self.target.objects, request)
        if not found.ok:
            first, count = found.damage[0], len(found.damage)
            more = f" (and {count - 1} more)" if count > 1 else ""
            raise StorageError(
                f"{self.target.location} is damaged: {first.file or first.type_key}: {first.problem}{more}",
                details={"uri": str(self.target.location), "damage": [item.problem for item in found.damage]},
                hint="run `omnigraph verify` on it; a damaged source or an altered file of the target is the cause",
            )

    def _report(
        self, copy: Manifest | None, state: _State, copier: FileCopier | None, *, published: bool
    ) -> CopyReport:
        assert copy is not None, "there is a copy after a run"
        counts = CopyCounts() if copier is None else copier.counts
        view = copy.refresh()
        registry = copy.registry(view)
        return CopyReport(
            operation=self.operation,
            source=self.source.location.uri,
            target=self.target.location.uri,
            graph_id=registry.graph_id,
            heads={head.branch: head.commit.id for head in branch_heads(copy, view)},
            commits=_commit_count(view),
            commits_added=_commit_count(view) - state.commits if published else 0,
            files_copied=counts.files_copied,
            files_skipped=counts.files_skipped,
            bytes_copied=counts.bytes_copied,
            bytes_skipped=counts.bytes_skipped,
            since=None if registry.backup is None else registry.backup.since,
            published=published,
            verified="digests" if self._verify == "full" else "sizes",
            warnings=tuple(self._warnings),
        )


class _Backup(_Copy):
    operation = "backup"

    def __init__(
        self,
        source: Repository,
        target: CopyTarget,
        verify: Verification,
        progress: Progress | None,
        since: str | None,
    ) -> None:
        super().__init__(source, target, verify, progress)
        self._since = since

    def check_target(self, state: _State) -> None:
        if self._since is not None:
            get_commit(self.source.manifest, state.view, self._since)
        copy = state.copy
        if copy is None:
            self.target.check_empty()
            return
        registry = copy.registry(copy.view)
        if registry.backup is None:
            raise graph_exists(self.target.location, "it is not a backup")
        if registry.graph_id != state.registry.graph_id:
            raise graph_exists(self.target.location, "it is a backup of another graph")
        for head in branch_heads(copy, copy.view):
            if self.source.manifest.find_commit(state.view, head.commit.id) is None:
                raise Conflict(
                    f"the backup has commit '{head.commit.id}' of branch '{head.branch}', which "
                    f"{self.source.location} does not have",
                    details={"commit_id": head.commit.id, "branch": head.branch},
                    hint="the graph was replaced by an older copy; back it up to another place",
                )

    def select(self, state: _State) -> Selection:
        copy = state.copy
        manifest = self.source.manifest
        if copy is None or not self._covers(copy):
            return select_commits(manifest, state.view, state.heads, since=self._since)
        return select_commits(
            manifest,
            state.view,
            state.heads,
            since=self._since,
            is_copied=lambda id_: copy.find_commit(copy.view, id_) is not None,
            copied_heads=[head.commit for head in branch_heads(copy, copy.view)],
        )

    def _covers(self, copy: Manifest) -> bool:
        """Return whether the target has the data of every commit that it has and that this run needs."""
        mark = copy.registry(copy.view).backup
        return mark is not None and mark.since in (None, self._since)

    def _coverage(self, copy: Manifest | None) -> str | None:
        """Return the commit from which on the target has data after this run."""
        if copy is None or self._since is None or not self._covers(copy):
            return self._since
        mark = copy.registry(copy.view).backup
        has_gap = copy.find_commit(copy.view, self._since) is None
        return self._since if mark is None or has_gap else mark.since

    def manifest_files(self, state: _State) -> list[ManifestFile]:
        return [file for file in state.view.files if file.kind != "registry"]

    def is_current(self, state: _State) -> bool:
        copy = state.copy
        if copy is None:
            return False
        stored = copy.registry(copy.view)
        mark = stored.backup
        names = {file.name for file in copy.view.files if file.kind != "registry"}
        return (
            mark is not None
            and mark.since == self._coverage(copy)
            and replace(stored, backup=None) == replace(state.registry, backup=None)
            and names == {file.name for file in self.manifest_files(state)}
        )

    def publish(
        self,
        state: _State,
        selection: Selection,  # noqa: ARG002 - the commits are in the copied files
        files: Sequence[CopiedManifestFile],
    ) -> Manifest:
        copy = state.copy
        mark = BackupMark(self.source.location.uri, state.view.version, self._coverage(copy), now_micros())
        registry = replace(state.registry, backup=mark)
        fragments = [file.fragment for file in files]
        if copy is None:
            return Manifest.create(self.target.root, ManifestChange(registry=registry), fragments)
        kept = {file.name for file in self.manifest_files(state)}
        old = [file for file in copy.view.files if file.kind != "registry" and file.name not in kept]
        view = copy.replace_copied_files(copy.view, registry, old, fragments)
        if view.version % _REMOVE_VERSIONS_EVERY == 0:
            self._remove_old_versions(copy)
        return copy

    def _remove_old_versions(self, copy: Manifest) -> None:
        try:
            copy.remove_old_versions(self.target.objects)
        except OmnigraphError as error:
            self._warnings.append(f"cannot remove old versions of __manifest: {error.message}")


class _NewGraph(_Copy):
    """A copy into an empty place that can be written afterwards."""

    def check_target(self, state: _State) -> CopyReport | None:
        copy = state.copy
        if copy is None:
            self.target.check_empty()
            return None
        if has_unfinished_copy(self.target.objects) and self._holds(copy, state):
            # The last run was interrupted after it had published.
            lock = TargetLock.acquire(
                self.target.objects, self.operation, state.registry.graph_id, resume=True
            )
            lock.release(finished=True)
            return self._report(copy, state, None, published=False)
        raise graph_exists(self.target.location, f"{self.operation} does not replace it")

    @abstractmethod
    def source_heads(self, state: _State) -> Sequence[HeadRecord]:
        """Return the heads of the branches that are copied."""

    def _holds(self, copy: Manifest, state: _State) -> bool:
        return all(
            copy.find_commit(copy.view, head.commit.id) is not None for head in self.source_heads(state)
        )


class _Restore(_NewGraph):
    operation = "restore"

    def source_heads(self, state: _State) -> Sequence[HeadRecord]:
        return state.heads

    def select(self, state: _State) -> Selection:
        return select_commits(self.source.manifest, state.view, state.heads)

    def manifest_files(self, state: _State) -> list[ManifestFile]:
        return [file for file in state.view.files if file.kind != "registry"]

    def publish(
        self,
        state: _State,
        selection: Selection,  # noqa: ARG002 - the commits are in the copied files
        files: Sequence[CopiedManifestFile],
    ) -> Manifest:
        registry = replace(state.registry, backup=None, epoch=state.registry.epoch + 1)
        fragments = [file.fragment for file in files]
        return Manifest.create(self.target.root, ManifestChange(registry=registry), fragments)


class _Clone(_NewGraph):
    operation = "clone"

    def __init__(
        self,
        source: Repository,
        target: CopyTarget,
        verify: Verification,
        progress: Progress | None,
        branch: str,
        history: bool,
    ) -> None:
        super().__init__(source, target, verify, progress)
        self._branch = source.head(branch).branch
        self._history = history

    def source_heads(self, state: _State) -> Sequence[HeadRecord]:
        heads = [head for head in state.heads if head.branch == self._branch]
        if not heads:
            raise NotFound(f"branch '{self._branch}' not found", details={"branch": self._branch})
        return heads

    def select(self, state: _State) -> Selection:
        return select_commits(
            self.source.manifest, state.view, self.source_heads(state), history=self._history
        )

    def manifest_files(self, state: _State) -> list[ManifestFile]:
        # Digests that were recorded later belong to files and not to commits.
        return [file for file in state.view.files if file.kind == "digests"]

    def _copy_idempotency_keys(self, copier: FileCopier) -> list[str]:  # noqa: ARG002 - see below
        # A key belongs to one branch of one graph.
        return []

    def publish(
        self,
        state: _State,
        selection: Selection,  # noqa: ARG002 - all commits of the history are kept, with or without data
        files: Sequence[CopiedManifestFile],
    ) -> Manifest:
        manifest, now = self.source.manifest, now_micros()
        (head,) = self.source_heads(state)
        get = partial(get_commit, manifest, state.view)
        commits = [get(item.id) for _, item in ancestors_by_distance(get, head.commit)]
        schemas = {name: manifest.schema(state.view, name) for name in {item.schema for item in commits}}
        incarnation = new_id()
        registry = Registry(
            state.registry.format,
            new_id(),
            now,
            {MAIN: BranchEntry(incarnation, now)},
            next_id=state.registry.next_id,
        )
        change = ManifestChange(registry, [HeadRecord(MAIN, incarnation, head.commit)], commits, schemas)
        return Manifest.create(self.target.root, change, [file.fragment for file in files])


def _commit_count(view: ManifestView) -> int:
    return sum(file.rows for file in view.of_kind("commit"))
