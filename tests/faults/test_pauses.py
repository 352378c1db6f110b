"""A paused writer that recovery took for dead: it accepts the decided outcome when it resumes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph.graph.publish import now_micros
from omnigraph.graph.recovery.intents import Intent, IntentOwner
from omnigraph.graph.recovery.process_identity import process_start, this_machine
from omnigraph.graph.repository import Repository
from tests.faults.conftest import Cuts
from tests.support.abandoned import is_published, pending_intent, swap_of
from tests.support.crash import Run, copy_graph, frozen, position, start
from tests.support.forked import Worker
from tests.support.workload import WRITER, Setting, Task, check_invariants

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]

# After this time the recovery is assumed to wait for a lock of the paused writer.
HEALING = 8.0


def test_a_writer_that_wakes_up_after_recovery_ends_as_recovery_decided(
    tmp_path: Path,
    settings: Callable[[Setting], Path],
    changes_of: Callable[[str], list[str]],
    cuts: Cuts,
) -> None:
    changes = changes_of("bulk")
    # During staging, and between confirmation and publishing.
    points = [position(changes, starts="renameat nodes/"), swap_of(changes)]
    for at in cuts.chosen(changes, including=points):
        uri = copy_graph(settings("small"), tmp_path / "graph")
        # For the recovery process the lease of an owner on another machine has expired, whenever it was renewed.
        with (
            frozen(Task("bulk", uri, machine="elsewhere"), at) as writer,
            cuts.watching(at, f"{writer.change}"),
        ):
            assert writer.change is not None
            intent = pending_intent(uri)
            published = intent is not None and is_published(uri, intent)
            with healing(uri) as healer:
                run = writer.resume()
                healer.finish()
            check(uri, intent, published, run, in_time=healer.in_time)
    cuts.report()


def test_a_writer_that_was_killed_is_dead_before_its_parent_notices(
    tmp_path: Path, settings: Callable[[Setting], Path]
) -> None:
    uri = copy_graph(settings("small"), tmp_path / "graph")
    graph = Repository.open(uri)
    head = graph.head()
    with subprocess.Popen(["sleep", "60"]) as owner:
        started = process_start(owner.pid)
        intent = Intent(
            "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "load",
            WRITER,
            head.branch,
            head.incarnation,
            head.commit.id,
            IntentOwner(this_machine(), owner.pid, started),
            now_micros(),
        )
        graph.intents.write(intent)
        assert graph.recover() == [], "the owner lives"
        owner.kill()
        # Wait until it has ended without collecting it, as a parent that never waits would.
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
        assert [record.outcome for record in graph.recover()] == ["discarded"]
    graph.close()
    assert [record.id for record in check_invariants(uri).recoveries] == [intent.id]


@dataclass(slots=True)
class Healer:
    """A recovery process for which every lease of other machines has expired."""

    process: Worker
    in_time: bool = True

    def finish(self) -> None:
        """Wait for the process to end."""
        output, _ = self.process.communicate()
        assert output.startswith("ACK"), output


@contextmanager
def healing(uri: str) -> Iterator[Healer]:
    """Run a recovery process until it finishes, or until it waits for a directory lock of the paused writer."""
    task = Task("heal", uri, lease_seconds=0.0)
    healer = Healer(start(task))
    with healer.process:
        try:
            healer.process.wait(HEALING)
        except subprocess.TimeoutExpired:
            healer.in_time = False
        try:
            yield healer
        finally:
            healer.process.kill()


def check(uri: str, intent: Intent | None, published: bool, run: Run, *, in_time: bool) -> None:
    found = check_invariants(uri, acknowledged=[run.acknowledged] if run.acknowledged else [])
    outcomes = [item.outcome for item in found.recoveries]
    ours = [item for item in found.commits.values() if item.operation == "write" and item.actor == "writer"]
    assert (run.acknowledged is not None) == (len(ours) == 1), f"{run.lines} but {len(ours)} commits"
    assert run.acknowledged in (None, *(item.id for item in ours))
    assert run.refused in (None, "conflict")
    if "discarded" in outcomes:
        assert not ours, "what recovery discarded was published after all"
    if "rolled_forward" in outcomes:
        assert ours[0].recovered
    if not in_time:
        # Writer and recovery continued at the same time, so either may have won.
        assert len(outcomes) <= 1
    elif intent is None or published:
        assert (outcomes, run.refused) == ([], None)
    elif intent.plan is None:
        assert (outcomes, run.refused) == (["discarded"], "conflict")
    else:
        assert (outcomes, run.refused) == (["rolled_forward"], None)
