"""Running queries are listed, cancelled, limited by actor, and logged if they are slow."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import omnigraph as og
from omnigraph.errors import NotFound, PermissionDenied
from omnigraph.protocol import maintenance_responses as responses
from omnigraph.server.limits import ServerLimits
from tests.cli.running import run
from tests.server.running import ALL, TOKENS, Running, error_body, everything, host, running, success_body
from tests.server.sockets import connected, head, rest
from tests.support.waiting import wait_until

PEOPLE = 1_000
# Takes many minutes: every step follows all paths of the graph again.
ENDLESS = (
    "query endless() { match { $v0: Person "
    + " ".join(f"$v{i} knows{{1,30}} $v{i + 1}" for i in range(1_000))
    + " } return { count($v1000) as n } }"
)
PRODUCT = (
    "query pairs() { match { $a: Person  $b: Person  $c: Person } return { $a.name, $b.name, $c.name } }"
)
POLICY = {
    **everything("ann"),
    "groups": {"all": ["ann"], "readers": ["bob"]},
    "rules": [
        *everything("ann")["rules"],
        {"id": "r", "allow": {"actors": {"group": "readers"}, "actions": ["read"]}},
    ],
}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    limits = ServerLimits(
        query_bytes=64 << 20,
        slow_query_seconds=0.001,
        actor_in_flight=6,
        read_threads=4,
        query_text_bytes=60_000,
        mutation_text_bytes=70_000,
        schema_text_bytes=80_000,
    )
    hosted = host(POLICY, tokens=TOKENS, limits=limits)
    people = [{"name": f"p{i}"} for i in range(PEOPLE)]
    edges = [{"from": f"p{i}", "to": f"p{(7 * i + j) % PEOPLE}"} for i in range(PEOPLE) for j in range(20)]
    hosted.graphs["team"].graph.acting_as("ann").load({"Person": people, "Knows": edges})
    with running(hosted) as found:
        yield found


def running_of(client: httpx.Client, operation: str = "query") -> list[dict[str, Any]]:
    found = success_body(client.get("/running"), responses.RunningQueryListOutput)["queries"]
    return [item for item in found if item["operation"] == operation]


def wait_for_query(client: httpx.Client) -> dict[str, Any]:
    def find() -> dict[str, Any] | None:
        return next((item for item in running_of(client) if item["state"] == "running"), None)

    return wait_until(find, "a running query")


def wait_for_end(client: httpx.Client) -> None:
    wait_until(lambda: not running_of(client) or None, "the end of all queries")


def test_cancelled_query_ends_with_413_and_frees_its_thread(server: Running) -> None:
    answers: list[httpx.Response] = []
    with server.client("ann") as client, server.client("bob") as victim:
        thread = threading.Thread(
            target=lambda: answers.append(victim.post("/query", json={"query": ENDLESS}))
        )
        thread.start()
        found = wait_for_query(client)
        assert (found["actor_id"], found["cancellable"]) == ("bob", True)
        assert found["query"].startswith("query endless()")
        cancelled = success_body(client.delete(f"/running/{found['id']}"), responses.CancelledQueryOutput)
        assert cancelled["cancelled"]
        thread.join()
        body = error_body(answers[0], 499)
        assert body["cancelled"]["reason"].startswith("by ")
        assert "cancelled: by 'ann'" in body["error"]
        wait_for_end(client)
        error_body(client.delete(f"/running/{found['id']}"), 404)


def test_query_of_a_client_that_disconnects_ends(server: Running) -> None:
    body = json.dumps({"query": ENDLESS}).encode()
    token = f"Authorization: Bearer {TOKENS['bob']}"
    with server.client("ann") as client:
        with connected(server.url) as connection:
            connection.sendall(head("POST", "/graphs/team/query", token, length=len(body)) + body)
            wait_for_query(client)
        wait_for_end(client)


def test_running_queries_need_admin(server: Running) -> None:
    with server.client("bob") as client:
        error_body(client.get("/running"), 403)
        error_body(client.delete("/running/x"), 403)


def test_remote_graph_and_command_line_list_and_cancel(server: Running) -> None:
    with server.client("bob") as victim, og.connect(server.url, "team", token=TOKENS["ann"]) as graph:
        thread = threading.Thread(target=lambda: victim.post("/query", json={"query": ENDLESS}))
        thread.start()

        def find() -> Any:
            return next((item for item in graph.running_queries() if item.operation == "query"), None)

        found = wait_until(find, "a running query")
        place = ("--server", server.url, "--graph", "team")
        env = {"OMNIGRAPH_BEARER_TOKEN": TOKENS["ann"]}
        listed = run("ps", "--json", *place, env=env)
        assert found.id in [item["id"] for item in json.loads(listed.stdout)["queries"]], listed
        assert "query endless()" in run("ps", *place, env=env).stdout
        done = run("cancel", found.id, *place, env=env)
        assert done.stdout.strip() == f"cancelled {found.id}", done
        thread.join()
        with pytest.raises(NotFound):
            graph.cancel_query(found.id)
    with og.connect(server.url, "team", token=TOKENS["bob"]) as graph, pytest.raises(PermissionDenied):
        graph.running_queries()


def test_query_over_the_memory_limit_gets_413_with_advice(server: Running) -> None:
    with server.client("bob") as client:
        body = error_body(client.post("/query", json={"query": PRODUCT}), 413)
        assert body["code"] == "bad_request"
        assert body["resource_limit"]["resource"] == "query_bytes"
        assert body["resource_limit"]["limit"] == 64 << 20
        assert "fewer" in body["hint"]


@pytest.mark.parametrize(
    ("member", "value", "resource"),
    [
        ("timeout_seconds", 1e-6, "read_seconds"),
        ("max_rows", 1, "query_rows"),
        ("max_bytes", 10, "query_bytes"),
    ],
)
def test_request_lowers_the_limits(server: Running, member: str, value: float, resource: str) -> None:
    with server.client("bob") as client:
        body = error_body(client.post("/query", json={"query": ALL, member: value}), 413)
        assert body["resource_limit"]["resource"] == resource


def test_request_cannot_raise_the_limits(server: Running) -> None:
    with server.client("bob") as client:
        body = error_body(client.post("/query", json={"query": PRODUCT, "max_bytes": 1 << 40}), 413)
        assert body["resource_limit"]["limit"] == 64 << 20
        error_body(client.post("/query", json={"query": ALL, "max_rows": 0}), 400)


@pytest.mark.parametrize(
    ("route", "member", "resource", "limit"),
    [
        ("query", "query", "query_text_bytes", 60_000),
        ("mutate", "query", "mutation_text_bytes", 70_000),
        ("schema/plan", "schema_source", "schema_text_bytes", 80_000),
        ("schema/apply", "schema_source", "schema_text_bytes", 80_000),
    ],
)
def test_text_that_is_too_large_gets_413(
    server: Running, route: str, member: str, resource: str, limit: int
) -> None:
    with server.client("ann") as client:
        body = error_body(client.post(f"/{route}", json={member: "// " + "x" * limit}), 413)
        assert body["resource_limit"]["resource"] == resource
        assert body["resource_limit"]["limit"] == limit
        # At the limit the text is parsed.
        at_limit = "// " + "é" * (limit // 2 - 3) + "\n??"
        error_body(client.post(f"/{route}", json={member: at_limit}), 400)
        error_body(client.post(f"/{route}", json={member: f"{at_limit} "}), 413)


def test_slow_query_is_logged_with_its_plan(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    with server.client("bob") as client, caplog.at_level(logging.WARNING, "omnigraph.server"):
        assert client.post("/query", json={"query": ALL}).status_code == 200
    fields = next(item.fields for item in caplog.records if item.message == "slow query")  # type: ignore[attr-defined]
    assert fields["actor_id"] == "bob"
    assert "scan $p: Person" in fields["plan"]
    assert fields["outcome"] == "finished"


def test_slow_bodies_of_one_actor_leave_room_for_others(server: Running) -> None:
    token = f"Authorization: Bearer {TOKENS['bob']}"
    begun = head("POST", "/graphs/team/query", token, length=1_000)
    with server.client("ann") as client, connected(server.url) as first, connected(server.url) as second:
        opened = [first, second]
        for connection in opened:
            connection.sendall(begun)
        extra = []
        for _ in range(4):
            context = connected(server.url)
            connection = context.__enter__()
            extra.append(context)
            connection.sendall(begun)
        wait_until(lambda: len(running_of(client)) == 6 or None, "six requests of one actor")
        with server.client("bob") as other:
            body = error_body(other.post("/query", json={"query": ALL}), 429)
            assert body["error"] == "actor in-flight count cap 6 exceeded"
        assert client.post("/query", json={"query": ALL}).status_code == 200
        for context in extra:
            context.__exit__(None, None, None)
    with server.client("ann") as client:
        wait_for_end(client)


def test_slow_body_of_an_actor_without_permission_is_not_awaited(server: Running) -> None:
    for route, actor in (("query", "eve"), ("mutate", "bob"), ("load", "bob")):
        token = f"Authorization: Bearer {TOKENS[actor]}"
        with connected(server.url) as connection:
            path = f"/graphs/team/{route}"
            connection.sendall(head("POST", path, token, "Connection: close", length=1_000_000))
            assert rest(connection).error_body(403)["code"] == "forbidden"


def test_body_with_too_many_values_is_refused_before_it_is_parsed(server: Running) -> None:
    body = b'{"data": [' + b"[]," * 1_500_000 + b"[]]}"
    with server.client("ann") as client:
        response = client.post("/load", content=body, headers={"Content-Type": "application/json"})
    assert error_body(response, 413)["resource_limit"]["resource"] == "request_body_values"


def test_body_with_punctuation_in_a_string_is_accepted(server: Running) -> None:
    data = "\n" + " " * 100 + "\n" * 1_200_000
    with server.client("ann") as client:
        response = client.post("/load", json={"data": data, "note": ",[{" * 400_000, "mode": "append"})
    assert response.status_code in (200, 400), response.text
    assert "values" not in response.text
