"""Compression of responses over real sockets."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.protocol.codec import ARROW, read_result
from omnigraph.server.http.compression import MIN_BYTES
from tests.server.running import ALL, Running, host, running

BIG = "query big() { match { $p: Person  $q: Person } return { $p.name as name, $q.name as other } }"
PEOPLE = 60


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    hosted = host()
    hosted.graphs["team"].graph.load({"Person": [{"name": f"Person {number}"} for number in range(PEOPLE)]})
    with running(hosted) as found:
        yield found


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as found:
        yield found


@dataclass(frozen=True)
class Sent:
    """A response as it was sent. httpx would decode the body."""

    status_code: int
    headers: httpx.Headers
    content: bytes


def fetch(
    client: httpx.Client, method: str, path: str, encoding: str, body: Any = None, **headers: str
) -> Sent:
    with client.stream(method, path, headers={"Accept-Encoding": encoding, **headers}, json=body) as response:
        return Sent(response.status_code, response.headers, b"".join(response.iter_raw()))


def decoded(response: Sent) -> bytes:
    match response.headers.get("content-encoding"):
        case "gzip":
            return zlib.decompress(response.content, 16 + zlib.MAX_WBITS)
        case "zstd":
            data: bytes = pa.CompressedInputStream(pa.BufferReader(response.content), "zstd").read()
            return data
        case other:
            assert other is None
            return response.content


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_large_json_response_is_compressed(client: httpx.Client, encoding: str) -> None:
    plain = fetch(client, "POST", "/query", "identity", body={"query": BIG})
    found = fetch(client, "POST", "/query", encoding, body={"query": BIG})
    assert found.headers["content-encoding"] == encoding
    assert json.loads(decoded(found)) == json.loads(plain.content)
    assert int(found.headers["content-length"]) == len(found.content) < len(plain.content) / 4
    assert found.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert "content-encoding" not in plain.headers


def test_small_response_is_not_compressed(client: httpx.Client) -> None:
    found = fetch(client, "GET", "/branches", "gzip, zstd")
    assert len(found.content) < MIN_BYTES
    assert "content-encoding" not in found.headers
    assert found.headers["vary"] == "Accept-Encoding"
    assert int(found.headers["content-length"]) == len(found.content)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_stream_is_compressed_and_complete(client: httpx.Client, encoding: str) -> None:
    plain = fetch(client, "POST", "/export", "identity")
    found = fetch(client, "POST", "/export", encoding)
    assert found.headers["content-encoding"] == encoding
    assert "content-length" not in found.headers
    assert decoded(found) == plain.content
    assert plain.content.count(b"\n") == PEOPLE + 2


def test_arrow_response_is_compressed(client: httpx.Client) -> None:
    found = fetch(client, "POST", "/query", "zstd", body={"query": BIG}, Accept=ARROW)
    assert found.headers["content-encoding"] == "zstd"
    assert len(read_result(decoded(found))) == (PEOPLE + 2) ** 2


def test_exported_parquet_files_are_not_compressed_again(client: httpx.Client) -> None:
    found = fetch(client, "POST", "/export/files", "gzip, zstd", body={"format": "parquet"})
    assert found.status_code == 200
    assert "content-encoding" not in found.headers
    assert "accept-encoding" not in found.headers.get("vary", "").lower()


@pytest.mark.parametrize("accepted", ["", "br, deflate", "gzip;q=0, zstd;q=0", "gzip;q=wrong"])
def test_response_without_common_encoding_is_plain(client: httpx.Client, accepted: str) -> None:
    found = fetch(client, "POST", "/query", accepted, body={"query": BIG})
    assert "content-encoding" not in found.headers
    assert len(json.loads(found.content)["rows"]) == (PEOPLE + 2) ** 2


def test_blob_keeps_its_bytes_ranges_and_tag() -> None:
    hosted = host()
    graph = hosted.graphs["team"].graph
    graph.schema.apply(
        "node Person { name: String @key  age: I32?  raw: Blob? }\nedge Knows: Person -> Person\n"
    )
    graph.load({"Person": [{"name": "Ann", "raw": b"a" * 10_000}]}, mode="merge")
    with running(hosted) as server, server.client() as client:
        path = "/blob?entity=node&type=Person&id=Ann&property=raw"
        whole = fetch(client, "GET", path, "gzip, zstd")
        part = fetch(client, "GET", path, "gzip, zstd", Range="bytes=0-4999")
    assert (whole.status_code, part.status_code) == (200, 206)
    assert whole.content == b"a" * 10_000
    assert part.content == b"a" * 5_000
    assert whole.headers["etag"] == part.headers["etag"]
    for found in (whole, part):
        assert "content-encoding" not in found.headers


def test_client_reads_compressed_results(server: Running) -> None:
    with og.connect(server.url.replace("127.0.0.1", "0.0.0.0"), "team") as graph:
        assert len(graph.query(ALL)) == PEOPLE + 2
        assert len(graph.query(BIG)) == (PEOPLE + 2) ** 2
