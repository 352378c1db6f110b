"""Records that a load leaves out, kept aside until it is known what became of the load."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from starlette.responses import StreamingResponse

from omnigraph.protocol.codec import NDJSON
from omnigraph.protocol.upload_lines import line_writer
from omnigraph.server.uploads.multipart import Upload

_CHUNK = 64 << 10


class RejectLines:
    """A line for each rejected record, in a file that nobody else sees and that is gone when it is closed.

    They are sent after the load, whose status would otherwise be said before it is known.
    """

    def __init__(self, upload: Upload, *, exact: bool) -> None:
        self.count = 0
        self._upload = upload
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed when it has been sent
        self._render: Callable[[Any], bytes] = _plain_line
        if exact:
            head, self._render = line_writer()
            self._file.write(head)

    def take(self, reject: Mapping[str, Any]) -> None:
        """Keep what a load says about a record."""
        self.count += 1
        told = {**reject, "source": self._upload.renamed(reject["source"])}
        self._file.write(self._render({**told, "error": self._upload.renamed(reject["error"])}))

    def response(self, last: Mapping[str, Any]) -> StreamingResponse:
        """All lines, and a last one."""
        self._file.write(self._render(last))
        self._file.seek(0)
        return StreamingResponse(self._chunks(), media_type=NDJSON)

    def close(self) -> None:
        """Forget all of them."""
        self._file.close()

    def _chunks(self) -> Iterator[bytes]:
        with self._file:
            while chunk := self._file.read(_CHUNK):
                yield chunk


def _plain_line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=str).encode() + b"\n"
