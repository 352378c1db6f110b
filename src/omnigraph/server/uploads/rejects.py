"""Rejected records of a load, buffered until the outcome of the load is known."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from starlette.responses import StreamingResponse

from omnigraph.protocol.codec import NDJSON
from omnigraph.protocol.upload_lines import line_writer
from omnigraph.server.uploads.multipart import Upload

_CHUNK_BYTES = 64 << 10


class RejectBuffer:
    """A line of JSON for each rejected record, in an unnamed temporary file.

    The lines are sent after the load, because the status of the response depends on its outcome.
    """

    def __init__(self, upload: Upload, *, exact: bool) -> None:
        self.count = 0
        self._upload = upload
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it has been sent
        self._render: Callable[[Any], bytes] = _render_json
        if exact:
            header, self._render = line_writer()
            self._file.write(header)

    def add(self, reject: Mapping[str, Any]) -> None:
        """Append a rejected record."""
        self.count += 1
        restored = {name: self._upload.restore_names(reject[name]) for name in ("source", "error")}
        self._file.write(self._render({**reject, **restored}))

    def to_response(self, last: Mapping[str, Any]) -> StreamingResponse:
        """Return a response with all lines and `last` as the last line. It closes the buffer."""
        self._file.write(self._render(last))
        self._file.seek(0)
        return StreamingResponse(self._chunks(), media_type=NDJSON)

    def close(self) -> None:
        """Discard the lines."""
        self._file.close()

    def _chunks(self) -> Iterator[bytes]:
        with self._file:
            while chunk := self._file.read(_CHUNK_BYTES):
                yield chunk


def _render_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=str).encode() + b"\n"
