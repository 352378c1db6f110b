"""Blob values over HTTP: ranges, conditional requests and caching."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.api.hosting.graph_sources import GraphSource, Hosting
from omnigraph.rules.external_blobs import ExternalBlobPolicy
from omnigraph.server.hosted_graphs import open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from omnigraph.server.http.byte_ranges import ByteRange, RangeNotSatisfiable, parse_range
from tests.server.running import Running, error_body, running
from tests.support.external_objects import WebObjects, web_objects

SCHEMA = "node Doc { name: String @key  body: Blob?  size: I32? }\nedge Cites: Doc -> Doc { note: Blob? }\n"
RECORDS = [
    {"type": "Doc", "data": {"name": "a/b?", "body": "base64:MDEyMzQ1Njc4OQ=="}},
    {"type": "Doc", "data": {"name": "empty", "body": "base64:"}},
    {"type": "Doc", "data": {"name": "none"}},
]
TEN = b"0123456789"
LARGE = 4 << 20


@pytest.fixture(scope="module")
def web() -> Iterator[WebObjects]:
    with web_objects({"/assets/a%20b.bin": 200, "/other/x": 200}) as found:
        yield found


@pytest.fixture(scope="module")
def server(web: WebObjects, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    uri = f"memory://blobs-{uuid4().hex}"
    folder = tmp_path_factory.mktemp("local")
    (folder / "passwd").write_bytes(b"")
    # The graph was written with more bases than the server allows.
    with og.init(uri, SCHEMA, external_blobs=[f"{web.url}/", f"{folder.as_uri()}/"]) as graph:
        graph.load(RECORDS)
        graph.load(
            {
                "Doc": [
                    {"name": "far", "body": f"{web.url}/assets/a%20b.bin"},
                    {"name": "outside", "body": f"{web.url}/other/x"},
                    {"name": "local", "body": f"{folder.as_uri()}/passwd"},
                ]
            }
        )
    policy = ExternalBlobPolicy.of([f"{web.url}/assets/", f"{folder.as_uri()}/"])
    sources = (GraphSource("team", uri, external_blobs=policy), GraphSource("denied", uri))
    with running(open_graphs(Hosting(sources), TokenRegistry())) as found:
        yield found


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as found:
        yield found


def ask(client: httpx.Client, id_: str = "a/b?", method: str = "GET", **given: str) -> httpx.Response:
    headers = {name.replace("_", "-"): value for name, value in given.items()}
    params = {"entity": "node", "type": "Doc", "id": id_, "property": "body"}
    return client.request(method, "/blob", params=params, headers=headers)


def test_blob_snapshot_header_encodes_any_branch_name(client: httpx.Client) -> None:
    name = "日本 100%"
    client.post("/branches", json={"name": name})
    params = {"entity": "node", "type": "Doc", "id": "a/b?", "property": "body", "branch": name}
    for method in ("GET", "HEAD"):
        found = client.request(method, "/blob", params=params)
        assert found.status_code == 200, found.text
        assert found.headers["Omnigraph-Snapshot-Id"].startswith("manifest:%E6%97%A5%E6%9C%AC 100%25:v")
    client.delete(f"/branches/{quote(name)}")


def test_get_blob_returns_value_with_cache_headers(client: httpx.Client) -> None:
    found = ask(client)
    assert (found.status_code, found.content) == (200, TEN)
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["content-length"] == "10"
    assert found.headers["accept-ranges"] == "bytes"
    assert found.headers["omnigraph-snapshot-id"] == "manifest:main:v3"
    assert found.headers["etag"].startswith('"')
    assert ask(client, "empty").content == b""
    assert ask(client, "empty").headers["etag"] != found.headers["etag"]


@pytest.mark.parametrize(
    ("asked", "content", "range_"),
    [
        ("bytes=0-3", b"0123", "0-3"),
        ("bytes=7-", b"789", "7-9"),
        ("bytes=-2", b"89", "8-9"),
        ("bytes=-99", TEN, "0-9"),
        ("bytes=8-99", b"89", "8-9"),
    ],
)
def test_get_blob_single_range_returns_206(
    client: httpx.Client, asked: str, content: bytes, range_: str
) -> None:
    found = ask(client, Range=asked)
    assert (found.status_code, found.content) == (206, content)
    assert found.headers["content-range"] == f"bytes {range_}/10"


@pytest.mark.parametrize("asked", ["bytes=0-1,4-5", "items=0-1", "bytes=x-y", "bytes=5-2", "bytes=-", "0-1"])
def test_get_blob_malformed_or_multiple_ranges_returns_200(client: httpx.Client, asked: str) -> None:
    found = ask(client, Range=asked)
    assert (found.status_code, found.content) == (200, TEN)


@pytest.mark.parametrize(
    ("id_", "asked", "start", "end"),
    [
        ("a/b?", "bytes=10-", 10, 10),
        ("a/b?", "bytes=12-14", 12, 15),
        ("a/b?", "bytes=-0", 10, 10),
        ("empty", "bytes=0-", 0, 0),
        ("empty", "bytes=0-4", 0, 5),
    ],
)
def test_get_blob_range_after_end_returns_416_with_half_open_range(
    client: httpx.Client, id_: str, asked: str, start: int, end: int
) -> None:
    found = ask(client, id_, Range=asked)
    length = 0 if id_ == "empty" else 10
    body = error_body(found, 416)
    assert body["blob_range"] == {"start": start, "end": end, "length": length}
    assert all(type(number) is int for number in body["blob_range"].values())
    assert found.headers["content-range"] == f"bytes */{length}"


def test_get_blob_evaluates_preconditions_in_order(client: httpx.Client) -> None:
    etag = ask(client).headers["etag"]
    assert error_body(ask(client, If_Match='"other"'), 412)["code"] == "conflict"
    error_body(ask(client, If_Match=f"W/{etag}"), 412)
    error_body(ask(client, If_Match='"other"', If_None_Match=etag), 412)
    for matching in (etag, "*", f'"other", {etag}'):
        assert ask(client, If_Match=matching).status_code == 200
    for known in (etag, f"W/{etag}", "*", f'"other",{etag}'):
        found = ask(client, If_None_Match=known, Range="bytes=0-1")
        assert (found.status_code, found.content, found.headers["etag"]) == (304, b"", etag)
    assert ask(client, If_None_Match='"other"').status_code == 200
    assert ask(client, If_Range=etag, Range="bytes=0-1").status_code == 206
    for stale in ('"other"', f"W/{etag}", "Sun, 15 Nov 2026 19:00:00 GMT"):
        assert ask(client, If_Range=stale, Range="bytes=0-1").status_code == 200


def test_head_blob_returns_headers_without_body(client: httpx.Client) -> None:
    found = ask(client, method="HEAD", Range="bytes=0-1")
    assert (found.status_code, found.content, found.headers["content-length"]) == (200, b"", "10")
    assert found.headers["etag"] == ask(client).headers["etag"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_get_external_blob_below_base_redirects_without_fetching(
    client: httpx.Client, web: WebObjects, method: str
) -> None:
    asked = list(web.requests)
    found = ask(client, "far", method)
    assert (found.status_code, found.headers["location"]) == (302, f"{web.url}/assets/a%20b.bin")
    assert found.headers["cache-control"] == "no-store"
    assert "omnigraph-snapshot-id" in found.headers
    assert "etag" not in found.headers
    assert web.requests == asked


@pytest.mark.parametrize("id_", ["outside", "local"])
def test_get_external_blob_outside_server_bases_returns_400(client: httpx.Client, id_: str) -> None:
    found = ask(client, id_)
    assert error_body(found, 400)["code"] == "bad_request"
    assert "location" not in found.headers
    assert ask(client, id_, "HEAD").status_code == 400


def test_get_external_blob_of_graph_without_bases_returns_400(server: Running) -> None:
    with server.client(prefix="/graphs/denied") as denied:
        found = ask(denied, "far")
        assert "not allowed" in error_body(found, 400)["error"]
        assert "location" not in found.headers


def test_write_of_external_uri_is_refused_or_probed(client: httpx.Client, web: WebObjects) -> None:
    def load(uri: str) -> httpx.Response:
        line = json.dumps({"type": "Doc", "data": {"name": "new", "body": uri}})
        headers = {"Content-Type": "application/x-ndjson"}
        return client.post("/load/ndjson", content=line, params={"mode": "merge"}, headers=headers)

    for refused in ("hello", "javascript:alert(1)", "file:///etc/passwd", f"{web.url}/other/x"):
        assert error_body(load(refused), 400)["code"] == "bad_request"
    missing = f"{web.url}/assets/missing"
    body = error_body(load(missing), 424)
    assert body["external_blob_source"] == {"uri": missing, "reason": "the server responded 404"}
    assert "code" not in body
    assert load(f"{web.url}/assets/a%20b.bin").status_code == 200


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"id": "nobody"}, 404),
        ({"id": "none"}, 404),
        ({"id": "' OR 1=1 --"}, 404),
        ({"type": "Nothing"}, 400),
        ({"type": "Cites"}, 400),
        ({"property": "size"}, 400),
        ({"property": "id"}, 400),
        ({"property": "nothing"}, 400),
        ({"entity": "interface"}, 400),
        ({"branch": "main", "snapshot": "x"}, 400),
        ({"branch": "nowhere"}, 404),
        ({"snapshot": "nothing"}, 404),
    ],
)
def test_get_blob_missing_or_invalid_target_returns_error(
    client: httpx.Client, change: dict[str, str], status: int
) -> None:
    params = {"entity": "node", "type": "Doc", "id": "a/b?", "property": "body", **change}
    error_body(client.get("/blob", params=params), status)


def test_blob_etag_changes_only_with_its_value(server: Running, client: httpx.Client) -> None:
    graph = server.hosted.graphs["team"].graph
    graph.load([{"type": "Doc", "data": {"name": "mine", "body": "base64:AAAA"}}])
    first = ask(client, "mine").headers["etag"]
    graph.load([{"type": "Doc", "data": {"name": "other", "body": "base64:AAAA"}}])
    assert ask(client, "mine").headers["etag"] == first != ask(client, "other").headers["etag"]
    graph.load([{"type": "Doc", "data": {"name": "mine", "body": "base64:AAAB"}}], "merge")
    assert ask(client, "mine").headers["etag"] != first
    error_body(ask(client, "mine", If_Match=first), 412)


def test_get_blob_matching_etag_returns_304_with_headers_of_200(client: httpx.Client) -> None:
    complete = ask(client)
    names = ("etag", "content-length", "accept-ranges", "omnigraph-snapshot-id")
    for known in (complete.headers["etag"], "*"):
        for method in ("GET", "HEAD"):
            found = ask(client, method=method, If_None_Match=known)
            assert (found.status_code, found.content) == (304, b"")
            assert [found.headers[name] for name in names] == [complete.headers[name] for name in names]
    error_body(ask(client, "none", If_None_Match="*"), 404)
    # The connection is usable after a 304 with a length and without a body.
    assert ask(client).content == TEN


def test_get_blob_at_time_returns_value_of_that_state(server: Running, client: httpx.Client) -> None:
    graph = server.hosted.graphs["team"].graph
    first = graph.load([{"type": "Doc", "data": {"name": "timed", "body": "base64:AAAA"}}]).commit
    graph.load([{"type": "Doc", "data": {"name": "timed", "body": "base64:AAAB"}}], "merge")
    assert first is not None
    params = {"entity": "node", "type": "Doc", "id": "timed", "property": "body"}
    found = client.get("/blob", params={**params, "at": first.created_at.isoformat()})
    assert (found.status_code, found.content) == (200, bytes(3))
    assert client.get("/blob", params={**params, "snapshot": first.id}).content == bytes(3)
    error_body(
        client.get("/blob", params={**params, "snapshot": first.id, "at": "2020-01-01T00:00:00Z"}), 400
    )


def test_concurrent_readers_of_large_blobs_get_their_bytes(server: Running, client: httpx.Client) -> None:
    item = server.hosted.graphs["team"]
    large = [random.Random(number).randbytes(LARGE) for number in range(3)]
    item.graph.load({"Doc": [{"name": f"large{number}", "body": data} for number, data in enumerate(large)]})
    with ExitStack() as open_:
        answers = [
            open_.enter_context(
                client.stream(
                    "GET",
                    "/blob",
                    params={"entity": "node", "type": "Doc", "id": f"large{number % 3}", "property": "body"},
                )
            )
            for number in range(6)
        ]
        assert {answer.headers["content-length"] for answer in answers} == {str(LARGE)}
        # The clients have received little.
        assert ask(client, "large1", Range="bytes=5-9").content == large[1][5:10]
        assert [answer.read() for answer in answers] == [*large, *large]
    assert ask(client, "large2", Range=f"bytes={LARGE - 7}-").content == large[2][-7:]
    assert item.reader.stats().nbytes < LARGE


def test_get_entity_reads_no_other_blob_values(server: Running) -> None:
    item = server.hosted.graphs["team"]
    item.graph.load({"Doc": [{"name": "heavy", "body": bytes(LARGE)}]})
    item.reader.cache.clear()
    found = item.graph.get("Doc", "a/b?")
    assert found is not None
    assert found["body"] == "base64:MDEyMzQ1Njc4OQ=="
    assert item.reader.stats().nbytes < LARGE


@given(st.integers(0, 30), st.integers(0, 40), st.none() | st.integers(0, 40))
@settings(max_examples=200, deadline=None)
def test_parse_range_agrees_with_slicing(length: int, start: int, end: int | None) -> None:
    data = bytes(range(length))
    text = f"bytes={start}-{'' if end is None else end}"
    if end is not None and end < start:
        assert parse_range([text], length) is None
        return
    wanted = data[start:] if end is None else data[start : end + 1]
    if not wanted:
        with pytest.raises(RangeNotSatisfiable):
            parse_range([text], length)
        return
    span = parse_range([text], length)
    assert span is not None
    assert data[span.start : span.end] == wanted


@pytest.mark.parametrize("digits", [19, 20, 10_000])
def test_parse_range_accepts_numbers_of_any_length(digits: int) -> None:
    many = "9" * digits
    assert parse_range([f"bytes=3-{many}"], 10) == ByteRange(3, 10)
    assert parse_range([f"bytes=-{many}"], 10) == ByteRange(0, 10)
    assert parse_range([f"bytes={'0' * digits}3-{'0' * digits}5"], 10) == ByteRange(3, 6)
    with pytest.raises(RangeNotSatisfiable):
        parse_range([f"bytes={many}-"], 10)
