"""Single values of bytes over HTTP, as others in between leave them."""

from __future__ import annotations

import pytest

from omnigraph.api.blobs import BlobSelector
from omnigraph.client.blobs import connect_blobs
from omnigraph.errors import StorageError
from tests.client.talking import reply, scripted

SELECTOR = BlobSelector("node", "Photo", "a", "data")
KNOWN = ("Omnigraph-Snapshot-Id: manifest:main:v1", 'ETag: "t"')
# The response to HEAD has the length of the body and no body.
HEAD = reply(200, None, *KNOWN, text=b"hello").removesuffix(b"hello")


def test_a_part_is_read_as_one() -> None:
    part = reply(206, None, *KNOWN, "Content-Range: bytes 1-2/5", text=b"el")
    with scripted([HEAD], [part]) as server, connect_blobs(server.url, "g") as blobs:
        with blobs.open(SELECTOR, offset=1, length=2) as chunks:
            assert b"".join(chunks) == b"el"
        assert b"Range: bytes=1-2\r\n" in server.asked[1]
        assert b'If-Match: "t"\r\n' in server.asked[1]


def test_the_whole_is_not_taken_for_a_part_of_it() -> None:
    with (
        scripted([HEAD], [reply(200, None, *KNOWN, text=b"hello")]) as server,
        connect_blobs(server.url, "g") as blobs,
        pytest.raises(StorageError, match="not from"),
        blobs.open(SELECTOR, offset=1, length=2),
    ):
        pytest.fail("it was taken")
