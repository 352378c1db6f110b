"""`ps` and `cancel` on a server with two workers and a writer: any process lists and cancels requests of all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import omnigraph as og
from omnigraph.errors import Cancelled, PermissionDenied
from tests.server.running import SCHEMA, TOKENS, error_body, everything
from tests.server.test_running_queries import ENDLESS, POLICY
from tests.server.workers.running import Served, add, served, write_config
from tests.support.s3 import Bucket
from tests.support.waiting import HANG, wait_until

pytest_plugins = ["tests.support.s3_fixtures"]

PEOPLE = 1_000
CONNECTIONS = 6
VICTIMS = 3


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connect(stack: ExitStack, server: Served, actor: str, count: int) -> list[httpx.Client]:
    """Open connections of an actor, which the kernel distributes over the workers."""
    found = [stack.enter_context(server.client()) for _ in range(count)]
    for client in found:
        client.headers["Authorization"] = f"Bearer {TOKENS[actor]}"
    return found


def running_queries(client: httpx.Client, operation: str) -> dict[str, dict[str, Any]]:
    response = client.get("/graphs/team/running")
    assert response.status_code == 200, response.text
    return {item["id"]: item for item in response.json()["queries"] if item["operation"] == operation}


def test_long_query_is_listed_and_cancelled_through_any_worker(tmp_path: Path, clients: ExitStack) -> None:
    with og.init(str(tmp_path / "team.omni"), SCHEMA) as graph:
        people = [{"name": f"p{i}"} for i in range(PEOPLE)]
        edges = [
            {"from": f"p{i}", "to": f"p{(7 * i + j) % PEOPLE}"} for i in range(PEOPLE) for j in range(20)
        ]
        graph.load({"Person": people, "Knows": edges})
    (tmp_path / "policy.json").write_text(json.dumps(POLICY), encoding="utf-8")
    config = write_config(tmp_path, {"team": str(tmp_path / "team.omni")}, "policy.json")
    # The server ends first, so that a failed test does not wait for its queries.
    with ThreadPoolExecutor(VICTIMS) as pool, served(config, tokens=TOKENS) as server:
        admins = connect(clients, server, "ann", CONNECTIONS)
        readers = connect(clients, server, "bob", VICTIMS)
        body = {"query": ENDLESS}
        queries = [pool.submit(client.post, "/graphs/team/query", json=body) for client in readers]
        wait_until(lambda: len(running_queries(admins[0], "query")) == VICTIMS)
        expected = set(running_queries(admins[0], "query"))
        # Every worker lists the requests of both.
        assert all(set(running_queries(client, "query")) == expected for client in admins)

        (other,) = connect(clients, server, "bob", 1)
        error_body(other.get("/graphs/team/running"), 403)
        error_body(other.delete(f"/graphs/team/running/{min(expected)}"), 403)
        with og.connect(server.url, "team", token=TOKENS["bob"]) as remote, pytest.raises(PermissionDenied):
            remote.cancel_query(min(expected))
        assert set(running_queries(admins[0], "query")) == expected

        for client, id_ in zip(admins, sorted(expected), strict=False):
            response = client.delete(f"/graphs/team/running/{id_}")
            assert response.json()["cancelled"], response.text
        for query in queries:
            error = error_body(query.result(HANG), 499)
            assert error["cancelled"] == {"reason": "by 'ann'"}
        wait_until(lambda: not running_queries(admins[0], "query"))

        # The same from the Python client.
        with (
            og.connect(server.url, "team", token=TOKENS["bob"]) as remote,
            og.connect(server.url, "team", token=TOKENS["ann"]) as admin,
        ):
            long = pool.submit(lambda: remote.query(ENDLESS))
            found = wait_until(
                lambda: [item for item in admin.running_queries() if item.operation == "query"]
            )
            assert admin.cancel_query(found[0].id)
            assert isinstance(long.exception(HANG), Cancelled)


def test_write_is_listed_by_every_worker_and_completed_after_a_cancel(
    s3: Bucket, tmp_path: Path, clients: ExitStack
) -> None:
    og.init(f"{s3.uri}/team", SCHEMA, storage_options=s3.options).close()
    (tmp_path / "policy.json").write_text(json.dumps(everything("ann")), encoding="utf-8")
    config = write_config(tmp_path, {"team": f"{s3.uri}/team"}, "policy.json")
    with ThreadPoolExecutor(1) as pool, served(config, s3, tokens=TOKENS) as server:
        connections = connect(clients, server, "ann", CONNECTIONS)
        with s3.seam.hold(method="PUT") as storage:
            write = pool.submit(add, connections[0], "Ann")
            wait_until(lambda: storage.hits == 1)
            listed = [running_queries(client, "mutate") for client in connections[1:]]
            ((id_, found),) = listed[0].items()
            assert (found["actor_id"], found["cancellable"]) == ("ann", False)
            assert found["query"].startswith("query")
            assert all(set(item) == {id_} for item in listed)
            response = connections[1].delete(f"/graphs/team/running/{id_}")
            assert (response.status_code, response.json()["cancelled"]) == (200, False)
            storage.released.set()
        assert write.result(HANG).status_code == 200
