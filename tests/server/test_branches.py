"""Branches over HTTP."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest

from omnigraph.server import answers
from tests.server.running import ADD, answer, names, refusal


def add(client: httpx.Client, name: str, age: int | None = None, branch: str = "main") -> None:
    body = {"query": ADD, "params": {"n": name, "a": age}, "branch": branch}
    assert client.post("/mutate", json=body).status_code == 200


def test_a_branch_is_made_listed_and_deleted(client: httpx.Client) -> None:
    found = answer(client.post("/branches", json={"name": " review/x "}), answers.BranchCreated)
    assert (found["from"], found["name"], found["actor_id"]) == ("main", "review/x", None)
    assert answer(client.get("/branches"), answers.Branches) == {"branches": ["main", "review/x"]}
    gone = answer(client.delete("/branches/review%2Fx"), answers.BranchDeleted)
    assert gone["name"] == "review/x"
    assert client.get("/branches").json() == {"branches": ["main"]}


@pytest.mark.parametrize("name", ["a/b", "ünï", "100%", "a%2Fb", "a?b#c", "a b", "..", "merge", "a+b", "a//"])
def test_any_name_travels_in_a_path_when_it_is_encoded(client: httpx.Client, name: str) -> None:
    made = client.post("/branches", json={"name": name})
    if made.status_code == 400:
        assert name == "a//"
        return
    answer(made, answers.BranchCreated)
    raw = quote(name, safe="").replace(".", "%2E")
    assert answer(client.delete(f"/branches/{raw}"), answers.BranchDeleted)["name"] == name
    assert client.get("/branches").json() == {"branches": ["main"]}


def test_a_name_that_is_not_encoded_reaches_nothing(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "a/b"})
    refusal(client.delete("/branches/a/b"), 404)
    refusal(client.delete("/branches/%FF"), 400)
    assert client.get("/branches").json() == {"branches": ["a/b", "main"]}


def test_refusals_of_branches_have_their_statuses(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "dev"})
    assert (
        refusal(client.post("/branches", json={"name": "dev"}), 409)["error"] == "branch 'dev' already exists"
    )
    refusal(client.post("/branches", json={"name": "x", "from": "nowhere"}), 404)
    refusal(client.post("/branches", json={"name": " "}), 400)
    refusal(client.post("/branches", json={"name": "main"}), 400)
    refusal(client.post("/branches", json={"name": "__schema_apply_lock__"}), 400)
    assert refusal(client.delete("/branches/main"), 400)["error"] == "cannot delete branch 'main'"
    refusal(client.delete("/branches/nowhere"), 404)
    refusal(client.post("/branches/merge", json={"source": "nowhere"}), 404)
    refusal(client.post("/branches/merge", json={"source": "main"}), 400)


def test_a_merge_brings_a_branch_in_and_may_delete_it(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "dev"})
    add(client, "Cid", branch="dev")
    found = answer(client.post("/branches/merge", json={"source": "dev"}), answers.Merge)
    assert found == {"source": "dev", "target": "main", "outcome": "fast_forward", "actor_id": None}
    assert names(client) == ["Ann", "Bob", "Cid"]
    body = {"source": "dev", "delete_branch": True}
    again = answer(client.post("/branches/merge", json=body), answers.Merge)
    assert (again["outcome"], again["branch_deleted"]) == ("already_up_to_date", True)
    assert client.get("/branches").json() == {"branches": ["main"]}


def test_every_conflict_of_a_merge_is_told(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "dev"})
    for number, branch in enumerate(("main", "dev")):
        for name in ("Cid", "Dan", "Eve", "Fay"):
            add(client, name, number, branch)
    body = refusal(client.post("/branches/merge", json={"source": "dev"}), 409)
    assert body["code"] == "conflict"
    assert [item["entity_id"] for item in body["merge_conflicts"]] == ["Cid", "Dan", "Eve", "Fay"]
    assert {item["kind"] for item in body["merge_conflicts"]} == {"divergent_insert"}
    assert body["error"].startswith("merge conflicts: node type 'Person', entity id 'Cid' (divergent_insert)")
    assert body["error"].endswith("; and 1 more")
