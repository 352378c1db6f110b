"""Slow and stalled clients are disconnected without delaying others."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest

from omnigraph.server.limits import ServerLimits
from tests.server.running import ALL, Running, error_body, host, names, running
from tests.server.sockets import connected, everything, head, is_open, rest
from tests.support.waiting import HANG, wait_until

LATE = {"error": "timeout while receiving the request", "code": "bad_request"}
QUERY = "/graphs/team/query"
LARGE = 100_000


@contextmanager
def waiting_for(seconds: float) -> Iterator[Running]:
    """Run a server with a timeout for slow clients and a graph whose export is larger than all buffers."""
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
    """Return a server with a short timeout, for clients that must be disconnected."""
    with waiting_for(0.4) as found:
        yield found


@pytest.fixture(scope="module")
def steady() -> Iterator[Running]:
    """Return a server for clients that take longer than its timeout but keep the minimum rate."""
    with waiting_for(2.0) as found:
        yield found


@pytest.fixture(scope="module")
def patient() -> Iterator[Running]:
    """Return a server whose timeout no client reaches."""
    with waiting_for(HANG) as found:
        yield found


def test_unfinished_headers_do_not_delay_other_clients(patient: Running) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(connected(patient.url)) for _ in range(200)]
        for connection in slow:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        with patient.client() as client:
            assert names(client) == ["Ann", "Bob"]
        assert all(is_open(connection) for connection in slow)


def test_unfinished_headers_time_out(hasty: Running) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(connected(hasty.url)) for _ in range(200)]
        for connection in slow:
            # A connection that was opened early can already be closed.
            with suppress(ConnectionError):
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        for connection in slow:
            assert rest(connection).error_body(400) == LATE


def test_slow_headers_time_out(hasty: Running) -> None:
    with connected(hasty.url) as connection:
        assert dribble(connection, b"X") == LATE


def test_body_below_minimum_rate_times_out(hasty: Running) -> None:
    with connected(hasty.url) as connection:
        connection.sendall(head("POST", QUERY, length=100_000))
        assert dribble(connection, b" ") == LATE


def test_body_above_minimum_rate_may_take_long(steady: Running) -> None:
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
def test_idle_connection_is_closed(hasty: Running, sent: bytes) -> None:
    with connected(hasty.url) as connection:
        connection.sendall(sent)
        assert rest(connection).status == (200 if sent else None)


def test_blank_lines_do_not_keep_connection_alive(hasty: Running) -> None:
    with connected(hasty.url) as connection:
        connection.sendall(head("GET", "/healthz"))
        assert b"200 OK" in connection.recv(65_536)
        assert dribble(connection, b"\r\n") is not None


def stalled_export(connection: socket.socket) -> None:
    """Start a large export and read only its beginning."""
    body = b'{"branch": "large"}'
    connection.sendall(head("POST", "/graphs/team/export", length=len(body)) + body)
    assert b"200 OK" in connection.recv(1_000)


def test_unread_export_holds_its_slot(patient: Running) -> None:
    with patient.client() as client, connected(patient.url, 4_096) as connection:
        stalled_export(connection)
        refused = client.post("/export")
        assert error_body(refused, 413)["resource_limit"]["resource"] == "stream_export_slots"
        assert refused.headers["Retry-After"] == "5"


def test_stalled_export_is_closed_and_releases_slot(hasty: Running) -> None:
    def export() -> httpx.Response | None:
        # On a busy machine this client can be too slow as well.
        with suppress(httpx.TransportError), hasty.client() as client:
            found = client.post("/export")
            return None if found.status_code in (400, 413) else found
        return None

    with connected(hasty.url, 4_096) as connection:
        stalled_export(connection)
        assert wait_until(export, "a free export slot").status_code == 200
        assert len(everything(connection)) < 200 * LARGE


def test_slow_reader_gets_whole_stream(steady: Running) -> None:
    with connected(steady.url, 1 << 18) as connection:
        body = b'{"branch": "large"}'
        connection.sendall(head("POST", "/graphs/team/export", "Connection: close", length=len(body)) + body)
        for _ in range(25):
            time.sleep(0.1)
            assert connection.recv(100_000)
        assert len(everything(connection)) > 199 * LARGE


def test_client_disconnect_is_not_logged_as_error(patient: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "omnigraph.server"):
        with connected(patient.url) as connection:
            path = "/graphs/team/load/ndjson"
            connection.sendall(head("POST", path, "Content-Type: application/x-ndjson", "Content-Length: 9"))
            connection.sendall(b"{")
        told = wait_until(lambda: [item for item in caplog.records if item.message == "request"])
    assert told[0].__dict__["fields"]["status"] == 499
    assert {item.levelname for item in caplog.records} == {"INFO"}


def dribble(connection: socket.socket, piece: bytes) -> object:
    """Send pieces until the server closes the connection, and return its response."""
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
