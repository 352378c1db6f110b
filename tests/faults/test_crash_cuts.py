"""A writer that dies before any of its changes to the disk leaves the state before or the state after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.graph.intents import Intent, Intents
from omnigraph.graph.repository import Repository
from omnigraph.store.objects import ObjectStore
from tests.faults.conftest import VARIABLE
from tests.support.crash import Run, copy_graph, run_traced
from tests.support.workload import (
    KINDS,
    WRITER,
    Findings,
    Setting,
    State,
    Task,
    catalog,
    check_invariants,
    look,
    write,
)

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]

Record = Callable[[str, object], None]
SAMPLE = 3


def replay(test: str, at: int) -> str:
    """The command that repeats one cut."""
    return f'{VARIABLE}={at} .venv/bin/python -m pytest "tests/faults/test_crash_cuts.py::{test}"'


def pending_intent(uri: str) -> Intent | None:
    """The intent that a dead writer left."""
    intents = Intents(ObjectStore.open(uri))
    found = [item for item in map(intents.read, intents.pending()) if item is not None]
    assert len(found) <= 1
    return found[0] if found else None


def is_published(uri: str, intent: Intent) -> bool:
    graph = Repository.open(uri, mode="r")
    plan = intent.plan
    found = plan is not None and graph.manifest.find_commit(graph.manifest.view, plan.commit_id) is not None
    graph.close()
    return found


def check_cut(kind: str, uri: str, run: Run, before: State | None, after: State) -> None:
    """Everything that must hold after a cut."""
    intent = None if look(uri) is None else pending_intent(uri)
    published = intent is not None and is_published(uri, intent)
    if kind == "init" and look(uri) is None:
        Repository.init(uri, catalog(), actor=WRITER).close()
    if kind == "keyed":
        # Whatever became of the first request, the same request again settles it.
        KINDS[kind].act(Repository.open(uri))
    found = check_invariants(uri, acknowledged=[run.acknowledged] if run.acknowledged else [])
    assert found.state in (before, after), f"{found.state} is neither {before} nor {after}"
    if run.acknowledged is not None or kind in ("init", "keyed"):
        assert found.state == after, "what was acknowledged is not there"
    if intent is None or published:
        assert found.recoveries == [], "recovery was recorded where there was nothing to recover"
        return
    check_healed(found, intent)
    assert found.state == (before if intent.plan is None else after)


def check_healed(found: Findings, intent: Intent) -> None:
    """An abandoned write was settled once, rightly, and in its owner's name."""
    assert [item.id for item in found.recoveries] == [intent.id], "there must be one record of the recovery"
    record = found.recoveries[0]
    assert record.actor == intent.actor
    assert record.outcome == ("discarded" if intent.plan is None else "rolled_forward")
    if intent.plan is not None:
        commit = found.commits[intent.plan.commit_id]
        assert commit.recovered
        assert commit.actor == intent.actor


@pytest.mark.parametrize("kind", ["init", *(kind for kind in KINDS if kind != "heal")])
def test_a_writer_that_dies_leaves_the_state_before_or_after(
    kind: str,
    tmp_path: Path,
    settings: Callable[[Setting], Path],
    choose_cuts: Callable[[int, int], list[int]],
    record_property: Record,
) -> None:
    template = settings("nothing" if kind == "init" else KINDS[kind].setting)
    uri = copy_graph(template, tmp_path / "graph")
    before = look(uri)
    whole = run_traced(Task(kind, uri))
    assert whole.acknowledged is not None, whole.lines
    after = look(uri)
    assert after is not None
    check_cut(kind, uri, whole, before, after)

    test = f"test_a_writer_that_dies_leaves_the_state_before_or_after[{kind}]"
    cuts, violations = 0, []
    for at in choose_cuts(len(whole.changes), SAMPLE):
        uri = copy_graph(template, tmp_path / "graph")
        run = run_traced(Task(kind, uri), at)
        cuts += 1
        try:
            check_cut(kind, uri, run, before, after)
        except Exception as error:  # noqa: BLE001
            violations.append(f"cut {at} before {run.cut}: {error!r}\n  {replay(test, at)}")
    record_property("cuts", cuts)
    record_property("violations", len(violations))
    assert not violations, "\n".join(violations)
