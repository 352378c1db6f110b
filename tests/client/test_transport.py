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


def test_what_no_request_can_carry_is_refused_before_it_is_sent() -> None:
    with scripted([OK]) as server, pytest.raises(InvalidInput, match="not valid Unicode text"):
        call(Transport(server.url), "POST", "/x", body={"params": {"n": "\ud800"}}, writes=True)
    assert server.asked == []


class TestBrokenConnections:
    def test_a_read_on_a_connection_that_died_meanwhile_is_sent_again(self) -> None:
        with scripted([OK, HANG_UP], [OK]) as server:
            transport = Transport(server.url)
            assert call(transport, "GET", "/a") == call(transport, "GET", "/b") == {"done": True}
            assert [request.split()[1] for request in server.asked] == [b"/a", b"/b", b"/b"]

    def test_a_read_is_sent_twice_and_no_more(self) -> None:
        with scripted([HANG_UP], [HANG_UP], [OK]) as server:
            with pytest.raises(StorageError, match="broke") as caught:
                call(Transport(server.url), "GET", "/a")
            assert caught.value.transient
            assert len(server.asked) == 2

    def test_a_write_whose_answer_never_came_is_in_doubt_and_not_sent_again(self) -> None:
        with scripted([OK, HANG_UP], [OK]) as server:
            transport = Transport(server.url)
            call(transport, "GET", "/a")
            with pytest.raises(OutcomeUnknown, match="broke"):
                call(transport, "POST", "/mutate", body={"query": "…"}, writes=True)
            assert len(server.asked) == 2

    def test_a_write_with_a_key_is_sent_again(self) -> None:
        with scripted([HANG_UP], [OK]) as server:
            assert call(Transport(server.url), "POST", "/mutate", body=KEYED, writes=True) == {"done": True}
            assert len(server.asked) == 2

    def test_a_write_with_a_key_that_stays_in_doubt_names_it(self) -> None:
        with scripted([HANG_UP], [HANG_UP]) as server, pytest.raises(OutcomeUnknown) as caught:
            call(Transport(server.url), "POST", "/mutate", body=KEYED, writes=True)
        assert caught.value.details["idempotency_key"] == "k-1"
        assert "same idempotency key" in str(caught.value.hint)

    def test_an_answer_that_breaks_off_is_none(self) -> None:
        half = reply(body={"done": True})[:-4]
        with scripted([half], [half]) as server, pytest.raises(StorageError, match="broke"):
            call(Transport(server.url), "GET", "/a")
        with scripted([half]) as server, pytest.raises(OutcomeUnknown):
            call(Transport(server.url), "POST", "/a", body={}, writes=True)

    def test_an_upload_that_was_cut_off_has_done_nothing(self) -> None:
        def content() -> Iterator[bytes]:
            for _ in range(1_024):
                yield b"x" * 65_536

        with scripted([HANG_UP_EARLY]) as server, pytest.raises(StorageError) as caught:
            upload(server.url, content())
        assert caught.value.transient

    def test_an_upload_that_was_sent_whole_is_in_doubt(self) -> None:
        with scripted([HANG_UP]) as server, pytest.raises(OutcomeUnknown) as caught:
            upload(server.url, b"records", {"idempotency_key": "k-2"})
        assert caught.value.details["idempotency_key"] == "k-2"

    def test_an_upload_whose_answer_breaks_off_is_in_doubt(self) -> None:
        half, key = reply(body={"done": True})[:-4], {"idempotency_key": "k-3"}
        with (
            scripted([half]) as server,
            pytest.raises(OutcomeUnknown) as caught,
            Transport(server.url).send("POST", "/load/files", content=b"records", params=key) as response,
        ):
            response.read()
        assert caught.value.details["idempotency_key"] == "k-3"

    def test_what_fails_while_an_upload_is_read_is_raised_as_it_is(self) -> None:
        def content() -> Iterator[bytes]:
            yield b"x"
            raise InvalidInput("not a record")

        with scripted([OK]) as server, pytest.raises(InvalidInput, match="not a record"):
            upload(server.url, content())

    def test_a_stream_that_breaks_off_says_so(self) -> None:
        chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"
        with scripted([chunked]) as server, Transport(server.url).stream("GET", "/diff") as chunks:
            assert next(chunks) == b"first"
            with pytest.raises(StorageError, match="broke") as caught:
                next(chunks)
        assert caught.value.transient

    def test_a_server_that_is_not_there_has_been_sent_nothing(self) -> None:
        transport = Transport(f"http://127.0.0.1:{free_port()}")
        for writes in (False, True):
            with pytest.raises(StorageError, match="cannot be reached") as caught:
                call(transport, "POST", "/x", body={}, writes=writes)
            assert caught.value.transient

    def test_a_read_is_given_up_after_its_time_and_not_sent_again(self) -> None:
        with scripted([SAY_NOTHING], [OK]) as server:
            with pytest.raises(StorageError) as caught:
                call(Transport(server.url, timeout=0.05), "GET", "/a")
            assert caught.value.transient
            wait_until(lambda: server.asked, "the server to read the request")
        assert len(server.asked) == 1

    def test_a_write_is_waited_for_however_little_time_a_read_has(self) -> None:
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
    def test_a_write_that_was_heard_stays_in_doubt_when_the_second_try_is_not(self, then: bytes) -> None:
        with scripted([HANG_UP], [then]) as server, pytest.raises(OutcomeUnknown) as caught:
            call(Transport(server.url), "POST", "/mutate", body=KEYED, writes=True)
        assert caught.value.details["idempotency_key"] == "k-1"

    def test_it_does_so_too_when_the_server_is_gone_by_then(self) -> None:
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

    def test_a_refusal_by_the_graph_is_one_of_both_tries(self) -> None:
        told = {"error": "no", "exception": encode_error(Conflict("moved"))}
        with scripted([HANG_UP], [reply(409, told)]) as server, pytest.raises(Conflict, match="moved"):
            call(Transport(server.url), "POST", "/mutate", body=KEYED, writes=True)

    @pytest.mark.parametrize("text", [b"<html>", b"", b"[1]", b"{}", b"[" * 100_000])
    def test_a_success_that_cannot_be_read_leaves_a_write_in_doubt(self, text: bytes) -> None:
        said = reply(text=text)
        with scripted([said, said]) as server:
            transport = Transport(server.url)
            with pytest.raises(StorageError, match="not from an OmniGraph server"):
                transport.call("GET", "/branches", lambda found: found["branches"])
            with pytest.raises(OutcomeUnknown, match="not from an OmniGraph server"):
                transport.call("POST", "/branches", lambda found: found["name"], body={}, writes=True)

    @pytest.mark.parametrize("status", [200, 500])
    def test_an_answer_that_cannot_be_unpacked_leaves_a_write_in_doubt(self, status: int) -> None:
        said = reply(status, None, "Content-Encoding: gzip", text=b"not packed")
        with scripted([said]) as server, pytest.raises(OutcomeUnknown):
            call(Transport(server.url), "POST", "/mutate", body={}, writes=True)

    def test_what_comes_before_an_answer_is_none(self) -> None:
        early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
        with scripted([early + OK]) as server:
            assert call(Transport(server.url), "POST", "/mutate", body={}, writes=True) == {"done": True}

    def test_a_stream_whose_end_would_look_like_a_break_is_refused(self) -> None:
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
    def test_a_forked_process_has_connections_of_its_own(self) -> None:
        # In a process of its own: a large one may be refused to fork.
        done = subprocess.run(
            [sys.executable, "-c", FORKING], timeout=HANG, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def test_connections_are_not_pickled_and_neither_is_the_token(self) -> None:
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
    def test_a_refusal_is_known_by_its_status(self, status: int, kind: type[OmnigraphError]) -> None:
        found = refused(status)
        assert (type(found), found.message, found.details["status"]) == (kind, "no", status)

    def test_an_error_that_the_server_names_is_that_error(self) -> None:
        told = ConstraintViolation("bad", [{"rule": "key"}], details={"n": 1}, hint="fix it")
        found = refused(409, {"error": "other", "exception": encode_error(told)})
        assert isinstance(found, ConstraintViolation)
        assert (found.message, found.violations, found.details, found.hint) == (
            "bad",
            ({"rule": "key"},),
            {"n": 1},
            "fix it",
        )

    def test_a_limit_tells_its_figures(self) -> None:
        limit = {"resource": "request_body_bytes", "limit": 5, "actual": 9}
        assert refused(413, {"error": "large", "resource_limit": limit}).details.items() >= limit.items()

    @pytest.mark.parametrize(("headers", "seconds"), [((), 60), (("Retry-After: 7",), 7)])
    def test_a_busy_server_says_when_to_come_back(self, headers: tuple[str, ...], seconds: int) -> None:
        assert refused(429, None, *headers).details["retry_after"] == seconds

    @pytest.mark.parametrize(("status", "transient"), [(500, False), (502, True), (503, True), (504, True)])
    def test_a_failed_read_may_work_later(self, status: int, transient: bool) -> None:
        found = refused(status)
        assert isinstance(found, StorageError)
        assert found.transient is transient

    @pytest.mark.parametrize("status", [500, 502, 504])
    def test_a_write_that_failed_without_a_reason_may_have_happened(self, status: int) -> None:
        assert isinstance(refused(status, writes=True), OutcomeUnknown)

    def test_a_write_that_was_not_taken_has_not_happened(self) -> None:
        found = refused(503, None, "Retry-After: 2", writes=True)
        assert isinstance(found, StorageError)
        assert (found.transient, found.details["retry_after"]) == (True, 2)

    @pytest.mark.parametrize("text", [b"upstream reset", b'{"error": "x", "status": 503}'])
    def test_a_write_that_a_proxy_lost_may_have_happened(self, text: bytes) -> None:
        with scripted([reply(503, text=text)]) as server, pytest.raises(OutcomeUnknown):
            call(Transport(server.url), "POST", "/mutate", body={}, writes=True)

    @pytest.mark.parametrize("told", [{}, {"code": []}, {"type": "NullPointerException"}, "x"])
    def test_an_exception_of_somebody_else_is_none_of_ours(self, told: Any) -> None:
        assert isinstance(refused(500, {"error": "no", "exception": told}, writes=True), OutcomeUnknown)
        assert refused(400, {"error": "no", "exception": told}).message == "no"

    def test_an_error_with_a_strange_body_is_known_by_its_status(self) -> None:
        with scripted([reply(500, text=b"[" * 100_000)]) as server, pytest.raises(StorageError, match="500"):
            call(Transport(server.url), "GET", "/x")
        assert isinstance(refused(413, {"error": "no", "resource_limit": 7}), ResourceLimit)
        assert len(refused(404, {"error": "x" * 1_000_000}).message) < 5_000

    def test_an_upload_that_is_sent_elsewhere_says_where_to(self) -> None:
        said = reply(308, None, "Location: http://127.0.0.1/else")
        with scripted([said]) as server, pytest.raises(InvalidInput, match=r"127\.0\.0\.1/else"):
            upload(server.url, b"records")

    def test_a_write_that_is_told_to_look_elsewhere_may_have_happened(self) -> None:
        assert isinstance(refused(303, None, "Location: /done", writes=True), OutcomeUnknown)

    def test_nobody_else_is_sent_the_token(self) -> None:
        with scripted([OK]) as other:
            said = reply(307, None, f"Location: {other.url}/x")
            with scripted([said]) as server, pytest.raises(InvalidInput):
                call(Transport(server.url, "t0ken"), "GET", "/x")
            assert other.asked == []

    def test_a_redirect_says_where_to(self) -> None:
        found = refused(307, None, "Location: http://127.0.0.1/else")
        assert isinstance(found, InvalidInput)
        assert "http://127.0.0.1/else" in found.message

    @pytest.mark.parametrize("text", [b"<html>", b"", b"[1]", b"\xff"])
    def test_the_page_of_a_proxy_is_no_answer(self, text: bytes) -> None:
        with scripted([reply(502, text=text)], [reply(text=b"<html>")]) as server:
            with pytest.raises(StorageError, match="502"):
                call(Transport(server.url), "GET", "/x")
            with pytest.raises(StorageError, match="not from an OmniGraph server"):
                call(Transport(server.url), "GET", "/x")

    def test_rows_that_are_not_arrow_are_no_answer(self) -> None:
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
    def test_an_address_has_one_form(self, given: str, kept: str) -> None:
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
    def test_anything_else_is_refused(self, url: str) -> None:
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
    def test_a_secret_in_an_address_is_refused_and_not_repeated(self, url: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            connect(url, "team")
        assert "secret" not in repr(caught.value.__dict__)
        assert "secret" not in "".join(traceback.format_exception(caught.value)[-1:])

    @pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
    def test_a_timeout_that_is_none_is_refused(self, timeout: float) -> None:
        with pytest.raises(InvalidInput, match="timeout"):
            connect("http://127.0.0.1", "team", timeout=timeout)

    def test_no_name_of_a_graph_leads_to_another_address(self) -> None:
        with scripted([reply(404, {"error": "no"})]) as server:
            with pytest.raises(NotFound):
                connect(server.url, "..")
            assert server.asked[0].split()[1] == b"/graphs/%2E%2E"

    @pytest.mark.parametrize("said", [[], {}, 7, None])
    def test_somebody_else_who_answers_is_no_server_of_graphs(self, said: Any) -> None:
        with scripted([reply(body=said)]) as server, pytest.raises(StorageError, match="not from"):
            connect(server.url, "team")

    @pytest.mark.parametrize("token", ["", " ", "two words", "line\nbreak", "ключ"])
    def test_a_token_that_is_none_is_refused_and_not_repeated(self, token: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            check_token(token)
        assert token.strip() == "" or token not in str(caught.value)

    def test_spaces_around_a_token_are_left_out(self) -> None:
        with scripted([reply(body={"graphs": []})]) as server:
            assert list_graphs(server.url, " t0ken\n") == []
            assert b"Bearer t0ken\r\n" in server.asked[0]

    def test_a_graph_needs_a_name(self) -> None:
        with pytest.raises(InvalidInput, match="name"):
            connect("http://127.0.0.1", "")


def test_what_is_none_is_left_out() -> None:
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


def test_a_connection_is_used_again_and_a_closed_one_is_not() -> None:
    with scripted([OK, OK]) as server:
        transport = Transport(server.url)
        call(transport, "GET", "/a")
        call(transport, "GET", "/b")
        transport.close()
        transport.close()
        with pytest.raises(InvalidInput, match="closed"):
            call(transport, "GET", "/c")
