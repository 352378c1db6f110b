"""Crash cuts: a writer killed before any change on disk leaves the old or the new state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.graph.recovery.intents import Intent
from omnigraph.graph.repository import Repository
from tests.faults.conftest import Cuts, wanted_cuts
from tests.support.abandoned import PLIGHTS, SWAP, abandon, is_published, pending_intent
from tests.support.crash import Run, copy_graph, run_traced
from tests.support.workload import (
    KINDS,
    WRITER,
    Findings,
    Setting,
    State,
    Task,
    after_all,
    catalog,
    check_invariants,
    look,
)

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]


EVERY = ["init", *(kind for kind in KINDS if kind != "heal")]
# One kind of each group that writes in the same way.
SAMPLE = [
    "init",
    "append",
    "delete",
    "mixed",
    "index",
    "bulk",
    "bulk-on-a-branch",
    "group",
    "delete-branch",
    "rewrite",
    "fold-and-trim-the-log",
]


@pytest.mark.parametrize("kind", SAMPLE if wanted_cuts() == "sample" else EVERY)
def test_a_writer_that_dies_leaves_the_state_before_or_after(
    kind: str, tmp_path: Path, settings: Callable[[Setting], Path], cuts: Cuts
) -> None:
    template = settings("nothing" if kind == "init" else KINDS[kind].setting)
    uri = copy_graph(template, tmp_path / "graph")
    before = look(uri)
    whole = run_traced(Task(kind, uri))
    assert whole.acknowledged is not None, whole.lines
    after = look(uri)
    assert after is not None
    check_cut(kind, uri, whole, before, after)
    for at in cuts.chosen(whole.changes):
        uri = copy_graph(template, tmp_path / "graph")
        run = run_traced(Task(kind, uri), at)
        with cuts.watching(at, run.cut):
            check_cut(kind, uri, run, before, after)
    cuts.report()


@pytest.mark.parametrize("plight", PLIGHTS)
def test_a_healer_that_dies_leaves_its_work_to_the_next_one(
    plight: str,
    tmp_path: Path,
    settings: Callable[[Setting], Path],
    changes_of: Callable[[str], list[str]],
    cuts: Cuts,
) -> None:
    changes = changes_of(PLIGHTS[plight].kind)
    template = Path(abandon(plight, settings("small"), tmp_path / "template", changes))
    intent = pending_intent(str(template))
    assert (intent is None) == (plight == "while-tidying")
    uri = copy_graph(template, tmp_path / "graph")
    healer = run_traced(Task("heal", uri))
    assert healer.acknowledged is not None, healer.lines
    after = look(uri)
    assert after is not None
    check_healed(plight, check_invariants(uri), intent)
    # Before the swap nothing is on record, so the intent must be there. After the swap the outcome is on record and
    # the intent is still there: the next recovery must not record it again.
    swaps = [at for at, change in enumerate(healer.changes, start=1) if change.startswith(SWAP)]
    around = [at for last in swaps[-1:] for at in (last, last + 1)]
    for at in cuts.chosen(healer.changes, 2, including=around):
        uri = copy_graph(template, tmp_path / "graph")
        run = run_traced(Task("heal", uri), at)
        with cuts.watching(at, run.cut):
            found = check_invariants(uri)
            check_healed(plight, found, intent)
            assert found.state == after
    cuts.report()


def check_cut(kind: str, uri: str, run: Run, before: State | None, after: State) -> None:
    """Check the state after a cut."""
    now = look(uri)
    made = now is not None
    if before is not None:
        after = after_all(kind, uri, before, after)
    intent = pending_intent(uri) if made else None
    published = intent is not None and is_published(uri, intent)
    if not made:
        # An incomplete root is not a graph, and the next `init` completes it.
        assert kind == "init"
        Repository.init(uri, catalog(), actor=WRITER).close()
    if kind == "keyed":
        # The same request again has the same result, whatever happened to the first one.
        KINDS[kind].act(Repository.open(uri))
    found = check_invariants(uri, acknowledged=[run.acknowledged] if run.acknowledged else [])
    assert found.state in (before, after), f"{found.state} is neither {before} nor {after}"
    if run.acknowledged is not None or kind in ("init", "keyed"):
        assert found.state == after, "what was acknowledged is not there"
    if intent is None or published:
        assert found.recoveries == [], "recovery was recorded where there was nothing to recover"
        return
    plight = "before-confirming" if intent.plan is None else "after-confirming"
    check_healed(plight, found, intent)
    assert found.state == (after if PLIGHTS[plight].visible else before)


def check_healed(plight: str, found: Findings, intent: Intent | None) -> None:
    """Check that an interrupted write was recovered once, correctly, and with its actor."""
    expected = PLIGHTS[plight]
    if expected.outcome is None:
        assert found.recoveries == []
        return
    assert intent is not None
    assert [item.id for item in found.recoveries] == [intent.id], "there must be one record of the recovery"
    record = found.recoveries[0]
    assert record.actor == intent.actor == WRITER
    assert record.outcome == expected.outcome
    if intent.plan is not None:
        commit = found.commits.get(intent.plan.commit_id)
        assert (commit is not None) == expected.visible
        assert commit is None or (commit.recovered and commit.actor == WRITER)
