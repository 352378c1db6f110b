"""Stored queries over HTTP."""

from __future__ import annotations

import httpx
import pytest

from omnigraph.protocol import responses
from omnigraph.protocol.codec import IF_COMMIT
from tests.server.running import TOKENS, Running, error_body, everything, host, names, running, success_body


def test_list_queries_returns_parameters(guarded: Running) -> None:
    with guarded.client("bob") as client:
        found = success_body(client.get("/queries"), responses.QueriesCatalogOutput)["queries"]
    assert [item["name"] for item in found] == ["everybody", "hire", "older"]
    assert found[0] == {
        "name": "everybody",
        "tool_name": "everybody",
        "description": "All people.",
        "mutation": False,
        "params": [],
    }
    assert found[2]["params"] == [
        {"name": "a", "kind": "int", "nullable": False},
        {"name": "names", "kind": "list", "item_kind": "string", "nullable": True},
        {"name": "big", "kind": "bigint", "nullable": True},
    ]


@pytest.mark.parametrize("content", [None, b"", b"null", b"{}"])
def test_invoke_stored_read_without_body(guarded: Running, content: bytes | None) -> None:
    with guarded.client("bob") as client:
        headers = {"Content-Type": "application/json"}
        response = client.post("/queries/everybody", content=content, headers=headers)
    assert [row["name"] for row in success_body(response, responses.ReadOutput)["rows"]] == ["Ann", "Bob"]


def test_invoke_stored_query_with_parameters(guarded: Running) -> None:
    with guarded.client("bob") as client:
        body = {"params": {"a": 26, "big": "9007199254740993"}}
        found = success_body(client.post("/queries/older", json=body), responses.ReadOutput)
        assert found["rows"] == [{"name": "Ann"}]
        error_body(client.post("/queries/older", json={"params": {"a": "x"}}), 400)


def test_invoke_stored_mutation_commits(client: httpx.Client) -> None:
    found = success_body(client.post("/queries/hire", json={"params": {"n": "Cid"}}), responses.ChangeOutput)
    assert found["query_name"] == "hire"
    assert names(client) == ["Ann", "Bob", "Cid"]
    body = {"params": {"n": "Dan"}}
    then = found["commit"]["graph_commit_id"]
    success_body(
        client.post("/queries/hire/if-graph-commit", json=body, headers={IF_COMMIT: then}),
        responses.ChangeOutput,
    )
    error_body(client.post("/queries/hire/if-graph-commit", json=body, headers={IF_COMMIT: then}), 412)


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("hire", {"params": {"n": "x"}, "snapshot": "y"}, "snapshot"),
        ("hire", {"expect_mutation": False}, "'hire' is a mutation — use omnigraph mutate hire"),
        ("everybody", {"expect_mutation": True}, "'everybody' is a read — use omnigraph query everybody"),
        ("everybody/if-graph-commit", {}, "read"),
    ],
)
def test_invoke_stored_query_with_wrong_kind_returns_400(
    client: httpx.Client, path: str, body: dict[str, object], text: str
) -> None:
    headers = {IF_COMMIT: "01M7F68NRJJYA661PHN2PSXM9J"} if "if-" in path else {}
    assert text in error_body(client.post(f"/queries/{path}", json=body, headers=headers), 400)["error"]


def test_schema_apply_that_breaks_stored_query_returns_409(client: httpx.Client) -> None:
    # The graph would be quarantined at the next start.
    narrow = {"schema_source": "node Person { name: String @key }\nedge Knows: Person -> Person\n"}
    body = error_body(client.post("/schema/apply", json=narrow), 409)
    assert body["code"] == "conflict"
    assert body["error"] == "the schema breaks stored queries of the graph: older"
    assert "`age`" in body["hint"]
    assert "age" in client.get("/schema").text
    client.post("/branches", json={"name": "dev"})
    applied = client.post("/schema/apply", json={**narrow, "branch": "dev"})
    assert success_body(applied, responses.SchemaApplyOutput)["applied"] is True


def test_invoke_without_permission_returns_404_for_every_name(guarded: Running) -> None:
    with guarded.client("eve") as client:
        found = [client.post(f"/queries/{name}") for name in ("everybody", "hire", "nothing")]
    assert {(item.status_code, item.text) for item in found} == {
        (404, '{"error":"stored query not found","code":"not_found"}')
    }
    with guarded.client("bob") as client:
        assert client.post("/queries/nothing").text == found[0].text


def test_invoke_mutation_without_change_permission_returns_403(guarded: Running) -> None:
    with guarded.client("bob") as client:
        body = error_body(client.post("/queries/hire", json={"params": {"n": "x"}}), 403)
    assert body["error"] == "policy denied action 'change' on branch 'main' for actor 'bob'"


def test_invoke_read_without_read_permission_returns_403() -> None:
    policy = everything("ann", actions=["invoke_query"])
    with running(host(policy, tokens=TOKENS)) as server, server.client("ann") as client:
        error_body(client.get("/queries"), 403)
