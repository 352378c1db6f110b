"""Commits and changes over HTTP."""

from __future__ import annotations

import json

import httpx
import pytest

from omnigraph.protocol import change_responses, maintenance_responses, responses
from tests.server.running import ADD, Running, answer, refusal


def add(client: httpx.Client, name: str) -> str:
    response = client.post("/mutate", json={"query": ADD, "params": {"n": name}})
    found: str = response.json()["commit"]["graph_commit_id"]
    return found


def test_the_history_of_a_branch_is_newest_first(client: httpx.Client) -> None:
    made = add(client, "Cid")
    found = answer(client.get("/commits"), responses.CommitListOutput)["commits"]
    assert found[0]["graph_commit_id"] == made
    assert [item["graph_manifest_version"] for item in found] == [3, 2, 1]
    assert found[-1]["parent_commit_id"] is None
    assert answer(client.get(f"/commits/{made}"), responses.CommitOutput) == found[0]
    refusal(client.get("/commits?branch=nowhere"), 404)
    assert refusal(client.get("/commits/nope"), 404)["error"] == "commit 'nope' not found"


def test_a_commit_has_its_message_and_none_that_it_has_not(client: httpx.Client) -> None:
    asked = {"query": ADD, "params": {"n": "Cid"}, "message": "first"}
    made = answer(client.post("/mutate", json=asked), responses.ChangeOutput)["commit"]
    found = answer(client.get("/commits"), responses.CommitListOutput)["commits"]
    assert [item.get("message", "none") for item in found] == ["first", "none", "none"]
    assert found[0] == made


def test_a_history_is_cut_off_or_of_one_actor(client: httpx.Client) -> None:
    made = add(client, "Cid")
    found = answer(client.get("/commits?limit=1"), responses.CommitListOutput)["commits"]
    assert [item["graph_commit_id"] for item in found] == [made]
    assert answer(client.get("/commits?limit=0"), responses.CommitListOutput) == {"commits": []}
    assert answer(client.get("/commits?actor=nobody"), responses.CommitListOutput) == {"commits": []}
    refusal(client.get("/commits?limit=-1"), 400)
    refusal(client.get(f"/commits?limit={2**70}"), 400)


def test_nothing_was_recovered_where_nothing_was_interrupted(client: httpx.Client) -> None:
    assert answer(client.get("/recoveries"), maintenance_responses.RecoveryListOutput) == {"recoveries": []}


def test_the_changes_of_a_commit_come_in_pages(client: httpx.Client) -> None:
    loaded = client.get("/commits").json()["commits"][0]["graph_commit_id"]
    first = answer(client.get(f"/commits/{loaded}/changes?limit=1"), change_responses.CommitChangesOutput)
    assert [item["id"] for item in first["changes"]] == ["Ann"]
    token = first["next_page_token"]
    last = answer(
        client.get(f"/commits/{loaded}/changes", params={"page_token": token}),
        change_responses.CommitChangesOutput,
    )
    assert [item["id"] for item in last["changes"]] == ["Bob"]
    assert "next_page_token" not in last
    none = client.get(f"/commits/{loaded}/changes?kind=edge&kind=edge&op=delete")
    assert answer(none, change_responses.CommitChangesOutput)["changes"] == []


def test_the_first_commit_has_no_changes_to_tell(client: httpx.Client) -> None:
    genesis = client.get("/commits").json()["commits"][-1]["graph_commit_id"]
    body = refusal(client.get(f"/commits/{genesis}/changes"), 409)
    assert body["change_diff_refusal"] == {"reason": "parentless_commit", "graph_commit_id": genesis}


def test_a_feed_goes_on_from_its_cursor(client: httpx.Client) -> None:
    start = answer(client.get("/changes"), change_responses.ChangeFeedOutput)
    assert (start["blocks"], start["caught_up"]) == ([], True)
    made = add(client, "Cid")
    page = answer(
        client.get("/changes", params={"cursor": start["cursor"]}), change_responses.ChangeFeedOutput
    )
    assert [block["cause"]["graph_commit_id"] for block in page["blocks"]] == [made]
    assert [item["id"] for item in page["blocks"][0]["changes"]] == ["Cid"]


def test_a_poll_tells_so_many_commits_at_most(client: httpx.Client) -> None:
    start = client.get("/changes").json()["cursor"]
    made = [add(client, name) for name in ("Cid", "Dan")]
    page = answer(
        client.get("/changes", params={"cursor": start, "max_commits": 1}), change_responses.ChangeFeedOutput
    )
    assert [block["cause"]["graph_commit_id"] for block in page["blocks"]] == made[:1]
    assert page["caught_up"] is False


def test_a_baseline_ends_with_the_cursor_from_which_changes_go_on(client: httpx.Client) -> None:
    response = client.post("/changes/baseline", json={"kind": ["node"]})
    assert response.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    *records, last = map(json.loads, response.text.splitlines())
    assert [record["data"]["id"] for record in records] == ["Ann", "Bob"]
    made = add(client, "Cid")
    cursor = last["baseline"]["resume_cursor"]
    page = answer(
        client.get("/changes", params={"cursor": cursor, "kind": "node"}), change_responses.ChangeFeedOutput
    )
    assert [block["cause"]["graph_commit_id"] for block in page["blocks"]] == [made]


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/changes?limit=0", 400, "change page limit must be greater than zero"),
        ("/changes?limit=x", 400, "limit"),
        ("/changes?limit=999999", 413, "at most"),
        ("/changes?max_commits=0", 400, "at least one commit"),
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
def test_a_request_for_changes_that_makes_no_sense_is_refused(
    guarded: Running, path: str, status: int, text: str
) -> None:
    with guarded.client("bob") as client:
        body = refusal(client.get(path), status)
    assert text in body["error"]
    if status == 413:
        what = "change_feed_commits_per_poll" if "max_commits" in path else "commit_changes_page_changes"
        assert body["resource_limit"]["resource"] == what
