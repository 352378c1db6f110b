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
    answer,
    everything,
    host,
    names,
    refusal,
    running,
)

DEL = "query gone($n: String) { delete Person where name = $n }"


def add(name: str, **more: Any) -> dict[str, Any]:
    return {"query": ADD, "params": {"n": name}, **more}


def head(client: httpx.Client, branch: str = "main") -> str:
    found: str = client.get(f"/commits?branch={branch}").json()["commits"][0]["graph_commit_id"]
    return found


def test_a_mutation_is_one_commit_of_its_actor() -> None:
    with running(host(everything("ann"), tokens=TOKENS)) as server, server.client("ann") as client:
        found = answer(client.post("/mutate", json=add("Cid")), responses.ChangeOutput)
        assert (found["branch"], found["query_name"], found["affected_nodes"]) == ("main", "add", 1)
        assert (found["actor_id"], found["commit"]["actor_id"]) == ("ann", "ann")
        assert found["commit"]["graph_branch"] is None
        assert found["commit"] == client.get("/commits").json()["commits"][0]


def test_a_mutation_that_matches_nothing_makes_no_commit(client: httpx.Client) -> None:
    before = head(client)
    found = answer(
        client.post("/mutate", json={"query": DEL, "params": {"n": "Zoe"}}), responses.ChangeOutput
    )
    assert found["commit"] is None
    assert head(client) == before


def test_the_old_route_and_the_old_members_still_work(client: httpx.Client) -> None:
    body = {"query_source": ADD, "query_name": "add", "params": {"n": "Cid"}}
    response = client.post("/change", json=body)
    answer(response, responses.ChangeOutput)
    assert response.headers["deprecation"] == "true"
    assert response.headers["link"] == '<mutate>; rel="successor-version"'
    assert "Cid" in names(client)


def test_a_write_that_is_sent_again_with_its_key_happens_once(client: httpx.Client) -> None:
    body = add("Cid", idempotency_key="k-1", message="hello")
    first = answer(client.post("/mutate", json=body), responses.ChangeOutput)
    again = answer(client.post("/mutate", json=body), responses.ChangeOutput)
    assert (again["commit"], again["query_name"]) == (first["commit"], "add")
    assert (first["affected_nodes"], again["affected_nodes"]) == (1, 0)
    assert head(client) == first["commit"]["graph_commit_id"]
    refusal(client.post("/mutate", json=add("Dan", idempotency_key="k-1")), 409)


def test_a_read_is_no_mutation(client: httpx.Client) -> None:
    error = refusal(client.post("/mutate", json={"query": ALL}), 400)["error"]
    assert error == "mutation execution called on a read query; use query instead"


def test_a_conditional_write_needs_the_head_that_it_names(client: httpx.Client) -> None:
    before = head(client)
    found = client.post("/mutate/if-graph-commit", json=add("Cid"), headers={IF_COMMIT: before})
    now = answer(found, responses.ChangeOutput)["commit"]["graph_commit_id"]
    lost = client.post("/mutate/if-graph-commit", json=add("Dan"), headers={IF_COMMIT: before})
    body = refusal(lost, 412)
    assert "code" not in body
    assert body["precondition_failure"] == {"expected": before, "actual": now}
    assert names(client) == ["Ann", "Bob", "Cid"]


@pytest.mark.parametrize("value", ["*", '"abc"', 'W/"abc"', "a,b", "", "a b"])
def test_a_condition_is_one_plain_commit_id(client: httpx.Client, value: str) -> None:
    refusal(client.post("/mutate/if-graph-commit", json=add("Cid"), headers={IF_COMMIT: value}), 400)
    assert names(client) == ["Ann", "Bob"]


def test_a_condition_is_given_once_where_it_counts_and_nowhere_else(client: httpx.Client) -> None:
    now = head(client)
    route = "/mutate/if-graph-commit"
    refusal(client.post(route, json=add("Cid")), 400)
    refusal(client.post(route, json=add("Cid"), headers=[(IF_COMMIT, now), (IF_COMMIT, now)]), 400)
    for plain in ("/mutate", "/change", "/queries/hire"):
        refusal(client.post(plain, json=add("Cid"), headers={IF_COMMIT: now}), 400)
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
)


def test_a_condition_that_nobody_would_look_at_is_refused(client: httpx.Client) -> None:
    body = {"name": "new", "source": "main", "target": "dev", "schema_source": "", "data": "", "keep": 1}
    headers, now = {IF_COMMIT: "01M7F68NRJJYA661PHN2PSXM9J"}, head(client)
    for method, path in UNCONDITIONAL:
        sent = None if method == "DELETE" or path in ("/load/ndjson", "/load/files") else body
        response = client.request(method, path.format(head=now), headers=headers, json=sent)
        assert IF_COMMIT in refusal(response, 400)["error"], path
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


def test_null_is_as_good_as_nothing_for_what_may_be_left_out(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "dev"})
    for path, needed, optional in MAY_BE_LEFT_OUT:
        body = {**needed, **dict.fromkeys(optional)}
        response = client.post(path.format(head=head(client)), json=body)
        assert response.status_code == 200, (path, response.text)


def test_null_is_nothing_for_what_is_needed(client: httpx.Client) -> None:
    refusal(client.post("/query", json={"query": None}), 400)
    refusal(client.post("/branches/merge", json={"source": None}), 400)
    refusal(client.post("/export", json={"odd": None}), 400)


def test_an_id_that_is_taken_is_a_conflict_with_what_is_there(client: httpx.Client) -> None:
    line = '{"type":"Person","data":{"name":"Ann"}}'
    body = refusal(client.post("/load", json={"data": line, "mode": "append"}), 409)
    assert body["error"] == "node type 'Person' already has id 'Ann'"
    assert body["code"] == "conflict"
    assert body["key_conflict"] == {"entity_kind": "node", "type_name": "Person", "entity_id": "Ann"}


def test_a_constraint_that_data_breaks_is_a_bad_request(client: httpx.Client) -> None:
    link = 'query link() { insert Knows { from: "Ann", to: "Nobody" } }'
    assert "key_conflict" not in refusal(client.post("/mutate", json={"query": link}), 400)


def test_a_schema_is_applied_as_one_commit(client: httpx.Client) -> None:
    text = "node Person { name: String @key  age: I32?  city: String? }\nedge Knows: Person -> Person\n"
    found = answer(client.post("/schema/apply", json={"schema_source": text}), responses.SchemaApplyOutput)
    assert (found["applied"], found["supported"], found["step_count"]) == (True, True, 1)
    assert client.get("/schema").json() == {"schema_source": text}
    again = answer(client.post("/schema/apply", json={"schema_source": text}), responses.SchemaApplyOutput)
    assert again["applied"] is False


WITH_CITY = (
    "node Person { name: String @key  age: I32?  city: String  rank: I32 }\nedge Knows: Person -> Person\n"
)
FILLED = [{"property": "Person.city", "expr": "$this.name"}, {"property": "Person.rank", "value": 7}]


def test_a_schema_is_planned_and_changes_nothing(client: httpx.Client) -> None:
    body: dict[str, Any] = {"schema_source": WITH_CITY}
    found = answer(client.post("/schema/plan", json=body), responses.SchemaPlanOutput)
    assert (found["supported"], len(found["steps"])) == (False, 2)
    found = answer(client.post("/schema/plan", json={**body, "backfill": FILLED}), responses.SchemaPlanOutput)
    assert found["supported"] is True
    assert "city" not in client.get("/schema").text
    refusal(client.post("/schema/plan", json={**body, "branch": "nowhere"}), 404)


def test_a_schema_is_applied_to_a_branch_with_values_for_what_is_new(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "dev"})
    now = head(client, "dev")
    body = {"schema_source": WITH_CITY, "branch": "dev", "backfill": FILLED, "if_commit": now}
    found = answer(client.post("/schema/apply", json=body), responses.SchemaApplyOutput)
    assert (found["applied"], found["step_count"]) == (True, 2)
    entity = client.get("/entity?type=Person&id=Ann&branch=dev").json()["entity"]
    assert entity == {"id": "Ann", "age": 30, "city": "Ann", "name": "Ann", "rank": 7}
    assert "city" not in client.get("/schema").text
    refusal(client.post("/schema/apply", json={**body, "allow_data_loss": True}), 412)


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
def test_a_backfill_has_one_value_or_one_expression(client: httpx.Client, backfill: object) -> None:
    refusal(client.post("/schema/apply", json={"schema_source": WITH_CITY, "backfill": backfill}), 400)


def test_the_text_of_a_schema_is_never_taken_for_a_path(client: httpx.Client, tmp_path: Path) -> None:
    path = tmp_path / "secret.pg"
    path.write_text("node Secret { name: String @key }\n", encoding="utf-8")
    refusal(client.post("/schema/apply", json={"schema_source": str(path)}), 400)
    assert "Secret" not in client.get("/schema").text
