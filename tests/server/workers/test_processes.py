"""A server with two workers and a writer: consistency, grouping, metrics and limits over all processes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from tests.server.running import SCHEMA, TOKENS, error_body, everything
from tests.server.sockets import connected, head
from tests.server.workers.running import (
    NAMES,
    Served,
    add,
    is_gone,
    kill,
    metric,
    names,
    open_port,
    served,
    write_config,
)
from tests.support.s3 import Bucket
from tests.support.waiting import HANG, wait_until

pytest_plugins = ["tests.support.s3_fixtures"]

# So many connections reach both workers: the kernel chooses one for each connection.
CONNECTIONS = 8
DONE = 'omnigraph_requests_total{{method="POST",route="/graphs/{{graph_id}}/{}",status="200"}}'


@pytest.fixture
def local(tmp_path: Path) -> Path:
    og.init(str(tmp_path / "team.omni"), SCHEMA).close()
    return tmp_path


@pytest.fixture
def far(s3: Bucket, tmp_path: Path) -> Path:
    """Return a configuration of two graphs in a bucket, so that a test can delay writes."""
    for id_ in ("other", "team"):
        og.init(f"{s3.uri}/{id_}", SCHEMA, storage_options=s3.options).close()
    return write_config(tmp_path, {id_: f"{s3.uri}/{id_}" for id_ in ("other", "team")})


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def open_clients(stack: ExitStack, server: Served) -> list[httpx.Client]:
    return [stack.enter_context(server.client()) for _ in range(CONNECTIONS)]


def test_write_is_visible_to_reads_of_every_connection(local: Path, clients: ExitStack) -> None:
    with served(local) as server:
        connections = open_clients(clients, server)
        expected = []
        for number, writer in enumerate(connections):
            assert add(writer, f"p{number:02}").status_code == 200
            expected.append(f"p{number:02}")
            assert all(names(reader) == expected for reader in connections)
        # Any process reports the sum of all.
        texts = [client.get("/metrics").text for client in connections]
        assert {metric(text, DONE.format("mutate")) for text in texts} == {CONNECTIONS}
        assert {metric(text, DONE.format("query")) for text in texts} == {CONNECTIONS**2}
        assert {metric(text, 'omnigraph_graphs{state="served"}') for text in texts} == {1}
        server.process.send_signal(signal.SIGTERM)
        _, log = server.process.communicate(timeout=HANG)
    assert server.process.returncode == 0
    lines = [json.loads(line) for line in log.splitlines()]
    answered = {line["process"] for line in lines if line.get("route") == "/graphs/{graph_id}/query"}
    written = {line["process"] for line in lines if line.get("route") == "/graphs/{graph_id}/mutate"}
    assert (answered, written) == ({"worker-0", "worker-1"}, {"writer-0"})


def test_writes_of_all_workers_are_committed_as_a_group(far: Path, s3: Bucket, clients: ExitStack) -> None:
    with served(far, s3, writers=2) as server:
        connections = open_clients(clients, server)
        with ThreadPoolExecutor(CONNECTIONS + 1) as pool, s3.seam.recording() as log:
            with s3.seam.hold(method="PUT") as storage:
                first = pool.submit(server.add, "first")
                wait_until(lambda: storage.hits == 1)
                others = [pool.submit(add, client, f"p{n:02}") for n, client in enumerate(connections)]
                wait_until(
                    lambda: (
                        metric(server.get("/metrics").text, "omnigraph_requests_in_flight") > CONNECTIONS + 1
                    )
                )
                storage.released.set()
            assert {write.result(HANG).status_code for write in (first, *others)} == {200}
        # At most one swap for the first write, and one for all others.
        assert log.count("PUT", "team/__manifest/_versions/") <= 2
        assert len(names(connections[0])) == CONNECTIONS + 1


def test_limit_of_requests_holds_over_all_processes(far: Path, s3: Bucket, clients: ExitStack) -> None:
    with served(far, s3, writers=2, OMNIGRAPH_REQUESTS_MAX="1") as server:
        connections = open_clients(clients, server)
        with ThreadPoolExecutor(1) as pool, s3.seam.hold(method="PUT") as storage:
            write = pool.submit(server.add, "Ann")
            wait_until(lambda: storage.hits == 1)
            for client in connections:
                body = error_body(client.post("/graphs/team/query", json={"query": "query"}), 503)
                assert body["error"] == "server overloaded: limit of 1 requests in flight"
            assert connections[0].get("/healthz").status_code == 200
            storage.released.set()
            assert write.result(HANG).status_code == 200
        assert names(connections[0]) == ["Ann"]
        # A killed process gives its share back.
        with ThreadPoolExecutor(1) as pool, s3.seam.hold(method="PUT") as storage:
            lost = pool.submit(server.add, "Bob", "other")
            wait_until(lambda: storage.hits == 1)
            writer = server.children[0]
            kill(writer)
            assert isinstance(lost.exception(HANG), httpx.TransportError)
            storage.released.set()
        server.wait_for_restart(writer)
        assert server.add("Cid", "other").status_code == 200


def test_limit_of_an_actor_holds_over_all_writers(far: Path, s3: Bucket, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(json.dumps(everything("ann", "bob")), encoding="utf-8")
    document = json.loads(far.read_text(encoding="utf-8"))
    for graph in document["graphs"].values():
        graph["policy"] = policy.name
    far.write_text(json.dumps(document), encoding="utf-8")
    with (
        served(far, s3, writers=2, tokens=TOKENS, OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX="1") as server,
        server.client() as client,
    ):
        client.headers["Authorization"] = f"Bearer {TOKENS['ann']}"
        with ThreadPoolExecutor(1) as pool, s3.seam.hold(method="PUT") as storage:
            write = pool.submit(add, client, "Ann")
            wait_until(lambda: storage.hits == 1)
            with server.client() as other:
                other.headers["Authorization"] = f"Bearer {TOKENS['ann']}"
                error_body(add(other, "Bob", "other"), 429)
                other.headers["Authorization"] = f"Bearer {TOKENS['bob']}"
                assert add(other, "Bob", "other").status_code == 200
            storage.released.set()
            assert write.result(HANG).status_code == 200
        assert add(client, "Cid", "other").status_code == 200


def test_write_without_token_is_rejected_before_its_body_is_read(local: Path) -> None:
    with served(local, tokens=TOKENS) as server, connected(server.url) as connection:
        connection.sendall(head("POST", "/graphs/team/mutate", length=1 << 20))
        connection.sendall(b"{")
        assert b" 401 " in connection.recv(1 << 16).split(b"\r\n")[0]


# --- killed processes --------------------------------------------------------------------------------------


def test_killed_writer_breaks_the_connection_and_is_restarted(far: Path, s3: Bucket) -> None:
    with served(far, s3, writers=2) as server:
        assert server.add("Ann").status_code == 200
        writer = server.children[1]
        with ThreadPoolExecutor(1) as pool, s3.seam.hold(method="PUT") as storage:
            write = pool.submit(server.add, "Bob")
            wait_until(lambda: storage.hits == 1)
            kill(writer)
            # No error response, because the outcome is unknown.
            assert isinstance(write.exception(HANG), httpx.TransportError)
            storage.released.set()
        # It waits for the next writer.
        assert server.add("Cid").status_code == 200
        server.wait_for_restart(writer)
        with server.client() as client:
            found = names(client)
    assert found in (["Ann", "Cid"], ["Ann", "Bob", "Cid"])


def test_killed_worker_is_restarted_and_loses_no_acknowledged_write(local: Path, clients: ExitStack) -> None:
    with served(local) as server:
        connections = open_clients(clients, server)
        for number, client in enumerate(connections):
            assert add(client, f"p{number:02}").status_code == 200
        worker = server.children[-1]
        kill(worker)
        server.wait_for_restart(worker)
        with ExitStack() as stack:
            for client in open_clients(stack, server):
                assert len(names(client)) == CONNECTIONS
        assert server.add("q").status_code == 200


def test_counters_of_killed_processes_are_kept_in_the_metrics(local: Path, clients: ExitStack) -> None:
    def count(series: str) -> float:
        return metric(server.get("/metrics").text, series)

    commits = 'omnigraph_graph_commits_total{graph="team"}'
    with served(local) as server:
        for number, client in enumerate(open_clients(clients, server)):
            assert add(client, f"p{number:02}").status_code == 200
            assert len(names(client)) == number + 1
        assert (count(DONE.format("query")), count(commits)) == (CONNECTIONS, CONNECTIONS)
        writer, *workers = server.children
        for pid in (*workers, writer):
            kill(pid)
            # Also while the process is restarted.
            assert count(commits) == CONNECTIONS
            assert count(DONE.format("query")) == CONNECTIONS
            server.wait_for_restart(pid)
        with ExitStack() as stack:
            for client in open_clients(stack, server):
                assert len(names(client)) == CONNECTIONS
        assert server.add("q").status_code == 200
        assert (count(DONE.format("query")), count(commits)) == (2 * CONNECTIONS, CONNECTIONS + 1)


def test_killed_parent_takes_all_processes_with_it(local: Path) -> None:
    with served(local) as server:
        children = server.children
        assert len(children) == 3
        assert server.add("Ann").status_code == 200
        server.process.kill()
        wait_until(lambda: all(is_gone(pid) for pid in children))
        # The threads of a process can hold its socket for a moment after its main thread has ended.
        wait_until(lambda: not open_port(server.url))
    with og.open(local / "team.omni") as graph:
        assert len(graph.query("query n() { match { $p: Person } return { $p.name as name } }")) == 1


def test_process_that_cannot_start_again_ends_the_server(local: Path) -> None:
    config = write_config(local, {"team": str(local / "team.omni")})
    with served(config) as server:
        config.write_text("graphs: [", encoding="utf-8")
        kill(server.children[-1])
        assert server.process.wait(HANG) == 1
        assert not open_port(server.url)


def test_server_is_not_ready_while_a_writer_does_not_respond(local: Path) -> None:
    with served(local) as server:
        assert server.get("/readyz").status_code == 200
        writer = server.children[0]
        os.kill(writer, signal.SIGSTOP)
        body = error_body(server.get("/readyz"), 503)
        assert body["unready_graphs"] == {"team": "the writer process is not running"}
        os.kill(writer, signal.SIGCONT)
        wait_until(lambda: server.get("/readyz").status_code == 200)


# --- shutdown ----------------------------------------------------------------------------------------------


def test_graceful_shutdown_finishes_write_before_writer_ends(far: Path, s3: Bucket) -> None:
    with served(far, s3, writers=2) as server:
        children = server.children
        with ThreadPoolExecutor(1) as pool, s3.seam.hold(method="PUT") as storage:
            write = pool.submit(server.add, "Ann")
            wait_until(lambda: storage.hits == 1)
            # As a service manager does, which signals all processes.
            for pid in children:
                os.kill(pid, signal.SIGTERM)
            server.process.send_signal(signal.SIGTERM)
            # The worker without a request ends first.
            wait_until(lambda: len(server.children) == 3)
            storage.released.set()
            assert write.result(HANG).status_code == 200
        assert server.process.wait(HANG) == 0
        assert all(is_gone(pid) for pid in children)


def test_second_signal_ends_all_processes(far: Path, s3: Bucket) -> None:
    with served(far, s3, writers=2) as server:
        children = server.children
        with ThreadPoolExecutor(1) as pool, s3.seam.hold(method="PUT") as storage:
            write = pool.submit(server.add, "Ann")
            wait_until(lambda: storage.hits == 1)
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: len(server.children) == 3)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(HANG) == 128 + signal.SIGTERM
            assert isinstance(write.exception(HANG), httpx.TransportError)
            storage.released.set()
        wait_until(lambda: all(is_gone(pid) for pid in children))


# --- reload ------------------------------------------------------------------------------------------------


def test_signal_to_the_parent_reloads_tokens_of_all_processes(
    local: Path, clients: ExitStack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tokens = tmp_path_factory.mktemp("tokens") / "tokens.json"
    tokens.write_text(json.dumps({"ann": "old"}), encoding="utf-8")
    policy = local / "policy.yaml"
    policy.write_text(json.dumps(everything("ann")), encoding="utf-8")
    config = write_config(local, {"team": str(local / "team.omni")}, policy.name)
    with served(config, tokens={}, OMNIGRAPH_SERVER_BEARER_TOKENS_FILE=str(tokens)) as server:
        connections = open_clients(clients, server)

        def statuses(token: str) -> set[int]:
            found = set()
            for client in connections:
                client.headers["Authorization"] = f"Bearer {token}"
                found.add(client.post("/graphs/team/query", json={"query": NAMES}).status_code)
                found.add(client.post("/graphs/team/branches", json={"name": "main"}).status_code)
            return found

        # The name is reserved: 400 is the response of the writer.
        assert statuses("old") == {200, 400}
        tokens.write_text(json.dumps({"ann": "new"}), encoding="utf-8")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: statuses("new") == {200, 400})
        assert statuses("old") == {401}
        # A process that is restarted reads the new tokens, too.
        writer = server.children[0]
        kill(writer)
        wait_until(lambda: writer not in server.children and len(server.children) == 3)
        assert statuses("new") == {200, 400}
