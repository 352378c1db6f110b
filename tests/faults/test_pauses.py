"""A writer that only pauses, and wakes up after it was taken for dead, cannot contradict what was decided for it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.graph.intents import Intent
from tests.faults.conftest import Cuts
from tests.support.abandoned import is_published, pending_intent
from tests.support.crash import PATIENCE, Run, copy_graph, frozen, worker
from tests.support.workers import ROOT
from tests.support.workload import Setting, Task, check_invariants

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]

# How long a healer may take before the paused writer is thought to hold a lock that it waits for.
HEALING = 8.0


def test_a_writer_that_wakes_up_after_recovery_ends_as_recovery_decided(
    tmp_path: Path,
    settings: Callable[[Setting], Path],
    changes_of: Callable[[str], list[str]],
    cuts: Cuts,
) -> None:
    for at in cuts.chosen(changes_of("bulk")):
        uri = copy_graph(settings("small"), tmp_path / "graph")
        # To a healer on this machine the lease of one elsewhere has run out, whenever it was renewed.
        with frozen(Task("bulk", uri, machine="elsewhere"), at) as writer, cuts.watching(at, f"{writer.change}"):
            assert writer.change is not None
            intent = pending_intent(uri)
            published = intent is not None and is_published(uri, intent)
            healed = heal_beside(uri)
            run = writer.resume()
            healed.finish()
            check(uri, intent, published, run, in_time=healed.in_time)
    cuts.report()


class Healer:
    """A process that heals; it has to wait when the paused writer holds the folder's lock."""

    def __init__(self, uri: str) -> None:
        self._process = subprocess.Popen(
            worker(Task("heal", uri, lease_seconds=0.0)), cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        try:
            self._output, _ = self._process.communicate(timeout=HEALING)
            self.in_time = True
        except subprocess.TimeoutExpired:
            self.in_time = False

    def finish(self) -> None:
        """Wait for its end, now that the writer goes on."""
        if not self.in_time:
            try:
                self._output, _ = self._process.communicate(timeout=PATIENCE)
            finally:
                self._process.kill()
        assert self._output.startswith("ACK"), self._output


def heal_beside(uri: str) -> Healer:
    """Heal in a process of this machine, to which every lease from elsewhere has run out."""
    return Healer(uri)


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
        # Writer and healer went on at the same moment: either may have won.
        assert len(outcomes) <= 1
    elif intent is None or published:
        assert (outcomes, run.refused) == ([], None)
    elif intent.plan is None:
        assert (outcomes, run.refused) == (["discarded"], "conflict")
    else:
        assert (outcomes, run.refused) == (["rolled_forward"], None)
