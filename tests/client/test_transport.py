"""Requests, and what becomes of them when the other side is not there, hangs up, or is not what it should be."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from omnigraph.client.entry import check_token, check_url, connect, list_graphs
from omnigraph.client.transport import Transport, decode_rows
from omnigraph.errors import (
    Conflict,
    ConstraintViolation,
    InvalidInput,
    NotFound,
    OmnigraphError,
    OutcomeUnknown,
    PermissionDenied,
    PreconditionFailed,
    ResourceLimit,
    StorageError,
)
from omnigraph.protocol.codec import encode_error
from tests.client.talking import HANG_UP, HANG_UP_EARLY, SAY_NOTHING, reply, scripted
from tests.support.waiting import HANG, wait_until

OK = reply(body={"done": True})
KEYED = {"query": "…", "idempotency_key": "k-1"}


def call(transport: Transport, method: str, path: str, **more: Any) -> Any:
    """The JSON that a request is answered with."""
    return transport.call(method, path, lambda found: found, **more)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def refused(status: int, body: Any = None, *headers: str, writes: bool = False) -> OmnigraphError:
    """What a status is raised as."""
    said = reply(status, {"error": "no"} if body is None else body, *headers)
    with scripted([said]) as server, pytest.raises(OmnigraphError) as caught:
        call(Transport(server.url), "POST", "/x", body={}, writes=writes)
    return caught.value


def upload(url: str, content: Iterable[bytes] | bytes, params: dict[str, str] | None = None) -> None:
    """Send what nobody will answer."""
    with Transport(url).send("POST", "/load/files", content=content, params=params):
        pytest.fail("somebody answered")


def test_call_with_invalid_unicode_is_refused_before_sending() -> None:
    with scripted([OK]) as server, pytest.raises(InvalidInput, match="not valid Unicode text"):
        call(Transport(server.url), "POST", "/x", body={"params": {"n": "\ud800"}}, writes=True)
    assert server.asked == []


class TestBrokenConnections:
    def test_read_on_stale_connection_is_retried(self) -> None:
        with scripted([OK, HANG_UP], [OK]) as server:
            transport = Transport(server.url)
            assert call(transport, "GET", "/a") == call(transport, "GET", "/b") == {"done": True}
            assert [request.split()[1] for request in server.asked] == [b"/a", b"/b", b"/b"]

    def test_read_that_keeps_failing_is_sent_twice(self) -> None:
        with scripted([HANG_UP], [HANG_UP], [OK]) as server:
            with pytest.raises(StorageError, match="broke") as caught:
                call(Transport(server.url), "GET", "/a")
            assert caught.value.transient
            assert len(server.asked) == 2

    def test_write_with_lost_response_raises_outcome_unknown_without_retry(self) -> None:
        with scripted([OK, HANG_UP], [OK]) as server:
            transport = Transport(server.url)
            call(transport, "GET", "/a")
            with pytest.raises(OutcomeUnknown, match="broke"):
                call(transport, "POST", "/mutate", body={"query": "…"}, writes=True)
            assert len(server.asked) == 2

    def test_write_with_idempotency_key_is_retried(self) -> None:
        with scripted([HANG_UP], [OK]) as server:
            assert call(Transport(server.url), "POST", "/mutate", body=KEYED, writes=True) == {"done": True}
            assert len(server.asked) == 2

    def test_write_with_idempotency_key_lost_twice_names_the_key(self) -> None:
        with scripted([HANG_UP], [HANG_UP]) as server, pytest.raises(OutcomeUnknown) as caught:
            call(Transport(server.url), "POST", "/mutate", body=KEYED, writes=True)
        assert caught.value.details["idempotency_key"] == "k-1"
        assert "same idempotency key" in str(caught.value.hint)

    def test_response_that_is_truncated_raises(self) -> None:
        half = reply(body={"done": True})[:-4]
        with scripted([half], [half]) as server, pytest.raises(StorageError, match="broke"):
            call(Transport(server.url), "GET", "/a")
        with scripted([half]) as server, pytest.raises(OutcomeUnknown):
            call(Transport(server.url), "POST", "/a", body={}, writes=True)

    def test_upload_sent_in_part_raises_storage_error(self) -> None:
        def content() -> Iterator[bytes]:
            for _ in range(1_024):
                yield b"x" * 65_536

        with scripted([HANG_UP_EARLY]) as server, pytest.raises(StorageError) as caught:
            upload(server.url, content())
        assert caught.value.transient

    def test_upload_sent_completely_raises_outcome_unknown(self) -> None:
        with scripted([HANG_UP]) as server, pytest.raises(OutcomeUnknown) as caught:
            upload(server.url, b"records", {"idempotency_key": "k-2"})
        assert caught.value.details["idempotency_key"] == "k-2"

    def test_upload_with_truncated_response_raises_outcome_unknown(self) -> None:
        half, key = reply(body={"done": True})[:-4], {"idempotency_key": "k-3"}
        with (
            scripted([half]) as server,
            pytest.raises(OutcomeUnknown) as caught,
            Transport(server.url).send("POST", "/load/files", content=b"records", params=key) as response,
        ):
            response.read()
        assert caught.value.details["idempotency_key"] == "k-3"

    def test_upload_with_failing_source_raises_its_error(self) -> None:
        def content() -> Iterator[bytes]:
            yield b"x"
            raise InvalidInput("not a record")

        with scripted([OK]) as server, pytest.raises(InvalidInput, match="not a record"):
            upload(server.url, content())

    def test_stream_that_is_truncated_raises(self) -> None:
        chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"
        with scripted([chunked]) as server, Transport(server.url).stream("GET", "/diff") as chunks:
            assert next(chunks) == b"first"
            with pytest.raises(StorageError, match="broke") as caught:
                next(chunks)
        assert caught.value.transient

    def test_write_to_unreachable_server_raises_storage_error(self) -> None:
        transport = Transport(f"http://127.0.0.1:{free_port()}")
        for writes in (False, True):
            with pytest.raises(StorageError, match="cannot be reached") as caught:
                call(transport, "POST", "/x", body={}, writes=writes)
            assert caught.value.transient

    def test_read_after_timeout_raises_without_retry(self) -> None:
        with scripted([SAY_NOTHING], [OK]) as server:
            with pytest.raises(StorageError) as caught:
                call(Transport(server.url, timeout=0.05), "GET", "/a")
            assert caught.value.transient
            wait_until(lambda: server.asked, "the server to read the request")
        assert len(server.asked) == 1

    def test_write_ignores_the_timeout_of_reads(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
            transport = Transport(url_of(listener), timeout=0.05)
            write = pool.submit(call, transport, "POST", "/mutate", body={}, writes=True)
            listener.settimeout(HANG)
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                with pytest.raises(TimeoutError):
                    write.result(0.3)
                connection.sendall(OK)
                assert write.result(HANG) == {"done": True}

    @pytest.mark.parametrize(
        "then", [reply(503, {"error": "busy"}), reply(429, {"error": "busy"}), HANG_UP_EARLY]
    )
    def test_write_retry_refused_after_lost_response_raises_outcome_unknown(self, then: bytes) -> None:
        with scripted([HANG_UP], [then]) as server, pytest.raises(OutcomeUnknown) as caught:
            call(Transport(server.url), "POST", "/mutate", body=KEYED, writes=True)
        assert caught.value.details["idempotency_key"] == "k-1"

    def test_write_retry_unreachable_after_lost_response_raises_outcome_unknown(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                listener.close()
                while b"k-1" not in connection.recv(65_536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(OutcomeUnknown, match="cannot be reached"):
            call(Transport(url_of(listener)), "POST", "/mutate", body=KEYED, writes=True)
        thread.join()

    def test_write_retry_rejected_by_the_graph_raises_the_rejection(self) -> None:
        told = {"error": "no", "exception": encode_error(Conflict("moved"))}
        with scripted([HANG_UP], [reply(409, told)]) as server, pytest.raises(Conflict, match="moved"):
            call(Transport(server.url), "POST", "/mutate", body=KEYED, writes=True)

    @pytest.mark.parametrize("text", [b"<html>", b"", b"[1]", b"{}", b"[" * 100_000])
    def test_write_with_unreadable_success_raises_outcome_unknown(self, text: bytes) -> None:
        said = reply(text=text)
        with scripted([said, said]) as server:
            transport = Transport(server.url)
            with pytest.raises(StorageError, match="not from an OmniGraph server"):
                transport.call("GET", "/branches", lambda found: found["branches"])
            with pytest.raises(OutcomeUnknown, match="not from an OmniGraph server"):
                transport.call("POST", "/branches", lambda found: found["name"], body={}, writes=True)

    @pytest.mark.parametrize("status", [200, 500])
    def test_write_with_undecodable_response_raises_outcome_unknown(self, status: int) -> None:
        said = reply(status, None, "Content-Encoding: gzip", text=b"not packed")
        with scripted([said]) as server, pytest.raises(OutcomeUnknown):
            call(Transport(server.url), "POST", "/mutate", body={}, writes=True)

    def test_informational_responses_are_ignored(self) -> None:
        early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
        with scripted([early + OK]) as server:
            assert call(Transport(server.url), "POST", "/mutate", body={}, writes=True) == {"done": True}

    def test_stream_without_length_or_chunks_is_refused(self) -> None:
        endless = b"HTTP/1.1 200 OK\r\n\r\nfirst"
        with (
            scripted([endless]) as server,
            pytest.raises(StorageError, match="not from"),
            Transport(server.url).stream("GET", "/diff"),
        ):
            pytest.fail("it was begun")


# The server tells connections apart by the port that they come from.
FORKING = """
import os, signal, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from omnigraph.client.transport import Transport

ports = {}

class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        ports[self.path] = self.client_address[1]
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
threading.Thread(target=server.serve_forever, daemon=True).start()
transport = Transport(f"http://127.0.0.1:{server.server_port}", timeout=300)
transport.call("GET", "/before", dict)
child = os.fork()
signal.alarm(300)
if not child:
    transport.call("GET", "/child", dict)
    transport.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
transport.call("GET", "/after", dict)
assert ports["/before"] == ports["/after"] != ports["/child"], ports
"""


class TestProcesses:
    def test_fork_opens_new_connections(self) -> None:
        # In a process of its own: a large one may be refused to fork.
        done = subprocess.run(
            [sys.executable, "-c", FORKING], timeout=HANG, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def test_pickle_of_transport_is_refused(self) -> None:
        with pytest.raises(TypeError, match="pickle the graph"):
            pickle.dumps(Transport("http://127.0.0.1", "t0ken"))


class TestStatuses:
    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (400, InvalidInput),
            (401, PermissionDenied),
            (403, PermissionDenied),
            (404, NotFound),
            (405, InvalidInput),
            (409, Conflict),
            (412, PreconditionFailed),
            (413, ResourceLimit),
            (415, InvalidInput),
            (429, ResourceLimit),
        ],
    )
    def test_error_without_exception_member_is_mapped_by_status(
        self, status: int, kind: type[OmnigraphError]
    ) -> None:
        found = refused(status)
        assert (type(found), found.message, found.details["status"]) == (kind, "no", status)

    def test_error_with_exception_member_is_decoded(self) -> None:
        told = ConstraintViolation("bad", [{"rule": "key"}], details={"n": 1}, hint="fix it")
        found = refused(409, {"error": "other", "exception": encode_error(told)})
        assert isinstance(found, ConstraintViolation)
        assert (found.message, found.violations, found.details, found.hint) == (
            "bad",
            ({"rule": "key"},),
            {"n": 1},
            "fix it",
        )

    def test_error_413_reports_limit_and_actual(self) -> None:
        limit = {"resource": "request_body_bytes", "limit": 5, "actual": 9}
        assert refused(413, {"error": "large", "resource_limit": limit}).details.items() >= limit.items()

    @pytest.mark.parametrize(("headers", "seconds"), [((), 60), (("Retry-After: 7",), 7)])
    def test_error_429_reports_retry_after(self, headers: tuple[str, ...], seconds: int) -> None:
        assert refused(429, None, *headers).details["retry_after"] == seconds

    @pytest.mark.parametrize(("status", "transient"), [(500, False), (502, True), (503, True), (504, True)])
    def test_read_with_5xx_raises_transient_storage_error(self, status: int, transient: bool) -> None:
        found = refused(status)
        assert isinstance(found, StorageError)
        assert found.transient is transient

    @pytest.mark.parametrize("status", [500, 502, 504])
    def test_write_with_500_raises_outcome_unknown(self, status: int) -> None:
        assert isinstance(refused(status, writes=True), OutcomeUnknown)

    def test_write_with_503_and_retry_after_raises_transient_storage_error(self) -> None:
        found = refused(503, None, "Retry-After: 2", writes=True)
        assert isinstance(found, StorageError)
        assert (found.transient, found.details["retry_after"]) == (True, 2)

    @pytest.mark.parametrize("text", [b"upstream reset", b'{"error": "x", "status": 503}'])
    def test_write_with_503_of_a_proxy_raises_outcome_unknown(self, text: bytes) -> None:
        with scripted([reply(503, text=text)]) as server, pytest.raises(OutcomeUnknown):
            call(Transport(server.url), "POST", "/mutate", body={}, writes=True)

    @pytest.mark.parametrize("told", [{}, {"code": []}, {"type": "NullPointerException"}, "x"])
    def test_exception_member_of_another_server_is_ignored(self, told: Any) -> None:
        assert isinstance(refused(500, {"error": "no", "exception": told}, writes=True), OutcomeUnknown)
        assert refused(400, {"error": "no", "exception": told}).message == "no"

    def test_error_with_unexpected_body_is_mapped_by_status(self) -> None:
        with scripted([reply(500, text=b"[" * 100_000)]) as server, pytest.raises(StorageError, match="500"):
            call(Transport(server.url), "GET", "/x")
        assert isinstance(refused(413, {"error": "no", "resource_limit": 7}), ResourceLimit)
        assert len(refused(404, {"error": "x" * 1_000_000}).message) < 5_000

    def test_upload_that_is_redirected_names_the_target(self) -> None:
        said = reply(308, None, "Location: http://127.0.0.1/else")
        with scripted([said]) as server, pytest.raises(InvalidInput, match=r"127\.0\.0\.1/else"):
            upload(server.url, b"records")

    def test_write_with_303_raises_outcome_unknown(self) -> None:
        assert isinstance(refused(303, None, "Location: /done", writes=True), OutcomeUnknown)

    def test_redirect_does_not_send_the_token(self) -> None:
        with scripted([OK]) as other:
            said = reply(307, None, f"Location: {other.url}/x")
            with scripted([said]) as server, pytest.raises(InvalidInput):
                call(Transport(server.url, "t0ken"), "GET", "/x")
            assert other.asked == []

    def test_redirect_names_the_target(self) -> None:
        found = refused(307, None, "Location: http://127.0.0.1/else")
        assert isinstance(found, InvalidInput)
        assert "http://127.0.0.1/else" in found.message

    @pytest.mark.parametrize("text", [b"<html>", b"", b"[1]", b"\xff"])
    def test_html_response_raises_storage_error(self, text: bytes) -> None:
        with scripted([reply(502, text=text)], [reply(text=b"<html>")]) as server:
            with pytest.raises(StorageError, match="502"):
                call(Transport(server.url), "GET", "/x")
            with pytest.raises(StorageError, match="not from an OmniGraph server"):
                call(Transport(server.url), "GET", "/x")

    def test_query_response_without_arrow_raises_storage_error(self) -> None:
        with scripted([OK]) as server, pytest.raises(StorageError, match="not from an OmniGraph server"):
            Transport(server.url).request("POST", "/query", decode_rows, body={})


class TestAddresses:
    @pytest.mark.parametrize(
        ("given", "kept"),
        [
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
            (" https://[::1]:1/graphs-of/us/ ", "https://[::1]:1/graphs-of/us"),
        ],
    )
    def test_connect_normalizes_the_address(self, given: str, kept: str) -> None:
        assert check_url(given) == kept

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "127.0.0.1:8080",
            "ftp://x",
            "http://",
            "http://x:99999",
            "http://x?y=1",
            "http://x#y",
            "http://[x",
        ],
    )
    def test_connect_with_invalid_address_is_refused(self, url: str) -> None:
        with pytest.raises(InvalidInput, match="such as http://host:8080"):
            check_url(url)

    @pytest.mark.parametrize(
        "url",
        [
            "http://ann:secret@127.0.0.1",
            "ann:secret@127.0.0.1",
            "http://ann:secret/more@127.0.0.1",
            "http://127.0.0.1?token=secret",
        ],
    )
    def test_connect_with_credentials_in_address_is_refused_without_repeating_them(self, url: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            connect(url, "team")
        assert "secret" not in repr(caught.value.__dict__)
        assert "secret" not in "".join(traceback.format_exception(caught.value)[-1:])

    @pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
    def test_connect_with_invalid_timeout_is_refused(self, timeout: float) -> None:
        with pytest.raises(InvalidInput, match="timeout"):
            connect("http://127.0.0.1", "team", timeout=timeout)

    def test_connect_with_special_characters_in_graph_id_escapes_them(self) -> None:
        # The second request looks for a server of the public contract.
        with scripted([reply(404, {"error": "no"})], [reply(404, {"error": "no"})]) as server:
            with pytest.raises(NotFound):
                connect(server.url, "..")
            assert server.asked[0].split()[1] == b"/graphs/%2E%2E"

    @pytest.mark.parametrize("said", [[], {}, 7, None])
    def test_connect_to_another_http_server_is_refused(self, said: Any) -> None:
        with scripted([reply(body=said)]) as server, pytest.raises(StorageError, match="not from"):
            connect(server.url, "team")

    @pytest.mark.parametrize("token", ["", " ", "two words", "line\nbreak", "ключ"])
    def test_connect_with_invalid_token_is_refused_without_repeating_it(self, token: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            check_token(token)
        assert token.strip() == "" or token not in str(caught.value)

    def test_connect_strips_spaces_around_the_token(self) -> None:
        with scripted([reply(body={"graphs": []})]) as server:
            assert list_graphs(server.url, " t0ken\n") == []
            assert b"Bearer t0ken\r\n" in server.asked[0]

    def test_connect_without_graph_id_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="name"):
            connect("http://127.0.0.1", "")


def test_request_parameters_that_are_none_are_omitted() -> None:
    with scripted([OK]) as server:
        call(
            Transport(server.url),
            "POST",
            "/x",
            params={"a": None, "b": ["1", "2"]},
            body={"c": None, "d": {"e": None}},
        )
        head, _, body = server.asked[0].partition(b"\r\n\r\n")
        assert head.split()[1] == b"/x?b=1&b=2"
        assert body == b'{"d":{"e":null}}'


def test_connection_is_reused_until_it_is_closed() -> None:
    with scripted([OK, OK]) as server:
        transport = Transport(server.url)
        call(transport, "GET", "/a")
        call(transport, "GET", "/b")
        transport.close()
        transport.close()
        with pytest.raises(InvalidInput, match="closed"):
            call(transport, "GET", "/c")
