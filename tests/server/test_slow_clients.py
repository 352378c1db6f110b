"""Clients that dribble, stall or fall silent are left, and nobody else notices."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest

from omnigraph.server.limits import ServerLimits
from tests.server.running import ALL, Running, host, names, refusal, running
from tests.server.sockets import connected, everything, head, is_open, rest
from tests.support.waiting import HANG, wait_until

LATE = {"error": "timeout while receiving the request", "code": "bad_request"}
QUERY = "/graphs/team/query"
LARGE = 100_000


@contextmanager
def waiting_for(seconds: float) -> Iterator[Running]:
    """A server that waits so long for a slow client, with a graph whose export no buffer holds."""
    limits = ServerLimits(
        header_seconds=seconds, stall_seconds=seconds, idle_seconds=seconds, byte_rate=2_000, streams=1
    )
    hosted = host(limits=limits)
    people = [{"type": "Person", "data": {"name": f"{number:0{LARGE}}"}} for number in range(200)]
    hosted.graphs["team"].graph.load(people, branch="large", create_from="main")
    with running(hosted) as found:
        yield found


@pytest.fixture(scope="module")
def hasty() -> Iterator[Running]:
    """A server for clients that are too slow. No other client can be sure to be in time."""
    with waiting_for(0.4) as found:
        yield found


@pytest.fixture(scope="module")
def steady() -> Iterator[Running]:
    """A server for clients that take longer than its limit in all and keep its pace."""
    with waiting_for(2.0) as found:
        yield found


@pytest.fixture(scope="module")
def patient() -> Iterator[Running]:
    """A server that waits for every client, also on a busy machine."""
    with waiting_for(HANG) as found:
        yield found


def test_unfinished_heads_on_many_connections_do_not_delay_other_clients(patient: Running) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(connected(patient.url)) for _ in range(200)]
        for connection in slow:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        with patient.client() as client:
            assert names(client) == ["Ann", "Bob"]
        assert all(is_open(connection) for connection in slow)


def test_unfinished_heads_on_many_connections_are_refused_as_late(hasty: Running) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(connected(hasty.url)) for _ in range(200)]
        for connection in slow:
            # A connection that was opened early may be refused already.
            with suppress(ConnectionError):
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        for connection in slow:
            assert rest(connection).refusal(400) == LATE


def test_a_head_that_comes_in_pieces_has_to_come_in_time(hasty: Running) -> None:
    with connected(hasty.url) as connection:
        assert dribble(connection, b"X") == LATE


def test_a_body_that_comes_in_pieces_has_to_keep_its_pace(hasty: Running) -> None:
    with connected(hasty.url) as connection:
        connection.sendall(head("POST", QUERY, length=100_000))
        assert dribble(connection, b" ") == LATE


def test_a_body_that_keeps_its_pace_may_take_long(steady: Running) -> None:
    content = json.dumps({"query": ALL}).encode()
    padding = b" " * 1_000
    with connected(steady.url) as connection:
        connection.sendall(head("POST", QUERY, "Connection: close", length=len(content) + 25 * len(padding)))
        for _ in range(25):
            time.sleep(0.1)
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


def stalled_export(connection: socket.socket) -> None:
    """Begin an export that no buffer holds, and take nothing but the beginning of it."""
    body = b'{"branch": "large"}'
    connection.sendall(head("POST", "/graphs/team/export", length=len(body)) + body)
    assert b"200 OK" in connection.recv(1_000)


def test_an_export_that_its_client_does_not_read_holds_its_slot(patient: Running) -> None:
    with patient.client() as client, connected(patient.url, 4_096) as connection:
        stalled_export(connection)
        refused = client.post("/export")
        assert refusal(refused, 413)["resource_limit"]["resource"] == "stream_export_slots"
        assert refused.headers["Retry-After"] == "5"


def test_an_export_that_its_client_does_not_read_is_ended_and_its_slot_is_free(hasty: Running) -> None:
    def export() -> httpx.Response | None:
        # On a busy machine this client may be too slow for the server as well.
        with suppress(httpx.TransportError), hasty.client() as client:
            found = client.post("/export")
            return None if found.status_code in (400, 413) else found
        return None

    with connected(hasty.url, 4_096) as connection:
        stalled_export(connection)
        assert wait_until(export, "a free export slot").status_code == 200
        assert len(everything(connection)) < 200 * LARGE


def test_who_takes_a_stream_slowly_gets_all_that_there_is(steady: Running) -> None:
    with connected(steady.url, 1 << 18) as connection:
        body = b'{"branch": "large"}'
        connection.sendall(head("POST", "/graphs/team/export", "Connection: close", length=len(body)) + body)
        for _ in range(25):
            time.sleep(0.1)
            assert connection.recv(100_000)
        assert len(everything(connection)) > 199 * LARGE


def test_a_client_that_leaves_in_the_middle_is_no_failure(
    patient: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "omnigraph.server"):
        with connected(patient.url) as connection:
            path = "/graphs/team/load/ndjson"
            connection.sendall(head("POST", path, "Content-Type: application/x-ndjson", "Content-Length: 9"))
            connection.sendall(b"{")
        told = wait_until(lambda: [item for item in caplog.records if item.message == "request"])
    assert told[0].__dict__["fields"]["status"] == 499
    assert {item.levelname for item in caplog.records} == {"INFO"}


def dribble(connection: socket.socket, piece: bytes) -> object:
    """Send pieces until the server has had enough; what it said."""
    while is_open(connection):
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
            connection.settimeout(HANG)
    return {}
