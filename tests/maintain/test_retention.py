"""Which commits keep their data, and how a length of time is written."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from omnigraph.errors import InvalidInput
from omnigraph.graph.repository import Repository
from omnigraph.maintain.retention import Retention, parse_duration, retained_commits
from omnigraph.store.records import CommitRecord
from tests.maintain.graphs import change, merge, new_graph

NEVER = 2**62


@pytest.fixture
def graph(tmp_path: Path) -> Repository:
    return new_graph(str(tmp_path / "g"))


def retained(graph: Repository, *, keep: int = 1, since: int = NEVER) -> set[str]:
    view = graph.manifest.refresh()
    heads = [graph.head(name).commit for name in graph.branches()]
    found = retained_commits(graph.manifest, view, heads, keep=keep, since=since)
    assert len({item.id for item in found}) == len(found)
    return {item.id for item in found}


def ids(*commits: CommitRecord) -> set[str]:
    return {commit.id for commit in commits}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45s", 45),
        ("30m", 1800),
        ("12h", 43200),
        ("7d", 604800),
        ("2w", 1209600),
        ("90", 90),
        (" 1 h ", 3600),
    ],
)
def test_a_duration_is_a_whole_number_and_a_unit(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "d", "-1d", "1.5h", "1y", "7 days", "1h30m", "٣d", "7D"])
def test_anything_else_is_refused_with_the_text_and_an_example(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a duration") as refused:
        parse_duration(text)
    assert f"'{text}'" in refused.value.message
    assert "7d" in str(refused.value.hint)


def test_a_duration_beyond_all_measure_is_refused() -> None:
    with pytest.raises(InvalidInput, match="too long"):
        parse_duration("9" * 30 + "w")


def test_a_negative_length_of_time_is_refused() -> None:
    with pytest.raises(InvalidInput, match="negative"):
        parse_duration(timedelta(seconds=-1))


def test_a_policy_needs_a_limit() -> None:
    with pytest.raises(InvalidInput) as refused:
        Retention.of(None, None)
    assert refused.value.message == "cleanup requires at least one of --keep or --older-than"


@pytest.mark.parametrize("keep", [0, -3])
def test_at_least_the_newest_commit_is_kept(keep: int) -> None:
    with pytest.raises(InvalidInput, match="at least its newest commit"):
        Retention.of(keep, "7d")


def test_keep_counts_the_newest_commits_of_each_branch(graph: Repository) -> None:
    main = [change(graph, f"m{number}") for number in range(4)]
    graph.create_branch("side", at=main[1].id)
    side = [change(graph, f"s{number}", branch="side") for number in range(2)]
    assert retained(graph, keep=2) == ids(main[3], main[2], side[1], side[0])
    assert retained(graph, keep=3) == ids(*main[1:], *side)


def test_a_head_is_kept_whatever_its_age(graph: Repository) -> None:
    change(graph, "old")
    head = change(graph, "new")
    assert retained(graph) == ids(head)


def test_a_commit_ages_from_the_moment_it_was_replaced(graph: Repository) -> None:
    first, second, third = (change(graph, f"p{number}") for number in range(3))
    assert retained(graph, since=second.created_at) == ids(second, third)
    assert retained(graph, since=second.created_at - 1) == ids(first, second, third)


def test_what_was_merged_counts_as_near_as_what_it_was_merged_into(graph: Repository) -> None:
    first = change(graph, "a")
    graph.create_branch("side")
    merged = change(graph, "b", branch="side")
    own = change(graph, "c")
    head = merge(graph, "side")
    graph.delete_branch("side")
    assert retained(graph, keep=1) == ids(head)
    assert retained(graph, keep=2) == ids(head, own, merged)
    assert retained(graph, keep=3) == ids(head, own, merged, first)
    assert retained(graph, since=head.created_at - 1) == ids(head, own, merged)


def test_commits_of_a_deleted_branch_are_not_kept(graph: Repository) -> None:
    graph.create_branch("side")
    change(graph, "a", branch="side")
    head = change(graph, "b")
    graph.delete_branch("side")
    assert retained(graph) == ids(head)
