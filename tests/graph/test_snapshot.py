"""Snapshots: one commit for as long as it is read, and time travel to any other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import NotFound, StorageError
from omnigraph.graph.repository import Repository
from omnigraph.store.lance.lance_files import version_file
from tests.support.places import fresh_memory
from tests.support.repositories import (
    CITY,
    KNOWS,
    PERSON,
    contents,
    handle,
    make_graph,
    put,
    rewriting,
    write,
)


@pytest.fixture
def graph() -> Repository:
    return make_graph(fresh_memory())


def moment(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def test_read_at_every_past_commit_returns_its_rows(uri: str) -> None:
    graph = make_graph(uri)
    seen = {graph.head().commit.id: dict[str, str | None]()}
    for number in range(8):
        commit = put(graph, {"a": str(number), f"n{number}": "x"})
        seen[commit.id] = contents(graph.snapshot())
    write(graph, rewriting())
    cold = handle(graph, "r")
    assert {id_: contents(cold.snapshot(at=id_)) for id_ in seen} == seen


def test_snapshot_at_time_is_the_commit_that_was_current(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = graph.head().commit.created_at
    commits = []
    for number in range(1, 4):
        now = base + number * 10_000
        monkeypatch.setattr("omnigraph.graph.publish.time.time_ns", lambda now=now: now * 1000)
        commits.append(put(graph, {"a": str(number)}))
    for commit in commits:
        at = moment(commit.created_at)
        assert graph.snapshot(at=at).commit_id == commit.id
        assert graph.snapshot(at=at + timedelta(milliseconds=5)).commit_id == commit.id
        assert graph.snapshot(at=at - timedelta(milliseconds=5)).commit_id == commit.parent
    assert graph.snapshot(at=moment(base + 10**9)).commit_id == commits[-1].id
    with pytest.raises(NotFound, match="did not exist yet"):
        graph.snapshot(at=moment(base - 5_000))


def test_snapshot_at_time_with_microseconds_is_exact(
    graph: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = (graph.head().commit.created_at // 1000 + 10) * 1000
    commits = []
    for micros in (0, 1, 2, 999, 1000):
        monkeypatch.setattr("omnigraph.graph.publish.time.time_ns", lambda now=base + micros: now * 1000)
        commits.append(put(graph, {"a": str(micros)}))
    for commit in commits[1:4]:
        assert graph.snapshot(at=moment(commit.created_at)).commit_id == commit.id
    assert graph.snapshot(at=moment(base + 500)).commit_id == commits[2].id
    assert graph.snapshot(at=moment(base)).commit_id == commits[3].id
    assert graph.snapshot(at=moment(base + 1000)).commit_id == commits[4].id


def test_snapshot_at_commit_on_missing_branch_raises_not_found(graph: Repository) -> None:
    commit = put(graph, {"a": "1"})
    with pytest.raises(NotFound, match="branch 'nob' not found"):
        graph.snapshot("nob", commit.id)
    with pytest.raises(NotFound, match="branch 'nob' not found"):
        graph.create_branch("x", "nob", at=commit.id)
    graph.create_branch("x")
    assert graph.snapshot("x", commit.id).branch == "x"


def test_snapshot_at_snapshot_returns_it(graph: Repository) -> None:
    snapshot = graph.snapshot()
    put(graph, {"a": "1"})
    assert graph.snapshot(at=snapshot) == snapshot


def test_snapshot_is_stable_beside_writers(uri: str) -> None:
    graph = make_graph(uri)
    put(graph, {"a": "1", "b": "1"})
    reader = handle(graph, "r").snapshot()
    writer = handle(graph)
    for number in range(40):
        put(writer, {"a": str(number), f"n{number}": "x"})
        put(writer, {"c": str(number)}, key=CITY)
    write(writer, rewriting())
    assert contents(reader) == {"a": "1", "b": "1"}
    assert contents(reader, CITY) == {}
    assert len(contents(graph.snapshot())) == 42


def test_snapshot_of_deleted_branch_stays_readable(graph: Repository) -> None:
    graph.create_branch("x")
    put(graph, {"a": "1"}, "x")
    snapshot = graph.snapshot("x")
    graph.delete_branch("x")
    assert contents(snapshot) == {"a": "1"}


def test_snapshot_at_commit_of_another_branch_is_readable(graph: Repository) -> None:
    graph.create_branch("x")
    commit = put(graph, {"a": "1"}, "x")
    assert contents(graph.snapshot(at=commit.id)) == {"a": "1"}
    with pytest.raises(NotFound, match=r"^commit 'nope' not found$"):
        graph.snapshot(at="nope")
    with pytest.raises(NotFound, match="branch 'nope' not found"):
        graph.snapshot("nope")


def test_snapshot_lists_types_and_pins(graph: Repository) -> None:
    snapshot = graph.snapshot()
    assert list(snapshot.types) == [CITY, PERSON, KNOWS]
    assert snapshot.types[PERSON] == snapshot.pin(PERSON)


def test_scan_of_unknown_type_raises_not_found(graph: Repository) -> None:
    snapshot = graph.snapshot()
    with pytest.raises(NotFound, match=r"^unknown type 'node:Nope'$"):
        snapshot.scan("node:Nope")
    with pytest.raises(NotFound, match=r"^unknown type 'node:Nope'$"):
        list(snapshot.scan_batches("node:Nope"))


def test_scan_of_unknown_column_is_not_reported_as_reclaimed(graph: Repository) -> None:
    with pytest.raises(StorageError, match="nope"):
        graph.snapshot().scan(PERSON, ["nope"])


def test_stream_of_batches_equals_the_scan(graph: Repository) -> None:
    put(graph, {str(number): "x" for number in range(50)})
    batches = graph.snapshot().scan_batches(PERSON, ["id"], "id <> '7'")
    assert sum(batch.num_rows for batch in batches) == 49


def lose(graph: Repository, root: Path, lost: str) -> None:
    for file in (root / graph.snapshot().pin(PERSON).path).glob(lost):
        file.unlink()


def test_scan_of_old_commit_without_its_version_file_is_reclaimed(tmp_path: Path) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    commit = put(graph, {"a": "1"})
    lost = version_file(graph.snapshot().pin(PERSON).version)
    put(graph, {"b": "2"})
    lose(graph, tmp_path / "graph", lost)
    cold = handle(graph, "r").snapshot(at=commit.id)
    for read in (lambda: cold.scan(PERSON), lambda: list(cold.scan_batches(PERSON))):
        with pytest.raises(NotFound, match=f"the data of commit '{commit.id}' was reclaimed") as caught:
            read()
        assert caught.value.details["reason"] == "reclaimed"
    assert contents(cold, CITY) == {}


@pytest.mark.parametrize("lost", ["_versions/d*.manifest", "data/*"])
def test_scan_of_branch_head_without_a_file_is_damaged(tmp_path: Path, lost: str) -> None:
    graph = make_graph(str(tmp_path / "graph"))
    commit = put(graph, {"a": "1"})
    lose(graph, tmp_path / "graph", lost)
    cold = handle(graph, "r").snapshot(at=commit.id)
    for read in (lambda: cold.scan(PERSON), lambda: list(cold.scan_batches(PERSON))):
        with pytest.raises(StorageError, match=f"Person is damaged in commit '{commit.id}'") as caught:
            read()
        assert caught.value.details["reason"] == "damaged"
    assert contents(cold, CITY) == {}


def test_pin_number_counts_published_versions_of_the_branch() -> None:
    graph = og.init(fresh_memory(), "node A { name: String @key }\nnode B { name: String @key }")

    def numbers(branch: str = "main") -> tuple[int, int]:
        types = graph.snapshot(branch).types
        return types["node:A"].number, types["node:B"].number

    assert numbers() == (1, 1)
    graph.load({"A": [{"name": "a"}]})
    graph.branches.create("dev")
    graph.load({"A": [{"name": "b"}]}, branch="dev")
    graph.load({"B": [{"name": "b"}]})
    assert (numbers(), numbers("dev")) == ((2, 2), (3, 1))
    graph.branches.merge("dev")
    assert numbers() == (3, 2)
    graph.optimize()
    assert numbers() == (4, 3)
    assert graph.diff("dev", "main").to_json()["changes"][0]["published_dataset_version"] == 3
