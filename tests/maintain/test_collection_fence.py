"""The fence of garbage collection: a write whose files may have been removed is prepared again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import Conflict, NotFound
from omnigraph.graph.publish import StaleBase, now_micros, publish
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.maintain import cleanup as cleanup_module
from omnigraph.maintain import collection_fence as fence_module
from omnigraph.maintain.cleanup import CleanupReport, cleanup
from omnigraph.maintain.collection_fence import CollectionFence
from omnigraph.store.manifest.branch_swaps import create_branch_if_absent
from omnigraph.store.manifest.collection_fence import reclaimed_versions, replace_by_equal_files
from omnigraph.store.manifest.manifest import Manifest, SwapLost
from omnigraph.store.manifest.manifest_files import new_id
from omnigraph.store.manifest.records import BranchEntry, CommitRecord
from tests.maintain.graphs import (
    CITY,
    NO_GRACE,
    PERSON,
    RECLAIMED,
    change,
    new_graph,
    overwrite,
    reopened,
    rows_at,
    rows_of,
)
from tests.support.forked import Worker
from tests.support.s3 import Bucket
from tests.support.s3_seam import How
from tests.support.waiting import wait_until
from tests.support.workers import release, results, started

pytest_plugins = ["tests.support.s3_fixtures"]

WORKER = "tests.maintain.fence_worker"
# The point at which the writer stops, its operation class, its branch, and the rows that it writes as a group.
PAUSES = {
    "staged": ("staged", "insert", "main", ["x"]),
    "staged-strict": ("staged", "strict", "main", ["x"]),
    "swap": ("swap", "insert", "main", ["x"]),
    "swap-strict": ("swap", "strict", "main", ["x"]),
    "swap-branch-at-rest": ("swap", "insert", "resting", ["x"]),
    "swap-group": ("swap", "insert", "main", ["x", "y", "z"]),
}


@pytest.fixture
def graph(tmp_path: Path) -> Repository:
    return with_history(new_graph(str(tmp_path / "g")))


def with_history(graph: Repository) -> Repository:
    overwrite(graph, "a", "b")
    graph.create_branch("resting")
    return graph


def sweep(graph: Repository) -> CleanupReport:
    """Collect everything that is not a head, with the smallest grace."""
    report = cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    assert [item.error for item in report.datasets if item.error] == []
    return report


def another(graph: Repository, options: dict[str, str] | None = None) -> Repository:
    return Repository.open(graph.location.uri, durability="os", options=options)


def ids_of(graph: Repository, branch: str = "main") -> list[str]:
    return sorted(graph.snapshot(branch).scan(PERSON)["id"].to_pylist())


def fence_of(graph: Repository) -> int:
    return graph.manifest.registry(graph.manifest.refresh()).fence


@contextmanager
def paused(graph: Repository, pause: str, options: dict[str, str] | None = None) -> Iterator[Worker]:
    """A writer process that has stopped itself."""
    at, kind, branch, ids = PAUSES[pause]
    task = {"uri": graph.location.uri, "options": options, "at": at, "class": kind, "branch": branch}
    with started(WORKER, [{**task, "ids": ids, "delete": ["a"]}]) as (writer,):
        release([writer])
        assert writer.stdout.readline() == "stopping\n"
        stat = Path(f"/proc/{writer.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the writer stops")
        yield writer


def check_resumed(graph: Repository, writer: Worker, pause: str, options: dict[str, str] | None) -> None:
    """Continue a writer: it prepares its writes again, and everything that it commits can be read."""
    _, _, branch, ids = PAUSES[pause]
    os.kill(writer.pid, signal.SIGCONT)
    (result,) = results([writer])
    assert result == {"preparations": 2 * len(ids), "errors": []}
    fresh = reopened(graph, options)
    assert ids_of(fresh, branch) == sorted(["b", *ids])
    sweep(another(graph, options))
    assert ids_of(reopened(graph, options), branch) == sorted(["b", *ids])


@pytest.mark.parametrize("pause", PAUSES)
def test_write_of_a_stopped_process_beside_cleanup_without_grace_is_prepared_again(
    graph: Repository, pause: str
) -> None:
    with paused(graph, pause) as writer:
        assert sweep(graph).files_removed > 0
        check_resumed(graph, writer, pause, None)


@pytest.mark.parametrize("pause", ["staged", "swap", "swap-branch-at-rest", "swap-group"])
def test_write_to_s3_of_a_stopped_process_beside_cleanup_is_prepared_again(s3: Bucket, pause: str) -> None:
    graph = with_history(new_graph(f"{s3.uri}/g", s3.options))
    with paused(graph, pause, s3.options) as writer:
        assert sweep(graph).files_removed > 0
        check_resumed(graph, writer, pause, s3.options)


# --- the fence ----------------------------------------------------------------------------------------------


def staged(graph: Repository, *ids: str, branch: str = "main") -> Transaction:
    transaction = graph.begin(branch)
    transaction.stage(PERSON, insert=rows_of(transaction.base.catalog, PERSON, ids))
    return transaction


def test_publish_of_a_plan_from_before_the_fence_raises_stale_base(graph: Repository) -> None:
    change(graph, "c")
    for kind in ("insert", "strict", "maintenance"):
        plan = staged(graph, kind).plan("write", kind)
        sweep(another(graph))
        with pytest.raises(StaleBase):
            publish(graph.manifest, plan)
    assert ids_of(reopened(graph)) == ["a", "b", "c"]


def test_write_with_a_precondition_beside_cleanup_commits(graph: Repository) -> None:
    """A fence is not a change of the branch: a precondition still holds."""
    expected, other, fences = graph.head().commit.id, another(graph), []

    def prepare(transaction: Transaction) -> Prepared[None]:
        transaction.stage(PERSON, insert=rows_of(transaction.base.catalog, PERSON, ["c"]))
        fences.append(transaction.fence)
        if len(fences) == 1:
            sweep(other)
        return Prepared("strict", None)

    receipt, _ = graph.write("main", WriteRequest("insert", expected_head=expected), prepare)
    assert receipt is not None
    assert receipt.commit.parent == expected
    assert fences == [0, 1]
    assert ids_of(reopened(graph)) == ["a", "b", "c"]


def test_write_that_reads_collected_files_in_its_preparation_is_prepared_again(graph: Repository) -> None:
    other, preparations = another(graph), 0

    def prepare(transaction: Transaction) -> Prepared[None]:
        nonlocal preparations
        preparations += 1
        if preparations == 1:
            overwrite(other, "z")
            sweep(other)
        rows = Repository.open(graph.location.uri, durability="os").snapshot(at=transaction.base.commit_id)
        assert rows.scan(PERSON).num_rows
        transaction.stage(PERSON, delete_ids=["z"])
        return Prepared("insert", None)

    assert graph.write("main", WriteRequest("delete"), prepare).receipt is not None
    assert preparations == 2
    assert ids_of(reopened(graph)) == []


def test_cleanup_with_nothing_to_remove_changes_nothing(graph: Repository) -> None:
    overwrite(graph, "c")
    graph.delete_branch("resting")
    assert sweep(graph).files_removed > 0
    before = graph.manifest.refresh().version
    assert sweep(graph).files_removed == 0
    overwrite(graph, "d")
    assert cleanup(graph, keep=1, confirm=True).files_removed == 0
    assert cleanup(graph, keep=1, grace=NO_GRACE).files_removed > 0
    assert graph.manifest.refresh().version == before + 1
    assert fence_of(graph) == 1


def test_fence_replaces_every_head_and_every_bucket_and_keeps_all_branches(graph: Repository) -> None:
    for number in range(3):
        graph.create_branch(f"b{number}")
        change(graph, f"on-{number}", branch=f"b{number}")
    before, view = graph.branches(), graph.manifest.refresh()
    heads = {name: graph.head(name).commit for name in before}
    CollectionFence(graph.manifest).advance()
    after = graph.manifest.refresh()
    for kind in ("head", "branches", "registry"):
        names = {file.name for file in view.of_kind(kind)}
        assert names
        assert not names & {file.name for file in after.of_kind(kind)}
    fresh = reopened(graph)
    assert fresh.branches() == before
    assert {name: fresh.head(name).commit for name in before} == heads
    assert fence_of(fresh) == 1


def test_fence_beside_writers_of_all_branches_ends(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every swap of the fence that a writer defeats makes fewer files at a time, until one file is left."""
    names = [f"b{number}" for number in range(4)]
    other = another(graph)
    for name in names:
        graph.create_branch(name)
        change(graph, f"on-{name}", branch=name)
    usual, tries = replace_by_equal_files, []

    def beaten(manifest: Any, view: Any, files: list[Any]) -> None:
        tries.append(len(files))
        if len(tries) <= len(names):
            change(other, f"again-{len(tries)}", branch=names[len(tries) - 1])
        usual(manifest, view, files)

    monkeypatch.setattr(fence_module, "replace_by_equal_files", beaten)
    CollectionFence(graph.manifest).advance()
    assert tries[0] > tries[-1]
    for number, name in enumerate(names):
        assert f"again-{number + 1}" in ids_of(reopened(graph), name)


# --- announcements ------------------------------------------------------------------------------------------


def interrupted_cleanup(graph: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """A garbage collection that ends after the announcement, before it removes a file."""

    def fail(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cleanup_module._GarbageCollection, "_remove", fail)
        with pytest.raises(KeyboardInterrupt):
            cleanup(another(graph), keep=1, confirm=True, grace=NO_GRACE)


def test_branch_at_a_commit_that_is_being_removed_is_refused(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = graph.head().commit
    graph.delete_branch("resting")
    overwrite(graph, "c")
    interrupted_cleanup(graph, monkeypatch)
    assert rows_at(reopened(graph), old) != RECLAIMED, "the files are still there"
    with pytest.raises(NotFound, match="reclaimed"):
        graph.create_branch("back", at=old.id)
    with pytest.raises(NotFound, match="reclaimed"):
        another(graph).create_branch("back", at=old.id)
    # The next run completes the removal, even if it would retain the commit, and ends the announcement.
    assert cleanup(graph, keep=100, confirm=True, grace=NO_GRACE).files_removed > 0
    assert rows_at(reopened(graph), old) == RECLAIMED
    assert reclaimed_versions(graph.manifest, graph.manifest.refresh()) == {}
    assert ids_of(reopened(graph)) == ["c"]


def test_commit_that_adopts_a_version_that_is_being_removed_is_refused(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = graph.snapshot().pin(PERSON)
    graph.delete_branch("resting")
    overwrite(graph, "c")

    def prepare(transaction: Transaction) -> Prepared[None]:
        transaction.adopt(transaction.base.table(PERSON), old)
        return Prepared("insert", None)

    interrupted_cleanup(graph, monkeypatch)
    with pytest.raises(Conflict, match=f"version {old.version} .* was removed"):
        graph.write("main", WriteRequest("merge", alone=True), prepare)
    assert ids_of(reopened(graph)) == ["c"]


def test_announcement_beside_a_new_branch_at_an_old_commit_marks_again(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branch is created between the marks and the announcement, so the announcement fails."""
    old, other, announced = graph.head().commit, another(graph), []
    graph.delete_branch("resting")
    overwrite(graph, "c")
    usual = CollectionFence.announce

    def late(self: CollectionFence, *arguments: Any) -> None:
        announced.append(arguments)
        if len(announced) == 1:
            other.create_branch("back", at=old.id)
            with pytest.raises(SwapLost):
                usual(self, *arguments)
            raise SwapLost
        usual(self, *arguments)

    monkeypatch.setattr(CollectionFence, "announce", late)
    sweep(graph)
    assert len(announced) == 2
    assert rows_at(reopened(graph), old) != RECLAIMED
    assert ids_of(reopened(graph), "back") == ["a", "b"]


def test_branch_from_a_head_that_moved_during_cleanup_keeps_its_data(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head is published after the first marks, read behind the fence, and replaced before the second marks.

    The clock of the writer is behind, so that the age of its commits does not retain them.
    """
    old, late, other = overwrite(graph, "b", key=CITY), another(graph), another(graph)
    overwrite(graph, "c", key=CITY)
    plan = staged(other, "x").plan("write", "insert")
    usual = CollectionFence.advance

    def advanced(self: CollectionFence) -> None:
        with monkeypatch.context() as patch:
            true_nanoseconds = time.time_ns
            patch.setattr(time, "time_ns", lambda: true_nanoseconds() - 3600 * 10**9)
            head.append(publish(other.manifest, plan).commit)
            usual(self)
            late.manifest.refresh()
            overwrite(other, "e")

    head: list[CommitRecord] = []
    monkeypatch.setattr(CollectionFence, "advance", advanced)
    sweep(graph)
    assert rows_at(reopened(graph), old) == RECLAIMED
    entry = BranchEntry(new_id(), now_micros(), None, late.head(refresh=False).commit.id)
    create_branch_if_absent(late.manifest, late.manifest.view, "late", entry)
    fresh = reopened(graph)
    assert fresh.head("late").commit.id == head[0].id
    assert ids_of(fresh, "late") == ["a", "b", "x"]


# --- interruptions ------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_at_swap(number: int, *, after: bool) -> Iterator[list[int]]:
    """End every call at the n-th swap of the manifest, before or after it takes effect; yields the swaps."""
    usual, swaps = Manifest._commit, [0]

    def commit(self: Manifest, *arguments: Any) -> Any:
        swaps[0] += 1
        if swaps[0] == number and not after:
            raise Killed
        done = usual(self, *arguments)
        if swaps[0] == number:
            raise Killed
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Manifest, "_commit", commit)
        yield swaps


@pytest.mark.faults
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_cleanup_killed_at_any_swap_loses_nothing_and_the_next_run_completes_it(
    graph: Repository, after: bool
) -> None:
    for number in range(1, 20):
        old, head = overwrite(graph, f"p{number}"), overwrite(graph, f"q{number}")
        stale = staged(graph, "x").plan("write", "strict")
        with killed_at_swap(number, after=after) as swaps, suppress(Killed):
            cleanup(another(graph), keep=1, confirm=True, grace=NO_GRACE)
        fresh = reopened(graph)
        assert fresh.head().commit == head
        assert ids_of(fresh) == [f"q{number}"]
        assert ids_of(fresh, "resting") == ["a", "b"]
        # The write in progress is published with all of its files, or prepared again.
        graph.manifest.refresh()
        try:
            publish(graph.manifest, stale)
            assert ids_of(reopened(graph)) == [f"q{number}", "x"]
        except StaleBase:
            assert ids_of(reopened(graph)) == [f"q{number}"]
        sweep(graph)
        assert rows_at(reopened(graph), old) == RECLAIMED
        assert reclaimed_versions(graph.manifest, graph.manifest.refresh()) == {}
        if swaps[0] < number:
            break
    assert 4 < number < 19


@pytest.mark.faults
@pytest.mark.parametrize("how", ["drop", "applied_500", "reset"])
def test_cleanup_on_s3_with_lost_replies_to_its_swaps_loses_nothing(s3: Bucket, how: How) -> None:
    graph = with_history(new_graph(f"{s3.uri}/g", s3.options))
    for number in range(1, 20):
        old, head = overwrite(graph, f"p{number}"), overwrite(graph, f"q{number}")
        with s3.seam.fail(how, nth=number, method="PUT", key="__manifest/_versions/") as fault:
            assert sweep(another(graph, s3.options)).files_removed > 0
        fresh = reopened(graph, s3.options)
        assert (fresh.head().commit, ids_of(fresh)) == (head, [f"q{number}"])
        assert rows_at(fresh, old) == RECLAIMED
        assert reclaimed_versions(fresh.manifest, fresh.manifest.view) == {}
        if not fault.hits:
            break
    assert 4 < number < 19


def test_cleanup_whose_collector_is_overtaken_by_another_removes_only_dead_files(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collector pauses behind its announcement while another one, and writers, complete their work."""
    first, other = overwrite(graph, "p"), another(graph)
    graph.delete_branch("resting")
    overwrite(graph, "q")
    usual = cleanup_module._GarbageCollection._remove
    paused: list[str] = []

    def remove(self: Any, *arguments: Any) -> Any:
        if not paused:
            paused.append("here")
            overwrite(other, "r")
            assert cleanup(other, keep=100, confirm=True, grace=NO_GRACE).files_removed > 0
            with pytest.raises(NotFound, match="reclaimed"):
                other.create_branch("back", at=first.id)
            change(other, "s")
            other.create_branch("later")
        return usual(self, *arguments)

    monkeypatch.setattr(cleanup_module._GarbageCollection, "_remove", remove)
    sweep(graph)
    for branch in ("main", "later"):
        assert ids_of(reopened(graph), branch) == ["r", "s"]
    assert reclaimed_versions(graph.manifest, graph.manifest.refresh()) == {}


# --- clocks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [-3, 3], ids=["behind", "ahead"])
def test_cleanup_with_a_wrong_clock_keeps_young_files_and_warns(
    graph: Repository, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    overwrite(graph, "c")
    overwrite(graph, "d")
    true_time, true_nanoseconds = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: true_time() + hours * 3600)
    monkeypatch.setattr(time, "time_ns", lambda: true_nanoseconds() + hours * 3600 * 10**9)
    assert cleanup(graph, keep=1, confirm=True, grace=timedelta(hours=1)).files_removed == 0
    assert cleanup(graph, keep=1, confirm=True, grace=NO_GRACE).files_removed > 0
    (warning,) = graph.warnings
    direction = "ahead of" if hours > 0 else "behind"
    assert (
        f"the clock of this machine is 10800 seconds {direction} the clock of the storage system" in warning
    )


def test_cleanup_with_the_right_clock_does_not_warn(graph: Repository) -> None:
    overwrite(graph, "c")
    sweep(graph)
    assert graph.warnings == []


@pytest.mark.parametrize("bulk", [False, True], ids=["intent-after-staging", "intent-before-staging"])
def test_write_with_an_intent_is_prepared_again_only_if_files_are_older_than_the_intent(
    graph: Repository, bulk: bool
) -> None:
    other, preparations = another(graph), 0

    def prepare(transaction: Transaction) -> Prepared[None]:
        nonlocal preparations
        preparations += 1
        transaction.stage(PERSON, insert=rows_of(transaction.base.catalog, PERSON, ["x"]))
        transaction.begin_intent()
        if preparations == 1:
            time.sleep(0.02)
            overwrite(other, "y", key=CITY)
            overwrite(other, "z", key=CITY)
            sweep(other)
        return Prepared("insert", None)

    receipt = graph.write("main", WriteRequest("apply", alone=True, bulk=bulk), prepare).receipt
    assert receipt is not None
    assert preparations == (1 if bulk else 2)
    assert ids_of(reopened(graph)) == ["a", "b", "x"]
