"""Request ids, the access log and metrics."""

from __future__ import annotations

import json
import logging

import pytest

from omnigraph.server.logs import JsonFormatter
from tests.server.running import ALL, TOKENS, Running
from tests.support.waiting import wait_until


def test_response_has_request_id_of_client_or_server(guarded: Running) -> None:
    with guarded.client("bob") as client:
        given = client.get("/schema", headers={"X-Request-Id": "mine-7"})
        odd = client.get("/schema", headers={"X-Request-Id": "a b\t{x}"})
        refused = client.get("/nothing")
    assert given.headers["x-request-id"] == "mine-7"
    assert len(odd.headers["x-request-id"]) == 26
    assert len(refused.headers["x-request-id"]) == 26


def lines_of(request_id: str, caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the log records of a request. They are written after the client has the response."""

    def look() -> list[logging.LogRecord]:
        told = [item for item in caplog.records if item.message == "request"]
        return [item for item in told if getattr(item, "fields", {}).get("request_id") == request_id]

    return wait_until(look, f"the log line of request {request_id}")


def test_access_log_is_one_json_line_without_secrets(
    guarded: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "omnigraph.server"), guarded.client("bob") as client:
        body = {"query": ALL, "params": {"private": "value"}}
        id_ = client.post("/query", json=body, params={"token": "sEcReT"}).headers["x-request-id"]
        (record,) = lines_of(id_, caplog)
    line = JsonFormatter().format(record)
    found = json.loads(line)
    assert "\n" not in line
    assert {key: found[key] for key in ("method", "route", "status", "actor", "graph_id")} == {
        "method": "POST",
        "route": "/graphs/{graph_id}/query",
        "status": 200,
        "actor": "bob",
        "graph_id": "team",
    }
    assert found["ms"] > 0
    assert len(found["request_id"]) == 26
    assert not any(secret in line for secret in (TOKENS["bob"], "sEcReT", "private", "value"))


def test_metrics_count_requests_by_route_and_status(guarded: Running) -> None:
    with guarded.client("bob") as client:
        client.get("/commits/nothing-1")
        client.get("/commits/nothing-2")
        with guarded.client("bob", prefix="") as outside:
            text = outside.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    labels = 'method="GET",route="/graphs/{graph_id}/commits/{commit_id}"'
    count = float(lines[f'omnigraph_requests_total{{{labels},status="404"}}'])
    assert count >= 2
    assert float(lines[f'omnigraph_request_seconds_bucket{{le="+Inf",{labels}}}']) >= count
    assert float(lines["omnigraph_requests_in_flight"]) == 1
    assert "nothing-1" not in text
