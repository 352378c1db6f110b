"""Concurrent requests: isolation of slow reads, read deadlines, write conflicts and recovery."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.server.hosted_graphs import ServerResources, open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from omnigraph.server.limits import ServerLimits
from tests.server.running import ADD, PEOPLE, SCHEMA, error_body, host, names, rows, running
from tests.support.abandoned import outcome_of, swap_of
from tests.support.crash import copy_graph, run_traced
from tests.support.s3 import Bucket
from tests.support.waiting import HANG, wait_until
from tests.support.workload import Task, prepare_setting

pytest_plugins = ["tests.support.s3_fixtures"]

AGE = 'query age($a: I32) { update Person set { age: $a } where name = "Ann" }'


@dataclass
class SlowStorage:
    """Storage that delays its first response until it is released."""

    bucket: Bucket
    asked: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Delay a response while the context is open."""
        with self.bucket.seam.cut(self._wait, nth=1, applied=True):
            try:
                yield
            finally:
                self.go_on.set()

    def _wait(self) -> None:
        self.asked.set()
        assert self.go_on.wait(HANG)


@pytest.fixture
def distant(s3: Bucket) -> ServerResources:
    """Return resources with an unread graph in a bucket and a graph in memory."""
    og.init(f"{s3.uri}/far", SCHEMA, storage_options=s3.options).load(BytesIO(PEOPLE.encode()))
    # A delayed request stays blocked until it is released: the storage client must not retry it before.
    patient = {**s3.options, "timeout": f"{2 * HANG:.0f}s", "retry_timeout": f"{2 * HANG:.0f}s"}
    far = open_graphs(Hosting((GraphSource("far", f"{s3.uri}/far"),)), TokenRegistry(), options=patient)
    near = host(limits=ServerLimits(read_seconds=1.0))
    return ServerResources({**far.graphs, **near.graphs}, limits=near.limits)


def test_load_does_not_wait_for_blocked_reads(distant: ServerResources, s3: Bucket) -> None:
    storage = SlowStorage(s3)
    with (
        running(replace(distant, limits=ServerLimits(read_threads=1))) as server,
        server.client(prefix="/graphs/far") as far,
        server.client() as near,
        ThreadPoolExecutor(1) as pool,
        storage.holding(),
    ):
        slow = pool.submit(names, far)
        assert storage.asked.wait(HANG)
        lines = {"Content-Type": "application/x-ndjson"}
        near.timeout = httpx.Timeout(HANG)
        assert near.post("/load/ndjson", content=PEOPLE, headers=lines).status_code == 200
        assert near.post("/load/files", files={"records": ("a.ndjson", PEOPLE)}).status_code == 200
        assert not slow.done()
        storage.go_on.set()
        assert slow.result() == ["Ann", "Bob"]


def names_in_time(client: httpx.Client) -> list[str] | None:
    """Return the names, or None if the read reached its time limit."""
    try:
        return names(client)
    except AssertionError as error:
        if "read_seconds" not in str(error):
            raise
        return None


def test_blocked_read_does_not_delay_others_and_times_out(distant: ServerResources, s3: Bucket) -> None:
    storage = SlowStorage(s3)
    with (
        running(distant) as server,
        server.client(prefix="/graphs/far") as far,
        server.client() as near,
        ThreadPoolExecutor(1) as pool,
        storage.holding(),
    ):
        slow = pool.submit(names, far)
        assert storage.asked.wait(HANG)
        assert httpx.get(f"{server.url}/healthz", timeout=HANG, verify=False).status_code == 200
        # On a busy machine this read can reach its time limit as well.
        assert wait_until(partial(names_in_time, near), "a read in time") == ["Ann", "Bob"]
        # The client gets a response although storage does not respond. The request counts until its thread is done.
        with pytest.raises(AssertionError, match="read_seconds"):
            slow.result(HANG)
        assert server.app.state.capacity.requests == 1
        storage.go_on.set()
        assert near.post("/mutate", json={"query": ADD, "params": {"n": "Cid"}}).status_code == 200


def test_write_has_no_read_deadline(distant: ServerResources, s3: Bucket) -> None:
    storage = SlowStorage(s3)
    with (
        running(distant) as server,
        server.client(prefix="/graphs/far") as far,
        ThreadPoolExecutor(1) as pool,
        storage.holding(),
    ):
        slow = pool.submit(far.post, "/mutate", json={"query": ADD, "params": {"n": "Cid"}})
        assert storage.asked.wait(HANG)
        with pytest.raises(TimeoutError):
            slow.result(2.0)
        storage.go_on.set()
        assert slow.result(HANG).status_code == 200


def test_read_over_time_limit_reports_limit_and_duration() -> None:
    with running(host(limits=ServerLimits(read_seconds=0.001))) as server, server.client() as client:
        wide = "query wide() { match { $a: Person $b: Person $c: Person } return { $a.name as name } }"
        found = client.post("/query", json={"query": wide}).json()["resource_limit"]
        assert client.post("/mutate", json={"query": ADD, "params": {"n": "Cid"}}).status_code == 200
    # The document has integers, so both numbers are rounded up.
    assert (found["resource"], found["limit"]) == ("read_seconds", 1)
    assert found["actual"] >= 1


def test_concurrent_writers_succeed_or_get_conflict(client: httpx.Client) -> None:
    before = len(client.get("/commits").json()["commits"])
    meeting = threading.Barrier(6)

    def write(age: int) -> httpx.Response:
        meeting.wait(HANG)
        return client.post("/mutate", json={"query": AGE, "params": {"a": age}})

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(write, range(100, 106)))
    statuses = Counter(response.status_code for response in found)
    assert statuses[200] >= 1
    assert set(statuses) <= {200, 409}
    for response in found:
        if response.status_code == 409:
            body = error_body(response, 409)
            assert body["code"] == "conflict"
            assert body["manifest_conflict"]["table_key"] == "node:Person"
            assert body["manifest_conflict"]["expected"] != body["manifest_conflict"]["actual"]
    assert len(client.get("/commits").json()["commits"]) == before + statuses[200]
    done = {100 + place for place, response in enumerate(found) if response.status_code == 200}
    assert rows(client)[0]["age"] in done


@pytest.mark.faults
def test_next_write_recovers_killed_load_without_restart(tmp_path: Path) -> None:
    template = tmp_path / "template"
    prepare_setting("small", str(template))
    uris = {id_: copy_graph(template, tmp_path / id_) for id_ in ("whole", "confirmed", "begun")}
    changes = run_traced(Task("bulk", uris["whole"])).changes
    hosted = open_graphs(Hosting(tuple(GraphSource(*item) for item in uris.items())), TokenRegistry())
    with running(hosted) as server:
        with server.client(prefix="/graphs/whole") as client:
            whole = set(names(client))
        for id_, at in (("confirmed", swap_of(changes)), ("begun", outcome_of(changes) - 1)):
            with server.client(prefix=f"/graphs/{id_}") as client:
                before = set(names(client))
                assert run_traced(Task("bulk", uris[id_]), at).killed
                assert set(names(client)) == before != whole
                assert client.post("/mutate", json={"query": ADD, "params": {"n": "zoe"}}).status_code == 200
                # A confirmed write is rolled forward, any other is discarded.
                is_whole = id_ == "confirmed"
                assert set(names(client)) == {"zoe", *(whole if is_whole else before)}
                commits = client.get("/commits").json()["commits"]
                settled = [item["recovered_by"] for item in commits if item.get("recovered_by")]
                assert settled == ["omnigraph:recovery"] * is_whole
    hosted.close()
