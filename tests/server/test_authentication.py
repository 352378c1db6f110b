"""Who calls, and what they may do: tokens, policies, and the order in which they are asked about."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from omnigraph.errors import InvalidInput
from omnigraph.protocol import responses
from omnigraph.server.http.authentication import PREFIX, TokenRegistry, read_tokens
from tests.server.running import ADD, ALL, TOKENS, Running, answer, host, names, refusal, running
from tests.support.waiting import HANG

WRITE = {"query": ADD, "params": {"n": "Cid"}}


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Authorization", "")],
        [("Authorization", "Bearer")],
        [("Authorization", "Basic dG9rZW4tb2YtYW5u")],
        [("Authorization", TOKENS["ann"])],
        [("Authorization", f"Bearer {TOKENS['ann']}"), ("Authorization", f"Bearer {TOKENS['bob']}")],
    ],
)
def test_without_a_token_nothing_is_told(guarded: Running, headers: list[tuple[str, str]]) -> None:
    for path in ("/graphs/team/snapshot", "/graphs/nowhere/snapshot", "/graphs/a%2Fb/snapshot", "/graphs"):
        response = httpx.get(guarded.url + path, headers=headers, timeout=HANG)
        assert refusal(response, 401) == {"error": "missing bearer token", "code": "unauthorized"}
        assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("token", ["guess", "token-of-ann2", "TOKEN-OF-ANN", "token-of-an", "ann"])
def test_a_token_that_nobody_has_is_refused(guarded: Running, token: str) -> None:
    response = httpx.get(
        f"{guarded.url}/graphs/team/snapshot", headers={"Authorization": f"Bearer {token}"}, timeout=HANG
    )
    assert refusal(response, 401)["error"] == "invalid bearer token"


def test_the_token_is_looked_at_before_what_was_sent(guarded: Running) -> None:
    with guarded.client() as client:
        json_ = {"Content-Type": "application/json"}
        for content in (b"{", b"x" * 2_000_000):
            refusal(client.post("/query", content=content, headers=json_), 401)
        refusal(client.post("/load/ndjson?mode=nonsense", content=b"{"), 401)


@pytest.mark.parametrize(
    ("id_", "status"),
    [("nowhere", 404), ("policies", 400), ("a_b", 400), ("x" * 65, 400), ("a%2Fb", 400), ("%FF", 400)],
)
def test_a_graph_is_looked_for_before_policy_and_body(guarded: Running, id_: str, status: int) -> None:
    with guarded.client("eve", prefix=f"/graphs/{id_}") as client:
        body = refusal(
            client.post("/query", content=b"{", headers={"Content-Type": "application/json"}), status
        )
    assert body["code"] == ("not_found" if status == 404 else "bad_request")
    if status == 404:
        assert body["error"] == "graph 'nowhere' not found"


def test_policy_is_asked_before_what_is_in_the_graph(guarded: Running) -> None:
    with guarded.client("eve") as client:
        for response in (
            client.post("/query", json={"query": ALL, "branch": "nowhere"}),
            client.post("/query", json={"query": ALL, "snapshot": "nothing"}),
            client.post("/mutate", json={**WRITE, "branch": "nowhere"}),
            client.post("/branches", json={"name": "main"}),
            client.delete("/branches/nowhere"),
            client.post("/branches/merge", json={"source": "nowhere"}),
            client.post("/schema/apply", json={"schema_source": "nonsense"}),
            client.post("/load", json={"data": "", "branch": "nowhere"}),
            client.post("/load/ndjson", content=b"x", headers={"Content-Type": "text/plain"}),
            client.post("/export", json={"branch": "nowhere"}),
            client.get("/changes?branch=nowhere"),
            client.get("/commits?branch=nowhere"),
            client.get("/commits/nothing"),
            client.get("/branches"),
            client.get("/schema"),
            client.get("/queries"),
        ):
            body = refusal(response, 403)
            assert body["code"] == "forbidden"
            assert body["error"].endswith("unknown actor 'eve'"), body
        with guarded.client("ann") as ann:
            commit = ann.get("/commits").json()["commits"][0]["graph_commit_id"]
        assert (
            refusal(client.get(f"/commits/{commit}/changes"), 404)["error"] == f"commit '{commit}' not found"
        )


def test_a_policy_looks_at_the_branch_however_it_is_spelled(guarded: Running) -> None:
    with guarded.client("bob") as client:
        for branch in ("main", " main ", "main\t", None):
            body = dict(WRITE) if branch is None else {**WRITE, "branch": branch}
            error = refusal(client.post("/mutate", json=body), 403)["error"]
            assert error == "policy denied action 'change' on branch 'main' for actor 'bob'"
        refusal(client.post("/mutate", json={**WRITE, "branch": "dev"}), 404)
        lines = {"Content-Type": "application/x-ndjson"}
        load = client.post("/load/ndjson?branch=dev&from=main", content=b"", headers=lines)
        assert "branch_create" in refusal(load, 403)["error"]
        # All of it is decided before anything is said about what was sent.
        odd = client.post(
            "/load/ndjson?branch=dev&from=main", content=b"", headers={"Content-Type": "text/plain"}
        )
        assert "branch_create" in refusal(odd, 403)["error"]
        assert names(client) == ["Ann", "Bob"]


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Actor-Id": "ann"},
        {"X-Omnigraph-Actor": "ann"},
        {"X-Forwarded-User": "ann"},
        {"Omnigraph-Actor": "ann"},
        {"X-HTTP-Method-Override": "DELETE"},
        {"Cookie": "actor=ann"},
    ],
)
def test_nothing_but_the_token_says_who_calls(guarded: Running, headers: dict[str, str]) -> None:
    with guarded.client("eve") as client:
        params = {"actor": "ann", "as": "ann", "access_token": TOKENS["ann"]}
        body = {**WRITE, "actor": "ann", "actor_id": "ann"}
        response = client.post("/mutate", json=body, headers=headers, params=params)
    assert "'eve'" in refusal(response, 403)["error"]


def test_graphs_are_listed_to_those_whom_the_policy_of_the_server_names(guarded: Running) -> None:
    with guarded.client("ann", prefix="") as client:
        found = answer(client.get("/graphs"), responses.GraphListResponse)["graphs"]
    assert [item["graph_id"] for item in found] == ["team"]
    with guarded.client("bob", prefix="") as client:
        refusal(client.get("/graphs"), 403)


def test_health_needs_no_token_and_metrics_do(guarded: Running) -> None:
    with guarded.client(prefix="") as client:
        assert answer(client.get("/healthz"), responses.HealthOutput)["internal_schema_version"] == 6
        answer(client.get("/readyz"), responses.ReadyOutput)
        assert client.get("/openapi.json").status_code == 200
        refusal(client.get("/metrics"), 401)


def test_with_tokens_and_no_policy_reading_is_all_that_is_allowed() -> None:
    with running(host(tokens=TOKENS)) as server, server.client("eve") as client:
        assert names(client) == ["Ann", "Bob"]
        refusal(client.post("/mutate", json=WRITE), 403)
        refusal(client.post("/export"), 403)
        refusal(client.post("/branches", json={"name": "x"}), 403)
        refusal(client.post("/queries/everybody"), 404)
        with server.client("eve", prefix="") as outside:
            refusal(outside.get("/graphs"), 403)


def test_an_open_server_allows_everything_but_the_list_of_graphs(open_server: Running) -> None:
    with open_server.client(prefix="") as client:
        body = refusal(client.get("/graphs"), 403)
    assert body["error"] == "policy denied action 'graph_list' for no actor"


# --- where tokens come from ------------------------------------------------------------------------------


def test_a_file_wins_over_an_object_and_a_single_token_is_added(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({" ann ": " one "}), encoding="utf-8")
    found = read_tokens({f"{PREFIX}S_FILE": str(path), f"{PREFIX}S_JSON": '{"bo":"two"}', PREFIX: "three"})
    assert found.actors == {"ann", "default"}
    assert [found.identify(token) for token in ("one", "two", "three", " one ")] == [
        "ann",
        None,
        "default",
        None,
    ]


@pytest.mark.parametrize(
    "environment",
    [
        {f"{PREFIX}S_JSON": '{" ": "x"}'},
        {f"{PREFIX}S_JSON": '{"ann": " "}'},
        {f"{PREFIX}S_JSON": '{"ann": "x", " ann": "y"}'},
        {f"{PREFIX}S_JSON": '{"ann": "x", "ann": "y"}'},
        {f"{PREFIX}S_JSON": '{"ann": "sEcReT", "bob": " sEcReT"}'},
        {f"{PREFIX}S_JSON": '{"ann": 7}'},
        {f"{PREFIX}S_JSON": '{"ann": "sEcReT of ann"}'},
        {f"{PREFIX}S_JSON": '{"ann": "sEcReT\\n2"}'},
        {f"{PREFIX}S_JSON": '{"ann": "sEcReT\\u00e4"}'},
        {f"{PREFIX}S_JSON": '{"ann": "sEcReT\\ud800"}'},
        {f"{PREFIX}S_JSON": '{"ann\\ud800": "sEcReT"}'},
        {f"{PREFIX}S_JSON": '["sEcReT"]'},
        {f"{PREFIX}S_JSON": "sEcReT"},
        {f"{PREFIX}S_FILE": "nowhere.json"},
        {f"{PREFIX}S_JSON": '{"default": "x"}', PREFIX: "y"},
        {PREFIX: " "},
        {f"{PREFIX}S_AWS_SECRET": "name"},
    ],
)
def test_tokens_that_do_not_name_one_actor_each_are_refused(environment: dict[str, str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_tokens(environment)
    assert "sEcReT" not in str(caught.value)


def test_a_token_that_no_client_can_send_is_told_by_its_actor() -> None:
    with pytest.raises(InvalidInput) as caught:
        TokenRegistry.of({"ann": "fine", "bob": "päss"})
    assert caught.value.message == "bearer tokens: the token of actor 'bob' cannot be sent in a header"
    assert caught.value.hint == "a token is a text of letters, digits and signs of ASCII without spaces"


def test_a_file_of_tokens_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text('{"ann": "one"}', encoding="utf-8-sig")
    assert read_tokens({f"{PREFIX}S_FILE": str(path)}).identify("one") == "ann"


def test_no_token_can_be_read_out_of_what_is_kept() -> None:
    known = TokenRegistry.of({"ann": "plain-text-token"})
    assert "plain-text-token" not in repr(known)
    assert b"plain-text-token" not in b"".join(digest for digest, _ in known._digests)
