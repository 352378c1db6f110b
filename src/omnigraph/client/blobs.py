"""Single values of bytes, from a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote

from omnigraph.api.blobs import Blob, BlobPlace
from omnigraph.client.entry import PATIENCE, check_token, graph_url
from omnigraph.client.request_errors import garbled
from omnigraph.errors import InvalidInput, NotFound, PermissionDenied, StorageError
from omnigraph.protocol.codec import SNAPSHOT_ID

if TYPE_CHECKING:
    import httpx

    from omnigraph.client.transport import Transport

_WHOLE, _ELSEWHERE = 200, 302


def connect_blobs(url: str, graph: str, token: str | None = None) -> Transport:
    """The way to the values of a graph on a server."""
    from omnigraph.client.transport import Transport

    return Transport(graph_url(url, graph), check_token(token), PATIENCE)


def stat_blob(transport: Transport, place: BlobPlace) -> Blob:
    """What is known of a value without its bytes."""
    try:
        with transport.send("HEAD", "/blob", params=place.to_params(), writes=False) as response:
            return _describe(response)
    except (InvalidInput, NotFound, PermissionDenied):
        # A refusal of HEAD has no text; the same refusal of a byte does.
        with read_blob(transport, place, (0, 1)) as (found, _):
            return found


@contextmanager
def read_blob(
    transport: Transport, place: BlobPlace, span: tuple[int, int] | None = None, etag: str | None = None
) -> Iterator[tuple[Blob, Iterator[bytes]]]:
    """A value and its bytes as they come, or only those of a `span` from its first to behind its last.

    A value that is kept elsewhere has no bytes here. With an `etag`, one that is another by now is
    `PreconditionFailed`.
    """
    headers = {} if etag is None else {"If-Match": etag}
    if span is not None:
        headers["Range"] = f"bytes={span[0]}-{span[1] - 1}"
    with transport.send("GET", "/blob", params=place.to_params(), headers=headers, writes=False) as response:
        found = _describe(response)
        if span is not None and response.status_code == _WHOLE:
            # Whoever is in between knows no parts; taken for one, the whole would be something else.
            raise garbled(response)
        yield found, iter(()) if found.uri is not None else response.iter_bytes()


def _describe(response: httpx.Response) -> Blob:
    headers = response.headers
    try:
        resolved = unquote(headers[SNAPSHOT_ID])
        if response.status_code == _ELSEWHERE:
            return Blob(resolved, uri=headers["location"])
        # A part says how large the whole is; the whole is as large as it is.
        size = headers.get("content-range", "").rpartition("/")[2] or headers["content-length"]
        return Blob(resolved, size=int(size), etag=headers["etag"])
    except (KeyError, ValueError) as error:
        raise StorageError(
            f"the answer of {response.url.copy_with(query=None)} is not a value",
            details={"status": response.status_code},
        ) from error
