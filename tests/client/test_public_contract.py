"""`connect` to a server that implements only the public HTTP contract."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.client.graph import RemoteGraph
from omnigraph.errors import (
    Conflict,
    InvalidInput,
    MergeConflicts,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
)
from tests.support.public_server import SCHEMA, TOKEN, PublicServer, public_server

ALL = "query all() { match { $p: Person } return { $p.name as name, $p.age as age } }"
ADD = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"


@pytest.fixture
def server() -> Iterator[PublicServer]:
    with public_server() as found:
        yield found


@pytest.fixture
def graph(server: PublicServer) -> Iterator[RemoteGraph]:
    with og.connect(server.url, "team", token=TOKEN) as found:
        yield found


def test_connect_reports_unknown_graph_and_invalid_token(server: PublicServer) -> None:
    with pytest.raises(NotFound, match="graph 'other' not found"):
        og.connect(server.url, "other", token=TOKEN)
    with pytest.raises(PermissionDenied, match="invalid bearer token"):
        og.connect(server.url, "team", token="wrong")


def test_mutation_and_query_use_the_public_shapes(graph: RemoteGraph) -> None:
    receipt = graph.mutate(ADD, {"n": "Ann", "a": 30})
    graph.mutate(ADD, {"n": "Bob"})
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 0)
    assert receipt.commit is not None
    assert (receipt.commit.actor, receipt.commit.branch) == ("ann", "main")
    assert receipt.commit.created_at.year == 2023
    result = graph.query(ALL)
    assert result.rows() == [{"name": "Ann", "age": 30}, {"name": "Bob", "age": None}]
    assert result.columns == ["name", "age"]
    assert result.table.column("age").to_pylist() == [30, None]
    assert (result.branch, result.commit_id) == ("main", graph.commits()[0].id)
    assert len(graph.query(ALL, at=receipt.commit.id)) == 1
    assert [entry.name for entry in graph.queries()] == ["everybody"]
    assert len(graph.invoke("everybody")) == 2  # type: ignore[arg-type]


def test_conditional_mutation_that_lost_raises_precondition_failed(graph: RemoteGraph) -> None:
    head = graph.commits()[0].id
    assert graph.mutate(ADD, {"n": "Ann"}, if_commit=head).commit is not None
    with pytest.raises(PreconditionFailed) as caught:
        graph.mutate(ADD, {"n": "Bob"}, if_commit=head)
    assert caught.value.details["expected"] == head


def test_branches_are_created_merged_and_deleted(graph: RemoteGraph) -> None:
    head = graph.commits()[0].id
    created = graph.branches.create("review/x")
    assert (created.name, created.commit_id) == ("review/x", head)
    with pytest.raises(Conflict, match="already exists"):
        graph.branches.create("review/x")
    graph.mutate(ADD, {"n": "Ann"}, branch="review/x")
    merged = graph.branches.merge("review/x")
    assert merged.outcome == "merged"
    assert merged.commit is not None
    assert merged.commit.id == graph.commits()[0].id
    assert graph.branches.merge("review/x").outcome == "already_up_to_date"
    assert graph.branches.list() == ["main", "review/x"]
    assert graph.branches.list(prefix="review/") == ["review/x"]
    graph.branches.delete("review/x")
    assert graph.branches.list() == ["main"]


def test_merge_with_conflicts_raises_them(graph: RemoteGraph) -> None:
    graph.branches.create("x")
    graph.mutate(ADD, {"n": "Ann", "a": 1}, branch="x")
    graph.mutate(ADD, {"n": "Ann", "a": 2})
    with pytest.raises(MergeConflicts) as caught:
        graph.branches.merge("x")
    assert caught.value.conflicts[0]["entity_id"] == "Ann"


def test_load_and_export_transfer_records(graph: RemoteGraph, tmp_path: Path) -> None:
    records = [{"type": "Person", "data": {"name": name}} for name in ("Ann", "Bob")]
    receipt = graph.load(records, branch="import", create_from="main")
    assert (receipt.total, receipt.branch_created, receipt.branch) == (2, True, "import")
    file = tmp_path / "more.ndjson"
    file.write_text(json.dumps({"type": "Person", "data": {"name": "Zoe"}}) + "\n", encoding="utf-8")
    assert graph.load(str(file), branch="import").nodes == {"Person": 1}
    target = io.StringIO()
    assert graph.export(target, branch="import") == 3
    assert [json.loads(line)["data"]["name"] for line in target.getvalue().splitlines()] == [
        "Ann",
        "Bob",
        "Zoe",
    ]


def test_history_has_commits_and_changes(graph: RemoteGraph) -> None:
    first = graph.mutate(ADD, {"n": "Ann"}).commit
    assert first is not None
    graph.mutate(ADD, {"n": "Bob"})
    assert len(graph.commits(limit=2)) == 2
    assert graph.commit(first.id) == first
    page = graph.changes(first.id)
    assert [(change.type_name, change.id, change.op) for change in page] == [("Person", "Ann", "insert")]
    with pytest.raises(NotFound):
        graph.commit("nothing")
    assert graph.schema.source() == SCHEMA


def test_arguments_that_the_server_would_ignore_are_refused_without_a_request(
    graph: RemoteGraph, server: PublicServer
) -> None:
    graph.branches.create("x")
    before = len(server.team.requests)
    moment = graph.commits()[0].created_at
    calls: list[Callable[[], object]] = [
        lambda: graph.mutate(ADD, {"n": "Ann"}, idempotency_key="k"),
        lambda: graph.mutate(ADD, {"n": "Ann"}, message="m"),
        lambda: graph.branches.merge("x", dry_run=True),
        lambda: graph.load([{"type": "Person", "data": {"name": "Ann"}}], dry_run=True),
        lambda: graph.query(ALL, at=moment),
    ]
    for call in calls:
        with pytest.raises(InvalidInput, match="public contract"):
            call()
    writes = [item for item in server.team.requests[before:] if item[0] != "GET"]
    assert writes == []


def test_call_without_a_route_in_the_contract_is_refused(graph: RemoteGraph) -> None:
    with pytest.raises(InvalidInput, match="does not have the route GET /entity"):
        graph.get("Person", "Ann")


def test_handle_pickles_to_a_connection_to_the_same_server(graph: RemoteGraph) -> None:
    with pickle.loads(pickle.dumps(graph)) as copy:
        assert copy.branches.list() == ["main"]
