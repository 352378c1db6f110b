"""Branches over HTTP."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest

from omnigraph.protocol import responses
from tests.server.running import ADD, POLICY, SCHEMA, Running, error_body, host_graph, names, success_body


def add(client: httpx.Client, name: str, age: int | None = None, branch: str = "main") -> None:
    body = {"query": ADD, "params": {"n": name, "a": age}, "branch": branch}
    assert client.post("/mutate", json=body).status_code == 200


def test_branch_is_created_listed_and_deleted(client: httpx.Client) -> None:
    found = success_body(client.post("/branches", json={"name": " review/x "}), responses.BranchCreateOutput)
    assert (found["from"], found["name"], found["actor_id"]) == ("main", "review/x", None)
    assert success_body(client.get("/branches"), responses.BranchListOutput) == {
        "branches": ["main", "review/x"]
    }
    gone = success_body(client.delete("/branches/review%2Fx"), responses.BranchDeleteOutput)
    assert gone["name"] == "review/x"
    assert client.get("/branches").json() == {"branches": ["main"]}


def test_branches_are_listed_in_pages(client: httpx.Client) -> None:
    for name in ("agent/1", "agent/2", "agent/3", "zoo"):
        client.post("/branches", json={"name": name})
    pages: list[list[str]] = []
    after = None
    while not pages or after is not None:
        params = {"limit": 2} if after is None else {"limit": 2, "after": after}
        page = success_body(client.get("/branches", params=params), responses.BranchListOutput)
        pages.append(page["branches"])
        after = page.get("next_after")
    assert pages == [["agent/1", "agent/2"], ["agent/3", "main"], ["zoo"]]
    found = client.get("/branches", params={"prefix": "agent/", "limit": 3})
    assert found.json() == {"branches": ["agent/1", "agent/2", "agent/3"]}
    assert client.get("/branches", params={"prefix": "agent/2"}).json() == {"branches": ["agent/2"]}
    assert client.get("/branches", params={"limit": 0}).json() == {"branches": []}


@pytest.mark.parametrize("limit", ["-1", "x", "1.5", str(2**60)])
def test_branch_list_with_invalid_limit_returns_400(client: httpx.Client, limit: str) -> None:
    assert "limit" in error_body(client.get("/branches", params={"limit": limit}), 400)["error"]


@pytest.mark.parametrize(
    "name", ["a/b", "ünï", "100%", "a%2Fb", "a?b#c", "a b", "...", "merge", "a+b", "a//"]
)
def test_encoded_branch_name_in_path_is_one_segment(client: httpx.Client, name: str) -> None:
    made = client.post("/branches", json={"name": name})
    if made.status_code == 400:
        assert name == "a//"
        return
    success_body(made, responses.BranchCreateOutput)
    raw = quote(name, safe="").replace(".", "%2E")
    assert success_body(client.delete(f"/branches/{raw}"), responses.BranchDeleteOutput)["name"] == name
    assert client.get("/branches").json() == {"branches": ["main"]}


def test_unencoded_branch_name_in_path_returns_404(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "a/b"})
    error_body(client.delete("/branches/a/b"), 404)
    assert "codec" not in error_body(client.delete("/branches/%FF"), 400)["error"]
    assert client.get("/branches").json() == {"branches": ["a/b", "main"]}


def test_branch_errors_have_documented_statuses(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "dev"})
    assert (
        error_body(client.post("/branches", json={"name": "dev"}), 409)["error"]
        == "branch 'dev' already exists"
    )
    error_body(client.post("/branches", json={"name": "x", "from": "nowhere"}), 404)
    error_body(client.post("/branches", json={"name": " "}), 400)
    error_body(client.post("/branches", json={"name": "main"}), 400)
    error_body(client.post("/branches", json={"name": "__schema_apply_lock__"}), 400)
    assert error_body(client.delete("/branches/main"), 400)["error"] == "cannot delete branch 'main'"
    error_body(client.delete("/branches/nowhere"), 404)
    error_body(client.post("/branches/merge", json={"source": "nowhere"}), 404)
    error_body(client.post("/branches/merge", json={"source": "main"}), 400)


def test_merge_branch_and_delete_source(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "dev"})
    add(client, "Cid", branch="dev")
    found = success_body(client.post("/branches/merge", json={"source": "dev"}), responses.BranchMergeOutput)
    assert found == {"source": "dev", "target": "main", "outcome": "fast_forward", "actor_id": None}
    assert names(client) == ["Ann", "Bob", "Cid"]
    body = {"source": "dev", "delete_branch": True}
    again = success_body(client.post("/branches/merge", json=body), responses.BranchMergeOutput)
    assert (again["outcome"], again["branch_deleted"]) == ("already_up_to_date", True)
    assert client.get("/branches").json() == {"branches": ["main"]}


def test_merge_conflict_returns_409_with_all_conflicts(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "dev"})
    for number, branch in enumerate(("main", "dev")):
        for name in ("Cid", "Dan", "Eve", "Fay"):
            add(client, name, number, branch)
    body = error_body(client.post("/branches/merge", json={"source": "dev"}), 409)
    assert body["code"] == "conflict"
    assert [item["entity_id"] for item in body["merge_conflicts"]] == ["Cid", "Dan", "Eve", "Fay"]
    assert {item["kind"] for item in body["merge_conflicts"]} == {"divergent_insert"}
    assert body["error"].startswith("merge conflicts: node type 'Person', entity id 'Cid' (divergent_insert)")
    assert body["error"].endswith("; and 1 more")


def test_branch_starts_at_commit_or_timestamp(client: httpx.Client) -> None:
    then = client.get("/commits").json()["commits"][0]
    add(client, "Cid")
    made = {"name": "old", "snapshot": then["graph_commit_id"]}
    assert success_body(client.post("/branches", json=made), responses.BranchCreateOutput)["from"] == "main"
    assert names(client, branch="old") == ["Ann", "Bob"]
    error_body(client.post("/branches", json={**made, "name": "x", "at": "2026-05-04T12:00:00Z"}), 400)
    error_body(client.post("/branches", json={"name": "x", "snapshot": "nope"}), 404)
    error_body(client.post("/branches", json={"name": "x", "at": "1971-01-01T00:00:00Z"}), 404)


def test_merge_dry_run_then_resolution_succeeds(client: httpx.Client) -> None:
    client.post("/branches", json={"name": "dev"})
    add(client, "Cid", 1)
    add(client, "Cid", 2, "dev")
    head = client.get("/commits").json()["commits"][0]["graph_commit_id"]
    body = {"source": "dev", "dry_run": True}
    tried = success_body(client.post("/branches/merge", json=body), responses.BranchMergeOutput)
    assert tried["dry_run"] is True
    assert [item["entity_id"] for item in tried["conflicts"]] == ["Cid"]
    assert client.get("/commits").json()["commits"][0]["graph_commit_id"] == head
    error_body(client.post("/branches/merge", json={"source": "dev", "resolve": "mine"}), 400)
    error_body(client.post("/branches/merge", json={"source": "dev", "if_commit": "other"}), 412)
    chosen = {tried["conflicts"][0]["id"]: "theirs"}
    settled = {"source": "dev", "resolve": chosen, "message": "settled", "if_commit": head}
    found = success_body(client.post("/branches/merge", json=settled), responses.BranchMergeOutput)
    assert found == {"source": "dev", "target": "main", "outcome": "merged", "actor_id": None}
    assert client.get("/entity?type=Person&id=Cid").json()["entity"]["age"] == 2


def test_revert_commit_creates_new_commit(client: httpx.Client) -> None:
    add(client, "Cid")
    made = client.get("/commits").json()["commits"][0]["graph_commit_id"]
    add(client, "Dan")
    path = f"/commits/{made}/revert"
    tried = success_body(client.post(path, json={"dry_run": True}), responses.CommitRevertOutput)
    assert (tried["commit"], tried["dry_run"], tried["conflicts"]) == (None, True, [])
    assert names(client) == ["Ann", "Bob", "Cid", "Dan"]
    found = success_body(client.post(path), responses.CommitRevertOutput)
    assert list(found) == ["outcome", "branch", "actor_id", "commit"]
    assert found["commit"] == client.get("/commits").json()["commits"][0]
    assert names(client) == ["Ann", "Bob", "Dan"]
    error_body(client.post("/commits/nope/revert"), 404)
    genesis = client.get("/commits").json()["commits"][-1]["graph_commit_id"]
    error_body(client.post(f"/commits/{genesis}/revert"), 409)
    error_body(client.post(path, json={"if_commit": made}), 412)
    error_body(client.post(path, json={"branch": "nowhere"}), 404)


def test_revert_requires_change_permission(guarded: Running) -> None:
    with guarded.client("bob") as client:
        made = client.get("/commits").json()["commits"][0]["graph_commit_id"]
        error_body(client.post(f"/commits/{made}/revert", json={"dry_run": True}), 403)


def test_revert_of_schema_change_requires_schema_permission(guarded: Running) -> None:
    graphs = guarded.hosted.graphs
    assert isinstance(graphs, dict)
    graphs["evolving"] = host_graph("evolving", POLICY, guarded.hosted.tokens)
    with (
        guarded.client("ann", prefix="/graphs/evolving") as ann,
        guarded.client("bob", prefix="/graphs/evolving") as bob,
    ):
        ann.post("/branches", json={"name": "dev"})
        wider = {"schema_source": f"{SCHEMA}node City {{ name: String @key }}\n", "branch": "dev"}
        assert ann.post("/schema/apply", json=wider).status_code == 200
        applied = ann.get("/commits?branch=dev").json()["commits"][0]["graph_commit_id"]
        add(bob, "Cid", branch="dev")
        path, body = f"/commits/{applied}/revert", {"branch": "dev"}
        assert "'schema_apply'" in error_body(bob.post(path, json=body), 403)["error"]
        assert "City" in ann.get("/schema?branch=dev").text
        success_body(ann.post(path, json=body), responses.CommitRevertOutput)
        assert "City" not in ann.get("/schema?branch=dev").text
    del graphs["evolving"]
