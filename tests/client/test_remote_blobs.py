"""Single Blob values over HTTP, when a proxy alters responses."""

from __future__ import annotations

import pytest

from omnigraph.api.results.blobs import BlobSelector
from omnigraph.client.blobs import open_blob
from omnigraph.client.transport import Transport
from omnigraph.errors import StorageError
from tests.client.talking import reply, scripted

SELECTOR = BlobSelector("node:Photo", "a", "data")
KNOWN = ("Omnigraph-Snapshot-Id: manifest:main:v1", 'ETag: "t"')
# The response to HEAD has the length of the body and no body.
HEAD = reply(200, None, *KNOWN, text=b"hello").removesuffix(b"hello")


def test_read_range_sends_range_and_entity_tag() -> None:
    part = reply(206, None, *KNOWN, "Content-Range: bytes 1-2/5", text=b"el")
    with scripted([HEAD], [part]) as server:
        transport = Transport(f"{server.url}/graphs/g", None)
        assert open_blob(transport, SELECTOR).read_range(1, 3) == b"el"
        assert b"Range: bytes=1-2\r\n" in server.asked[1]
        assert b'If-Match: "t"\r\n' in server.asked[1]
        transport.close()


@pytest.mark.parametrize(
    "answer",
    [
        reply(200, None, *KNOWN, text=b"hello"),
        reply(206, None, *KNOWN, "Content-Range: bytes 0-1/5", text=b"he"),
        reply(206, None, *KNOWN, "Content-Range: bytes 1-2/5", text=b"ell"),
        reply(206, None, *KNOWN, text=b"el"),
    ],
    ids=["whole value", "another range", "more bytes", "no range"],
)
def test_read_range_answered_with_other_bytes_raises_storage_error(answer: bytes) -> None:
    with scripted([HEAD], [answer]) as server:
        transport = Transport(f"{server.url}/graphs/g", None)
        blob = open_blob(transport, SELECTOR)
        with pytest.raises(StorageError):
            blob.read_range(1, 3)
        transport.close()
