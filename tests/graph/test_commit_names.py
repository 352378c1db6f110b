"""Names of commits: ids and beginnings of them, tags, branches, and states relative to one of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

import omnigraph as og
from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.graph.state_names import MAX_SUFFIXES, abbreviate
from omnigraph.store.manifest.commit_ids import commit_ids_with_prefix
from omnigraph.store.manifest.manifest_files import new_id
from tests.support.places import fresh_memory

SCHEMA = "node City { name: String @key }"


@pytest.fixture(scope="module")
def graph() -> Iterator[LocalGraph]:
    """Four commits on main, and a branch with two more of which the second merges main."""
    with og.init(fresh_memory(), SCHEMA, durability="os") as g:
        assert isinstance(g, LocalGraph)
        add(g, "a")
        add(g, "b")
        g.branches.create("review")
        add(g, "c", "review")
        add(g, "d")
        g.branches.merge("main", "review")
        g.branches.create("odd~1", "review", at="review~1")
        g.tags.create("v1", "main~1")
        yield g


def add(graph: og.Graph, name: str, branch: str = "main") -> str:
    commit = graph.load({"City": [{"name": name}]}, branch=branch).commit
    assert commit is not None
    return commit.id


def ids(graph: og.Graph, branch: str = "main") -> list[str]:
    return [commit.id for commit in graph.commits(branch, None)]


def test_name_relative_to_a_branch_a_tag_and_head_finds_the_commit(graph: LocalGraph) -> None:
    main, review = ids(graph), ids(graph, "review")
    expected = {
        "HEAD": main[0],
        "main": main[0],
        "HEAD~": main[1],
        "main~2": main[2],
        "HEAD~1^": main[2],
        "review": review[0],
        "review^2": main[0],
        "review~2": main[1],
        "v1": main[1],
        "v1~1": main[2],
        f"{main[0]}~3": main[3],
        "@{1}": main[-1],
        "review@{3}": main[1],
        # A branch of this name is found before the state that the name would describe.
        "odd~1": review[1],
        "odd~1~1": review[2],
    }
    assert {name: graph.commit(name).id for name in expected} == expected
    assert graph.snapshot("review", "HEAD~1").commit_id == review[1]
    assert graph.snapshot("review", 3).commit_id == main[1]
    assert graph.snapshot("review", "@{4}").commit_id == review[1]


def test_name_with_a_time_finds_the_state_of_the_branch_at_the_time(graph: LocalGraph) -> None:
    commits = graph.commits("review", None)
    for newer, older in pairwise(commits):
        moment = newer.created_at - timedelta(microseconds=1)
        # Without microseconds a time covers its whole millisecond.
        if moment.microsecond % 1000:
            assert graph.commit(f"review@{{{moment.isoformat()}}}").id == older.id
    later = datetime.now(UTC) + timedelta(days=1)
    assert graph.commit(f"review@{{{later.isoformat()}}}").id == commits[0].id
    with pytest.raises(NotFound, match="did not exist yet"):
        graph.commit("main@{2001-01-01}")


@pytest.mark.parametrize("length", [12, 26])
def test_beginning_of_an_id_in_any_case_finds_the_commit(graph: LocalGraph, length: int) -> None:
    for id_ in ids(graph):
        known = list(
            commit_ids_with_prefix(graph._repository.manifest, graph._repository.manifest.view, id_[:length])
        )
        if known == [id_]:
            assert graph.commit(id_[:length].lower()).id == id_
            assert graph.query("query q() { match { $c: City } return { count($c) as n } }", at=id_[:length])


def test_ambiguous_beginning_of_an_id_is_refused_with_the_candidates(graph: LocalGraph) -> None:
    every = {*ids(graph), *ids(graph, "review")}
    shared = next(iter(every))[:4]
    with pytest.raises(InvalidInput, match="is ambiguous") as caught:
        graph.commit(shared)
    assert set(caught.value.details["candidates"]) == every
    assert caught.value.hint is not None
    assert "load on review" in caught.value.hint
    with pytest.raises(InvalidInput, match="is ambiguous"):
        graph.diff(shared, "main")


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("01K", NotFound, "'01K' not found"),
        ("", NotFound, "'' not found"),
        ("nothing~2", NotFound, "'nothing' not found"),
        ("main~99", NotFound, "has no ancestor `~99`"),
        ("main^2", NotFound, "is not a merge"),
        ("main^3", InvalidInput, "at most two parents"),
        ("v1@{1}", InvalidInput, "must follow the name of a branch"),
        ("main~1@{1}", InvalidInput, "must follow the name of a branch"),
        ("main@{99}", NotFound, "manifest version 99 not found"),
        ("main@{0}", NotFound, "manifest version 0 not found"),
        ("main@{soon}", InvalidInput, "neither a time nor a manifest version"),
        ("main" + "~" * (MAX_SUFFIXES + 1), InvalidInput, "suffixes"),
        ("main~" + "9" * 5000, NotFound, "not found"),
        ("main@{" + "9" * 5000 + "}", InvalidInput, "neither a time"),
    ],
)
def test_name_of_no_commit_is_refused_with_the_reason(
    graph: LocalGraph, name: str, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        graph.commit(name)


@pytest.mark.parametrize("at", [True, 0, -1])
def test_manifest_version_that_is_no_number_of_one_is_refused(graph: LocalGraph, at: int) -> None:
    with pytest.raises((InvalidInput, NotFound)):
        graph.snapshot(at=at)


def test_prefix_search_in_a_compacted_log_finds_every_id_once(graph: LocalGraph) -> None:
    manifest = graph._repository.manifest
    every = sorted({*ids(graph), *ids(graph, "review")})
    assert sorted(commit_ids_with_prefix(manifest, manifest.refresh(), every[0][:3])) == every
    assert not list(commit_ids_with_prefix(manifest, manifest.view, "7ZZZ"))


def test_abbreviations_distinguish_all_ids() -> None:
    known = [new_id() for _ in range(200)]
    short = abbreviate(known)
    assert len(set(short.values())) == 200
    assert all(len([id_ for id_ in known if id_.startswith(text)]) == 1 for text in short.values())
