"""Diffs and the resolution of references over HTTP."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from omnigraph.protocol import change_responses, responses
from omnigraph.protocol.codec import EXACT
from tests.server.running import ADD, TOKENS, Running, error_body, everything, host, running, success_body

SIDES = {"before": "main", "after": "dev"}


def add(client: httpx.Client, name: str, branch: str = "main") -> str:
    body = {"query": ADD, "params": {"n": name}, "branch": branch}
    found: str = client.post("/mutate", json=body).json()["commit"]["graph_commit_id"]
    return found


def lines(client: httpx.Client, **params: Any) -> list[dict[str, Any]]:
    response = client.get("/diff", params=params)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    found = [json.loads(line) for line in response.text.splitlines()]
    for item in found:
        change_responses.EntityChangeOutput.model_validate(item)
    return found


def state(client: httpx.Client, name: str) -> dict[str, Any]:
    return success_body(client.get("/state", params={"name": name}), responses.StateOutput)


def test_resolve_state_of_branch_commit_or_timestamp(client: httpx.Client) -> None:
    made = add(client, "Cid")
    assert state(client, " main ") == {"branch": "main", "graph_commit_id": made}
    assert state(client, made) == {"branch": None, "graph_commit_id": made}
    # A timestamp is not a name.
    error_body(client.post("/branches", json={"name": made}), 400)
    moment = client.get("/state", params={"at": "2999-01-01T00:00:00Z"})
    assert success_body(moment, responses.StateOutput) == {"branch": None, "graph_commit_id": made}
    error_body(client.get("/state", params={"name": "nowhere"}), 404)
    error_body(client.get("/state"), 400)
    error_body(client.get("/state", params={"name": "main", "at": "2999-01-01T00:00:00Z"}), 400)


def test_diff_streams_one_line_per_change(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "dev"})
    assert lines(client, **SIDES) == []
    made = add(client, "Cid", "dev")
    base = state(client, "main")["graph_commit_id"]
    found = lines(client, **SIDES)
    assert [(item["op"], item["id"], item["type"]["name"]) for item in found] == [("insert", "Cid", "Person")]
    assert [item["op"] for item in lines(client, before="dev", after=base)] == ["delete"]
    assert lines(client, **SIDES, op=["update", "delete"]) == lines(client, **SIDES, kind="edge") == []
    stats = success_body(client.get("/diff/stats", params=SIDES), responses.DiffStatsOutput)
    assert (stats["before"], stats["after"], stats["branch"]) == (base, made, "dev")
    assert stats["stats"] == {"Person": {"insert": 1, "update": 0, "delete": 0}}


def test_diff_uses_resolved_commit_after_branch_moved(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "dev"})
    then = add(client, "Cid", "dev")
    found = {**SIDES, "after_commit": then}
    assert success_body(client.get("/diff/stats", params=found), responses.DiffStatsOutput)["branch"] == "dev"
    add(client, "Dan", "dev")
    assert [item["id"] for item in lines(client, **found)] == ["Cid"]
    stats = success_body(client.get("/diff/stats", params=found), responses.DiffStatsOutput)
    assert (stats["after"], stats["branch"]) == (then, None)
    assert client.delete("/branches/dev").status_code == 200
    assert [item["id"] for item in lines(client, **found)] == ["Cid"]
    error_body(client.get("/diff", params=SIDES), 404)
    error_body(client.get("/diff", params={**SIDES, "after_commit": "nope"}), 404)


@pytest.mark.parametrize("path", ["/diff", "/diff/stats"])
@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("before=main", 400),
        ("before=main&after=main&what=x", 400),
        ("before=main&after=main&after=main", 400),
        ("before=main&after=main&kind=interface", 400),
        ("before=main&after=main&type=Nobody", 400),
        ("before=main&after=nowhere", 404),
        ("before=main&after=", 404),
    ],
)
def test_invalid_diff_request_returns_error(guarded: Running, path: str, query: str, status: int) -> None:
    with guarded.client("bob") as client:
        error_body(client.get(f"{path}?{query}"), status)


def test_resolve_state_requires_read_permission_for_every_reference() -> None:
    policy = everything("ann")
    policy["protected_branches"] = ["main"]
    policy["groups"]["guests"] = ["bob"]
    guests = {"actors": {"group": "guests"}, "actions": ["read"], "branch_scope": "unprotected"}
    policy["rules"].append({"id": "guests", "allow": guests})
    with (
        running(host(policy, tokens=TOKENS)) as server,
        server.client("ann") as owner,
        server.client("bob") as guest,
        server.client("eve") as stranger,
    ):
        owner.post("/branches", json={"name": "dev"})
        made, secret = add(owner, "Cid", "dev"), add(owner, "Dan")
        assert state(guest, "dev")["graph_commit_id"] == made
        for hidden in ("main", secret):
            error_body(guest.get("/state", params={"name": hidden}), 403)
            for path in ("/diff", "/diff/stats"):
                error_body(guest.get(path, params={"before": "dev", "after": hidden}), 403)
                error_body(guest.get(path, params={"before": hidden, "after": "dev"}), 403)
        # Permission to read a branch does not extend to a commit that is not on it.
        sides = {"before": "dev", "after": "dev", "after_commit": secret}
        error_body(guest.get("/diff", params=sides), 403)
        error_body(stranger.get("/state", params={"name": "nowhere"}), 403)
        error_body(stranger.get("/diff", params={"before": "dev", "after": "dev"}), 403)


def test_resolve_state_without_permission_hides_existence() -> None:
    rules = everything("ann")
    rules["groups"]["some"] = ["bob"]
    rules["protected_branches"] = ["secret"]
    allow = {"actors": {"group": "some"}, "actions": ["read", "export"], "branch_scope": "unprotected"}
    rules["rules"].append({"id": "open", "allow": allow})
    with running(host(rules, tokens=TOKENS)) as server:
        with server.client("ann") as ann:
            ann.post("/branches", json={"name": "secret"})
            commit = add(ann, "Cid", "secret")
        with server.client("bob") as bob:
            assert state(bob, "main")["branch"] == "main"
            for kept, missing in (("secret", "nothing"), (commit, commit[::-1])):
                more = {"type": "Person", "id": "Cid", "entity": "node", "property": "age"}
                for path in ("/state", "/snapshot", "/indexes", "/entity", "/blob"):
                    name = "name" if path == "/state" else "snapshot"
                    told = [
                        error_body(bob.get(path, params={name: item, **more}, headers={"Accept": EXACT}), 403)
                        for item in (kept, missing)
                    ]
                    assert told[0] == told[1]
                for path in ("/diff", "/diff/stats"):
                    params = [{"before": "main", "after": item} for item in (kept, missing)]
                    told = [error_body(bob.get(path, params=item), 403) for item in params]
                    assert told[0] == told[1]
                exported = [bob.post("/export", json={"snapshot": item}) for item in (kept, missing)]
                assert error_body(exported[0], 403) == error_body(exported[1], 403)
