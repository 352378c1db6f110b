"""Tags over HTTP."""

from __future__ import annotations

import httpx

from omnigraph.protocol import responses
from tests.server.running import ADD, error_body, names, success_body


def add(client: httpx.Client, name: str) -> None:
    assert client.post("/mutate", json={"query": ADD, "params": {"n": name, "a": 1}}).status_code == 200


def test_tag_is_created_used_listed_and_deleted(client: httpx.Client) -> None:
    add(client, "Cy")
    made = success_body(client.post("/tags", json={"name": " v/1 ", "message": "first"}), responses.TagOutput)
    assert (made["name"], made["message"]) == ("v/1", "first")
    add(client, "Dan")
    assert names(client, snapshot="v/1") == ["Ann", "Bob", "Cy"]
    second = success_body(client.post("/tags", json={"name": "v/2", "at": "main"}), responses.TagOutput)
    page = success_body(client.get("/tags", params={"limit": 1, "prefix": "v/"}), responses.TagListOutput)
    assert page == {"tags": [made], "next_after": "v/1"}
    rest = success_body(client.get("/tags", params={"limit": 1, "after": "v/1"}), responses.TagListOutput)
    assert rest == {"tags": [second]}
    gone = success_body(client.delete("/tags/v%2F1"), responses.TagDeleteOutput)
    assert gone["name"] == "v/1"
    assert client.get("/tags").json() == {"tags": [second]}


def test_tag_request_that_cannot_be_done_is_refused(client: httpx.Client) -> None:
    client.post("/tags", json={"name": "v1"})
    client.post("/branches", json={"name": "dev"})
    assert "already exists" in error_body(client.post("/tags", json={"name": "v1"}), 409)["error"]
    assert "is a branch" in error_body(client.post("/tags", json={"name": "dev"}), 409)["error"]
    assert "is a tag" in error_body(client.post("/branches", json={"name": "v1"}), 409)["error"]
    assert "form of a time" in error_body(client.post("/tags", json={"name": "2026-01-01"}), 400)["error"]
    assert "neither" in error_body(client.post("/tags", json={"name": "v2", "at": "no"}), 404)["error"]
    assert "not found" in error_body(client.delete("/tags/v9"), 404)["error"]
    error_body(client.post("/tags", json={"name": " "}), 400)
