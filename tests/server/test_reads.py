"""Queries, snapshots and the schema over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from omnigraph.server import answers
from tests.server.running import ADD, ALL, SCHEMA, Running, answer, names, refusal

TWO = f"{ALL}\nquery other() {{ match {{ $p: Person }} return {{ $p.name }} }}"


@pytest.fixture
def reader(guarded: Running) -> Iterator[httpx.Client]:
    with guarded.client("bob") as found:
        yield found


def test_a_query_gives_rows_and_the_commit_that_they_were_read_from(reader: httpx.Client) -> None:
    found = answer(reader.post("/query", json={"query": ALL}), answers.Read)
    head = reader.get("/commits").json()["commits"][0]["graph_commit_id"]
    assert list(found) == ["query_name", "target", "row_count", "columns", "rows", "graph_commit_id"]
    assert found["rows"] == [{"name": "Ann", "age": 30}, {"name": "Bob", "age": 25}]
    assert (found["target"], found["row_count"]) == ({"branch": "main", "snapshot": None}, 2)
    assert found["graph_commit_id"] == head


def test_the_old_route_of_reads_names_its_successor_and_tells_no_commit(reader: httpx.Client) -> None:
    response = reader.post("/read", json={"query_source": ALL, "query_name": "all"})
    assert "graph_commit_id" not in answer(response, answers.Read)
    assert response.headers["deprecation"] == "true"
    assert response.headers["link"] == '<query>; rel="successor-version"'


def test_a_query_by_a_commit_reads_that_state(client: httpx.Client) -> None:
    before = client.post("/query", json={"query": ALL}).json()["graph_commit_id"]
    client.post("/mutate", json={"query": ADD, "params": {"n": "Cid"}})
    assert names(client) == ["Ann", "Bob", "Cid"]
    found = answer(client.post("/query", json={"query": ALL, "snapshot": before}), answers.Read)
    assert [row["name"] for row in found["rows"]] == ["Ann", "Bob"]
    assert found["target"] == {"branch": None, "snapshot": before}


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"query": ALL, "branch": "main", "snapshot": "x"}, 400, "exclude"),
        ({"query": ALL, "snapshot": "01M7F68NRJJYA661PHN2PSXM9J"}, 404, "not found"),
        ({"query": ALL, "branch": "nowhere"}, 404, "branch 'nowhere' not found"),
        ({"query": TWO}, 400, "query file contains multiple queries; pass --name"),
        ({"query": TWO, "name": "third"}, 400, "third"),
        (
            {"query": ADD, "params": {"n": "x"}},
            400,
            "query 'add' contains mutations (insert/update/delete); use POST /mutate for write queries",
        ),
        ({"query": ALL, "branch": " "}, 400, "branch name cannot be empty"),
        ({"query": "query x("}, 400, ""),
        ({"query": ""}, 400, ""),
        ({}, 400, "body.query: Field required"),
        ({"query": 7}, 400, "body.query"),
        ({"query": ALL, "params": [1]}, 400, "body.params"),
        (
            {"query": "query q($n: String) { match { $p: Person } return { $p.name } }"},
            400,
            "'n' not provided",
        ),
    ],
)
def test_a_query_that_cannot_be_run_is_refused(
    reader: httpx.Client, body: dict[str, object], status: int, text: str
) -> None:
    assert text in refusal(reader.post("/query", json=body), status)["error"]


def test_one_of_several_queries_is_chosen_by_name(reader: httpx.Client) -> None:
    assert answer(reader.post("/query", json={"query": TWO, "name": "other"}), answers.Read)["row_count"] == 2


def test_members_that_are_not_known_are_ignored(reader: httpx.Client) -> None:
    answer(reader.post("/query", json={"query": ALL, "whatever": {"deep": [1]}}), answers.Read)


def test_a_snapshot_lists_every_type(reader: httpx.Client) -> None:
    found = answer(reader.get("/snapshot"), answers.Snapshot)
    counts = {item["type_name"]: item["entity_count"] for item in found["datasets"]}
    assert counts == {"Person": 2, "Knows": 0}
    assert (found["graph_branch"], found["internal_schema_version"]) == ("main", 6)
    assert refusal(reader.get("/snapshot?branch=nowhere"), 404)["code"] == "not_found"


def test_the_schema_is_the_text_that_was_accepted(reader: httpx.Client) -> None:
    assert answer(reader.get("/schema"), answers.Schema) == {"schema_source": SCHEMA}
