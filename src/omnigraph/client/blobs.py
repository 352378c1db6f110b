"""The Blob values of a remote graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote

from omnigraph.api.blobs import BlobInfo, Blobs, BlobSelector
from omnigraph.client.entry import READ_TIMEOUT, check_token, graph_url
from omnigraph.client.request_errors import unexpected_response
from omnigraph.errors import InvalidInput, NotFound, PermissionDenied, StorageError
from omnigraph.protocol.codec import SNAPSHOT_ID

if TYPE_CHECKING:
    import httpx

    from omnigraph.client.transport import Transport

_OK, _FOUND = 200, 302


@contextmanager
def connect_blobs(url: str, graph: str, token: str | None = None) -> Iterator[RemoteBlobs]:
    """Connect to the Blob values of a graph on a server. The graph itself is not requested."""
    from omnigraph.client.transport import Transport

    transport = Transport(graph_url(url, graph), check_token(token), READ_TIMEOUT)
    try:
        yield RemoteBlobs(transport)
    finally:
        transport.close()


class RemoteBlobs(Blobs):
    """`Blobs` on a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def stat(self, selector: BlobSelector) -> BlobInfo:
        try:
            with self._transport.send("HEAD", "/blob", params=selector.to_params(), writes=False) as response:
                return _info(response)
        except (InvalidInput, NotFound, PermissionDenied):
            # An error response to HEAD has no body. The response to a request for one byte has the message.
            with self._get(selector, (0, 1), None) as (info, _):
                return info

    @contextmanager
    def open(
        self, selector: BlobSelector, offset: int = 0, length: int | None = None
    ) -> Iterator[Iterator[bytes]]:
        span, etag = None, None
        if offset or length is not None:
            # The size bounds the range. The ETag ensures that the range is of the same value.
            info = self.stat(selector)
            span, etag = info.byte_range(offset, length), info.etag
            if span[0] == span[1]:
                yield iter(())
                return
        with self._get(selector, span, etag) as (info, chunks):
            info.refuse_external()
            yield chunks

    @contextmanager
    def _get(
        self, selector: BlobSelector, span: tuple[int, int] | None, etag: str | None
    ) -> Iterator[tuple[BlobInfo, Iterator[bytes]]]:
        """Request a value, or the bytes of a span of it. Raises `PreconditionFailed` if it has another ETag."""
        headers = {} if etag is None else {"If-Match": etag}
        if span is not None:
            headers["Range"] = f"bytes={span[0]}-{span[1] - 1}"
        with self._transport.send(
            "GET", "/blob", params=selector.to_params(), headers=headers, writes=False
        ) as response:
            info = _info(response)
            if span is not None and response.status_code == _OK:
                # A proxy ignored the range. The whole value must not pass for a part of it.
                raise unexpected_response(response)
            yield info, iter(()) if info.uri is not None else response.iter_bytes()


def _info(response: httpx.Response) -> BlobInfo:
    headers = response.headers
    try:
        resolved = unquote(headers[SNAPSHOT_ID])
        if response.status_code == _FOUND:
            return BlobInfo(resolved, uri=headers["location"])
        # The response to a range has the size of the whole value in Content-Range.
        size = headers.get("content-range", "").rpartition("/")[2] or headers["content-length"]
        return BlobInfo(resolved, size=int(size), etag=headers["etag"])
    except (KeyError, ValueError) as error:
        raise StorageError(
            f"the response of {response.url.copy_with(query=None)} is not a Blob value",
            details={"status": response.status_code},
        ) from error
