"""Multipart request bodies that are rendered while they are sent. Only the current chunk is in memory."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from omnigraph.graph.progress import Progress
from omnigraph.protocol.upload_lines import FILE

_CHUNK_BYTES = 256 << 10
# Characters that would end a header.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class FormPart:
    """A part of a form: its name, its bytes, their media type, and the file name that the server reports."""

    name: str
    chunks: Callable[[], Iterable[bytes]]
    media_type: str = FILE
    file_name: str | None = None

    @property
    def head(self) -> bytes:
        """The headers of the part.

        >>> FormPart("Person", lambda: (), file_name='my "people".csv').head.splitlines()[0]
        b'Content-Disposition: form-data; name="Person"; filename="my \\\\"people\\\\".csv"'
        """
        names = f'name="{_quoted(self.name)}"'
        if self.file_name is not None:
            names += f'; filename="{_quoted(self.file_name)}"'
        text = f"Content-Disposition: form-data; {names}\r\nContent-Type: {self.media_type}\r\n\r\n"
        return text.encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class MultipartForm:
    """A form that can be sent once. `progress` receives the number of bytes sent so far."""

    parts: Sequence[FormPart]
    progress: Progress | None = None
    boundary: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def content_type(self) -> str:
        """The Content-Type header."""
        return f"multipart/form-data; boundary={self.boundary}"

    def chunks(self) -> Iterator[bytes]:
        """Yield the body in chunks of similar size."""
        sent = 0
        buffer = bytearray()
        for data in self._body():
            buffer += data
            if len(buffer) < _CHUNK_BYTES:
                continue
            sent += len(buffer)
            yield bytes(buffer)
            buffer.clear()
            if self.progress is not None:
                self.progress("send", sent)
        yield bytes(buffer)
        if self.progress is not None:
            self.progress("send", sent + len(buffer))

    def _body(self) -> Iterator[bytes]:
        delimiter = f"--{self.boundary}".encode()
        for part in self.parts:
            yield delimiter + b"\r\n" + part.head
            yield from part.chunks()
            yield b"\r\n"
        yield delimiter + b"--\r\n"


def _quoted(text: str) -> str:
    return _CONTROLS.sub("?", text).replace("\\", "\\\\").replace('"', '\\"')
