"""Opening: existing, incomplete and missing graphs, and a read-only mode that writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from omnigraph.errors import Conflict, NotFound, PermissionDenied
from omnigraph.graph.repository import Mode, Repository
from omnigraph.store.manifest.manifest_init import begin_init
from tests.support.places import lance_root, together
from tests.support.repositories import (
    PERSON,
    catalog_of,
    chain,
    contents,
    far_owner,
    handle,
    leave_intent,
    make_graph,
    people,
    put,
    staging,
)


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return every file with its modification time and content, and every directory."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def test_reading_writes_nothing(tmp_path: Path) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    commit = put(graph, {"a": "1"})
    graph.create_branch("x")
    leave_intent(graph, staging({"b": "1"}), owner=far_owner())
    leave_intent(graph, None)
    before = everything(tmp_path)
    reader = handle(graph, "r")
    assert people(reader) == {"a": "1"}
    assert contents(reader.snapshot("x", at=commit.id)) == {"a": "1"}
    assert len(chain(reader)) == 2
    assert list(reader.branches()) == ["main", "x"]
    assert reader.commit(commit.id) == commit
    assert reader.recoveries() == []
    assert sum(batch.num_rows for batch in reader.snapshot().scan_batches(PERSON)) == 1
    reader.close()
    assert everything(tmp_path) == before


ACTS: list[Callable[[Repository], object]] = [
    lambda graph: put(graph, {"a": "1"}),
    lambda graph: graph.begin(),
    lambda graph: graph.create_branch("x"),
    lambda graph: graph.delete_branch("x"),
    lambda graph: graph.recover(),
]


@pytest.mark.parametrize("act", ACTS)
def test_a_reader_is_refused_every_way_of_writing(
    tmp_path: Path, act: Callable[[Repository], object]
) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    leave_intent(graph, None)
    before = everything(tmp_path)
    with pytest.raises(PermissionDenied, match="the graph is open for reading only"):
        act(handle(graph, "r"))
    assert everything(tmp_path) == before


def test_a_reader_sees_what_writers_publish(uri: str) -> None:
    graph = make_graph(uri)
    reader = handle(graph, "r")
    put(graph, {"a": "1"})
    assert people(reader) == {"a": "1"}


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_place_without_a_graph_is_not_found_and_stays_empty(tmp_path: Path, mode: Mode) -> None:
    with pytest.raises(NotFound, match="there is no graph at") as caught:
        Repository.open(str(tmp_path / "nothing"), mode=mode)
    assert caught.value.hint == "create one with init"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_half_made_graph_cannot_be_opened_and_is_completed_by_the_next_init(uri: str, mode: Mode) -> None:
    begin_init(lance_root(uri))
    with pytest.raises(NotFound) as caught:
        Repository.open(uri, mode=mode)
    assert caught.value.hint == "its initialization was interrupted: run init again"
    graph = make_graph(uri)
    put(graph, {"a": "1"})
    assert people(handle(graph, mode)) == {"a": "1"}


def test_a_graph_is_made_once(uri: str) -> None:
    graph = make_graph(uri)
    put(graph, {"a": "1"})
    with pytest.raises(Conflict, match=r"^there is a graph at .* already$"):
        make_graph(uri)
    assert people(handle(graph)) == {"a": "1"}


@pytest.mark.parametrize("round_", range(3))
def test_of_many_initialisers_one_wins_and_its_graph_is_the_one_that_opens(uri: str, round_: int) -> None:
    outcomes = together([partial(make_graph, uri)] * (4 + round_))
    won = [outcome for outcome in outcomes if isinstance(outcome, Repository)]
    assert len(won) == 1
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 3 + round_, outcomes
    opened = Repository.open(uri)
    assert opened.manifest.registry(opened.manifest.view) == won[0].manifest.registry(won[0].manifest.view)
    put(won[0], {"a": "1"})
    assert people(opened) == {"a": "1"}


def test_the_first_commit_is_genesis(uri: str) -> None:
    graph = make_graph(uri)
    (commit,) = chain(graph)
    assert (commit.parent, commit.sequence, commit.operation, commit.actor) == (None, 1, "init", "ana")
    assert graph.snapshot().catalog == catalog_of()
    assert all(pin.rows == 0 for pin in graph.snapshot().types.values())


def test_a_folder_with_an_odd_name_holds_a_graph(tmp_path: Path) -> None:
    graph = make_graph(str(tmp_path / "it's ü %20 #1 ?x"))
    for number in range(40):
        put(graph, {str(number): "x"})
    assert len(people(handle(graph))) == 40


def test_a_graph_that_syncs_is_the_same_graph(tmp_path: Path) -> None:
    graph = Repository.init(str(tmp_path / "graph"), catalog_of())
    put(graph, {"a": "1"})
    put(graph, {"a": "2"})
    graph.create_branch("x")
    assert people(Repository.open(str(tmp_path / "graph")), "x") == {"a": "2"}
