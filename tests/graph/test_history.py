"""Merge bases, compared with an exhaustive search on random commit graphs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.errors import NotFound
from omnigraph.graph.history import (
    ancestors_by_distance,
    best_common_ancestors,
    commit_at,
    first_parents,
    get_commit,
    virtual_base_ancestors,
)
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.records import CommitRecord
from tests.support.manifests import child, genesis, head_of, make_manifest
from tests.support.places import fresh_memory


@dataclass
class Lineage:
    """A commit graph of any shape in one manifest."""

    manifest: Manifest
    commits: list[CommitRecord]

    def base(self, ours: int, theirs: int) -> str:
        """Return the only merge base."""
        (found,) = self.bases(ours, theirs)
        return found

    def bases(self, ours: int, theirs: int) -> list[str]:
        found = best_common_ancestors(self.get, [self.commits[ours]], [self.commits[theirs]])
        return [commit.id for commit in found]

    def needed(self, ours: int, theirs: int) -> set[int]:
        """Return the numbers of the commits whose state a merge needs as a merge base."""
        found = virtual_base_ancestors(self.get, self.commits[ours], self.commits[theirs])
        numbers = {commit.id: number for number, commit in enumerate(self.commits)}
        assert len({commit.id for commit in found}) == len(found)
        return {numbers[commit.id] for commit in found}

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

    def expected_bases(self, ours: int, theirs: int) -> list[str]:
        one, two = self.ancestors(self.commits[ours]), self.ancestors(self.commits[theirs])
        by_id = {commit.id: commit for commit in self.commits}
        common = one.keys() & two.keys()
        below = {id_ for other in common for id_ in self.ancestors(by_id[other]) if id_ != other}
        return sorted(common - below, key=lambda id_: (by_id[id_].created_at, id_))


def lineage(parents: list[tuple[int | None, int | None]], times: list[int]) -> Lineage:
    """Return commits whose parents are earlier ones, by number."""
    manifest = make_manifest(fresh_memory())
    commits: list[CommitRecord] = []
    for (first, second), created_at in zip(parents, times, strict=True):
        made = genesis() if first is None else child(commits[first])
        merged = None if second is None else commits[second].id
        commits.append(replace(made, merged_parent=merged, created_at=created_at))
    head = head_of(manifest, manifest.view)
    manifest.replace_heads_if_equal(manifest.view, [head], ManifestChange(heads=[head], commits=commits))
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


CRISS_CROSS: list[tuple[int | None, int | None]] = [(None, None), (0, None), (0, None), (1, 2), (2, 1)]


def test_merge_bases_after_a_criss_cross_are_both_commits_oldest_first() -> None:
    # 1 and 2 diverge from 0 and are merged in both directions, into 3 and into 4.
    found = lineage(CRISS_CROSS, [1, 6, 5, 7, 8])
    assert found.bases(3, 4) == found.bases(4, 3) == [found.commits[2].id, found.commits[1].id]


def test_merge_bases_with_equal_times_have_one_order_in_both_directions() -> None:
    found = lineage(CRISS_CROSS, [1, 5, 5, 7, 7])
    assert found.bases(3, 4) == found.bases(4, 3) == sorted([found.commits[1].id, found.commits[2].id])


def test_merge_bases_of_a_merge_of_two_commits_are_those_of_either() -> None:
    # 3 and 4 leave 1 and 2; 5 has merged both 1 and 2.
    found = simple((None, None), (0, None), (0, None), (1, None), (2, None), (1, 2))
    many = [found.commits[3], found.commits[4]]
    bases = best_common_ancestors(found.get, many, [found.commits[5]])
    assert [commit.id for commit in bases] == [found.commits[1].id, found.commits[2].id]


def test_virtual_base_of_one_common_ancestor_needs_only_that() -> None:
    found = simple((None, None), (0, None), (1, None), (1, None))
    assert found.needed(2, 3) == {1}


def test_virtual_base_of_nested_criss_cross_needs_the_ancestors_of_the_ancestors() -> None:
    # 3 and 4 are criss-cross merges of 1 and 2; 5 and 6 are criss-cross merges of 3 and 4.
    found = simple(*CRISS_CROSS, (3, 4), (4, 3))
    assert found.needed(5, 6) == {0, 1, 2, 3, 4}


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
    assert found.bases(2, 1) == []


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
            assert found.bases(ours, theirs) == found.expected_bases(ours, theirs)


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
