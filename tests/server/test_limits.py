"""Bodies that are too large or malformed, and actors that ask for too much at a time."""

from __future__ import annotations

import json
from contextlib import ExitStack

import httpx
import pytest

from omnigraph.server.admission import Admission, Limits
from omnigraph.server.failures import Refused
from omnigraph.server.requests import BATCH_BYTES, BODY_BYTES
from tests.server.running import ADD, ALL, TOKENS, Running, everything, host, names, refusal, running

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
def test_a_malformed_body_is_a_bad_request(guarded: Running, route: str, content: bytes) -> None:
    with guarded.client("ann") as client:
        assert refusal(client.post(route, content=content, headers=JSON), 400)["code"] == "bad_request"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_of_another_kind_is_refused(guarded: Running, kind: str) -> None:
    with guarded.client("ann") as client:
        content = json.dumps({"query": ALL}).encode()
        refusal(client.post("/query", content=content, headers={"Content-Type": kind}), 415)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused(guarded: Running, chunked: bool) -> None:
    content = b'{"query": "' + b" " * BODY_BYTES + b'"}'
    with guarded.client("ann") as client:
        sent = iter([content]) if chunked else content
        body = refusal(client.post("/query", content=sent, headers=JSON), 413)
    assert body["code"] == "bad_request"
    assert body["resource_limit"]["resource"] == "request_body_bytes"
    assert body["resource_limit"]["limit"] == BODY_BYTES


@pytest.mark.parametrize("chunked", [False, True])
def test_a_load_may_be_larger_and_has_a_limit_too(client: httpx.Client, chunked: bool) -> None:
    line = b'{"type":"Person","data":{"name":"Cid"}}\n'
    padding = b" " * (BODY_BYTES // 2) + b"\n"
    assert client.post("/load/ndjson", content=line + padding * 4, headers=LINES).status_code == 200
    content = line.replace(b"Cid", b"Dan") + padding * (BATCH_BYTES // len(padding) + 2)
    sent = iter([content]) if chunked else content
    body = refusal(client.post("/load/ndjson", content=sent, headers=LINES), 413)
    assert body["resource_limit"]["resource"] == "graph_batch_request_bytes"
    assert names(client) == ["Ann", "Bob", "Cid"]


def test_one_actor_may_have_so_many_writes_in_flight() -> None:
    hosted = host(everything("ann", "bob"), tokens=TOKENS, limits=Limits(requests=1, bytes=1000))
    write = {"query": ADD, "params": {"n": "Cid"}}
    with running(hosted) as server, ExitStack() as stack:
        ann, bob = (stack.enter_context(server.client(actor)) for actor in ("ann", "bob"))
        admission = _admission(server)
        with admission.admit("ann", 1):
            response = ann.post("/mutate", json=write)
            assert refusal(response, 429) == {
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
                refusal(busy, 429)
            assert names(ann) == ["Ann", "Bob"]
            assert bob.post("/mutate", json=write).status_code == 200
            with server.client("eve") as eve, admission.admit("eve", 1):
                # What they may not do at all is said first.
                refusal(eve.post("/mutate", json=write), 403)
                refusal(eve.post("/load", json={"data": ""}), 403)
                refusal(eve.delete("/branches/x"), 403)
        assert ann.post("/mutate", json=write).status_code == 200
        refusal(ann.post("/load", json={"data": " " * 1000}), 429)


def test_places_are_given_back_and_counted_by_actor() -> None:
    admission = Admission(Limits(requests=2, bytes=10))
    with admission.admit("ann", 4), admission.admit("ann", 6):
        with pytest.raises(Refused, match="count cap 2"), admission.admit("ann", 0):
            pass
        with admission.admit("bob", 10):
            assert admission.in_flight == 3
    assert admission.in_flight == 0
    with pytest.raises(Refused, match="byte budget 10"), admission.admit("ann", 11):
        pass
    assert admission.in_flight == 0


def _admission(server: Running) -> Admission:
    found: Admission = server.app.state.admission
    return found
