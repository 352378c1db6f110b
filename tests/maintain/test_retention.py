"""Retention of commits, and the syntax of durations."""

from __future__ import annotations

import random
import tempfile
from datetime import timedelta
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.api.results.merges import Merged
from omnigraph.errors import InvalidInput, MergeConflicts, NotFound
from omnigraph.graph.history import get_commit, virtual_base_ancestors
from omnigraph.graph.repository import Repository
from omnigraph.maintain import retention
from omnigraph.maintain.cleanup import cleanup
from omnigraph.maintain.retention import MergeBases, Retention, parse_duration, retained_commits
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord
from tests.maintain.graphs import (
    CITY,
    NO_GRACE,
    RECLAIMED,
    change,
    merge,
    new_graph,
    overwrite,
    reopened,
    rows_at,
)

NEVER = 2**62


@pytest.fixture
def graph(tmp_path: Path) -> Repository:
    return new_graph(str(tmp_path / "g"))


def retained(graph: Repository, *, keep: int = 1, since: int = NEVER) -> set[str]:
    view = graph.manifest.refresh()
    heads = [graph.head(name).commit for name in graph.branches()]
    found = list(retained_commits(partial(get_commit, graph.manifest, view), heads, keep=keep, since=since))
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
    with pytest.raises(InvalidInput, match="keep: expected at least 1"):
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


# --- where branches part -------------------------------------------------------------------------------------


def bases(graph: Repository, lineage: MergeBases | None = None) -> set[str]:
    view = graph.manifest.refresh()
    heads = [graph.head(name) for name in graph.branches()]
    found = (lineage or MergeBases(graph.manifest)).of(view, heads)
    assert len({item.id for item in found}) == len(found)
    return {item.id for item in found}


def bases_of_pairs(graph: Repository, pairs: list[tuple[str, str]]) -> set[str]:
    """Return the commits that a merge of each pair of branches compares as merge bases."""
    view = graph.manifest.refresh()
    get = partial(get_commit, graph.manifest, view)
    heads = ([graph.head(name).commit for name in pair] for pair in pairs)
    return {item.id for ours, theirs in heads for item in virtual_base_ancestors(get, ours, theirs)}


def people(graph: Repository, branch: str) -> list[object]:
    return sorted(graph.snapshot(branch).scan("node:Person")["id"].to_pylist())


def merge_people(graph: Repository, source: str, into: str = "main") -> Merged:
    """Merge a branch into another on a new handle."""
    return og.open(graph.location.uri, durability="os").branches.merge(source, into)


def test_a_branch_that_parted_long_ago_can_be_merged_after_cleanup(graph: Repository) -> None:
    overwrite(graph, "old", "gone")
    fork = overwrite(graph, "old")
    graph.create_branch("side")
    change(graph, "theirs", branch="side", delete=["old"])
    change(graph, "more", branch="side")
    for number in range(3):
        change(graph, f"ours-{number}")
    report = cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    assert report.old_versions_removed > 0
    assert rows_at(reopened(graph), fork) != RECLAIMED
    merged = merge_people(graph, "side")
    assert merged.outcome == "merged"
    assert merged.affected == {"Person": {"inserted": 2, "updated": 0, "deleted": 1}}
    assert people(graph, "main") == ["more", "ours-0", "ours-1", "ours-2", "theirs"]


def test_a_base_goes_with_the_branch_that_needed_it(graph: Repository) -> None:
    fork = overwrite(graph, "old")
    graph.create_branch("side")
    overwrite(graph, "theirs", branch="side")
    overwrite(graph, "ours")
    cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    assert rows_at(reopened(graph), fork) != RECLAIMED
    graph.delete_branch("side")
    cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    assert rows_at(reopened(graph), fork) == RECLAIMED


def test_a_merge_makes_a_newer_base_and_the_older_one_goes(graph: Repository) -> None:
    fork = overwrite(graph, "old")
    graph.create_branch("side")
    theirs = overwrite(graph, "theirs", branch="side")
    change(graph, "Rome", key=CITY)
    assert merge_people(graph, "side").outcome == "merged"
    overwrite(graph, "ours")
    overwrite(graph, "theirs too", branch="side")
    assert bases(graph) == ids(theirs)
    cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    fresh = reopened(graph)
    assert [rows_at(fresh, item) == RECLAIMED for item in (fork, theirs)] == [True, False]


def test_cleanup_after_a_criss_cross_retains_every_merge_base_and_their_ancestor(graph: Repository) -> None:
    fork = overwrite(graph, "old")
    graph.create_branch("side")
    theirs = overwrite(graph, "old", "theirs", branch="side")
    ours = overwrite(graph, "old", "ours")
    graph.create_branch("copy")
    assert merge_people(graph, "side").outcome == "merged"
    merge_people(graph, "copy", "side")
    graph.delete_branch("copy")
    overwrite(graph, "old", "theirs")
    overwrite(graph, "old", "ours", "theirs", "more", branch="side")
    assert bases(graph) == ids(fork, ours, theirs)
    cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    assert merge_people(graph, "side").outcome == "merged"
    # `ours` was deleted on main after both branches had it.
    assert people(graph, "main") == ["more", "old", "theirs"]


def test_merge_after_a_criss_cross_whose_old_ancestor_was_reclaimed_decides_nothing_for_it(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = overwrite(graph, "old")
    graph.create_branch("side")
    theirs = overwrite(graph, "old", "theirs", branch="side")
    ours = overwrite(graph, "old", "ours")
    graph.create_branch("copy")
    merge_people(graph, "side")
    merge_people(graph, "copy", "side")
    graph.delete_branch("copy")
    overwrite(graph, "old", "theirs")
    overwrite(graph, "old", "ours", "theirs", "more", branch="side")
    with monkeypatch.context() as patch:
        patch.setattr(MergeBases, "of", lambda *_: [ours, theirs])
        cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    assert rows_at(reopened(graph), fork) == RECLAIMED
    # Without it, `ours` may have been inserted on one branch or deleted on the other.
    with pytest.raises(MergeConflicts) as caught:
        merge_people(graph, "side")
    assert [(item["entity_id"], item["kind"]) for item in caught.value.conflicts] == [
        ("ours", "delete_vs_update")
    ]


def test_a_merge_whose_base_was_reclaimed_says_so(graph: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    fork = overwrite(graph, "old")
    graph.create_branch("side")
    overwrite(graph, "theirs", branch="side")
    head = overwrite(graph, "ours")
    # Disable the retention of merge bases.
    monkeypatch.setattr(MergeBases, "of", lambda *_: [])
    cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    with pytest.raises(NotFound, match=f"the data of commit '{fork.id}' was reclaimed by cleanup") as refused:
        merge_people(graph, "side")
    assert refused.value.details == {"commit_id": fork.id, "reason": "reclaimed"}
    assert graph.head().commit == head


def test_cleanup_does_not_mind_a_base_that_was_reclaimed_before(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = overwrite(graph, "old")
    graph.create_branch("side")
    overwrite(graph, "theirs", branch="side")
    overwrite(graph, "ours")
    with monkeypatch.context() as patch:
        patch.setattr(MergeBases, "of", lambda *_: [])
        cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    assert bases(graph) == ids(fork)
    report = cleanup(graph, keep=1, confirm=True, grace=NO_GRACE)
    assert (report.files_removed, [item.error for item in report.datasets if item.error]) == (0, [])


@settings(max_examples=15, deadline=None)
@given(
    steps=st.lists(st.sampled_from(["change"] * 4 + ["branch", "branch", "merge"]), max_size=24),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_bases_are_those_that_merges_find(steps: list[str], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        graph, dice = new_graph(str(Path(folder) / "g")), random.Random(seed)
        lineage = MergeBases(graph.manifest)
        for number, step in enumerate(steps):
            branch, other = dice.choices(list(graph.branches()), k=2)
            if step == "change":
                change(graph, f"p{number}", branch=branch)
            elif step == "branch":
                graph.create_branch(f"b{number}", branch)
            elif branch != other:
                merge(graph, branch, other)
            if number % 5 == 0:
                bases(graph, lineage)
        expected = bases_of_pairs(graph, list(combinations(graph.branches(), 2)))
        # A cache that is used over the whole history returns the same as a new one.
        assert bases(graph) == bases(graph, lineage) == expected


def test_merge_bases_computed_again_and_again_equal_those_computed_at_once(graph: Repository) -> None:
    lineage = MergeBases(graph.manifest)
    graph.create_branch("side")
    for number in range(6):
        change(graph, f"m{number}")
        change(graph, f"s{number}", branch="side")
        if number % 2:
            merge(graph, "side")
            change(graph, f"after-{number}")
        assert bases(graph, lineage) == bases(graph)
    graph.delete_branch("side")
    graph.create_branch("side")
    change(graph, "again", branch="side")
    assert bases(graph, lineage) == bases(graph)


def test_among_many_branches_those_with_main_and_with_the_origin_count(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MAX_BRANCHES_FOR_ALL_PAIRS", 3)
    change(graph, "a")
    pairs = []
    for name, origin in (("b", "main"), ("c", "b"), ("d", "c"), ("e", "main"), ("f", "c")):
        graph.create_branch(name, origin)
        change(graph, name, branch=name)
        change(graph, f"{origin} again after {name}", branch=origin)
        pairs += [(name, "main"), (name, origin)]
    # Two branches whose common source branch is deleted.
    graph.create_branch("gone")
    shared = change(graph, "shared", branch="gone")
    for name in ("x", "y"):
        graph.create_branch(name, "gone")
        change(graph, name, branch=name)
        pairs.append((name, "main"))
    graph.delete_branch("gone")
    wanted = bases_of_pairs(graph, pairs)
    assert bases(graph) == wanted
    monkeypatch.setattr(retention, "MAX_BRANCHES_FOR_ALL_PAIRS", 64)
    assert bases(graph) == wanted | ids(shared)


def test_lineage_is_read_once_however_many_branches_there_are(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        change(graph, f"m{number}")
        graph.create_branch(f"b{number}")
        change(graph, f"b{number}", branch=f"b{number}")
    read: list[str] = []
    usual = Manifest.find_commit

    def counting(self: Manifest, view: ManifestView, id_: str) -> CommitRecord | None:
        read.append(id_)
        return usual(self, view, id_)

    monkeypatch.setattr(Manifest, "find_commit", counting)
    lineage = MergeBases(graph.manifest)
    found = bases(graph, lineage)
    commits = sum(1 for _ in graph.manifest.all_commits(graph.manifest.view))
    assert len(read) == len(set(read)) <= commits
    read.clear()
    assert bases(graph, lineage) == found
    assert read == []
