"""OpenTelemetry traces, received by a collector over HTTP."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

import omnigraph as og
from tests.server.running import ADD, ALL, SCHEMA
from tests.server.test_run import IMPORTS, address, environment, process
from tests.support.forked import start_worker
from tests.support.waiting import HANG

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


@contextmanager
def collector() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Run a collector, and return its address and the requests that it has received."""
    received: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.append({"path": self.path, "key": self.headers.get("x-key"), **body})
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - signature of the library
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


def test_spans_of_requests_queries_commits_and_storage_are_exported(tmp_path: Path) -> None:
    og.init(str(tmp_path / "team.omni"), SCHEMA).close()
    with collector() as (endpoint, received):
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_HEADERS": "x-key=secret"}
        with process(str(tmp_path), "--bind", "127.0.0.1:0", "--unauthenticated", **variables) as server:
            url = f"{address(server)}/graphs/team"
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "r1"}
            added = httpx.post(
                f"{url}/mutate",
                json={"query": ADD, "params": {"n": "Ann"}},
                headers=headers,
                timeout=HANG,
                verify=False,
            )
            found = httpx.post(
                f"{url}/query", json={"query": ALL}, headers=headers, timeout=HANG, verify=False
            )
            assert (added.status_code, found.status_code) == (200, 200)
            server.send_signal(signal.SIGTERM)
            # The last spans are sent at the end.
            assert server.wait(HANG) == 0
    assert {(item["path"], item["key"]) for item in received} == {("/v1/traces", "secret")}
    spans = [
        span
        for item in received
        for resource in item["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
        if span["traceId"] == TRACE
    ]
    names = {span["spanId"]: span["name"] for span in spans}
    requests = [span for span in spans if span.get("parentSpanId") == PARENT]
    assert sorted(span["name"] for span in requests) == [
        "POST /graphs/{graph_id}/mutate",
        "POST /graphs/{graph_id}/query",
    ]
    attributes = {item["key"]: item["value"] for item in requests[0]["attributes"]}
    assert attributes["http.response.status_code"] == {"intValue": "200"}
    assert attributes["omnigraph.graph"] == {"stringValue": "team"}
    assert attributes["omnigraph.request_id"] == {"stringValue": "r1"}
    parents = {span["name"]: names.get(span.get("parentSpanId", "")) for span in spans}
    assert parents["omnigraph.query"] == "POST /graphs/{graph_id}/query"
    assert parents["omnigraph.commit"] == "POST /graphs/{graph_id}/mutate"
    assert "omnigraph.storage" in parents
    assert all(int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"]) > 0 for span in spans)


def test_opentelemetry_sdk_is_not_imported_without_an_endpoint() -> None:
    code = (
        "import sys\nfrom omnigraph.server.run import serve\n"
        "from omnigraph.server.tracing import find_traces_endpoint\n"
        "assert find_traces_endpoint({}) is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry.sdk')]\n"
    )
    with start_worker(code, environment=environment(), imports=IMPORTS) as worker:
        assert worker.wait(HANG) == 0
