"""Swaps of the heads of several branches that threads of one handle make at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph.errors import StorageError
from omnigraph.store.manifest.head_swaps import HeadSwap
from omnigraph.store.manifest.manifest import Manifest, SwapLost
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_view import ManifestView
from tests.support.manifests import child, head_of, make_manifest, move, reopen
from tests.support.waiting import HANG, wait_until

BRANCHES = ("main", "a", "b", "c", "d")


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """A graph whose branches have moved, so that each has a head file."""
    made = make_manifest(str(tmp_path / "graph"), BRANCHES)
    for branch in BRANCHES:
        move(made, made.view, branch)
    return made


def head_swap(
    manifest: Manifest,
    branch: str,
    check: Callable[[ManifestView], None] = lambda _: None,
    wait_for_files: Callable[[], None] | None = None,
) -> HeadSwap:
    """The swap that adds an empty commit to a branch."""
    view = manifest.view
    head = head_of(manifest, view, branch)
    record = replace(child(head.commit), branch=branch, incarnation=head.incarnation)
    change = ManifestChange(heads=[replace(head, commit=record)], commits=[record])
    return HeadSwap(view, head, change, check, wait_for_files)


class Group:
    """Swaps that other threads submit while one is being made, and that are combined when it ends."""

    def __init__(self, manifest: Manifest, pool: ThreadPoolExecutor) -> None:
        self._manifest = manifest
        self._pool = pool
        self._submitted = 0

    def submit(self, swap: HeadSwap) -> Future[None]:
        """Submit a swap from a thread of its own, and wait until it is in the queue."""
        running = self._pool.submit(self._manifest.head_swaps.replace, swap)
        self._submitted += 1
        wait_until(lambda: self._manifest.head_swaps.waiting == self._submitted or running.done())
        return running


@contextmanager
def combining(manifest: Manifest) -> Iterator[Group]:
    """Combine the swaps that are submitted in the body. It has no other branch than `main` and `d` in progress."""
    released = threading.Event()
    leading = threading.Event()

    def hold() -> None:
        assert released.wait(HANG)

    def hold_leader(_: ManifestView) -> None:
        leading.set()
        hold()

    with ThreadPoolExecutor(8) as pool:
        alone = pool.submit(manifest.head_swaps.replace, head_swap(manifest, "main", wait_for_files=hold))
        wait_until(lambda: manifest.head_swaps.in_progress == 1)
        leader = pool.submit(manifest.head_swaps.replace, head_swap(manifest, "d", hold_leader))
        assert leading.wait(HANG)
        try:
            yield Group(manifest, pool)
        finally:
            released.set()
        alone.result()
        leader.result()


def commits(manifest: Manifest) -> dict[str, str]:
    """Return the head commits of all branches, as a new handle reads them."""
    cold = reopen(manifest)
    return {branch: head_of(cold, cold.view, branch).commit.id for branch in BRANCHES}


def test_swaps_of_several_branches_that_wait_make_one_version(manifest: Manifest) -> None:
    before = manifest.view.version
    swaps = {branch: head_swap(manifest, branch) for branch in ("a", "b", "c")}
    with combining(manifest) as group:
        running = [group.submit(swap) for swap in swaps.values()]
    for item in running:
        item.result()
    assert reopen(manifest).view.version == before + 3
    found = commits(manifest)
    for branch, swap in swaps.items():
        assert found[branch] == swap.change.commits[0].id
        assert manifest.find_commit(manifest.view, found[branch]) is not None


def test_two_swaps_of_one_branch_are_not_combined(manifest: Manifest) -> None:
    first, second = head_swap(manifest, "a"), head_swap(manifest, "a")
    with combining(manifest) as group:
        running = [group.submit(first), group.submit(second)]
    running[0].result()
    with pytest.raises(SwapLost):
        running[1].result()
    assert commits(manifest)["a"] == first.change.commits[0].id


def test_combined_swap_with_a_stale_head_is_left_out(manifest: Manifest) -> None:
    stale, fresh = head_swap(manifest, "a"), head_swap(manifest, "b")
    moved = move(manifest, manifest.view, "a")
    with combining(manifest) as group:
        running = [group.submit(stale), group.submit(fresh)]
    with pytest.raises(SwapLost):
        running[0].result()
    running[1].result()
    found = commits(manifest)
    assert (found["a"], found["b"]) == (moved.id, fresh.change.commits[0].id)


def test_combined_swap_whose_check_fails_is_left_out(manifest: Manifest) -> None:
    def refuse(_: ManifestView) -> None:
        raise StorageError("the fence has moved")

    before = commits(manifest)
    refused, other = head_swap(manifest, "a", refuse), head_swap(manifest, "b")
    with combining(manifest) as group:
        running = [group.submit(refused), group.submit(other)]
    with pytest.raises(StorageError, match="the fence has moved"):
        running[0].result()
    running[1].result()
    found = commits(manifest)
    assert (found["a"], found["b"]) == (before["a"], other.change.commits[0].id)


def test_swap_whose_files_cannot_be_synced_does_not_join_the_others(manifest: Manifest) -> None:
    def fail() -> None:
        raise StorageError("no space left")

    failing, other = head_swap(manifest, "a", wait_for_files=fail), head_swap(manifest, "b")
    with combining(manifest) as group:
        with pytest.raises(StorageError, match="no space left"):
            manifest.head_swaps.replace(failing)
        running = group.submit(other)
    running.result()
    assert commits(manifest)["b"] == other.change.commits[0].id


def test_combined_swap_lost_to_another_handle_fails_for_its_branch_only(manifest: Manifest) -> None:
    rival = reopen(manifest)
    moved: list[str] = []

    def move_meanwhile(_: ManifestView) -> None:
        if not moved:
            moved.append(move(rival, rival.refresh(), "a").id)

    # The head of the first one is compared before the check of the second one.
    lost, other = head_swap(manifest, "a"), head_swap(manifest, "b", move_meanwhile)
    with combining(manifest) as group:
        running = [group.submit(lost), group.submit(other)]
    with pytest.raises(SwapLost):
        running[0].result()
    running[1].result()
    found = commits(manifest)
    assert (found["a"], found["b"]) == (moved[0], other.change.commits[0].id)


class InterruptedEvent(threading.Event):
    """An event whose first wait is interrupted, as by Ctrl-C."""

    def __init__(self, until: threading.Event) -> None:
        super().__init__()
        self._until: threading.Event | None = until

    def wait(self, timeout: float | None = None) -> bool:
        until, self._until = self._until, None
        if until is not None:
            assert until.wait(HANG)
            raise KeyboardInterrupt
        return super().wait(timeout)


def test_swap_of_an_interrupted_thread_is_not_made(manifest: Manifest) -> None:
    before = commits(manifest)
    interrupt = threading.Event()
    interrupted, other = head_swap(manifest, "a"), head_swap(manifest, "b")
    interrupted.woken = InterruptedEvent(interrupt)
    with combining(manifest) as group:
        running = [group.submit(interrupted), group.submit(other)]
        interrupt.set()
        with pytest.raises(KeyboardInterrupt):
            running[0].result()
    running[1].result()
    found = commits(manifest)
    assert (found["a"], found["b"]) == (before["a"], other.change.commits[0].id)
    manifest.head_swaps.replace(head_swap(manifest, "a"))


def test_first_writes_of_branches_at_rest_are_combined(tmp_path: Path) -> None:
    from omnigraph.store.manifest.branch_swaps import create_branch_if_absent
    from omnigraph.store.manifest.manifest_files import new_id
    from omnigraph.store.manifest.records import BranchEntry

    manifest = make_manifest(str(tmp_path / "graph"), BRANCHES)
    start = head_of(manifest, manifest.view).commit.id
    for name in ("e", "f"):
        create_branch_if_absent(manifest, manifest.view, name, BranchEntry(new_id(), 1, None, start))
    before = manifest.view.version
    swaps = {branch: head_swap(manifest, branch) for branch in ("e", "f")}
    with combining(manifest) as group:
        running = [group.submit(swap) for swap in swaps.values()]
    for item in running:
        item.result()
    cold = reopen(manifest)
    assert cold.view.version == before + 3
    for branch, swap in swaps.items():
        assert head_of(cold, cold.view, branch).commit == swap.change.commits[0]
