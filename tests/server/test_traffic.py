"""Many client processes at one server: every acknowledged result is in the graph afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.traffic import Outcome, Plan, render, run_traffic
from bench.traffic_check import (
    REFUSALS,
    Event,
    History,
    check_acknowledged,
    check_answers,
    check_sight,
    check_timelines,
)
from bench.traffic_journal import UNANSWERED, UNSENT, Entry, Journal, Story, read_stories
from omnigraph.store.manifest.records import CommitRecord

# Few clients write to main, so that the run is short and every kind of request occurs.
SHORT = Plan(seconds=5.0, writers=12)
KILLED = Plan(seconds=3.0, clients=32, writers=8, processes=2, kills=3)
EVERY_REQUEST = {
    *("point", "hops", "owned", "stored", "snapshot", "commits", "feed", "value"),
    *("insert", "load", "count", "branch", "merge"),
}


def check_run(plan: Plan, outcome: Outcome) -> Counter[int]:
    """Check a run, and return the number of responses by status."""
    assert outcome.wrong == []
    assert len(outcome.stories) == plan.clients
    assert all(story.entries for story in outcome.stories)
    ops = {entry.op for entry in outcome.entries()}
    assert {*render(plan, outcome).columns[0].cells} == {*ops, "all"}
    return Counter(entry.status for entry in outcome.entries())


# The test with kills checks the same, and more.
@pytest.mark.long
@pytest.mark.slow
def test_concurrent_clients_see_consistent_history(tmp_path: Path) -> None:
    outcome = run_traffic(SHORT, tmp_path)
    statuses = check_run(SHORT, outcome)
    assert statuses.keys() <= {200, *REFUSALS}
    assert {entry.op for entry in outcome.entries() if entry.is_done} >= EVERY_REQUEST


@pytest.mark.slow
def test_repeatedly_killed_server_keeps_acknowledged_writes(tmp_path: Path) -> None:
    outcome = run_traffic(KILLED, tmp_path)
    statuses = check_run(KILLED, outcome)
    assert statuses[UNANSWERED] > 0
    assert any(entry.commit is not None for entry in outcome.entries())
    assert statuses.keys() <= {200, *REFUSALS, UNANSWERED, UNSENT}


# --- the check of the journal -------------------------------------------------------------------------------


def commit(number: int, **members: object) -> CommitRecord:
    """Return the commit with that number on main, by the actor of client 0."""
    common: dict[str, object] = {"branch": "main", "incarnation": "i", "actor": "ann", "operation": "mutate"}
    rest = {"merged_parent": None, "message": None, "created_at": number, "schema": "s", **common, **members}
    return CommitRecord(id=f"c{number}", sequence=number, parent=f"c{number - 1}", **rest)  # type: ignore[arg-type]


CHAIN = [commit(number) for number in range(1, 7)]
HISTORY = History({item.id: item for item in CHAIN}, {"main": CHAIN})


def sent(op: str, status: int = 200, at: str | None = None, *pairs: str, **what: object) -> Entry:
    """Return a request about one or several pairs."""
    return Entry(0, 1, op, {"branch": "main", "pairs": pairs or ("p",), **what}, status, commit=at)


@pytest.mark.parametrize(
    ("entries", "timeline"),
    [
        ([sent("insert", 200, "c3")], [Event("insert", "c3")]),
        ([sent("insert", UNANSWERED)], [Event("insert", "c3")]),
        ([sent("insert", UNANSWERED)], []),
        ([sent("insert", UNSENT), sent("insert", 409)], []),
        ([sent("insert", 200, "c3"), sent("update", UNANSWERED)], [Event("insert", "c3")]),
        (
            [sent("insert", 200, "c3"), sent("update", 409), sent("delete", 200, "c5")],
            [Event("insert", "c3"), Event("delete", "c5")],
        ),
        ([sent("insert", UNANSWERED, key="k"), sent("insert", 200, "c3", key="k")], [Event("insert", "c3")]),
    ],
)
def test_journal_check_accepts_valid_history(entries: Sequence[Entry], timeline: Sequence[Event]) -> None:
    story = Story(0, tuple(entries), ())
    assert list(check_timelines([story], {"p": timeline} if timeline else {}, HISTORY)) == []


@pytest.mark.parametrize(
    ("entries", "timeline"),
    [
        pytest.param([sent("insert", 200, "c3")], [], id="lost"),
        pytest.param([sent("insert", 200, "c3")], [Event("insert", "c4")], id="at another commit"),
        pytest.param(
            [sent("insert", 200, "c3")], [Event("insert", "c3"), Event("insert", "c4")], id="done twice"
        ),
        pytest.param([sent("insert", 409)], [Event("insert", "c3")], id="refused and done"),
        pytest.param([sent("insert", UNSENT)], [Event("insert", "c3")], id="never sent and done"),
        pytest.param(
            [sent("insert", 200, "c3"), sent("delete", 200, "c4")], [Event("insert", "c3")], id="not deleted"
        ),
        pytest.param([], [Event("insert", "c3")], id="nobody's"),
        pytest.param([sent("merge", 200), sent("insert", 200, "c9", branch="work/p")], [], id="not merged"),
    ],
)
def test_journal_check_reports_invalid_history(entries: Sequence[Entry], timeline: Sequence[Event]) -> None:
    story = Story(0, tuple(entries), ())
    assert list(check_timelines([story], {"p": timeline} if timeline else {}, HISTORY))


def test_journal_check_reports_partial_load() -> None:
    story = Story(0, (sent("load", UNANSWERED, None, "p", "q"),), ())
    assert list(check_timelines([story], {"p": [Event("insert", "c3")]}, HISTORY))


@pytest.mark.parametrize(
    "entry",
    [
        sent("insert", 200, "gone"),
        sent("insert", 200, "c3", base="c1"),
        replace(sent("insert", 200, "c3"), client=1),
    ],
)
def test_journal_check_reports_different_commit(entry: Entry) -> None:
    assert check_acknowledged([Story(entry.client, (entry,), ())], HISTORY)


def test_journal_check_reports_commit_acknowledged_twice() -> None:
    entry = sent("insert", 200, "c3")
    assert check_acknowledged([Story(0, (entry,), ())], HISTORY) == []
    assert check_acknowledged([Story(0, (entry, entry), ())], HISTORY)


def test_journal_check_reports_moved_back_branch_and_feed_gap() -> None:
    looks = [replace(sent("point"), seen=(("main", id_),)) for id_ in ("c2", "c4", "c4", "c3")]
    assert list(check_sight(Story(0, tuple(looks[:3]), ()), HISTORY)) == []
    assert len(list(check_sight(Story(0, tuple(looks), ()), HISTORY))) == 1
    feeds = [replace(sent("feed"), fed=fed) for fed in (("c2", "c3"), (), ("c4",), ("c6",))]
    assert list(check_sight(Story(0, tuple(feeds[:3]), ()), HISTORY)) == []
    assert len(list(check_sight(Story(0, tuple(feeds), ()), HISTORY))) == 1


@pytest.mark.parametrize("status", [500, 503, 404, UNANSWERED])
def test_journal_check_reports_unexpected_status(status: int) -> None:
    assert list(check_answers(Story(0, (sent("point", status),), ()), killed=False))


def test_journal_lists_unfinished_requests(tmp_path: Path) -> None:
    with Journal(tmp_path, 3) as journal:
        done = journal.begin("insert", {"pairs": ["p"]})
        journal.begin("delete", {"pairs": ["p"]})
        journal.end(done, status=200, ms=1.5, commit="c1", seen=[("main", "c1")])
        journal.record_violation("that is odd")
    (story,) = read_stories(tmp_path)
    assert [(entry.op, entry.status) for entry in story.entries] == [("insert", 200), ("delete", UNANSWERED)]
    assert story.entries[0].seen == (("main", "c1"),)
    assert story.wrong == ("client 3: that is odd",)
