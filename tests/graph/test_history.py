"""Merge bases, compared with an exhaustive search on random commit graphs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.errors import NotFound
from omnigraph.graph.history import ancestors_by_distance, commit_at, first_parents, get_commit, merge_base
from omnigraph.store.manifest.manifest import Manifest, ManifestChange
from omnigraph.store.manifest.records import CommitRecord
from tests.support.manifests import child, genesis, head_of, make_manifest
from tests.support.places import fresh_memory


@dataclass
class Lineage:
    """A commit graph of any shape in one manifest."""

    manifest: Manifest
    commits: list[CommitRecord]

    def base(self, ours: int, theirs: int) -> str | None:
        found = merge_base(self.get, self.commits[ours], self.commits[theirs])
        return None if found is None else found.id

    def get(self, id_: str) -> CommitRecord:
        return get_commit(self.manifest, self.manifest.view, id_)

    def ancestors(self, start: CommitRecord) -> dict[str, int]:
        """Return every ancestor with its shortest distance, from a walk over all edges."""
        by_id = {commit.id: commit for commit in self.commits}
        found = {start.id: 0}
        level = [start]
        while level:
            parents = [
                by_id[id_]
                for commit in level
                for id_ in (commit.parent, commit.merged_parent)
                if id_ is not None
            ]
            level = []
            for parent in parents:
                if parent.id not in found:
                    found[parent.id] = 1 + min(
                        found[commit.id]
                        for commit in self.commits
                        if commit.id in found and parent.id in (commit.parent, commit.merged_parent)
                    )
                    level.append(parent)
        return found

    def expected_base(self, ours: int, theirs: int) -> str | None:
        one, two = self.ancestors(self.commits[ours]), self.ancestors(self.commits[theirs])
        by_id = {commit.id: commit for commit in self.commits}
        common = one.keys() & two.keys()
        below = {id_ for other in common for id_ in self.ancestors(by_id[other]) if id_ != other}
        best = [(-(one[id_] + two[id_]), by_id[id_].created_at, id_) for id_ in common - below]
        return max(best)[2] if best else None


def lineage(parents: list[tuple[int | None, int | None]], times: list[int]) -> Lineage:
    """Return commits whose parents are earlier ones, by number."""
    manifest = make_manifest(fresh_memory())
    commits: list[CommitRecord] = []
    for (first, second), created_at in zip(parents, times, strict=True):
        made = genesis() if first is None else child(commits[first])
        merged = None if second is None else commits[second].id
        commits.append(replace(made, merged_parent=merged, created_at=created_at))
    head = head_of(manifest, manifest.view)
    manifest.replace_head_if_equals(manifest.view, head, ManifestChange(heads=[head], commits=commits))
    return Lineage(manifest, commits)


def simple(*parents: tuple[int | None, int | None]) -> Lineage:
    return lineage(list(parents), list(range(1, len(parents) + 1)))


def test_the_base_of_a_commit_and_itself_is_itself() -> None:
    found = simple((None, None), (0, None))
    assert found.base(1, 1) == found.commits[1].id


def test_the_base_of_a_commit_and_its_ancestor_is_the_ancestor() -> None:
    found = simple((None, None), (0, None), (1, None), (2, None))
    assert found.base(3, 1) == found.base(1, 3) == found.commits[1].id


def test_the_base_of_two_branches_is_where_they_parted() -> None:
    found = simple((None, None), (0, None), (1, None), (1, None), (3, None))
    assert found.base(2, 4) == found.commits[1].id


def test_a_merge_moves_the_base_forward() -> None:
    # 0 - 1 - 3(merge of 2) - 5
    #  \- 2 ----/\--- 4
    found = simple((None, None), (0, None), (0, None), (1, 2), (2, None), (3, None))
    assert found.base(5, 4) == found.commits[2].id


def test_after_a_criss_cross_the_newer_of_two_equally_near_bases_is_taken() -> None:
    # 1 and 2 diverge from 0 and are merged in both directions, into 3 and into 4.
    shape: list[tuple[int | None, int | None]] = [(None, None), (0, None), (0, None), (1, 2), (2, 1)]
    newer_second = lineage(shape, [1, 5, 6, 7, 8])
    assert newer_second.base(3, 4) == newer_second.base(4, 3) == newer_second.commits[2].id
    newer_first = lineage(shape, [1, 6, 5, 7, 8])
    assert newer_first.base(3, 4) == newer_first.base(4, 3) == newer_first.commits[1].id


def test_equal_times_still_give_one_answer_in_both_directions() -> None:
    shape: list[tuple[int | None, int | None]] = [(None, None), (0, None), (0, None), (1, 2), (2, 1)]
    found = lineage(shape, [1, 5, 5, 7, 7])
    assert found.base(3, 4) == found.base(4, 3) == found.commits[2].id


def test_of_two_bases_the_nearer_wins_over_the_newer() -> None:
    # 1 and 2 diverge from 0. One side merges both and continues from 2, the other merges both at once.
    shape: list[tuple[int | None, int | None]] = [
        (None, None),
        (0, None),
        (0, None),
        (1, 2),
        (2, None),
        (4, 1),
    ]
    found = lineage(shape, [1, 2, 3, 4, 5, 6])
    assert found.base(3, 5) == found.base(5, 3) == found.commits[1].id


def test_a_short_way_to_an_old_ancestor_does_not_hide_a_newer_one() -> None:
    # 2 merged 1 into the main line, which continued to 5. 6 merges 3, a branch that diverged at 0.
    shape: list[tuple[int | None, int | None]] = [
        (None, None),
        (0, None),
        (0, 1),
        (0, None),
        (2, None),
        (4, None),
    ]
    found = lineage([*shape, (5, 3)], [1, 2, 3, 4, 5, 6, 7])
    assert found.base(6, 1) == found.commits[1].id


def test_histories_that_never_met_have_no_base() -> None:
    found = simple((None, None), (None, None), (0, None))
    assert found.base(2, 1) is None


def test_distances_are_shortest_over_both_parents() -> None:
    found = simple((None, None), (0, None), (1, None), (2, 0))
    walked = ancestors_by_distance(found.get, found.commits[3])
    assert [(distance, commit.id) for distance, commit in walked] == sorted(
        [
            (0, found.commits[3].id),
            (1, found.commits[2].id),
            (1, found.commits[0].id),
            (2, found.commits[1].id),
        ]
    )


SHAPES = st.integers(1, 14).flatmap(
    lambda size: st.tuples(
        *(
            st.tuples(
                st.just(None) if number == 0 else st.integers(max(0, number - 4), number - 1),
                st.none() if number < 2 else st.none() | st.integers(0, number - 1),
            )
            for number in range(size)
        )
    )
)


@settings(max_examples=60, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
@given(shape=SHAPES, data=st.data())
def test_on_random_histories_the_base_is_what_a_search_of_everything_finds(
    shape: tuple[tuple[int | None, int | None], ...], data: st.DataObject
) -> None:
    # A commit is newer than its parents, by so little that many have the same time.
    times: list[int] = []
    for parents in shape:
        youngest = max((times[parent] for parent in parents if parent is not None), default=0)
        times.append(youngest + data.draw(st.integers(1, 2)))
    found = lineage(list(shape), times)
    last = len(shape) - 1
    for ours in range(max(0, last - 5), last + 1):
        for theirs in range(max(0, last - 5), last + 1):
            assert found.base(ours, theirs) == found.expected_base(ours, theirs)


def test_first_parents_ignore_merges_and_end_at_genesis() -> None:
    found = simple((None, None), (0, None), (0, None), (1, 2))
    walked = first_parents(found.manifest, found.manifest.view, found.commits[3])
    assert [commit.id for commit in walked] == [found.commits[number].id for number in (3, 1, 0)]


def test_a_moment_finds_the_newest_commit_that_is_not_younger() -> None:
    found = lineage([(None, None), (0, None), (1, None)], [10, 20, 30])
    at = [
        commit_at(found.manifest, found.manifest.view, found.commits[2], moment)
        for moment in (10, 19, 20, 99)
    ]
    assert [commit.created_at for commit in at] == [10, 10, 20, 30]
    with pytest.raises(NotFound, match="did not exist yet"):
        commit_at(found.manifest, found.manifest.view, found.commits[2], 9)


def test_an_unknown_commit_is_not_found() -> None:
    manifest = make_manifest(fresh_memory())
    with pytest.raises(NotFound, match=r"^commit 'x' not found$"):
        get_commit(manifest, manifest.view, "x")
