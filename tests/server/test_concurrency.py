"""Many at a time: nobody waits for a slow one, and writers that meet are told so."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.server.running import Running, names, refusal, rows

AGE = 'query age($a: I32) { update Person set { age: $a } where name = "Ann" }'


def test_a_request_that_takes_long_keeps_nobody_waiting(
    client: httpx.Client, open_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(*_: object) -> dict[str, str]:
        begun.set()
        assert go_on.wait(30)
        return {}

    # A slow disk, which cannot be asked for.
    monkeypatch.setattr("omnigraph.server.reads.snapshot_body", wait)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(httpx.get, f"{client.base_url}snapshot", timeout=60)
        assert begun.wait(30)
        try:
            assert httpx.get(f"{open_server.url}/healthz").status_code == 200
            assert names(client) == ["Ann", "Bob"]
        finally:
            go_on.set()
        assert slow.result().status_code == 200


def test_of_writers_that_meet_each_is_done_or_told_of_the_other(client: httpx.Client) -> None:
    before = len(client.get("/commits").json()["commits"])
    meeting = threading.Barrier(6)

    def write(age: int) -> httpx.Response:
        meeting.wait(30)
        return client.post("/mutate", json={"query": AGE, "params": {"a": age}})

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(write, range(100, 106)))
    statuses = Counter(response.status_code for response in found)
    assert statuses[200] >= 1
    assert set(statuses) <= {200, 409}
    for response in found:
        if response.status_code == 409:
            body = refusal(response, 409)
            assert body["code"] == "conflict"
            assert body["manifest_conflict"]["table_key"] == "node:Person"
            assert body["manifest_conflict"]["expected"] != body["manifest_conflict"]["actual"]
    assert len(client.get("/commits").json()["commits"]) == before + statuses[200]
    done = {100 + place for place, response in enumerate(found) if response.status_code == 200}
    assert rows(client)[0]["age"] in done
