"""Many clients of other processes at one server: what they were told is what the graph says afterwards."""

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

# Fewer write to main than read it: the run is to be short, and all of it is to happen.
SHORT = Plan(seconds=5.0, writers=12)
EVERY_REQUEST = {
    *("point", "hops", "owned", "stored", "snapshot", "commits", "feed", "value"),
    *("insert", "load", "count", "branch", "merge"),
}


def check_run(plan: Plan, outcome: Outcome) -> Counter[int]:
    """What holds of every run; how often each status was answered."""
    assert outcome.wrong == []
    assert len(outcome.stories) == plan.clients
    assert all(story.entries for story in outcome.stories)
    ops = {entry.op for entry in outcome.entries()}
    assert {*render(plan, outcome).columns[0].cells} == {*ops, "all"}
    return Counter(entry.status for entry in outcome.entries())


# Starting a server is what takes long on a busy machine.
@pytest.mark.slow
def test_what_many_clients_at_once_are_told_is_so(tmp_path: Path) -> None:
    outcome = run_traffic(SHORT, tmp_path)
    statuses = check_run(SHORT, outcome)
    assert statuses.keys() <= {200, *REFUSALS}
    assert {entry.op for entry in outcome.entries() if entry.is_done} >= EVERY_REQUEST


@pytest.mark.slow
def test_a_server_that_is_killed_again_and_again_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    plan = replace(SHORT, kills=2)
    outcome = run_traffic(plan, tmp_path)
    statuses = check_run(plan, outcome)
    assert statuses[UNANSWERED] > 0
    assert any(entry.commit is not None for entry in outcome.entries())
    assert statuses.keys() <= {200, *REFUSALS, UNANSWERED, UNSENT}


# --- the proof itself ---------------------------------------------------------------------------------------


def commit(number: int, **members: object) -> CommitRecord:
    """The commit of that number on main, by client 0's actor."""
    common: dict[str, object] = {"branch": "main", "incarnation": "i", "actor": "ann", "operation": "mutate"}
    rest = {"merged_parent": None, "message": None, "created_at": number, "schema": "s", **common, **members}
    return CommitRecord(id=f"c{number}", sequence=number, parent=f"c{number - 1}", **rest)  # type: ignore[arg-type]


CHAIN = [commit(number) for number in range(1, 7)]
HISTORY = History({item.id: item for item in CHAIN}, {"main": CHAIN})


def sent(op: str, status: int = 200, at: str | None = None, *pairs: str, **what: object) -> Entry:
    """A request about a pair, or several."""
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
def test_what_a_journal_allows_is_not_complained_of(
    entries: Sequence[Entry], timeline: Sequence[Event]
) -> None:
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
def test_what_a_journal_does_not_allow_is_found(entries: Sequence[Entry], timeline: Sequence[Event]) -> None:
    story = Story(0, tuple(entries), ())
    assert list(check_timelines([story], {"p": timeline} if timeline else {}, HISTORY))


def test_half_a_load_is_found() -> None:
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
def test_a_commit_that_is_not_as_it_was_told_is_found(entry: Entry) -> None:
    assert check_acknowledged([Story(entry.client, (entry,), ())], HISTORY)


def test_a_commit_that_two_were_told_of_is_found() -> None:
    entry = sent("insert", 200, "c3")
    assert check_acknowledged([Story(0, (entry,), ())], HISTORY) == []
    assert check_acknowledged([Story(0, (entry, entry), ())], HISTORY)


def test_a_branch_that_goes_back_and_a_feed_with_a_hole_are_found() -> None:
    looks = [replace(sent("point"), seen=(("main", id_),)) for id_ in ("c2", "c4", "c4", "c3")]
    assert list(check_sight(Story(0, tuple(looks[:3]), ()), HISTORY)) == []
    assert len(list(check_sight(Story(0, tuple(looks), ()), HISTORY))) == 1
    feeds = [replace(sent("feed"), fed=fed) for fed in (("c2", "c3"), (), ("c4",), ("c6",))]
    assert list(check_sight(Story(0, tuple(feeds[:3]), ()), HISTORY)) == []
    assert len(list(check_sight(Story(0, tuple(feeds), ()), HISTORY))) == 1


@pytest.mark.parametrize("status", [500, 503, 404, UNANSWERED])
def test_an_answer_that_is_no_conflict_is_found(status: int) -> None:
    assert list(check_answers(Story(0, (sent("point", status),), ()), killed=False))


def test_a_journal_tells_what_was_begun_and_never_ended(tmp_path: Path) -> None:
    with Journal(tmp_path, 3) as journal:
        done = journal.begin("insert", {"pairs": ["p"]})
        journal.begin("delete", {"pairs": ["p"]})
        journal.end(done, status=200, ms=1.5, commit="c1", seen=[("main", "c1")])
        journal.record_violation("that is odd")
    (story,) = read_stories(tmp_path)
    assert [(entry.op, entry.status) for entry in story.entries] == [("insert", 200), ("delete", UNANSWERED)]
    assert story.entries[0].seen == (("main", "c1"),)
    assert story.wrong == ("client 3: that is odd",)
