"""Loads over HTTP."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.protocol import responses
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from tests.server.running import PEOPLE, SCHEMA, error_body, names, running, success_body

LINES = {"Content-Type": "application/x-ndjson; charset=utf-8"}
CID = '{"type":"Person","data":{"name":"Cid"}}\n'


def test_load_ndjson_is_one_commit(client: httpx.Client) -> None:
    found = success_body(
        client.post("/load/ndjson", content=CID, headers=LINES), responses.GraphBatchLoadOutput
    )
    assert "uri" not in found
    assert found["nodes"] == [{"name": "Person", "entities_loaded": 1}]
    assert (found["edges"], found["mode"], found["base_branch"]) == ([], "merge", None)
    assert (found["total_entities"], found["branch_created"]) == (1, False)
    assert client.get("/commits").json()["commits"][0] == found["commit"]
    assert names(client) == ["Ann", "Bob", "Cid"]


def test_load_ndjson_chunked_body(client: httpx.Client) -> None:
    def lines() -> Iterator[bytes]:
        for number in range(500):
            yield f'{{"type":"Person","data":{{"name":"P{number}"}}}}\n'.encode()

    found = success_body(
        client.post("/load/ndjson?mode=append", content=lines(), headers=LINES),
        responses.GraphBatchLoadOutput,
    )
    assert found["total_entities"] == 500


def test_load_text_with_several_records_per_line(client: httpx.Client) -> None:
    text = CID.strip() + " " + PEOPLE.replace("\n", "  ")
    found = success_body(client.post("/load", json={"data": text, "mode": "merge"}), responses.IngestOutput)
    assert found["uri"] == client.base_url.path.rstrip("/")
    assert found["total_entities"] == 3


def test_write_responses_do_not_show_the_storage_address(tmp_path: Path) -> None:
    uri = str(tmp_path / "team.omni")
    og.init(uri, SCHEMA, durability="os").close()
    hosted = open_graphs(Hosting((GraphSource("team", uri),)), TokenRegistry())
    with running(hosted) as server, server.client() as client:
        answers = [
            client.post("/load", json={"data": PEOPLE}),
            client.post("/ingest", json={"data": CID}),
            client.post("/load", json={"data": '{"type":"Nobody","data":{}}'}),
            client.post("/load", json={"data": PEOPLE, "mode": "append"}),
            client.post("/load/ndjson", content=CID, headers=LINES),
            client.post("/load/ndjson", content=b"{", headers=LINES),
            client.post("/load/files", files={"Person": ("p.csv", b"name,age\nx,y\n")}),
            client.post("/branches", json={"name": "dev"}),
            client.delete("/branches/dev"),
            client.post("/schema/apply", json={"schema_source": SCHEMA + "node City { name: String @key }"}),
        ]
    assert {answer.json()["uri"] for answer in answers if "uri" in answer.json()} == {"/graphs/team"}
    for answer in answers:
        assert str(tmp_path) not in answer.text
        assert tempfile.gettempdir() not in answer.text


@pytest.mark.parametrize("route", ["/load", "/ingest"])
def test_load_text_with_nulled_and_dropped_values_reports_them(client: httpx.Client, route: str) -> None:
    text = (
        '{"type":"Person","data":{"name":"Cy","age":"old","nick":1}} {"type":"Person","data":{"name":"Di"}}'
    )
    response = client.post(route, json={"data": text})
    found = success_body(response, responses.IngestOutput)
    assert response.headers["omnigraph-load-warnings"] == "nulled=1, dropped=1"
    assert found["warnings"]["nulled"] == found["warnings"]["dropped"] == 1
    nulled, dropped = found["warnings"]["items"]
    assert nulled == {
        "kind": "nulled",
        "message": 'expected I32, got "old"; stored as null',
        "type": "Person",
        "property": "age",
        "record": 1,
        "source": None,
    }
    assert (dropped["kind"], dropped["property"]) == ("dropped", "nick")
    clean = client.post(route, json={"data": CID})
    assert "omnigraph-load-warnings" not in clean.headers
    assert "warnings" not in clean.json()


def test_ingest_route_sends_deprecation_headers(client: httpx.Client) -> None:
    response = client.post("/ingest", json={"data": CID})
    success_body(response, responses.IngestOutput)
    assert response.headers["link"] == '<load>; rel="successor-version"'


@pytest.mark.parametrize("route", ["/load", "/load/ndjson"])
def test_load_creates_missing_branch_only_with_from(client: httpx.Client, route: str) -> None:
    def send(**where: str) -> httpx.Response:
        if route == "/load":
            return client.post(route, json={"data": CID, **where})
        return client.post(route, content=CID, headers=LINES, params=where)

    error = error_body(send(branch="new"), 404)["error"]
    assert error == "branch 'new' not found; pass `from` to create it"
    model = responses.IngestOutput if route == "/load" else responses.GraphBatchLoadOutput
    found = success_body(send(branch="new", **{"from": "main"}), model)
    assert (found["branch"], found["base_branch"], found["branch_created"]) == ("new", "main", True)
    assert names(client, branch="new") == ["Ann", "Bob", "Cid"]
    assert names(client) == ["Ann", "Bob"]


@pytest.mark.parametrize("kind", ["application/json", "text/plain", ""])
def test_load_ndjson_requires_ndjson_media_type(client: httpx.Client, kind: str) -> None:
    error_body(client.post("/load/ndjson", content=CID, headers={"Content-Type": kind}), 415)
    assert names(client) == ["Ann", "Bob"]


@pytest.mark.parametrize(
    ("content", "query"),
    [("{", ""), ('{"type":"Nobody","data":{}}', ""), (CID + "{]", ""), (CID, "?mode=replace")],
)
def test_load_with_invalid_record_writes_nothing(client: httpx.Client, content: str, query: str) -> None:
    error_body(client.post(f"/load/ndjson{query}", content=content, headers=LINES), 400)
    assert names(client) == ["Ann", "Bob"]


def test_load_overwrite_replaces_rows(client: httpx.Client) -> None:
    success_body(
        client.post("/load/ndjson?mode=overwrite", content=CID, headers=LINES), responses.GraphBatchLoadOutput
    )
    assert names(client) == ["Cid"]


@pytest.mark.parametrize("route", ["/load", "/ingest", "/load/ndjson"])
def test_load_of_the_same_keyed_edge_twice_keeps_one(client: httpx.Client, route: str) -> None:
    schema = "node Person { name: String @key  age: I32? }\n"
    schema += "edge Knows: Person -> Person { n: I32?  @key(src, dst) }\n"
    applied = client.post("/schema/apply", json={"schema_source": schema}).json()
    assert [step["kind"] for step in applied["steps"]] == ["add_property", "add_constraint"]

    for number in (1, 2):
        line = json.dumps({"edge": "Knows", "from": "Ann", "to": "Bob", "data": {"n": number}})
        if route == "/load/ndjson":
            sent = client.post(
                f"{route}?mode=merge", content=line, headers={"Content-Type": "application/x-ndjson"}
            )
        else:
            sent = client.post(route, json={"data": line, "mode": "merge"})
        assert sent.status_code == 200, sent.text

    (edge,) = client.post("/export", json={"type_names": ["Knows"]}).text.splitlines()
    assert json.loads(edge)["data"] == {"id": '["Ann","Bob"]', "n": 2}


def test_merge_of_keyless_edges_that_breaks_unique_has_a_hint(client: httpx.Client) -> None:
    schema = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person\n"
    schema += "edge Likes: Person -> Person { @unique(src, dst) }\n"
    client.post("/schema/apply", json={"schema_source": schema}).raise_for_status()
    line = json.dumps({"edge": "Likes", "from": "Ann", "to": "Bob"})
    client.post("/load", json={"data": line, "mode": "merge"}).raise_for_status()

    body = error_body(client.post("/load", json={"data": line, "mode": "merge"}), 400)

    assert "@key(src, dst)" in body["hint"]


def stored(client: httpx.Client) -> dict[str, object]:
    """Ages by the name of a person, and the edges as their ends."""
    lines = map(json.loads, client.post("/export", json={}).text.splitlines())
    return {
        line["data"]["name"] if "type" in line else f"{line['from']}-{line['to']}": line["data"].get("age")
        for line in lines
    }


def test_load_ndjson_change_log_applies_the_newest_change_of_each_key(client: httpx.Client) -> None:
    before = stored(client)
    log = [
        {"type": "Person", "op": "u", "at": 9, "data": {"name": "Cid", "age": 9}},
        {"type": "Person", "op": "c", "at": 1, "data": {"name": "Cid", "age": 1}},
        {"type": "Person", "op": "d", "at": 7, "data": {"name": "Bob"}},
        {"type": "Person", "op": "u", "at": 5, "data": {"name": "Bob", "age": 5}},
    ]
    found = success_body(
        client.post(
            "/load/ndjson",
            params={"mode": "merge", "op_column": "op", "order_by": "at"},
            content="".join(f"{json.dumps(record)}\n" for record in log),
            headers=LINES,
        ),
        responses.GraphBatchLoadOutput,
    )
    assert found["mode"] == "merge"
    assert stored(client) == {
        name: age for name, age in {**before, "Cid": 9}.items() if "Bob" not in name.split("-")
    }


def test_load_ndjson_patch_and_delete_by_key(client: httpx.Client) -> None:
    before = stored(client)
    patch = '{"type":"Person","data":{"name":"Ann"}}\n{"type":"Person","data":{"name":"Bob","age":8}}\n'
    for mode, text, expected in (
        ("patch", patch, {**before, "Bob": 8}),
        ("delete", '{"type":"Person","data":{"name":"Nobody"}}\n', {**before, "Bob": 8}),
        ("delete", '{"type":"Person","data":{"name":"Bob"}}\n', None),
    ):
        response = client.post("/load/ndjson", params={"mode": mode}, content=text, headers=LINES)
        assert success_body(response, responses.GraphBatchLoadOutput)["mode"] == mode
        if expected is not None:
            assert stored(client) == expected
    assert stored(client) == {name: age for name, age in before.items() if "Bob" not in name.split("-")}
    refused = client.post(
        "/load/ndjson",
        params={"mode": "delete", "require_existing": "true"},
        content=CID,
        headers=LINES,
    )
    assert "has no id 'Cid' to delete" in error_body(refused, 409)["error"]


def test_load_text_with_modes_patch_and_delete_changes_rows(client: httpx.Client) -> None:
    bob = {"type": "Person", "data": {"name": "Bob", "age": 8}}
    for mode, expected in (("patch", 8), ("delete", None)):
        body = {"data": json.dumps(bob), "mode": mode}
        success_body(client.post("/load", json=body), responses.IngestOutput)
        assert stored(client).get("Bob") == expected
    assert names(client) == ["Ann"]
