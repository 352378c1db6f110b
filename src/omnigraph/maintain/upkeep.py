"""Upkeep: bounded maintenance that processes which write a graph perform in the background.

A pass extends indexes and compacts tables that many small writes have left behind, and collects garbage according
to the retention policy of the graph. A pass begins after a number of commits, in a thread that is not part of any
write. An error is reported once and never reaches a write. See `docs/design/0032-upkeep.md`.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from omnigraph.errors import OmnigraphError
from omnigraph.graph.repository import Repository
from omnigraph.maintain.cleanup import collect
from omnigraph.maintain.collector_memory import CollectorMemory, Pace, WorkStopped
from omnigraph.maintain.commit_memory import CommitMemory
from omnigraph.maintain.optimize import optimize
from omnigraph.maintain.retention import MergeBases, Retention, micros
from omnigraph.maintain.settings import GraphSettings, RetentionSetting
from omnigraph.maintain.thinning import Thinning
from omnigraph.maintain.upkeep_mode import UpkeepMode, resolve_mode
from omnigraph.maintain.upkeep_state import UpkeepClaim, UpkeepState
from omnigraph.maintain.upkeep_tables import find_neglected_branches
from omnigraph.store.manifest.manifest import SwapOutcomeUnknown

LOGGER: Final = logging.getLogger("omnigraph.upkeep")
# The number of commits between two passes, if little is stored.
EVERY: Final = 256
# A pass reads each retained commit and lists all files, so the next one begins after a number of commits in
# proportion. The cost of upkeep for each commit is then the same for every size of a graph.
COMMITS_PER_RETAINED: Final = 0.5
COMMITS_PER_FILE: Final = 0.05
# The number of files that one pass removes at most.
MAX_FILES: Final = 20_000
# The number of rows that one pass rewrites or indexes at most.
MAX_ROWS: Final = 1 << 23
# After this many errors in a row the wait is no longer doubled.
_MAX_DOUBLINGS: Final = 6
MESSAGE: Final = "automatic upkeep"
_THREAD_NAME: Final = "omnigraph-upkeep-pass"


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """The result of a pass: the branches that were optimized, and the number of removed files."""

    optimized: tuple[str, ...] = ()
    files_removed: int = 0
    bytes_removed: int = 0
    errors: tuple[str, ...] = ()


def attach_upkeep(
    repository: Repository, mode: UpkeepMode | None, *, finish: bool = False, watch: float | None = None
) -> None:
    """Let a handle perform upkeep, unless it is off or the handle cannot write.

    The files of a graph in memory cannot be listed, so it has no upkeep. With `watch`, commits of other processes
    are looked for at intervals of so many seconds.
    """
    if resolve_mode(mode) == "off" or repository.mode != "rw" or repository.location.scheme == "memory":
        return
    upkeep = Upkeep(repository, finish=finish)
    repository.background = upkeep
    if watch is not None:
        upkeep.watch(watch)


class Upkeep:
    """The upkeep of one handle. The first pass starts a thread, which performs all passes until `close`.

    The C library gives a thread memory of its own and keeps what the thread frees. With a thread for each pass, the
    memory of all of them would grow to that of the largest pass.

    With `finish`, `close` waits for the end of a pass instead of stopping it.
    """

    def __init__(self, repository: Repository, *, every: int = EVERY, finish: bool = False) -> None:
        self._repository = repository
        self._every = every
        self._finish = finish
        self._lock = threading.Lock()
        self._worker: ThreadPoolExecutor | None = None
        self._pass: Future[None] | None = None
        self._watcher: threading.Thread | None = None
        self._stopped = threading.Event()
        self._failures = 0
        self._memory: CollectorMemory | None = None
        # Multiples of the interval, so that one of several short-lived processes reaches it.
        self._due = (repository.manifest.view.version // every + 1) * every
        self._written: set[str] = set()

    def notice_commit(self, branch: str) -> None:
        """Take note of a commit, and start a pass in the background if enough were made since the last one."""
        self._written.add(branch)
        self.start_if_due()

    def start_if_due(self) -> None:
        """Start a pass in the background if the newest known version of the graph is due for one."""
        if self._repository.manifest.view.version < self._due or self._stopped.is_set():
            return
        with self._lock:
            if self._stopped.is_set() or (self._pass is not None and not self._pass.done()):
                return
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, thread_name_prefix=_THREAD_NAME)
            with suppress(RuntimeError):
                # The interpreter is shutting down, or there are too many threads.
                self._pass = self._worker.submit(self._run)

    def watch(self, seconds: float) -> None:
        """Look for commits of other processes at intervals, and start a pass when one is due. One thread."""
        thread = threading.Thread(
            target=self._watch, args=(seconds,), name="omnigraph-upkeep-watch", daemon=True
        )
        thread.start()
        self._watcher = thread

    def _watch(self, seconds: float) -> None:
        while not self._stopped.wait(seconds):
            # An error of storage shows in requests too. Upkeep waits for the next interval.
            with suppress(OmnigraphError):
                self._repository.manifest.refresh()
                self.start_if_due()

    def close(self) -> None:
        """Stop a pass that is running, and wait until its thread has ended."""
        with self._lock:
            if not self._finish:
                self._stopped.set()
            worker = self._worker
        if worker is not None:
            worker.shutdown(wait=not threading.current_thread().name.startswith(_THREAD_NAME))
        self._stopped.set()
        if self._watcher is not None:
            self._watcher.join()

    def _is_stopped(self) -> bool:
        # The interpreter waits for this thread when the main thread has ended.
        return self._stopped.is_set() or not threading.main_thread().is_alive()

    def _run(self) -> None:
        version = self._repository.manifest.view.version
        try:
            self.run_pass()
            self._failures = 0
        except WorkStopped:
            return
        except Exception as error:  # noqa: BLE001 - whatever fails here must not end a process that writes
            self._failures += 1
            if self._failures == 1:
                text = f"upkeep of {self._repository.location.uri} failed and is tried again later: {error}"
                self._repository.warnings.append(text)
                LOGGER.warning(text)
            self._due = version + (self._every << min(self._failures, _MAX_DOUBLINGS))

    def run_pass(self) -> UpkeepReport | None:
        """Perform a pass now; None if none is due or if another process performs one.

        Raises `WorkStopped` if the handle is closed meanwhile.
        """
        manifest = self._repository.manifest
        version = manifest.view.version
        registry = manifest.registry(manifest.view)
        claim = UpkeepClaim.acquire(self._repository.objects, registry.graph_id, version)
        if isinstance(claim, UpkeepState):
            self._due = max(claim.next_version, version + self._every)
            return None
        state = claim.state
        try:
            report = self._optimize()
            policy = GraphSettings.of(registry.settings).retention
            if not policy.is_forever:
                memory = self._memory_for(policy, state)
                report = self._collect(policy, memory, report)
                state = replace(state, window=memory.thinning.window, thinned=memory.thinning.branches)
            state = replace(state, next_version=version + self._interval())
        finally:
            claim.release(state)
        self._due = state.next_version
        if report.errors:
            raise OmnigraphError("; ".join(report.errors))
        return report

    def _interval(self) -> int:
        memory = self._memory
        if memory is None:
            return self._every
        costs = memory.retained * COMMITS_PER_RETAINED, memory.listed * COMMITS_PER_FILE
        return max(self._every, *map(int, costs))

    def _optimize(self) -> UpkeepReport:
        """Extend the indexes and compact the tables of branches that this handle has written."""
        written, self._written = self._written, set()
        optimized, errors = [], []
        for branch in find_neglected_branches(self._repository, written):
            if self._is_stopped():
                raise WorkStopped
            try:
                done = optimize(
                    self._repository, branch=branch, engine="local", message=MESSAGE, max_rows=MAX_ROWS
                )
            except (OmnigraphError, SwapOutcomeUnknown) as error:
                errors.append(f"branch '{branch}': {error}")
                continue
            if done.commit is not None:
                optimized.append(branch)
        return UpkeepReport(tuple(optimized), errors=tuple(errors))

    def _memory_for(self, policy: RetentionSetting, state: UpkeepState) -> CollectorMemory:
        window = micros(policy.thinned)
        if self._memory is None:
            manifest, pace = self._repository.manifest, Pace(self._is_stopped)
            commits = CommitMemory(manifest, pace.step)
            self._memory = CollectorMemory(
                pace, Thinning(window), commits, MergeBases(manifest, commits), MAX_FILES
            )
        # The thinned commits of a shorter window are not those of a longer one.
        kept = dict(state.thinned) if window <= state.window else {}
        self._memory.thinning = Thinning(window, kept)
        return self._memory

    def _collect(
        self, policy: RetentionSetting, memory: CollectorMemory, report: UpkeepReport
    ) -> UpkeepReport:
        assert policy.keep != "forever"
        retention = Retention(policy.keep, policy.older_than)
        done = collect(self._repository, retention, policy.older_than, memory)
        errors = [f"{item.type_key}: {item.error}" for item in done.datasets if item.error is not None]
        if done.objects_error is not None:
            errors.append(done.objects_error)
        return replace(
            report,
            files_removed=done.files_removed,
            bytes_removed=done.bytes_removed,
            errors=(*report.errors, *errors),
        )
