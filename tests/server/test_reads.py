"""Queries, snapshots and the schema over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import httpx
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.graph.format_version import CURRENT
from omnigraph.lang.temporal import EPOCH_TIME
from omnigraph.protocol import responses
from omnigraph.protocol.codec import ARROW
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from tests.server.running import ADD, ALL, SCHEMA, Running, error_body, names, running, success_body
from tests.support.places import fresh_memory

MOCK = {"OMNIGRAPH_EMBEDDINGS_MOCK": "1"}
TWO = f"{ALL}\nquery other() {{ match {{ $p: Person }} return {{ $p.name }} }}"


@pytest.fixture
def reader(guarded: Running) -> Iterator[httpx.Client]:
    with guarded.client("bob") as found:
        yield found


def test_query_returns_rows_and_commit(reader: httpx.Client) -> None:
    found = success_body(reader.post("/query", json={"query": ALL}), responses.ReadOutput)
    head = reader.get("/commits").json()["commits"][0]["graph_commit_id"]
    assert list(found) == ["query_name", "target", "row_count", "columns", "rows", "graph_commit_id"]
    assert found["rows"] == [{"name": "Ann", "age": 30}, {"name": "Bob", "age": 25}]
    assert (found["target"], found["row_count"]) == ({"branch": "main", "snapshot": None}, 2)
    assert found["graph_commit_id"] == head


def test_read_route_sends_deprecation_headers_without_commit(reader: httpx.Client) -> None:
    response = reader.post("/read", json={"query_source": ALL, "query_name": "all"})
    assert "graph_commit_id" not in success_body(response, responses.ReadOutput)
    assert response.headers["deprecation"] == "true"
    assert response.headers["link"] == '<query>; rel="successor-version"'


def test_query_snapshot_reads_commit(client: httpx.Client) -> None:
    before = client.post("/query", json={"query": ALL}).json()["graph_commit_id"]
    client.post("/mutate", json={"query": ADD, "params": {"n": "Cid"}})
    assert names(client) == ["Ann", "Bob", "Cid"]
    found = success_body(client.post("/query", json={"query": ALL, "snapshot": before}), responses.ReadOutput)
    assert [row["name"] for row in found["rows"]] == ["Ann", "Bob"]
    assert found["target"] == {"branch": None, "snapshot": before}


def test_query_at_timestamp_reads_past_state(client: httpx.Client) -> None:
    made = client.get("/commits").json()["commits"][0]
    moment = EPOCH_TIME + timedelta(microseconds=made["created_at"])
    later = client.post("/mutate", json={"query": ADD, "params": {"n": "Cid"}}).json()["commit"]
    # Timestamps have millisecond precision.
    assert later["created_at"] // 1000 > made["created_at"] // 1000
    state = {"branch": "main", "at": moment.isoformat()}
    assert names(client, **state) == ["Ann", "Bob"]
    assert client.get("/entity", params={"type": "Person", "id": "Cid", **state}).json() == {"entity": None}
    counts = success_body(client.get("/snapshot", params=state), responses.SnapshotOutput)["datasets"]
    assert [item["entity_count"] for item in counts if item["type_name"] == "Person"] == [2]
    early = {"query": ALL, "at": datetime(1, 1, 1, tzinfo=EPOCH_TIME.tzinfo).isoformat()}
    error_body(client.post("/query", json=early), 404)


@pytest.mark.parametrize("at", ["2026-05-04T12:00:00", "yesterday", "", "2026-13-01T00:00:00Z", 7, None])
def test_timestamp_without_time_zone_returns_400(reader: httpx.Client, at: object) -> None:
    response = reader.post("/query", json={"query": ALL, "at": at})
    if at is None:
        success_body(response, responses.ReadOutput)
    else:
        assert "timestamp" in error_body(response, 400)["error"]
        error_body(reader.get("/snapshot", params={"at": str(at)}), 400)


def test_query_returns_arrow_if_accepted(reader: httpx.Client) -> None:
    response = reader.post("/query", json={"query": ALL}, headers={"Accept": f"text/html, {ARROW};q=0.9"})
    assert response.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(response.content).read_all()
    assert table.to_pydict() == {"name": ["Ann", "Bob"], "age": [30, 25]}
    assert table.schema.field("age").type == pa.int32()
    refused = reader.post("/query", json={"query": ALL}, headers={"Accept": f"{ARROW};q=0"})
    assert refused.headers["content-type"] == "application/json"


def test_explain_returns_plan(reader: httpx.Client) -> None:
    found = success_body(reader.post("/explain", json={"query": ALL}), responses.ExplainOutput)
    assert "Person" in found["plan"]
    error_body(reader.post("/explain", json={"query": ADD, "params": {"n": "x"}}), 400)


def test_get_entity_returns_entity_or_null(reader: httpx.Client) -> None:
    found = success_body(reader.get("/entity?type=Person&id=Ann"), responses.EntityOutput)
    assert found == {"entity": {"id": "Ann", "age": 30, "name": "Ann"}}
    assert success_body(reader.get("/entity?type=Person&id=Nobody"), responses.EntityOutput) == {
        "entity": None
    }
    error_body(reader.get("/entity?type=Nothing&id=Ann"), 404)
    error_body(reader.get("/entity?type=Person"), 400)
    error_body(reader.get("/entity?type=Person&id=Ann&branch=main&snapshot=x"), 400)


def test_get_graph_returns_id_and_actor(guarded: Running) -> None:
    graph = f"{guarded.url}/graphs/team"
    with guarded.client("eve") as client:
        found = success_body(client.get(graph), responses.GraphOutput)
        assert (found["graph_id"], found["actor_id"]) == ("team", "eve")
        error_body(client.get("/schema"), 403)
        error_body(client.get(f"{guarded.url}/graphs/other"), 404)
    with guarded.client() as nobody:
        error_body(nobody.get(graph), 401)


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"query": ALL, "branch": "main", "snapshot": "x"}, 400, "mutually exclusive"),
        ({"query": ALL, "at": "2026-05-04T12:00:00Z", "snapshot": "x"}, 400, "mutually exclusive"),
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
def test_invalid_query_returns_error(
    reader: httpx.Client, body: dict[str, object], status: int, text: str
) -> None:
    assert text in error_body(reader.post("/query", json=body), status)["error"]


def test_query_name_selects_query(reader: httpx.Client) -> None:
    assert (
        success_body(reader.post("/query", json={"query": TWO, "name": "other"}), responses.ReadOutput)[
            "row_count"
        ]
        == 2
    )


def test_unknown_request_members_are_ignored(reader: httpx.Client) -> None:
    success_body(reader.post("/query", json={"query": ALL, "whatever": {"deep": [1]}}), responses.ReadOutput)


def test_snapshot_lists_every_type(reader: httpx.Client) -> None:
    found = success_body(reader.get("/snapshot"), responses.SnapshotOutput)
    counts = {item["type_name"]: item["entity_count"] for item in found["datasets"]}
    assert counts == {"Person": 2, "Knows": 0}
    assert (found["graph_branch"], found["internal_schema_version"]) == ("main", CURRENT)
    assert error_body(reader.get("/snapshot?branch=nowhere"), 404)["code"] == "not_found"


def test_get_schema_returns_accepted_text(reader: httpx.Client) -> None:
    assert success_body(reader.get("/schema"), responses.SchemaOutput) == {"schema_source": SCHEMA}


def test_get_schema_of_branch_and_commit(client: httpx.Client) -> None:
    before = client.get("/commits").json()["commits"][0]["graph_commit_id"]
    client.post("/branches", json={"name": "dev"})
    text = f"{SCHEMA}node City {{ name: String @key }}\n"
    assert client.post("/schema/apply", json={"schema_source": text, "branch": "dev"}).status_code == 200
    assert client.get("/schema?branch=dev").json() == {"schema_source": text}
    assert client.get("/schema").json() == {"schema_source": SCHEMA}
    assert client.get(f"/schema?snapshot={before}").json() == {"schema_source": SCHEMA}
    head = client.get("/commits?branch=dev").json()["commits"][0]["graph_commit_id"]
    assert client.get(f"/snapshot?snapshot={head}").json()["graph_branch"] == "dev"


def test_query_embeds_text_with_configured_provider() -> None:
    schema = "node Doc { slug: String @key  v: Vector(3)? }"
    near = og.embedder_of(MOCK).embed(["hello"], 3, None)[0].tolist()
    rows = [{"slug": "far", "v": [0.0, 0.0, 1.0]}, {"slug": "near", "v": near}]
    og.init(uri := fresh_memory(), schema).load({"Doc": rows})
    ask = "query q($t: String) { match { $d: Doc } return { $d.slug as s } order { nearest($d.v, $t) } limit 1 }"
    body = {"query": ask, "params": {"t": "hello"}}
    source = Hosting((GraphSource("team", uri),))
    with (
        running(open_graphs(source, TokenRegistry.of({}), environment=MOCK)) as server,
        server.client() as client,
    ):
        assert client.post("/query", json=body).json()["rows"] == [{"s": "near"}]
    with running(open_graphs(source, TokenRegistry.of({}))) as server, server.client() as client:
        assert "needs a key" in error_body(client.post("/query", json=body), 400)["error"]
