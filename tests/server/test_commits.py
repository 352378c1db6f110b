"""Commits and changes over HTTP."""

from __future__ import annotations

import json

import httpx
import pytest

from omnigraph.protocol import change_responses, maintenance_responses, responses
from tests.server.running import ADD, Running, error_body, success_body


def add(client: httpx.Client, name: str) -> str:
    response = client.post("/mutate", json={"query": ADD, "params": {"n": name}})
    found: str = response.json()["commit"]["graph_commit_id"]
    return found


def test_list_commits_returns_newest_first(client: httpx.Client) -> None:
    made = add(client, "Cid")
    found = success_body(client.get("/commits"), responses.CommitListOutput)["commits"]
    assert found[0]["graph_commit_id"] == made
    assert [item["graph_manifest_version"] for item in found] == [3, 2, 1]
    assert found[-1]["parent_commit_id"] is None
    assert success_body(client.get(f"/commits/{made}"), responses.CommitOutput) == found[0]
    error_body(client.get("/commits?branch=nowhere"), 404)
    assert error_body(client.get("/commits/nope"), 404)["error"] == "commit 'nope' not found"


def test_commit_without_message_omits_member(client: httpx.Client) -> None:
    asked = {"query": ADD, "params": {"n": "Cid"}, "message": "first"}
    made = success_body(client.post("/mutate", json=asked), responses.ChangeOutput)["commit"]
    found = success_body(client.get("/commits"), responses.CommitListOutput)["commits"]
    assert [item.get("message", "none") for item in found] == ["first", "none", "none"]
    assert found[0] == made


def test_list_commits_with_limit_and_actor(client: httpx.Client) -> None:
    made = add(client, "Cid")
    found = success_body(client.get("/commits?limit=1"), responses.CommitListOutput)["commits"]
    assert [item["graph_commit_id"] for item in found] == [made]
    assert success_body(client.get("/commits?limit=0"), responses.CommitListOutput) == {"commits": []}
    assert success_body(client.get("/commits?actor=nobody"), responses.CommitListOutput) == {"commits": []}
    error_body(client.get("/commits?limit=-1"), 400)
    error_body(client.get(f"/commits?limit={2**70}"), 400)


def test_list_commits_by_type_time_and_older_state(client: httpx.Client) -> None:
    made = add(client, "Cid")

    def listed(**params: str) -> list[str]:
        found = success_body(client.get("/commits", params=params), responses.CommitListOutput)["commits"]
        return [item["graph_commit_id"] for item in found]

    every = listed()
    assert listed(type="Person", limit="1") == [made]
    # Only the first commit, which made the table, changed it.
    assert listed(type="Knows") == every[-1:]
    assert listed(snapshot="HEAD~1", merged="true") == every[1:]
    assert listed(since="2999-01-01T00:00:00Z") == []
    error_body(client.get("/commits?type=Nothing"), 404)
    assert error_body(client.get(f"/commits/{made[:4]}"), 400)["error"].startswith(f"commit '{made[:4]}' is")


def test_history_and_blame_name_the_commits_of_an_entity(client: httpx.Client) -> None:
    made = add(client, "Cid")
    person = {"type": "Person", "id": "Cid"}
    versions = success_body(client.get("/history", params=person), change_responses.EntityHistoryOutput)
    (version,) = versions["versions"]
    assert (version["op"], version["operation"], version["changed"]) == ("insert", "mutate", [])
    assert version["commit"]["graph_commit_id"] == made
    assert version["after"]["properties"]["name"] == "Cid"
    origins = success_body(client.get("/blame", params=person), change_responses.EntityBlameOutput)
    assert {item["commit"]["graph_commit_id"] for item in origins["properties"]} == {made}
    assert {item["property"]: item["value"] for item in origins["properties"]}["name"] == "Cid"
    error_body(client.get("/blame", params={"type": "Person", "id": "Nemo"}), 404)
    assert client.get("/history", params={"type": "Person", "id": "Nemo"}).json() == {"versions": []}


def test_list_recoveries_without_interrupted_write_is_empty(client: httpx.Client) -> None:
    assert success_body(client.get("/recoveries"), maintenance_responses.RecoveryListOutput) == {
        "recoveries": []
    }


def test_commit_changes_are_paginated(client: httpx.Client) -> None:
    loaded = client.get("/commits").json()["commits"][0]["graph_commit_id"]
    first = success_body(
        client.get(f"/commits/{loaded}/changes?limit=1"), change_responses.CommitChangesOutput
    )
    assert [item["id"] for item in first["changes"]] == ["Ann"]
    token = first["next_page_token"]
    last = success_body(
        client.get(f"/commits/{loaded}/changes", params={"page_token": token}),
        change_responses.CommitChangesOutput,
    )
    assert [item["id"] for item in last["changes"]] == ["Bob"]
    assert "next_page_token" not in last
    none = client.get(f"/commits/{loaded}/changes?kind=edge&kind=edge&op=delete")
    assert success_body(none, change_responses.CommitChangesOutput)["changes"] == []


def test_commit_changes_of_first_commit_returns_409(client: httpx.Client) -> None:
    genesis = client.get("/commits").json()["commits"][-1]["graph_commit_id"]
    body = error_body(client.get(f"/commits/{genesis}/changes"), 409)
    assert body["change_diff_refusal"] == {"reason": "parentless_commit", "graph_commit_id": genesis}


def test_change_feed_continues_from_cursor(client: httpx.Client) -> None:
    start = success_body(client.get("/changes"), change_responses.ChangeFeedOutput)
    assert (start["blocks"], start["caught_up"]) == ([], True)
    made = add(client, "Cid")
    page = success_body(
        client.get("/changes", params={"cursor": start["cursor"]}), change_responses.ChangeFeedOutput
    )
    assert [block["cause"]["graph_commit_id"] for block in page["blocks"]] == [made]
    assert [item["id"] for item in page["blocks"][0]["changes"]] == ["Cid"]


def test_change_feed_limits_commits_per_poll(client: httpx.Client) -> None:
    start = client.get("/changes").json()["cursor"]
    made = [add(client, name) for name in ("Cid", "Dan")]
    page = success_body(
        client.get("/changes", params={"cursor": start, "max_commits": 1}), change_responses.ChangeFeedOutput
    )
    assert [block["cause"]["graph_commit_id"] for block in page["blocks"]] == made[:1]
    assert page["caught_up"] is False


def test_baseline_last_record_has_resume_cursor(client: httpx.Client) -> None:
    response = client.post("/changes/baseline", json={"kind": ["node"]})
    assert response.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    *records, last = map(json.loads, response.text.splitlines())
    assert [record["data"]["id"] for record in records] == ["Ann", "Bob"]
    made = add(client, "Cid")
    cursor = last["baseline"]["resume_cursor"]
    page = success_body(
        client.get("/changes", params={"cursor": cursor, "kind": "node"}), change_responses.ChangeFeedOutput
    )
    assert [block["cause"]["graph_commit_id"] for block in page["blocks"]] == [made]


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/changes?limit=0", 400, "change page limit must be greater than zero"),
        ("/changes?limit=x", 400, "limit"),
        ("/changes?limit=999999", 413, "at most"),
        ("/changes?max_commits=0", 400, "must be at least 1"),
        ("/changes?max_commits=513", 413, "at most"),
        ("/changes?start=yesterday", 400, "start"),
        ("/changes?start=now&cursor=x", 400, "mutually exclusive"),
        ("/changes?cursor=rubbish", 400, "change cursor rejected:"),
        ("/changes?cursor=a&cursor=b", 400, "more than once"),
        ("/changes?what=x", 400, "unknown query parameter 'what'"),
        ("/changes?kind=interface", 400, "kind"),
        ("/changes?branch=nowhere", 404, "branch 'nowhere' not found"),
        ("/commits/x/changes?branch=main", 400, "unknown query parameter 'branch'"),
        ("/commits/x/changes", 404, "commit 'x' not found"),
    ],
)
def test_invalid_change_request_returns_error(guarded: Running, path: str, status: int, text: str) -> None:
    with guarded.client("bob") as client:
        body = error_body(client.get(path), status)
    assert text in body["error"]
    if status == 413:
        what = "change_feed_commits_per_poll" if "max_commits" in path else "commit_changes_page_changes"
        assert body["resource_limit"]["resource"] == what
