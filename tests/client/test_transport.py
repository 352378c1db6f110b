"""Requests, and what becomes of them when the other side is not there, hangs up, or is not what it should be."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from omnigraph.api.wire import encode_error
from omnigraph.client.entry import check_token, check_url, connect, list_graphs
from omnigraph.client.transport import Transport
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
from tests.client.talking import HANG_UP, HANG_UP_EARLY, SAY_NOTHING, reply, scripted

OK = reply(body={"done": True})
KEYED = {"query": "…", "idempotency_key": "k-1"}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def refused(status: int, body: Any = None, *headers: str, writes: bool = False) -> OmnigraphError:
    """What a status is raised as."""
    said = reply(status, {"error": "no"} if body is None else body, *headers)
    with scripted([said]) as server, pytest.raises(OmnigraphError) as caught:
        Transport(server.url).call("POST", "/x", body={}, writes=writes)
    return caught.value


def upload(url: str, content: Iterable[bytes] | bytes, params: dict[str, str] | None = None) -> None:
    """Send what nobody will answer."""
    with Transport(url).send("POST", "/load/files", content=content, params=params):
        pytest.fail("somebody answered")


class TestBrokenConnections:
    def test_a_read_on_a_connection_that_died_meanwhile_is_sent_again(self) -> None:
        with scripted([OK, HANG_UP], [OK]) as server:
            transport = Transport(server.url)
            assert transport.call("GET", "/a") == transport.call("GET", "/b") == {"done": True}
            assert [request.split()[1] for request in server.asked] == [b"/a", b"/b", b"/b"]

    def test_a_read_is_sent_twice_and_no_more(self) -> None:
        with scripted([HANG_UP], [HANG_UP], [OK]) as server:
            with pytest.raises(StorageError, match="broke") as caught:
                Transport(server.url).call("GET", "/a")
            assert caught.value.transient
            assert len(server.asked) == 2

    def test_a_write_whose_answer_never_came_is_in_doubt_and_not_sent_again(self) -> None:
        with scripted([OK, HANG_UP], [OK]) as server:
            transport = Transport(server.url)
            transport.call("GET", "/a")
            with pytest.raises(OutcomeUnknown, match="broke"):
                transport.call("POST", "/mutate", body={"query": "…"}, writes=True)
            assert len(server.asked) == 2

    def test_a_write_with_a_key_is_sent_again(self) -> None:
        with scripted([HANG_UP], [OK]) as server:
            assert Transport(server.url).call("POST", "/mutate", body=KEYED, writes=True) == {"done": True}
            assert len(server.asked) == 2

    def test_a_write_with_a_key_that_stays_in_doubt_names_it(self) -> None:
        with scripted([HANG_UP], [HANG_UP]) as server, pytest.raises(OutcomeUnknown) as caught:
            Transport(server.url).call("POST", "/mutate", body=KEYED, writes=True)
        assert caught.value.details["idempotency_key"] == "k-1"
        assert "same idempotency key" in str(caught.value.hint)

    def test_an_answer_that_breaks_off_is_none(self) -> None:
        half = reply(body={"done": True})[:-4]
        with scripted([half], [half]) as server, pytest.raises(StorageError, match="broke"):
            Transport(server.url).call("GET", "/a")
        with scripted([half]) as server, pytest.raises(OutcomeUnknown):
            Transport(server.url).call("POST", "/a", body={}, writes=True)

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
                transport.call("POST", "/x", body={}, writes=writes)
            assert caught.value.transient

    def test_a_read_is_given_up_after_its_time_and_not_sent_again(self) -> None:
        with scripted([SAY_NOTHING], [OK]) as server:
            with pytest.raises(StorageError) as caught:
                Transport(server.url, timeout=0.05).call("GET", "/a")
            assert caught.value.transient
            assert len(server.asked) == 1


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

    def test_a_redirect_says_where_to(self) -> None:
        found = refused(307, None, "Location: http://127.0.0.1/else")
        assert isinstance(found, InvalidInput)
        assert "http://127.0.0.1/else" in found.message

    @pytest.mark.parametrize("text", [b"<html>", b"", b"[1]", b"\xff"])
    def test_the_page_of_a_proxy_is_no_answer(self, text: bytes) -> None:
        with scripted([reply(502, text=text)], [reply(text=b"<html>")]) as server:
            with pytest.raises(StorageError, match="502"):
                Transport(server.url).call("GET", "/x")
            with pytest.raises(StorageError, match="not one of an OmniGraph server"):
                Transport(server.url).call("GET", "/x")

    def test_rows_that_are_not_arrow_are_no_answer(self) -> None:
        with scripted([OK]) as server, pytest.raises(StorageError, match="not one of an OmniGraph server"):
            Transport(server.url).arrow("/query", {})


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
        with pytest.raises(InvalidInput, match="like http://host:8080"):
            check_url(url)

    def test_a_password_in_an_address_is_refused_and_not_repeated(self) -> None:
        with pytest.raises(InvalidInput) as caught:
            connect("http://ann:secret@127.0.0.1", "team")
        assert "secret" not in repr(caught.value.__dict__)

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
        Transport(server.url).call(
            "POST", "/x", params={"a": None, "b": ["1", "2"]}, body={"c": None, "d": {"e": None}}
        )
        head, _, body = server.asked[0].partition(b"\r\n\r\n")
        assert head.split()[1] == b"/x?b=1&b=2"
        assert body == b'{"d":{"e":null}}'


def test_a_connection_is_used_again_and_a_closed_one_is_not() -> None:
    with scripted([OK, OK]) as server:
        transport = Transport(server.url)
        transport.call("GET", "/a")
        transport.call("GET", "/b")
        transport.close()
        transport.close()
        with pytest.raises(InvalidInput, match="closed"):
            transport.call("GET", "/c")
