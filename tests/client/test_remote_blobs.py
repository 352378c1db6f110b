"""Single values of bytes over HTTP, as others in between leave them."""

from __future__ import annotations

import pytest

from omnigraph.api.blobs import Blob, BlobPlace
from omnigraph.client.blobs import connect_blobs, read_blob
from omnigraph.errors import StorageError
from tests.client.talking import reply, scripted

PLACE = BlobPlace("node", "Photo", "a", "data")
KNOWN = ("Omnigraph-Snapshot-Id: manifest:main:v1", 'ETag: "t"')


def test_a_part_is_read_as_one() -> None:
    said = reply(206, None, *KNOWN, "Content-Range: bytes 1-2/5", text=b"el")
    with (
        scripted([said]) as server,
        read_blob(connect_blobs(server.url, "g"), PLACE, (1, 3)) as (found, chunks),
    ):
        assert (found, b"".join(chunks)) == (Blob("manifest:main:v1", 5, '"t"'), b"el")
        assert b"Range: bytes=1-2\r\n" in server.asked[0]


def test_the_whole_is_not_taken_for_a_part_of_it() -> None:
    with (
        scripted([reply(200, None, *KNOWN, text=b"hello")]) as server,
        pytest.raises(StorageError, match="not one of"),
        read_blob(connect_blobs(server.url, "g"), PLACE, (1, 3)),
    ):
        pytest.fail("it was taken")
