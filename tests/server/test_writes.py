"""Mutations and schema changes over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from omnigraph.protocol import responses
from omnigraph.protocol.codec import IF_COMMIT
from tests.server.running import (
    ADD,
    ALL,
    SCHEMA,
    TOKENS,
    error_body,
    everything,
    host,
    names,
    running,
    success_body,
)

DEL = "query gone($n: String) { delete Person where name = $n }"


def add(name: str, **more: Any) -> dict[str, Any]:
    return {"query": ADD, "params": {"n": name}, **more}


def head(client: httpx.Client, branch: str = "main") -> str:
    found: str = client.get(f"/commits?branch={branch}").json()["commits"][0]["graph_commit_id"]
    return found


def test_mutate_makes_one_commit_of_the_actor() -> None:
    with running(host(everything("ann"), tokens=TOKENS)) as server, server.client("ann") as client:
        found = success_body(client.post("/mutate", json=add("Cid")), responses.ChangeOutput)
        assert (found["branch"], found["query_name"], found["affected_nodes"]) == ("main", "add", 1)
        assert (found["actor_id"], found["commit"]["actor_id"]) == ("ann", "ann")
        assert found["commit"]["graph_branch"] is None
        assert found["commit"] == client.get("/commits").json()["commits"][0]


def test_mutate_without_matches_makes_no_commit(client: httpx.Client) -> None:
    before = head(client)
    found = success_body(
        client.post("/mutate", json={"query": DEL, "params": {"n": "Zoe"}}), responses.ChangeOutput
    )
    assert found["commit"] is None
    assert head(client) == before


def test_change_route_accepts_old_members(client: httpx.Client) -> None:
    body = {"query_source": ADD, "query_name": "add", "params": {"n": "Cid"}}
    response = client.post("/change", json=body)
    success_body(response, responses.ChangeOutput)
    assert response.headers["deprecation"] == "true"
    assert response.headers["link"] == '<mutate>; rel="successor-version"'
    assert "Cid" in names(client)


def test_mutate_with_idempotency_key_is_applied_once(client: httpx.Client) -> None:
    body = add("Cid", idempotency_key="k-1", message="hello")
    first = success_body(client.post("/mutate", json=body), responses.ChangeOutput)
    again = success_body(client.post("/mutate", json=body), responses.ChangeOutput)
    assert (again["commit"], again["query_name"]) == (first["commit"], "add")
    assert (first["affected_nodes"], again["affected_nodes"]) == (1, 0)
    assert head(client) == first["commit"]["graph_commit_id"]
    error_body(client.post("/mutate", json=add("Dan", idempotency_key="k-1")), 409)


def test_mutate_with_read_query_returns_400(client: httpx.Client) -> None:
    error = error_body(client.post("/mutate", json={"query": ALL}), 400)["error"]
    assert error == "mutation execution called on a read query; use query instead"


def test_conditional_mutate_with_old_head_returns_412(client: httpx.Client) -> None:
    before = head(client)
    found = client.post("/mutate/if-graph-commit", json=add("Cid"), headers={IF_COMMIT: before})
    now = success_body(found, responses.ChangeOutput)["commit"]["graph_commit_id"]
    lost = client.post("/mutate/if-graph-commit", json=add("Dan"), headers={IF_COMMIT: before})
    body = error_body(lost, 412)
    assert "code" not in body
    assert body["precondition_failure"] == {"expected": before, "actual": now}
    assert names(client) == ["Ann", "Bob", "Cid"]


@pytest.mark.parametrize("value", ["*", '"abc"', 'W/"abc"', "a,b", "", "a b"])
def test_if_commit_header_with_invalid_value_returns_400(client: httpx.Client, value: str) -> None:
    error_body(client.post("/mutate/if-graph-commit", json=add("Cid"), headers={IF_COMMIT: value}), 400)
    assert names(client) == ["Ann", "Bob"]


def test_if_commit_header_is_required_once_or_rejected(client: httpx.Client) -> None:
    now = head(client)
    route = "/mutate/if-graph-commit"
    error_body(client.post(route, json=add("Cid")), 400)
    error_body(client.post(route, json=add("Cid"), headers=[(IF_COMMIT, now), (IF_COMMIT, now)]), 400)
    for plain in ("/mutate", "/change", "/queries/hire"):
        error_body(client.post(plain, json=add("Cid"), headers={IF_COMMIT: now}), 400)
    assert names(client) == ["Ann", "Bob"]


UNCONDITIONAL = (
    ("POST", "/load"),
    ("POST", "/ingest"),
    ("POST", "/load/ndjson"),
    ("POST", "/load/files"),
    ("POST", "/branches"),
    ("DELETE", "/branches/dev"),
    ("POST", "/branches/merge"),
    ("POST", "/commits/{head}/revert"),
    ("POST", "/schema/apply"),
    ("POST", "/optimize"),
    ("POST", "/cleanup"),
    ("POST", "/repair"),
    ("PATCH", "/settings"),
)


def test_if_commit_header_on_other_routes_returns_400(client: httpx.Client) -> None:
    body = {"name": "new", "source": "main", "target": "dev", "schema_source": "", "data": "", "keep": 1}
    body["retention"] = "forever"
    headers, now = {IF_COMMIT: "01M7F68NRJJYA661PHN2PSXM9J"}, head(client)
    for method, path in UNCONDITIONAL:
        sent = None if method == "DELETE" or path in ("/load/ndjson", "/load/files") else body
        response = client.request(method, path.format(head=now), headers=headers, json=sent)
        assert IF_COMMIT in error_body(response, 400)["error"], path
    assert head(client) == now


MAY_BE_LEFT_OUT: list[tuple[str, dict[str, Any], list[str]]] = [
    ("/query", {"query": ALL}, ["name", "params", "branch", "snapshot", "at"]),
    ("/mutate", add("Cid"), ["name", "branch", "message", "idempotency_key"]),
    ("/load", {"data": ""}, ["branch", "from", "mode"]),
    ("/export", {}, ["branch", "snapshot", "at", "type_names"]),
    ("/export/files", {}, ["branch", "format"]),
    ("/changes/baseline", {}, ["branch", "kind", "type", "op"]),
    ("/branches", {"name": "new"}, ["from", "snapshot", "at"]),
    ("/branches/merge", {"source": "dev"}, ["target", "delete_branch", "resolve", "dry_run", "if_commit"]),
    ("/commits/{head}/revert", {}, ["branch", "resolve", "dry_run", "message"]),
    ("/schema/plan", {"schema_source": SCHEMA}, ["allow_data_loss", "branch", "backfill"]),
    ("/schema/apply", {"schema_source": SCHEMA}, ["allow_data_loss", "branch", "backfill", "message"]),
    ("/optimize", {}, ["branch", "message"]),
    ("/cleanup", {"keep": 1}, ["older_than", "confirm"]),
    ("/repair", {}, ["confirm"]),
]


def test_null_for_optional_member_means_absent(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "dev"})
    for path, needed, optional in MAY_BE_LEFT_OUT:
        body = {**needed, **dict.fromkeys(optional)}
        response = client.post(path.format(head=head(client)), json=body)
        assert response.status_code == 200, (path, response.text)


def test_null_for_required_member_returns_400(client: httpx.Client) -> None:
    error_body(client.post("/query", json={"query": None}), 400)
    error_body(client.post("/branches/merge", json={"source": None}), 400)
    error_body(client.post("/export", json={"odd": None}), 400)


def test_insert_of_existing_id_returns_key_conflict(client: httpx.Client) -> None:
    line = '{"type":"Person","data":{"name":"Ann"}}'
    body = error_body(client.post("/load", json={"data": line, "mode": "append"}), 409)
    assert body["error"] == "node type 'Person' already has id 'Ann'"
    assert body["code"] == "conflict"
    assert body["key_conflict"] == {"entity_kind": "node", "type_name": "Person", "entity_id": "Ann"}


def test_constraint_violation_returns_400(client: httpx.Client) -> None:
    link = 'query link() { insert Knows { from: "Ann", to: "Nobody" } }'
    assert "key_conflict" not in error_body(client.post("/mutate", json={"query": link}), 400)


def test_schema_apply_makes_one_commit(client: httpx.Client) -> None:
    text = "node Person { name: String @key  age: I32?  city: String? }\nedge Knows: Person -> Person\n"
    found = success_body(
        client.post("/schema/apply", json={"schema_source": text}), responses.SchemaApplyOutput
    )
    assert (found["applied"], found["supported"], found["step_count"]) == (True, True, 1)
    assert client.get("/schema").json() == {"schema_source": text}
    again = success_body(
        client.post("/schema/apply", json={"schema_source": text}), responses.SchemaApplyOutput
    )
    assert again["applied"] is False


WITH_CITY = (
    "node Person { name: String @key  age: I32?  city: String  rank: I32 }\nedge Knows: Person -> Person\n"
)
FILLED = [{"property": "Person.city", "expr": "$this.name"}, {"property": "Person.rank", "value": 7}]


def test_schema_plan_changes_nothing(client: httpx.Client) -> None:
    body: dict[str, Any] = {"schema_source": WITH_CITY}
    found = success_body(client.post("/schema/plan", json=body), responses.SchemaPlanOutput)
    assert (found["supported"], len(found["steps"])) == (False, 2)
    found = success_body(
        client.post("/schema/plan", json={**body, "backfill": FILLED}), responses.SchemaPlanOutput
    )
    assert found["supported"] is True
    assert "city" not in client.get("/schema").text
    error_body(client.post("/schema/plan", json={**body, "branch": "nowhere"}), 404)


def test_schema_apply_to_branch_with_backfill(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "dev"})
    now = head(client, "dev")
    body = {"schema_source": WITH_CITY, "branch": "dev", "backfill": FILLED, "if_commit": now}
    found = success_body(client.post("/schema/apply", json=body), responses.SchemaApplyOutput)
    assert (found["applied"], found["step_count"]) == (True, 2)
    entity = client.get("/entity?type=Person&id=Ann&branch=dev").json()["entity"]
    assert entity == {"id": "Ann", "age": 30, "city": "Ann", "name": "Ann", "rank": 7}
    assert "city" not in client.get("/schema").text
    error_body(client.post("/schema/apply", json={**body, "allow_data_loss": True}), 412)


@pytest.mark.parametrize(
    "backfill",
    [
        [{"property": "Person.city", "value": 1, "expr": "$this.name"}],
        [{"property": "Person.city"}],
        [{"value": 1}],
        {"Person.city": 1},
        [{"property": "Person.city", "value": "x"}, {"property": "Person.city", "value": "y"}],
    ],
)
def test_invalid_backfill_returns_400(client: httpx.Client, backfill: object) -> None:
    error_body(client.post("/schema/apply", json={"schema_source": WITH_CITY, "backfill": backfill}), 400)


def test_schema_text_is_never_read_as_path(client: httpx.Client, tmp_path: Path) -> None:
    path = tmp_path / "secret.pg"
    path.write_text("node Secret { name: String @key }\n", encoding="utf-8")
    error_body(client.post("/schema/apply", json={"schema_source": str(path)}), 400)
    assert "Secret" not in client.get("/schema").text
