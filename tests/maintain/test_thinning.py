"""Thinning: the last commit of each minute, hour and day, computed step by step or at once."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.maintain.retention import micros
from omnigraph.maintain.thinning import Dated, ThinnedBranch, Thinning, thin
from omnigraph.store.manifest.records import CommitRecord, HeadRecord

MINUTE, HOUR, DAY = (micros(timedelta(seconds=unit)) for unit in (60, 3_600, 86_400))
WEEK = 7 * DAY


def chain(moments: list[int]) -> list[CommitRecord]:
    """Commits of one branch, each the child of the one before."""
    commits: list[CommitRecord] = []
    for number, moment in enumerate(moments):
        parent = commits[-1].id if commits else None
        record = CommitRecord(
            f"c{number:05}", "main", "inc", number + 1, parent, None, None, "write", None, moment, "s"
        )
        commits.append(record)
    return commits


def kept(commits: list[Dated], now: int) -> set[str]:
    return {id_ for id_, _ in thin(commits, now, WEEK)}


gaps = st.lists(
    st.sampled_from([1, MINUTE // 3, MINUTE, HOUR // 3, HOUR, DAY // 3, DAY]), min_size=1, max_size=60
)


@given(gaps)
def test_thin_keeps_the_last_commit_of_every_minute_hour_and_day(steps: list[int]) -> None:
    moments = [sum(steps[: number + 1]) + 40 * DAY for number in range(len(steps))]
    now = moments[-1]
    commits = [(item.id, item.created_at) for item in chain(moments)]
    found = kept(commits, now)
    for id_, moment in commits:
        age = now - moment
        if age >= WEEK:
            assert id_ not in found
            continue
        unit, limit = (MINUTE, HOUR) if age < HOUR else (HOUR, DAY) if age < DAY else (DAY, WEEK)
        later = [
            other
            for other, time in commits
            if time // unit == moment // unit and now - time < limit and (time, other) > (moment, id_)
        ]
        later = [
            other
            for other in later
            if unit == MINUTE or now - dict(commits)[other] >= (HOUR, DAY)[unit == DAY]
        ]
        assert (id_ in found) == (not later)


@given(gaps, st.integers(min_value=1, max_value=7))
def test_advance_step_by_step_keeps_what_one_step_keeps(steps: list[int], stride: int) -> None:
    moments = [sum(steps[: number + 1]) + 40 * DAY for number in range(len(steps))]
    commits = chain(moments)
    by_id = {item.id: item for item in commits}
    slowly, step = Thinning(WEEK), list[str]()
    for end in [*range(stride, len(commits), stride), len(commits)]:
        head = HeadRecord("main", "inc", commits[end - 1])
        step = slowly.advance(by_id.__getitem__, [head], commits[end - 1].created_at)
        # What is stored between two passes is enough for the next one.
        stored = {name: ThinnedBranch.from_json(item.to_json()) for name, item in slowly.branches.items()}
        slowly = Thinning(WEEK, stored)
    at_once = Thinning(WEEK).advance(
        by_id.__getitem__, [HeadRecord("main", "inc", commits[-1])], commits[-1].created_at
    )
    assert set(step) == set(at_once)


def test_advance_reads_only_commits_since_the_last_call() -> None:
    commits = chain([40 * DAY + number * MINUTE for number in range(50)])
    read: list[str] = []

    def get(id_: str) -> CommitRecord:
        read.append(id_)
        return commits[int(id_[1:])]

    thinning = Thinning(WEEK)
    thinning.advance(get, [HeadRecord("main", "inc", commits[39])], commits[39].created_at)
    read.clear()
    thinning.advance(get, [HeadRecord("main", "inc", commits[44])], commits[44].created_at)
    assert sorted(read) == [item.id for item in commits[39:44]]


def test_advance_forgets_deleted_branches_and_skips_those_without_commits() -> None:
    commits = chain([40 * DAY])
    thinning = Thinning(WEEK)
    at_rest = HeadRecord("dev", "other", commits[0])
    assert thinning.advance(lambda _: commits[0], [at_rest], 40 * DAY) == []
    assert thinning.advance(lambda _: commits[0], [HeadRecord("main", "inc", commits[0])], 40 * DAY) == [
        "c00000"
    ]
    assert thinning.advance(lambda _: commits[0], [], 40 * DAY) == []
    assert thinning.branches == {}
