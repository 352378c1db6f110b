"""Storage requests by call: the log and the metrics, compared with the requests that storage received."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import httpx
import pytest

import omnigraph as og
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from omnigraph.store.request_counts import (
    LanceRequestCounter,
    RequestCounts,
    count_requests,
    propagate_context,
    track_requests,
)
from tests.server.running import ADD, ALL, SCHEMA, Running, running
from tests.support.places import together
from tests.support.s3 import Bucket, S3Server
from tests.support.s3_seam import Log
from tests.support.waiting import HANG, wait_until

pytest_plugins = ["tests.support.s3_fixtures"]

WRITES = ("PUT", "POST", "DELETE")


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> Iterator[Bucket]:
    with s3_server.bucket() as found:
        yield found


@pytest.fixture(scope="module")
def server(bucket: Bucket) -> Iterator[Running]:
    sources = []
    for id_ in ("team", "club"):
        with og.init(f"{bucket.uri}/{id_}", SCHEMA, storage_options=bucket.options) as graph:
            graph.load({"Person": [{"name": f"p{number}"} for number in range(8)]})
        sources.append(GraphSource(id_, graph.uri))
    with running(open_graphs(Hosting(tuple(sources)), TokenRegistry(), options=bucket.options)) as found:
        yield found


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as found:
        yield found


def seen(log: Log) -> dict[str, int]:
    """Return the number of requests that storage received, by kind."""
    writes = sum(item.method in WRITES for item in log.requests)
    return {"read": len(log.requests) - writes, "write": writes}


def told(caplog: pytest.LogCaptureFixture, wanted: int = 1) -> list[dict[str, int]]:
    """Return the logged storage requests. Log records are written after the client has the response."""

    def look() -> list[dict[str, int]] | None:
        records = [item for item in caplog.records if item.message == "request"]
        found = [getattr(item, "fields", {})["storage_requests"] for item in records]
        return found if len(found) >= wanted else None

    return wait_until(look, f"{wanted} log lines of requests")


def post(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    assert client.post(path, json=body).status_code == 200


def add(client: httpx.Client, name: str, branch: str = "main") -> None:
    post(client, "/mutate", {"query": ADD, "params": {"n": name, "a": 1}, "branch": branch})


def test_logged_storage_requests_equal_those_of_storage(
    client: httpx.Client, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    record = json.dumps({"type": "Person", "data": {"name": uuid4().hex}})
    branch = uuid4().hex
    caplog.set_level(logging.INFO, "omnigraph.server")
    add(client, uuid4().hex)
    told(caplog)
    steps = [
        partial(add, client, uuid4().hex),
        partial(post, client, "/branches", {"name": branch}),
        partial(post, client, "/load", {"data": record, "branch": branch}),
        partial(add, client, uuid4().hex),
        partial(post, client, "/branches/merge", {"source": branch}),
        partial(post, client, "/query", {"query": ALL}),
        partial(post, client, "/export", {}),
    ]
    for step in steps:
        caplog.clear()
        with bucket.seam.recording() as log:
            step()
        assert told(caplog) == [seen(log)], f"{step.args[1:]}\n{log}"
        assert seen(log)["read"] > 0


def test_request_without_storage_access_logs_zero(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "omnigraph.server")
    httpx.get(f"{server.url}/healthz", timeout=HANG, verify=False)
    assert told(caplog) == [{"read": 0, "write": 0}]


def test_concurrent_storage_requests_add_up(
    server: Running, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    clients = [server.client(prefix=f"/graphs/{id_}") for id_ in ("team", "club", "team", "club")]
    caplog.set_level(logging.INFO, "omnigraph.server")
    # Writes to one branch run one after the other.
    for client in clients[:2]:
        post(client, "/branches", {"name": "beside"})
    told(caplog, 2)
    caplog.clear()
    with bucket.seam.recording(0.01) as log:
        branches = ("main", "beside")
        together([partial(add, client, uuid4().hex, branch) for client in clients for branch in branches])
    for client in clients:
        client.close()
    counts = told(caplog, 8)
    assert len(counts) == 8
    assert {kind: sum(item[kind] for item in counts) for kind in ("read", "write")} == seen(log), str(log)
    assert any(item.get("shared") for item in counts), "nothing overlapped"


def test_metrics_count_storage_requests_by_route_and_kind(
    server: Running, client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    def count(kind: str) -> int:
        text = httpx.get(f"{server.url}/metrics", timeout=HANG, verify=False).text
        pattern = (
            rf'omnigraph_storage_requests_total{{kind="{kind}",method="POST",route="[^"]*/mutate"}} (\d+)'
        )
        found = re.search(pattern, text)
        return 0 if found is None else int(found[1])

    caplog.set_level(logging.INFO, "omnigraph.server")
    add(client, uuid4().hex)
    told(caplog)
    before = count("read"), count("write")
    # Wait for the records of these requests too, so that they are not mistaken for later ones.
    told(caplog, 3)
    caplog.clear()
    add(client, uuid4().hex)
    # Two of the reads check that the staged files exist before the commit is published.
    assert told(caplog) == [{"read": 5, "write": 7}]
    assert (count("read") - before[0], count("write") - before[1]) == (5, 7)


def test_uncounted_storage_requests_are_not_attributed() -> None:
    stats = Stats()
    counter = LanceRequestCounter()
    counter.add_source("opened", lambda: stats)
    stats.read_iops = 5
    call = RequestCounts(counter=counter)
    counter.enter(call)
    stats.read_iops, stats.write_iops = 7, 1
    counter.enter(call)
    counter.leave(call)
    stats.read_iops = 8
    counter.leave(call)
    stats.read_iops = 20
    other = RequestCounts(counter=counter)
    counter.enter(other)
    counter.leave(other)
    assert (call.to_json(), other.to_json()) == ({"read": 3, "write": 1}, {"read": 0, "write": 0})


def test_concurrent_storage_requests_are_shared_between_calls() -> None:
    stats = Stats()
    counter = LanceRequestCounter()
    counter.add_source("opened", lambda: stats)
    one, other = RequestCounts(counter=counter), RequestCounts(counter=counter)
    counter.enter(one)
    stats.read_iops = 1
    counter.enter(other)
    stats.read_iops = 4
    counter.leave(other)
    stats.read_iops = 6
    counter.leave(one)
    assert one.to_json() == {"read": 5, "write": 0, "shared": 2}
    assert other.to_json() == {"read": 1, "write": 0, "shared": 1}


def test_propagated_context_counts_for_its_call() -> None:
    with track_requests() as call:
        works = [propagate_context(partial(count_requests, reads=1)) for _ in range(4)]
        together(works)
        together([partial(count_requests, reads=1)])
    count_requests(reads=1)
    assert call.to_json() == {"read": 4, "write": 0}


class Stats:
    """The I/O statistics of a dataset."""

    read_iops = 0
    write_iops = 0
    read_bytes = 0
    written_bytes = 0
