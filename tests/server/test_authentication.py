"""Authentication and authorization: tokens, policies and the order of the checks."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from omnigraph.errors import InvalidInput
from omnigraph.graph.format_version import CURRENT
from omnigraph.protocol import responses
from omnigraph.server.http.authentication import PREFIX, TokenRegistry, read_tokens
from tests.server.running import ADD, ALL, TOKENS, Running, error_body, host, names, running, success_body
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
def test_request_without_valid_authorization_header_returns_401(
    guarded: Running, headers: list[tuple[str, str]]
) -> None:
    for path in ("/graphs/team/snapshot", "/graphs/nowhere/snapshot", "/graphs/a%2Fb/snapshot", "/graphs"):
        response = httpx.get(guarded.url + path, headers=headers, timeout=HANG, verify=False)
        assert error_body(response, 401) == {"error": "missing bearer token", "code": "unauthorized"}
        assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("token", ["guess", "token-of-ann2", "TOKEN-OF-ANN", "token-of-an", "ann"])
def test_request_with_unknown_token_returns_401(guarded: Running, token: str) -> None:
    response = httpx.get(
        f"{guarded.url}/graphs/team/snapshot", headers={"Authorization": f"Bearer {token}"}, timeout=HANG
    )
    assert error_body(response, 401)["error"] == "invalid bearer token"


def test_authentication_precedes_body_validation(guarded: Running) -> None:
    with guarded.client() as client:
        json_ = {"Content-Type": "application/json"}
        for content in (b"{", b"x" * 2_000_000):
            error_body(client.post("/query", content=content, headers=json_), 401)
        error_body(client.post("/load/ndjson?mode=nonsense", content=b"{"), 401)


@pytest.mark.parametrize(
    ("id_", "status"),
    [("nowhere", 404), ("policies", 400), ("a_b", 400), ("x" * 65, 400), ("a%2Fb", 400), ("%FF", 400)],
)
def test_graph_lookup_precedes_policy_and_body_validation(guarded: Running, id_: str, status: int) -> None:
    with guarded.client("eve", prefix=f"/graphs/{id_}") as client:
        body = error_body(
            client.post("/query", content=b"{", headers={"Content-Type": "application/json"}), status
        )
    assert body["code"] == ("not_found" if status == 404 else "bad_request")
    if status == 404:
        assert body["error"] == "graph 'nowhere' not found"


def test_policy_check_precedes_lookup_in_graph(guarded: Running) -> None:
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
            body = error_body(response, 403)
            assert body["code"] == "forbidden"
            assert body["error"].endswith("unknown actor 'eve'"), body
        with guarded.client("ann") as ann:
            commit = ann.get("/commits").json()["commits"][0]["graph_commit_id"]
        assert (
            error_body(client.get(f"/commits/{commit}/changes"), 404)["error"]
            == f"commit '{commit}' not found"
        )


def test_policy_check_strips_branch_name(guarded: Running) -> None:
    with guarded.client("bob") as client:
        for branch in ("main", " main ", "main\t", None):
            body = dict(WRITE) if branch is None else {**WRITE, "branch": branch}
            error = error_body(client.post("/mutate", json=body), 403)["error"]
            assert error == "policy denied action 'change' on branch 'main' for actor 'bob'"
        error_body(client.post("/mutate", json={**WRITE, "branch": "dev"}), 404)
        lines = {"Content-Type": "application/x-ndjson"}
        load = client.post("/load/ndjson?branch=dev&from=main", content=b"", headers=lines)
        assert "branch_create" in error_body(load, 403)["error"]
        # All of these checks precede the validation of the body.
        odd = client.post(
            "/load/ndjson?branch=dev&from=main", content=b"", headers={"Content-Type": "text/plain"}
        )
        assert "branch_create" in error_body(odd, 403)["error"]
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
def test_actor_comes_from_token_only(guarded: Running, headers: dict[str, str]) -> None:
    with guarded.client("eve") as client:
        params = {"actor": "ann", "as": "ann", "access_token": TOKENS["ann"]}
        body = {**WRITE, "actor": "ann", "actor_id": "ann"}
        response = client.post("/mutate", json=body, headers=headers, params=params)
    assert "'eve'" in error_body(response, 403)["error"]


def test_list_graphs_requires_server_policy(guarded: Running) -> None:
    with guarded.client("ann", prefix="") as client:
        found = success_body(client.get("/graphs"), responses.GraphListResponse)["graphs"]
    assert [item["graph_id"] for item in found] == ["team"]
    with guarded.client("bob", prefix="") as client:
        error_body(client.get("/graphs"), 403)


def test_health_needs_no_token_and_metrics_need_one(guarded: Running) -> None:
    with guarded.client(prefix="") as client:
        assert (
            success_body(client.get("/healthz"), responses.HealthOutput)["internal_schema_version"] == CURRENT
        )
        success_body(client.get("/readyz"), responses.ReadyOutput)
        assert client.get("/openapi.json").status_code == 200
        error_body(client.get("/metrics"), 401)


def test_tokens_without_policy_allow_only_reads() -> None:
    with running(host(tokens=TOKENS)) as server, server.client("eve") as client:
        assert names(client) == ["Ann", "Bob"]
        error_body(client.post("/mutate", json=WRITE), 403)
        error_body(client.post("/export"), 403)
        error_body(client.post("/branches", json={"name": "x"}), 403)
        error_body(client.post("/queries/everybody"), 404)
        with server.client("eve", prefix="") as outside:
            error_body(outside.get("/graphs"), 403)


def test_unauthenticated_server_lists_its_graphs(open_server: Running) -> None:
    with open_server.client(prefix="") as client:
        graphs = client.get("/graphs").json()["graphs"]
    assert "team" in [item["graph_id"] for item in graphs]


def test_denial_without_a_policy_says_that_none_is_configured() -> None:
    with running(host(tokens=TOKENS)) as server, server.client("ann") as client:
        body = error_body(client.post("/mutate", json={"query": ADD, "params": {"n": "Zoe"}}), 403)
        listing = error_body(client.get(f"{server.url}/graphs"), 403)
    assert body["error"] == (
        "policy denied action 'change' on branch 'main' for actor 'ann': no policy is configured for the graph, so "
        "actors with a token may only read"
    )
    assert "set `policy` of the graph" in body["hint"]
    assert listing["error"] == (
        "policy denied action 'graph_list' for actor 'ann': no policy is configured for the server"
    )
    assert "graph_list" in listing["hint"]


# --- token configuration ---------------------------------------------------------------------------------


def test_token_file_overrides_inline_json_and_single_token_is_added(tmp_path: Path) -> None:
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
    ],
)
def test_invalid_token_configuration_raises_invalid_input(environment: dict[str, str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_tokens(environment)
    assert "sEcReT" not in str(caught.value)


def test_token_that_cannot_be_sent_names_actor() -> None:
    with pytest.raises(InvalidInput) as caught:
        TokenRegistry.of({"ann": "fine", "bob": "päss"})
    assert caught.value.message == "bearer tokens: the token of actor 'bob' cannot be sent in a header"
    assert caught.value.hint == "a token must be printable ASCII without spaces"


def test_token_file_with_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text('{"ann": "one"}', encoding="utf-8-sig")
    assert read_tokens({f"{PREFIX}S_FILE": str(path)}).identify("one") == "ann"


def test_token_registry_contains_no_plain_token() -> None:
    known = TokenRegistry.of({"ann": "plain-text-token"})
    assert "plain-text-token" not in repr(known)
    assert b"plain-text-token" not in b"".join(digest for digest, _ in known._digests)
