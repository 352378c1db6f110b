"""Compare-and-swaps of branch heads that threads of one handle make at the same time, combined into one.

Every swap makes a new version of the one `__manifest`, so the writers of different branches compete for it. A swap
that finds no other one in progress is made at once. Those that arrive meanwhile are combined: the first of them
swaps, the others wait, and the next swap replaces the heads of all that wait. There is no timer. Each writer has
its own outcome: a head that has moved, or a check that fails, excludes one writer from the swap and not the others.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from omnigraph.errors import OmnigraphError, StorageError
from omnigraph.store.manifest.manifest_change import ManifestChange, combine_changes
from omnigraph.store.manifest.swap_errors import SwapLost, SwapOutcomeUnknown

if TYPE_CHECKING:
    from omnigraph.store.manifest.manifest import Manifest
    from omnigraph.store.manifest.manifest_view import ManifestView
    from omnigraph.store.manifest.records import HeadRecord

# The heads that one swap replaces. Each is a file, and the commits are rows of one file of the log.
MAX_HEADS: Final = 64


@dataclass(eq=False)
class HeadSwap:
    """The replacement of one head, decided on a view.

    `check` raises if the swap must not be made on a later view. `wait_for_files` returns when the files that the
    new commits name are durable, and raises if they are not. `error` is the outcome of a swap that failed.
    """

    view: ManifestView
    expected: HeadRecord
    change: ManifestChange
    check: Callable[[ManifestView], None] = lambda _: None
    wait_for_files: Callable[[], None] | None = None
    error: BaseException | None = None
    leads: bool = False
    woken: threading.Event = field(default_factory=threading.Event)


class HeadSwaps:
    """Combines swaps of heads. Safe to share between threads. Other processes do not notice it."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._lock = threading.Lock()
        self._in_progress = 0
        self._waiting: deque[HeadSwap] = deque()
        self._is_led = False

    @property
    def in_progress(self) -> int:
        """The number of swaps that have begun and not ended."""
        with self._lock:
            return self._in_progress

    @property
    def waiting(self) -> int:
        """The number of swaps that wait for another one to end."""
        with self._lock:
            return len(self._waiting)

    def replace(self, swap: HeadSwap) -> None:
        """Replace a head if it is still the expected one. Raises the errors of `Manifest.replace_heads_if_equal`.

        If the thread is interrupted while it waits, the swap has ended or is not made.
        """
        with self._lock:
            is_alone = self._in_progress == 0
            self._in_progress += 1
        try:
            # A swap with a registry must fail if the registry was replaced since its view.
            if is_alone or swap.change.registry is not None:
                self._manifest.replace_heads_if_equal(
                    swap.view, [swap.expected], swap.change, swap.wait_for_files
                )
            else:
                self._combine(swap)
        finally:
            with self._lock:
                self._in_progress -= 1

    def _combine(self, swap: HeadSwap) -> None:
        # Before it joins the others, which must not wait for a large upload.
        if swap.wait_for_files is not None:
            swap.wait_for_files()
        with self._lock:
            if self._is_led:
                self._waiting.append(swap)
            else:
                self._is_led = swap.leads = True
        if not swap.leads:
            self._wait(swap)
        if swap.leads:
            self._lead(swap)
        if swap.error is not None:
            raise swap.error

    def _wait(self, swap: HeadSwap) -> None:
        """Wait until another thread has made the swap, or this thread shall lead."""
        try:
            swap.woken.wait()
        except BaseException:
            with self._lock:
                is_waiting = swap in self._waiting
                if is_waiting:
                    self._waiting.remove(swap)
            if not is_waiting:
                # Another thread is making the swap, or has chosen this one to lead.
                swap.woken.wait()
                if swap.leads:
                    self._pass_on([])
            raise

    def _lead(self, first: HeadSwap) -> None:
        group = self._take(first)
        try:
            self._swap(group)
        except BaseException:
            # The thread was interrupted. A swap that was sent can be repeated.
            interrupted = StorageError("the thread that made the swap was interrupted", kind="transient")
            for swap in group:
                swap.error = swap.error or SwapOutcomeUnknown(interrupted)
            raise
        finally:
            self._pass_on([swap for swap in group if swap is not first])

    def _take(self, first: HeadSwap) -> list[HeadSwap]:
        """Take the waiting swaps of other branches, one of each, in the order of their arrival."""
        group, branches = [first], {first.expected.branch}
        with self._lock:
            for swap in list(self._waiting):
                if len(group) < MAX_HEADS and swap.expected.branch not in branches:
                    self._waiting.remove(swap)
                    branches.add(swap.expected.branch)
                    group.append(swap)
        return group

    def _pass_on(self, done: Sequence[HeadSwap]) -> None:
        """Wake the threads of swaps that have ended, and let the first waiting one lead."""
        with self._lock:
            if self._waiting:
                following = self._waiting.popleft()
                following.leads = True
                following.woken.set()
            else:
                self._is_led = False
        for swap in done:
            swap.woken.set()

    def _swap(self, group: Sequence[HeadSwap]) -> None:
        """Make the swaps of a group, and set the errors of those that failed."""
        if self._attempt(group):
            return
        # Another process moved one of the branches. The others are not concerned.
        try:
            self._manifest.refresh()
        except OmnigraphError:
            # Every writer reads the manifest again, and reports what it finds.
            for swap in group:
                swap.error = swap.error or SwapLost()
            return
        for swap in group:
            if swap.error is None and not self._attempt([swap]):
                swap.error = SwapLost()

    def _attempt(self, group: Sequence[HeadSwap]) -> bool:
        """Make the swaps of a group as one, on the newest view; return False if it was lost: nothing changed."""
        view = self._manifest.view
        for swap in group:
            try:
                swap.check(view)
                if self._manifest.head(view, swap.expected.branch) != swap.expected:
                    raise SwapLost
            except Exception as error:  # noqa: BLE001 - the error of one writer is not that of the others
                swap.error = error
        swaps = [swap for swap in group if swap.error is None]
        if not swaps:
            return True
        change = combine_changes([swap.change for swap in swaps])
        try:
            self._manifest.replace_heads_if_equal(view, [swap.expected for swap in swaps], change)
        except SwapLost:
            return False
        except Exception as error:  # noqa: BLE001 - the outcome of all of them
            for swap in swaps:
                swap.error = _copy_of(error)
        return True


def _copy_of(error: Exception) -> Exception:
    """Return a copy of an error. Every thread raises its own, because raising adds a traceback."""
    if isinstance(error, SwapOutcomeUnknown):
        return SwapOutcomeUnknown(error.error)
    copied = copy.copy(error) if isinstance(error, OmnigraphError) else error
    copied.__cause__ = error.__cause__
    return copied
