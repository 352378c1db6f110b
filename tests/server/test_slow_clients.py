"""Clients that dribble, stall or fall silent are left, and nobody else notices."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from omnigraph.server.limits import Limits
from tests.server.running import ALL, Running, host, names, refusal, running
from tests.server.sockets import connected, everything, exchange, head, is_open, rest

LATE = {"error": "the request did not arrive in time", "code": "bad_request"}
QUERY = "/graphs/team/query"
LARGE = 100_000


@pytest.fixture(scope="module")
def hasty() -> Iterator[Running]:
    """A server that waits for nobody for long, with a graph whose export no buffer holds."""
    limits = Limits(header_seconds=0.4, stall_seconds=0.4, idle_seconds=0.4, byte_rate=2_000, exports=1)
    hosted = host(limits=limits)
    people = [{"type": "Person", "data": {"name": f"{number:0{LARGE}}"}} for number in range(200)]
    hosted.graphs["team"].graph.load(people, branch="large", create_from="main")
    with running(hosted) as found:
        yield found


def test_many_that_dribble_keep_nobody_waiting(hasty: Running) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(connected(hasty.url)) for _ in range(200)]
        for connection in slow:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        with hasty.client() as client:
            assert names(client) == ["Ann", "Bob"]
        assert sum(is_open(connection) for connection in slow) > 100
        for connection in slow:
            assert rest(connection).refusal(400) == LATE
    # It goes on as before.
    assert httpx.get(f"{hasty.url}/healthz").status_code == 200


def test_a_head_that_comes_in_pieces_has_to_come_in_time(hasty: Running) -> None:
    with connected(hasty.url) as connection:
        assert dribble(connection, b"X") == LATE


def test_a_body_that_comes_in_pieces_has_to_keep_its_pace(hasty: Running) -> None:
    with connected(hasty.url) as connection:
        connection.sendall(head("POST", QUERY, length=100_000))
        assert dribble(connection, b" ") == LATE


def test_a_body_that_keeps_its_pace_may_take_long(hasty: Running) -> None:
    content = json.dumps({"query": ALL}).encode()
    padding = b" " * 1_000
    with connected(hasty.url) as connection:
        connection.sendall(head("POST", QUERY, "Connection: close", length=len(content) + 5 * len(padding)))
        for _ in range(5):
            time.sleep(0.3)
            connection.sendall(padding)
        connection.sendall(content)
        assert rest(connection).status == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        head("GET", "/healthz"),
        head("GET", "/healthz") + b"\r\n",
        head("GET", "/healthz", length=9) + b"x",
    ],
    ids=["silent", "idle", "blank line", "body that nobody wants"],
)
def test_a_connection_that_nobody_uses_is_ended(hasty: Running, sent: bytes) -> None:
    with connected(hasty.url) as connection:
        connection.sendall(sent)
        assert rest(connection).status == (200 if sent else None)


def test_blank_lines_do_not_keep_a_connection(hasty: Running) -> None:
    with connected(hasty.url) as connection:
        connection.sendall(head("GET", "/healthz"))
        assert b"200 OK" in connection.recv(65_536)
        assert dribble(connection, b"\r\n") is not None


def test_who_takes_nothing_of_a_stream_is_left_and_its_thread_is_free(hasty: Running) -> None:
    with hasty.client() as client, connected(hasty.url, 4_096) as connection:
        body = b'{"branch": "large"}'
        connection.sendall(head("POST", "/graphs/team/export", length=len(body)) + body)
        assert b"200 OK" in connection.recv(1_000)
        refused = client.post("/export")
        assert refusal(refused, 413)["resource_limit"]["resource"] == "stream_export_slots"
        assert refused.headers["Retry-After"] == "5"
        deadline = time.monotonic() + 20
        while (found := client.post("/export")).status_code == 413:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert found.status_code == 200
        assert len(everything(connection)) < 200 * LARGE


def test_who_takes_a_stream_slowly_gets_all_that_there_is(hasty: Running) -> None:
    with connected(hasty.url, 1 << 18) as connection:
        body = b'{"branch": "large"}'
        connection.sendall(head("POST", "/graphs/team/export", "Connection: close", length=len(body)) + body)
        for _ in range(15):
            time.sleep(0.1)
            assert connection.recv(100_000)
        assert len(everything(connection)) > 199 * LARGE


def test_a_client_that_leaves_in_the_middle_is_no_failure(
    hasty: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "omnigraph.server"):
        with connected(hasty.url) as connection:
            path = "/graphs/team/load/ndjson"
            connection.sendall(head("POST", path, "Content-Type: application/x-ndjson", "Content-Length: 9"))
            connection.sendall(b"{")
        deadline = time.monotonic() + 20
        while not (told := [item for item in caplog.records if item.message == "request"]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert told[0].__dict__["fields"]["status"] == 499
    assert {item.levelname for item in caplog.records} == {"INFO"}


def test_a_request_that_comes_at_once_is_not_late(hasty: Running) -> None:
    assert exchange(hasty.url, head("GET", "/healthz", "Connection: close")).status == 200


def dribble(connection: socket.socket, piece: bytes) -> object:
    """Send pieces until the server has had enough; what it said."""
    deadline = time.monotonic() + 20
    while is_open(connection):
        assert time.monotonic() < deadline, "the server waits for ever"
        try:
            connection.sendall(piece)
        except ConnectionError:
            break
        time.sleep(0.05)
        connection.setblocking(False)
        try:
            if said := connection.recv(65_536):
                return json.loads(said.partition(b"\r\n\r\n")[2])
        except BlockingIOError:
            continue
        finally:
            connection.settimeout(20)
    return {}
