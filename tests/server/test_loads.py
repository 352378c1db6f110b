"""Loads over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from omnigraph.protocol import responses
from tests.server.running import PEOPLE, answer, names, refusal

LINES = {"Content-Type": "application/x-ndjson; charset=utf-8"}
CID = '{"type":"Person","data":{"name":"Cid"}}\n'


def test_lines_are_loaded_as_one_commit(client: httpx.Client) -> None:
    found = answer(client.post("/load/ndjson", content=CID, headers=LINES), responses.GraphBatchLoadOutput)
    assert "uri" not in found
    assert found["nodes"] == [{"name": "Person", "entities_loaded": 1}]
    assert (found["edges"], found["mode"], found["base_branch"]) == ([], "merge", None)
    assert (found["total_entities"], found["branch_created"]) == (1, False)
    assert client.get("/commits").json()["commits"][0] == found["commit"]
    assert names(client) == ["Ann", "Bob", "Cid"]


def test_a_stream_of_unknown_length_is_loaded(client: httpx.Client) -> None:
    def lines() -> Iterator[bytes]:
        for number in range(500):
            yield f'{{"type":"Person","data":{{"name":"P{number}"}}}}\n'.encode()

    found = answer(
        client.post("/load/ndjson?mode=append", content=lines(), headers=LINES),
        responses.GraphBatchLoadOutput,
    )
    assert found["total_entities"] == 500


def test_records_in_one_text_need_no_lines(client: httpx.Client) -> None:
    text = CID.strip() + " " + PEOPLE.replace("\n", "  ")
    found = answer(client.post("/load", json={"data": text, "mode": "merge"}), responses.IngestOutput)
    assert found["uri"].startswith("memory://")
    assert found["total_entities"] == 3


def test_the_old_route_of_loads_names_its_successor(client: httpx.Client) -> None:
    response = client.post("/ingest", json={"data": CID})
    answer(response, responses.IngestOutput)
    assert response.headers["link"] == '<load>; rel="successor-version"'


@pytest.mark.parametrize("route", ["/load", "/load/ndjson"])
def test_a_branch_that_is_missing_is_made_only_when_its_base_is_named(
    client: httpx.Client, route: str
) -> None:
    def send(**where: str) -> httpx.Response:
        if route == "/load":
            return client.post(route, json={"data": CID, **where})
        return client.post(route, content=CID, headers=LINES, params=where)

    error = refusal(send(branch="new"), 404)["error"]
    assert error == "branch 'new' not found; pass `from` to create it"
    model = responses.IngestOutput if route == "/load" else responses.GraphBatchLoadOutput
    found = answer(send(branch="new", **{"from": "main"}), model)
    assert (found["branch"], found["base_branch"], found["branch_created"]) == ("new", "main", True)
    assert names(client, branch="new") == ["Ann", "Bob", "Cid"]
    assert names(client) == ["Ann", "Bob"]


@pytest.mark.parametrize("kind", ["application/json", "text/plain", ""])
def test_lines_have_a_type_of_their_own(client: httpx.Client, kind: str) -> None:
    refusal(client.post("/load/ndjson", content=CID, headers={"Content-Type": kind}), 415)
    assert names(client) == ["Ann", "Bob"]


@pytest.mark.parametrize(
    ("content", "query"),
    [("{", ""), ('{"type":"Nobody","data":{}}', ""), (CID + "{]", ""), (CID, "?mode=replace")],
)
def test_a_record_that_is_wrong_stops_the_whole_load(client: httpx.Client, content: str, query: str) -> None:
    refusal(client.post(f"/load/ndjson{query}", content=content, headers=LINES), 400)
    assert names(client) == ["Ann", "Bob"]


def test_a_load_that_replaces_leaves_only_what_it_brings(client: httpx.Client) -> None:
    answer(
        client.post("/load/ndjson?mode=overwrite", content=CID, headers=LINES), responses.GraphBatchLoadOutput
    )
    assert names(client) == ["Cid"]
