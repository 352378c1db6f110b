"""One run of a backup, restore or clone: the steps that they share."""

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
from omnigraph.graph.format_version import CHECKSUMS
from omnigraph.graph.history import branch_heads
from omnigraph.graph.open_storage import check_choice
from omnigraph.graph.recovery.leases import HeldLease, TargetLock, hold_lease
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
from omnigraph.maintain.backup.copy_options import CopyOptions
from omnigraph.maintain.backup.copy_report import CopyReport, Operation, SkippedFile, Verification
from omnigraph.maintain.backup.copy_target import CopyTarget, check_locations
from omnigraph.maintain.backup.selection import Selection
from omnigraph.maintain.verification.verify import verify
from omnigraph.maintain.verification.verify_options import VerifyOptions
from omnigraph.store.file_digests import FileDigest, parse_digests
from omnigraph.store.manifest.manifest import Manifest, SwapLost, SwapOutcomeUnknown
from omnigraph.store.manifest.manifest_copy import CopiedManifestFile, describe_files
from omnigraph.store.manifest.manifest_files import ManifestFile
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import HeadRecord, Registry, TagEntry
from omnigraph.store.tables.table_files import TableFiles

# How often a run starts again because a branch moved and the data of its former head was removed.
_ATTEMPTS = 5
# A lease that names more commits would be a large object; it holds all commits instead.
_MAX_HELD_COMMITS = 10_000


@dataclass(frozen=True)
class CopyState:
    """One version of the source, and the manifest of the target if there is a copy with `commits` commits.

    `tags` are the tags of the source by name.
    """

    view: ManifestView
    registry: Registry
    heads: Sequence[HeadRecord]
    copy: Manifest | None
    commits: int
    tags: Mapping[str, TagEntry]


class CopyRun(ABC):
    """One run. A subclass decides what is copied and what the target becomes."""

    operation: Operation

    def __init__(self, source: Repository, uri: str | os.PathLike[str], options: CopyOptions) -> None:
        self.source = source
        self.target = CopyTarget.at(uri, options.storage, options.durability)
        check_choice("verify", options.verify, get_args(Verification))
        check_locations(source.location, self.target.location)
        self._verify = options.verify
        self._progress = options.progress
        self._warnings: list[str] = []
        self._skip_damaged = options.skip_damaged
        # Whether a head whose table version does not exist is left out too: it is missing for good.
        self._skip_heads = False
        self._damaged: dict[str, str] = {}

    # --- decided by the operation ------------------------------------------------------------------------

    @abstractmethod
    def check_target(self, state: CopyState) -> CopyReport | None:
        """Raise if the target must not be written. Return a report if an earlier run has completed the work."""

    @abstractmethod
    def select(self, state: CopyState) -> Selection:
        """Return the commits whose data the target needs and may lack."""

    @abstractmethod
    def manifest_files(self, state: CopyState) -> Sequence[ManifestFile]:
        """Return the files of the source's `__manifest` that become files of the target's."""

    @abstractmethod
    def publish(
        self, state: CopyState, selection: Selection, files: Sequence[CopiedManifestFile]
    ) -> Manifest:
        """Make the copy visible with one compare-and-swap; return the manifest of the target."""

    @property
    def is_incomplete(self) -> bool:
        """Whether damaged files of the source were left out."""
        return bool(self._damaged)

    def is_current(self, state: CopyState) -> bool:  # noqa: ARG002 - a target that exists is not written otherwise
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
                if not self._skip_damaged or self._skip_heads:
                    break
                self._skip_heads = True
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
                if report.published:
                    self.target.record_version()
                return report
        raise StorageError(
            f"a file of {self.source.location} that the head of a branch needs does not exist: {missing}",
            details={"uri": str(self.source.location)},
            hint="run `omnigraph verify`; if the graph is intact, run the command again",
        )

    def _attempt(self, state: CopyState, lock: TargetLock, lease: HeldLease | None) -> CopyReport:
        selection = self.select(state)
        if lease is not None and len(selection.commits) <= _MAX_HELD_COMMITS:
            lease.narrow(selection.commits)
        copier = FileCopier(
            self.source.objects,
            self.target.objects,
            self._digests(state, selection),
            self._progress,
            skip_damaged=self._skip_damaged,
        )
        # First, because a manifest removes its old files by itself. They are small.
        files = self._copy_manifest(state, copier)
        plans = self._copy_tables(state, selection, copier)
        self._damaged = copier.damaged
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

    def _state(self, view: ManifestView) -> CopyState:
        manifest, copy = self.source.manifest, self.target.open_manifest()
        commits = 0 if copy is None else _commit_count(copy.view)
        registry = manifest.registry(view)
        # The rows that a copy adds to its manifest have checksums, whatever the format of the source.
        registry = replace(registry, format=max(registry.format, CHECKSUMS))
        tags = manifest.tags.all(view)
        return CopyState(view, registry, branch_heads(manifest, view), copy, commits, tags)

    def _digests(self, state: CopyState, selection: Selection) -> Mapping[tuple[str, str], FileDigest]:
        """Return the recorded digests of the files to copy."""
        if state.copy is None:
            return self.source.manifest.recorded_files(state.view)
        # The target lacks what the selected commits introduced, and reading the whole log would take longer.
        return {(path, file.name): file for text in selection.recorded for path, file in parse_digests(text)}

    def _copy_tables(self, state: CopyState, selection: Selection, copier: FileCopier) -> list[TablePlan]:
        """Copy the table files that the target lacks. Version files follow the files that they need."""
        published_at = None
        if state.copy is not None:
            mark = state.copy.registry(state.copy.view).backup
            published_at = None if mark is None else mark.created_at
        source = TableFiles(self.source.tables.root, self.source.objects)
        plan = partial(
            plan_table,
            source,
            self.target.files,
            published_at=published_at,
            recorded_in=copier.recorded_in,
            on_damage=copier.on_damage,
            skip_heads=self._skip_heads,
        )
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
                copier.copy_intact(file for file in plan.missing if not file.is_version)
                copier.copy_intact(file for file in plan.missing if file.is_version)
            except NotFound as error:
                # Garbage collection that began before the lease removed an old version, so plan without it.
                missing = error
            else:
                intact = tuple(file for file in plan.missing if file.key not in copier.damaged)
                return replace(plan, missing=intact)
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

    def _copy_manifest(self, state: CopyState, copier: FileCopier) -> list[CopiedManifestFile]:
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
        # What a target lacks because files were left out is reported anyway.
        if self._verify != "full" or self._damaged:
            return
        options = VerifyOptions(all_commits=True, engine="local")
        found = verify(self.target.root, self.target.objects, options)
        if not found.ok:
            first, count = found.damage[0], len(found.damage)
            more = f" (and {count - 1} more)" if count > 1 else ""
            raise StorageError(
                f"{self.target.location} is damaged: {first.file or first.type_key}: {first.problem}{more}",
                details={"uri": str(self.target.location), "damage": [item.problem for item in found.damage]},
                hint="run `omnigraph verify` on it; a damaged source or an altered file of the target is the cause",
            )

    def _report(
        self, copy: Manifest | None, state: CopyState, copier: FileCopier | None, *, published: bool
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
            damaged=tuple(SkippedFile(*item) for item in sorted(self._damaged.items())),
        )


def _commit_count(view: ManifestView) -> int:
    return sum(file.rows for file in view.of_kind("commit"))
