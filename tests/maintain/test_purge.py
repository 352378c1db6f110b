"""Purge: what it removes and keeps, and concurrent branch creations and writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import NotFound
from omnigraph.graph.publish import now_micros
from omnigraph.graph.recovery.intents import Intent, OwnedIntent, this_process
from omnigraph.graph.repository import Repository
from omnigraph.maintain import purge as purge_module
from omnigraph.maintain.purge import fence_branches, purge
from omnigraph.store.manifest.branch_swaps import create_branch_if_absent
from omnigraph.store.manifest.manifest import SwapLost
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_files import new_id
from omnigraph.store.manifest.records import BranchEntry
from tests.support.places import fresh_memory
from tests.support.schema_changes import CASES, count, lines, make, stored


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with make(tmp_path / "graph") as made:
        yield made


@pytest.fixture
def repository(graph: og.Graph) -> Iterator[Repository]:
    found = Repository.open(graph.uri, durability="os")
    yield found
    found.close()


def path_of(repository: Repository, key: str, commit: str | None = None) -> str:
    return repository.snapshot(at=commit).pin(key).path


def test_only_what_no_branch_stands_at_is_taken(graph: og.Graph, repository: Repository) -> None:
    first = graph.commits()[0].id
    graph.mutate('query q() { insert Firm { slug: "y" } }')
    second = graph.commits()[0].id
    graph.branches.create("dev")
    graph.mutate('query q() { delete Firm where slug = "x" }')
    third = graph.commits()[0].id
    graph.mutate('query q() { insert Firm { slug: "z" } }')
    before = {branch: lines(graph, branch=branch) for branch in ("main", "dev")}
    files = {path: Path(path).stat().st_ino for path in stored(graph)}

    done = purge(repository, [path_of(repository, "node:Firm")])

    assert done.files > 0
    assert done.bytes > 0
    assert {branch: lines(graph, branch=branch) for branch in ("main", "dev")} == before
    assert count(graph, "Firm", at=second) == 2
    # Versions that are kept were never removed.
    assert {path: Path(path).stat().st_ino for path in stored(graph)}.items() <= files.items()
    with og.open(graph.uri, "r") as other:
        for commit in (first, third):
            with pytest.raises(NotFound, match="reclaimed"):
                lines(other, at=commit, types=["Firm"])
            assert lines(other, at=commit, types=["Person"])
    assert purge(repository, [path_of(repository, "node:Firm")]).files == 0


def test_a_branch_that_is_made_at_a_version_while_it_goes_gets_it_back(
    graph: og.Graph, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, before = graph.commits()[0], lines(graph)
    CASES["drop_type"].apply(graph)
    path = path_of(repository, "node:Firm", first.id)

    def made_first(repository: Repository) -> None:
        # A branch is created by a process that read the graph before the versions were removed.
        view = repository.manifest.refresh()
        entry = BranchEntry(new_id(), now_micros(), None, first.id)
        create_branch_if_absent(repository.manifest, view, "back", entry)
        fence_branches(repository)

    with monkeypatch.context() as patch:
        patch.setattr(purge_module, "fence_branches", made_first)
        assert purge(repository, [path]).files == 0
    with og.open(graph.uri, "r") as other:
        assert lines(other, branch="back") == before


def test_a_branch_that_was_about_to_be_made_has_to_look_again(
    graph: og.Graph, repository: Repository
) -> None:
    first = graph.commits()[0]
    CASES["drop_type"].apply(graph)
    late = Repository.open(graph.uri, durability="os")
    view = late.manifest.refresh()
    registry = late.manifest.registry(view)
    purge(repository, [path_of(repository, "node:Firm", first.id)])
    with pytest.raises(SwapLost):
        late.manifest.replace_registry_if_equals(
            view, registry, ManifestChange(registry=registry.with_next_epoch())
        )
    with pytest.raises(SwapLost):
        create_branch_if_absent(late.manifest, view, "back", BranchEntry(new_id(), 1, None, first.id))
    with pytest.raises(NotFound, match="reclaimed"):
        late.create_branch("back", at=first.id)


def test_what_a_pending_bulk_write_builds_upon_stays(graph: og.Graph, repository: Repository) -> None:
    first, before = graph.commits()[0].id, lines(graph)
    head = repository.head()
    intent = Intent(
        new_id(), "load", None, "main", head.incarnation, head.commit.id, this_process(), now_micros()
    )
    owned = OwnedIntent.begin(repository.intents, intent)
    CASES["drop_type"].apply(graph)
    path = path_of(repository, "node:Firm", first)
    assert purge(repository, [path]).files == 0
    assert lines(graph, at=first) == before
    owned.end(keep=False)
    assert purge(repository, [path]).files > 0


def test_files_that_no_commit_names_are_left_to_cleanup(graph: og.Graph, repository: Repository) -> None:
    first = graph.commits()[0].id
    transaction = repository.begin()
    files = stored(graph)
    staged = transaction.stage("node:Firm", delete_ids=["x"])
    pending = stored(graph) - files
    CASES["drop_type"].apply(graph)
    purge(repository, [path_of(repository, "node:Firm", first)])
    assert pending <= stored(graph)
    assert staged.deleted == 1


def test_a_graph_in_memory_keeps_its_versions() -> None:
    g = og.init(fresh_memory(), "node P { name: String @key  x: I32? }")
    g.load({"P": [{"name": "a", "x": 1}]})
    first = g.commits()[0].id
    g.schema.apply("node P { name: String @key }", allow_data_loss=True)
    assert g.get("P", "a", at=first) == {"id": "a", "name": "a", "x": 1}
    assert g.get("P", "a") == {"id": "a", "name": "a"}
