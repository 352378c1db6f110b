"""The Blob values of a remote graph: metadata by a HEAD request, bytes by range requests."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote

from omnigraph.api.results.blobs import Blob, BlobInfo, BlobSelector
from omnigraph.client.request_errors import unexpected_response
from omnigraph.client.request_names import place_of
from omnigraph.errors import InvalidInput, NotFound, PermissionDenied, StorageError
from omnigraph.protocol.codec import SNAPSHOT_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from omnigraph.client.transport import Transport

_PARTIAL, _FOUND = 206, 302


def open_blob(transport: Transport, selector: BlobSelector) -> Blob:
    """Open a value. Its bytes are requested when they are read."""
    place = place_of(transport, selector.branch, selector.at)
    failure: InvalidInput | None = None
    for kind, name in selector.kinds:
        params = {
            "entity": kind,
            "type": name,
            "id": selector.id,
            "property": selector.property_name,
            **place,
        }
        try:
            info = _stat(transport, params)
        except InvalidInput as error:
            # The type may be an edge type. Its property may be missing as well; the first error is then reported.
            failure = failure or error
            continue
        return Blob(info, RemoteContent(transport, params, info))
    assert failure is not None
    raise failure


class RemoteContent:
    """The bytes of a value on a server. The entity tag ensures that all ranges are of one value."""

    def __init__(self, transport: Transport, params: Mapping[str, str], info: BlobInfo) -> None:
        self._transport = transport
        self._params = dict(params)
        self._info = info

    def read(self, start: int, end: int) -> bytes:
        """Request a range. Raises `PreconditionFailed` if the value has changed on its branch."""
        headers = {"Range": f"bytes={start}-{end - 1}", "If-Match": self._info.etag or "*"}
        with _get(self._transport, self._params, headers) as response:
            expected = f"bytes {start}-{end - 1}/{self._info.size}"
            if response.status_code != _PARTIAL or response.headers.get("content-range") != expected:
                # A proxy ignored the range. The whole value must not pass for a part of it.
                raise unexpected_response(response)
            data = b"".join(response.iter_bytes())
        if len(data) != end - start:
            raise StorageError(f"the response has {len(data):,} bytes of {end - start:,}", transient=True)
        return data


def _stat(transport: Transport, params: Mapping[str, str]) -> BlobInfo:
    try:
        with transport.send("HEAD", "/blob", params=params, writes=False) as response:
            return _info(response)
    except (InvalidInput, NotFound, PermissionDenied):
        # An error response to HEAD has no body. The response to a request for one byte has the message.
        with _get(transport, params, {"Range": "bytes=0-0"}) as response:
            return _info(response)


@contextmanager
def _get(
    transport: Transport, params: Mapping[str, str], headers: Mapping[str, str]
) -> Iterator[httpx.Response]:
    with transport.send("GET", "/blob", params=params, headers=headers, writes=False) as response:
        yield response


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
