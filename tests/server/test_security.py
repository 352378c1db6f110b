"""Hostile requests: request smuggling, path tricks, forged identities, injection and hostile bodies."""

from __future__ import annotations

import gzip
import json
import logging
from urllib.parse import quote

import httpx
import pytest

from omnigraph.server.http.authentication import TokenRegistry
from omnigraph.server.logs import JsonFormatter
from tests.server.running import (
    ADD,
    ALL,
    TOKENS,
    Running,
    error_body,
    everything,
    host,
    host_graph,
    names,
    running,
)
from tests.server.sockets import exchange, head
from tests.support.waiting import HANG

ANN = f"Authorization: Bearer {TOKENS['ann']}"
BODY = json.dumps({"query": ALL}).encode()
QUERY = "/graphs/team/query"
MALFORMED = {"error": "the request is not valid HTTP", "code": "bad_request"}
# Names that would have a meaning if they were inserted into a path, a policy or a command.
ODD = [
    "a/.../main",
    "main'; DROP TABLE commits; --",
    'main"',
    'Branch::"main"',
    'main" || true || "',
    "permit(principal, action, resource);",
    "$(touch x)",
    "main%00",
    "main%2f..",
]
NO_NAMES = [
    "",
    " ",
    "../main",
    "a/./main",
    "main\x00",
    "ma\nin",
    "main\r\nX-Injected: 1",
    "\u202emain",
    "x" * 10_000,
]


# --- request smuggling --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: -1"],
        ["Content-Length: +5"],
        ["Content-Length: 5, 6"],
        ["Content-Length: 0x5"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: identity"],
        ["Transfer-Encoding : chunked"],
        ["X-Null: a\x00b"],
        ["No colon"],
        ["Host: y"],
    ],
    ids=range(11),
)
def test_malformed_headers_return_400_and_close_connection(guarded: Running, lines: list[str]) -> None:
    # The rest would be a second request for a parser that accepts the headers.
    second = head("GET", "/healthz")
    found = exchange(guarded.url, head("POST", QUERY, ANN, "Content-Type: application/json", *lines) + second)
    if lines[0].startswith("Transfer-Encoding: "):
        assert found.status in (400, 501)
    else:
        assert found.error_body(400) == MALFORMED
    assert b"200 OK" not in found.body


def test_oversized_headers_return_431(guarded: Running) -> None:
    lines = [f"X-Huge-{number}: {'a' * 10_000}" for number in range(100)]
    # Unread data can make the kernel discard the response.
    assert exchange(guarded.url, head("GET", "/healthz", *lines)).status in (431, None)
    long = exchange(guarded.url, f"GET /{'a' * 70_000}".encode())
    assert long.error_body(431) == {"error": "the request headers are too large", "code": "bad_request"}


def test_folded_header_line_is_not_a_separate_header(guarded: Running) -> None:
    folded = head("GET", "/graphs/team/snapshot", "Connection: close", "X-Folded: a", f" {ANN}")
    assert exchange(guarded.url, folded).error_body(401)["error"] == "missing bearer token"


def test_content_length_with_chunked_encoding_is_rejected(guarded: Running) -> None:
    hidden = head("GET", "/healthz")
    lines = (ANN, "Content-Type: application/json", "Transfer-Encoding: chunked", "Content-Length: 4")
    chunks = f"{len(BODY):x}\r\n".encode() + BODY + b"\r\n0\r\n\r\n"
    found = exchange(guarded.url, head("POST", QUERY, *lines) + chunks + hidden)
    # A proxy could use the other body length.
    assert "Transfer-Encoding" in found.error_body(400)["error"]
    assert found.body.count(b"HTTP/1.1 ") == 0


@pytest.mark.parametrize("chunk", [b"x\r\n", b"-1\r\n"])
def test_malformed_chunks_return_400(guarded: Running, chunk: bytes) -> None:
    lines = (ANN, "Content-Type: application/json", "Transfer-Encoding: chunked")
    assert exchange(guarded.url, head("POST", QUERY, *lines) + chunk).error_body(400) == MALFORMED


@pytest.mark.parametrize(
    "target",
    [
        "/graphs/..%2f..%2fetc%2fpasswd/snapshot",
        "/graphs/%2e%2e/snapshot",
        "/graphs/../graphs/team/snapshot",
        "/graphs//snapshot",
        "//graphs/team/snapshot",
        "/graphs/team//snapshot",
        "/graphs/team/./snapshot",
        "/graphs/team%2fsnapshot",
        "/graphs/team/snapshot%00",
        "/graphs/team/snapshot;x=1",
        "/graphs/TEAM/snapshot",
        "http://elsewhere/graphs/TEAM/snapshot",
        "http:///graphs/team/snapshot",
        "ftp://elsewhere/graphs/team/snapshot",
        "/graphs/team%0d%0aX-Injected:%201/snapshot",
    ],
)
def test_path_is_not_normalized(guarded: Running, target: str) -> None:
    found = exchange(guarded.url, head("GET", target, ANN, "Connection: close"))
    assert found.status in (400, 404)
    found.error_body(found.status)
    assert "x-injected" not in dict(found.headers)


def test_absolute_form_target_overrides_host_header(guarded: Running, open_server: Running) -> None:
    target = "http://elsewhere/graphs/team/branches?x=1"
    found = exchange(guarded.url, head("GET", target, ANN, "Connection: close"))
    assert (found.status, json.loads(found.body)) == (200, {"branches": ["main"]})
    assert exchange(open_server.url, head("GET", "http://localhost", "Connection: close")).status == 200
    with running(open_server.hosted, is_local=True) as local:
        answers = {
            host: exchange(local.url, head("GET", f"http://{host}/graphs/team", "Connection: close")).status
            for host in ("localhost:8080", "elsewhere")
        }
    assert answers == {"localhost:8080": 200, "elsewhere": 403}


# --- identity -----------------------------------------------------------------------------------------------


def test_token_in_query_string_is_ignored_and_not_logged(
    guarded: Running, caplog: pytest.LogCaptureFixture
) -> None:
    names_ = ("token", "access_token", "api_key", "authorization", "bearer")
    with caplog.at_level(logging.DEBUG), guarded.client(prefix="") as client:
        for name in names_:
            response = client.get("/graphs/team/snapshot", params={name: TOKENS["ann"]})
            assert error_body(response, 401)["error"] == "missing bearer token"
        client.get(f"/graphs/team/{TOKENS['ann']}", headers={"Cookie": f"token={TOKENS['ann']}"})
        client.get("/graphs/team/snapshot", headers={"Authorization": "Bearer wrong-token"})
    shown = "\n".join(
        JsonFormatter().format(item) for item in caplog.records if not item.name.startswith("http")
    )
    assert '"status": 401' in shown
    assert TOKENS["ann"] not in shown
    assert "wrong-token" not in shown
    with guarded.client("ann", prefix="") as client:
        assert not any(token in client.get("/metrics").text for token in TOKENS.values())


def test_token_grants_access_by_policy_of_each_graph() -> None:
    hosted = host(everything("ann"), tokens=TOKENS)
    other = host_graph("other", everything("bob"), TokenRegistry.of(TOKENS))
    graphs = hosted.graphs
    assert isinstance(graphs, dict)
    graphs["other"] = other
    with running(hosted) as server:
        for actor, id_, status in (("ann", "team", 200), ("ann", "other", 403), ("bob", "team", 403)):
            with server.client(actor, prefix=f"/graphs/{id_}") as client:
                assert client.get("/snapshot").status_code == status


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"])
def test_method_override_headers_are_ignored(guarded: Running, name: str) -> None:
    with guarded.client("ann") as client:
        response = client.post("/branches/main", headers={name: "DELETE"}, params={"_method": "DELETE"})
        error_body(response, 405)
        assert client.get("/branches", headers={name: "POST"}).json() == {"branches": ["main"]}


def test_commit_actor_comes_from_token(guarded: Running) -> None:
    forged = {"actor": "bob", "actor_id": "bob", "user": "bob"}
    with guarded.client("ann") as client:
        client.post("/branches", json={"name": "forged", **forged})
        write = {"query": ADD, "params": {"n": "Cid"}, "branch": "forged", **forged}
        headers = {"Omnigraph-Actor": "bob", "X-Actor": "bob", "X-Remote-User": "bob"}
        found = client.post("/mutate", json=write, headers=headers).json()
        assert (found["actor_id"], found["commit"]["actor_id"]) == ("ann", "ann")
        client.delete("/branches/forged")


def test_denied_stored_query_is_indistinguishable_from_missing(guarded: Running) -> None:
    found = []
    with guarded.client("eve") as client:
        for name in ("everybody", "hire", "nothing", "..%2Fpeople", "%27%20or%201%3D1"):
            for body in ({}, {"params": {"a": 1}}, {"expect_mutation": True}):
                response = client.post(f"/queries/{name}", json=body)
                # Only the request id and the date differ.
                kept = {k: v for k, v in response.headers.items() if k not in ("x-request-id", "date")}
                found.append((response.status_code, response.content, kept))
    assert all(item == found[0] for item in found)
    assert found[0][0] == 404


# --- names and bodies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ODD)
def test_branch_name_with_special_characters_is_plain_text(client: httpx.Client, name: str) -> None:
    assert client.post("/branches", json={"name": name}).json()["name"] == name
    assert client.get("/branches").json() == {"branches": sorted(["main", name])}
    write = {"query": ADD, "params": {"n": "Cid"}, "branch": name}
    assert client.post("/mutate", json=write).status_code == 200
    assert (names(client), names(client, branch=name)) == (["Ann", "Bob"], ["Ann", "Bob", "Cid"])
    assert client.delete(f"/branches/{quote(name, safe='')}").status_code == 200
    assert client.get("/branches").json() == {"branches": ["main"]}


@pytest.mark.parametrize("name", NO_NAMES, ids=range(len(NO_NAMES)))
def test_invalid_branch_name_returns_400(guarded: Running, name: str) -> None:
    with guarded.client("ann") as client:
        error_body(client.post("/branches", json={"name": name}), 400)
        response = client.delete(f"/branches/{quote(name, safe='')}")
        assert response.status_code in (400, 404)
        assert "x-injected" not in response.headers


@pytest.mark.parametrize("name", [*ODD, *NO_NAMES], ids=range(len(ODD) + len(NO_NAMES)))
def test_branch_name_variants_do_not_bypass_policy(guarded: Running, name: str) -> None:
    with guarded.client("bob") as client:
        response = client.post("/mutate", json={"query": ADD, "params": {"n": "Cid"}, "branch": name})
        assert response.status_code in (400, 403, 404)
        error_body(response, response.status_code)
        assert names(client) == ["Ann", "Bob"]


@pytest.mark.parametrize("given", ["a\rb", "a\nb", "a: b", "é", "a" * 65, "<script>", ""])
def test_unsafe_request_id_is_replaced(guarded: Running, given: str) -> None:
    line = f"X-Request-Id: {given}".encode()
    sent = head("GET", "/healthz", "Connection: close").replace(b"\r\n\r\n", b"\r\n" + line + b"\r\n\r\n")
    found = exchange(guarded.url, sent)
    if found.status == 400:
        assert found.error_body(400) == MALFORMED
    else:
        assert len(dict(found.headers)["x-request-id"]) == 26


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b'{"query": 1, "query": "' + ALL.encode() + b'"}', 200),
        (b'{"a":' * 100_000, 400),
        (b'{"query": "x", "params": {"n": ' + b"[" * 5_000 + b"]" * 5_000 + b"}}", 400),
        (
            b'{"query": "query q($n: F64) { match { $p: Person } return { $p } }", "params": {"n": 1e999}}',
            400,
        ),
        (b"\xef\xbb\xbf" + BODY, 400),
        (BODY.decode().encode("utf-16"), 400),
        # In UTF-16 a search for escape sequences would not find the lone surrogate.
        (json.dumps({"query": ALL, "params": {"n": "\ud800"}}).encode("utf-16-le"), 400),
        (BODY + b"\x00", 400),
    ],
    ids=range(8),
)
def test_hostile_json_body_returns_400(guarded: Running, content: bytes, status: int) -> None:
    with guarded.client("ann") as client:
        response = client.post("/query", content=content, headers={"Content-Type": "application/json"})
        assert response.status_code == status, response.text
        if status != 200:
            error_body(response, status)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
def test_compressed_body_returns_415(guarded: Running, encoding: str) -> None:
    packed = gzip.compress(b" " * 5_000_000 + BODY)
    with guarded.client("ann") as client:
        headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
        refused = error_body(client.post("/query", content=packed, headers=headers), 415)
        assert "Content-Encoding" in refused["error"]
        lines = {"Content-Type": "application/x-ndjson", "Content-Encoding": encoding}
        error_body(client.post("/load/ndjson", content=packed, headers=lines), 415)
        plain = {**headers, "Content-Encoding": "identity"}
        assert client.post("/query", content=BODY, headers=plain).is_success


def test_unauthenticated_server_ignores_identity_headers(open_server: Running) -> None:
    headers = {
        "Authorization": f"Bearer {TOKENS['ann']}",
        "X-Forwarded-User": "ann",
        "X-Forwarded-For": "1.2.3.4",
    }
    response = httpx.get(f"{open_server.url}/graphs/team", headers=headers, timeout=HANG, verify=False)
    assert response.json()["actor_id"] is None
