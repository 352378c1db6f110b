"""Limits: body sizes, requests in flight, memory and connections."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path

import httpx
import pytest

from omnigraph.errors import InvalidInput
from omnigraph.server.http.admission import Admission
from omnigraph.server.http.error_responses import HttpError
from omnigraph.server.http.request_body import BATCH_BYTES, BODY_BYTES
from omnigraph.server.limits import VARIABLE, ServerLimits, read_limits
from tests.server.running import ADD, ALL, TOKENS, Running, error_body, everything, host, names, running
from tests.server.sockets import connected, exchange, head, is_open, rest
from tests.support.waiting import HANG, wait_until

VARIABLES = {item.metadata[VARIABLE]: item.default for item in fields(ServerLimits)}
JSON = {"Content-Type": "application/json"}
LINES = {"Content-Type": "application/x-ndjson"}


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"query": "\\ud800"}',
        b'{"query": "query q() { }", "params": {"n": "\\udfff"}}',
        b'{"query": ' + b"1" * 6000 + b"}",
        b"[" * 200_000,
        b'{"query":"x","query":}',
    ],
    ids=range(11),
)
@pytest.mark.parametrize("route", ["/query", "/mutate", "/load", "/branches"])
def test_malformed_body_returns_400(guarded: Running, route: str, content: bytes) -> None:
    with guarded.client("ann") as client:
        assert error_body(client.post(route, content=content, headers=JSON), 400)["code"] == "bad_request"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_wrong_media_type_returns_415(guarded: Running, kind: str) -> None:
    with guarded.client("ann") as client:
        content = json.dumps({"query": ALL}).encode()
        error_body(client.post("/query", content=content, headers={"Content-Type": kind}), 415)


@pytest.mark.parametrize("chunked", [False, True])
def test_large_body_returns_413(guarded: Running, chunked: bool) -> None:
    content = b'{"query": "' + b" " * BODY_BYTES + b'"}'
    with guarded.client("ann") as client:
        sent = iter([content]) if chunked else content
        body = error_body(client.post("/query", content=sent, headers=JSON), 413)
    assert body["code"] == "bad_request"
    assert body["resource_limit"]["resource"] == "request_body_bytes"
    assert body["resource_limit"]["limit"] == BODY_BYTES


@pytest.mark.parametrize("chunked", [False, True])
def test_load_body_has_larger_limit(client: httpx.Client, chunked: bool) -> None:
    line = b'{"type":"Person","data":{"name":"Cid"}}\n'
    padding = b" " * (BODY_BYTES // 2) + b"\n"
    assert client.post("/load/ndjson", content=line + padding * 4, headers=LINES).status_code == 200
    content = line.replace(b"Cid", b"Dan") + padding * (BATCH_BYTES // len(padding) + 2)
    sent = iter([content]) if chunked else content
    body = error_body(client.post("/load/ndjson", content=sent, headers=LINES), 413)
    assert body["resource_limit"]["resource"] == "graph_batch_request_bytes"
    assert names(client) == ["Ann", "Bob", "Cid"]


def test_writes_in_flight_of_actor_are_limited_after_policy() -> None:
    hosted = host(
        everything("ann", "bob"), tokens=TOKENS, limits=ServerLimits(actor_requests=1, actor_bytes=1000)
    )
    write = {"query": ADD, "params": {"n": "Cid"}}
    with running(hosted) as server, ExitStack() as stack:
        ann, bob = (stack.enter_context(server.client(actor)) for actor in ("ann", "bob"))
        admission = _admission(server)
        with admission.admit("ann", 1):
            response = ann.post("/mutate", json=write)
            assert error_body(response, 429) == {
                "error": "actor in-flight count cap 1 exceeded",
                "code": "too_many_requests",
            }
            assert response.headers["retry-after"] == "60"
            for busy in (
                ann.post("/load", json={"data": ""}),
                ann.post("/load/ndjson", content=b"", headers=LINES),
                ann.post("/branches", json={"name": "x"}),
                ann.delete("/branches/x"),
                ann.post("/branches/merge", json={"source": "x"}),
                ann.post("/schema/apply", json={"schema_source": "x"}),
            ):
                error_body(busy, 429)
            assert names(ann) == ["Ann", "Bob"]
            assert bob.post("/mutate", json=write).status_code == 200
            with server.client("eve") as eve, admission.admit("eve", 1):
                # The policy check precedes admission.
                error_body(eve.post("/mutate", json=write), 403)
                error_body(eve.post("/load", json={"data": ""}), 403)
                error_body(eve.delete("/branches/x"), 403)
        assert ann.post("/mutate", json=write).status_code == 200
        error_body(ann.post("/load", json={"data": " " * 1000}), 429)


def test_admission_counts_by_actor_and_releases() -> None:
    admission = Admission(ServerLimits(actor_requests=2, actor_bytes=10))
    with admission.admit("ann", 4), admission.admit("ann", 6):
        with pytest.raises(HttpError, match="count cap 2"), admission.admit("ann", 0):
            pass
        with admission.admit("bob", 10):
            assert admission.in_flight == 3
    assert admission.in_flight == 0
    with pytest.raises(HttpError, match="byte budget 10"), admission.admit("ann", 11):
        pass
    assert admission.in_flight == 0


# --- server-wide limits ------------------------------------------------------------------------------------


def test_requests_over_limit_return_503_and_others_succeed() -> None:
    with running(host(limits=ServerLimits(requests=2))) as server, server.client() as client:
        with half_a_request(server), half_a_request(server) as second:
            wait_until(lambda: server.app.state.capacity.requests == 2)
            response = client.post("/query", json={"query": ALL})
            assert error_body(response, 503) == {"error": "server overloaded: limit of 2 requests in flight"}
            assert (response.headers["retry-after"], response.headers["connection"]) == ("5", "close")
            for path in ("/healthz", "/readyz", "/metrics"):
                assert httpx.get(server.url + path, timeout=HANG, verify=False).status_code == 200
            second.sendall(b" " * (HALF - len(QUERY)) + QUERY)
            assert rest(second).status == 200
            assert names(client) == ["Ann", "Bob"]
        wait_until(lambda: server.app.state.capacity.requests == 0)


def test_bodies_over_memory_limit_return_503() -> None:
    with running(host(limits=ServerLimits(body_bytes=HALF + 500))) as server, server.client() as client:
        with half_a_request(server):
            wait_until(lambda: server.app.state.capacity.bytes == HALF)
            assert names(client) == ["Ann", "Bob"]
            large = {"query": ALL, "padding": " " * 500}
            error_body(client.post("/query", json=large), 503)
        wait_until(lambda: server.app.state.capacity.bytes == 0)
        assert client.post("/query", json=large).status_code == 200


def test_body_counts_memory_of_parsed_values() -> None:
    with running(host(limits=ServerLimits(body_bytes=8 << 20))) as server, server.client() as client:
        error_body(client.post("/query", json={"query": ALL, "padding": [[]] * 200_000}), 503)
        assert client.post("/query", json={"query": ALL, "padding": " " * 800_000}).status_code == 200
        wait_until(lambda: server.app.state.capacity.bytes == 0)


def test_connection_over_limit_replaces_idle_one() -> None:
    with (
        running(host(limits=ServerLimits(connections=2))) as server,
        connected(server.url) as oldest,
        connected(server.url) as newer,
    ):
        assert exchange(server.url, head("GET", "/healthz", "Connection: close")).status == 200
        assert (rest(oldest).status, is_open(newer)) == (None, True)


def test_connections_over_limit_without_idle_one_return_503_or_close() -> None:
    with running(host(limits=ServerLimits(connections=2))) as server, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(half_a_request(server))
        wait_until(lambda: server.app.state.capacity.requests == 2)
        found = exchange(server.url, head("GET", "/healthz"))
        assert found.error_body(503) == {"error": "server overloaded: too many connections"}
        assert ("retry-after", "5") in found.headers
        busy = [stack.enter_context(connected(server.url)) for _ in range(40)]
        wait_until(lambda: not is_open(busy[-1]))
        busy[0].sendall(head("GET", "/healthz"))
        rest(busy[0]).error_body(503)


HALF = 4_000
QUERY = json.dumps({"query": ALL}).encode()


@contextmanager
def half_a_request(server: Running) -> Iterator[socket.socket]:
    """Open a request whose body is incomplete."""
    with connected(server.url) as found:
        found.sendall(head("POST", "/graphs/team/query", "Connection: close", length=2 * HALF))
        found.sendall(b" " * HALF)
        yield found


# --- configuration -----------------------------------------------------------------------------------------


def test_every_limit_is_configurable_and_documented() -> None:
    guide = (Path(__file__).parents[2] / "docs/guide/server.md").read_text(encoding="utf-8")
    for name, default in VARIABLES.items():
        assert f"| `{name}` | {default} |" in guide, name
    found = read_limits(dict.fromkeys(VARIABLES, " 7 "))
    assert {getattr(found, item.name) for item in fields(ServerLimits)} == {7}
    assert read_limits(dict.fromkeys(VARIABLES, "")) == ServerLimits()


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("text", ["-1", "x", "1_0", "nan", "inf", "１", "1e999", "0x1"])
def test_invalid_limit_raises_invalid_input(name: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        read_limits({name: text})


@pytest.mark.parametrize("name", [name for name, default in VARIABLES.items() if default])
def test_zero_limit_raises_invalid_input(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        read_limits({name: "0"})


def _admission(server: Running) -> Admission:
    found: Admission = server.app.state.admission
    return found
