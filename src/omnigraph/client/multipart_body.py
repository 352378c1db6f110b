"""Bodies of many parts, made while they are sent: nothing of them is held but the piece that is on its way."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from omnigraph.protocol.upload_lines import FILE

_PIECE = 256 << 10
# What would end the text of a name in a header.
_BREAKS = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a body: its name, its bytes as they come, what they are, and what the file is called."""

    name: str
    chunks: Callable[[], Iterable[bytes]]
    kind: str = FILE
    label: str | None = None

    @property
    def head(self) -> bytes:
        """The headers.

        >>> Part("Person", lambda: (), label='my "people".csv').head.splitlines()[0]
        b'Content-Disposition: form-data; name="Person"; filename="my \\\\"people\\\\".csv"'
        """
        names = f'name="{_quoted(self.name)}"'
        if self.label is not None:
            names += f'; filename="{_quoted(self.label)}"'
        text = f"Content-Disposition: form-data; {names}\r\nContent-Type: {self.kind}\r\n\r\n"
        return text.encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Form:
    """Parts, to be sent once. `progress` is told how many bytes have been handed over so far."""

    parts: Sequence[Part]
    progress: Callable[[str, int], None] | None = None
    boundary: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def content_type(self) -> str:
        """What the body is."""
        return f"multipart/form-data; boundary={self.boundary}"

    def chunks(self) -> Iterator[bytes]:
        """The body, in pieces of some size."""
        sent = 0
        gathered = bytearray()
        for chunk in self._pieces():
            gathered += chunk
            if len(gathered) < _PIECE:
                continue
            sent += len(gathered)
            yield bytes(gathered)
            gathered.clear()
            if self.progress is not None:
                self.progress("send", sent)
        yield bytes(gathered)
        if self.progress is not None:
            self.progress("send", sent + len(gathered))

    def _pieces(self) -> Iterator[bytes]:
        line = f"--{self.boundary}".encode()
        for part in self.parts:
            yield line + b"\r\n" + part.head
            yield from part.chunks()
            yield b"\r\n"
        yield line + b"--\r\n"


def _quoted(text: str) -> str:
    return _BREAKS.sub("?", text).replace("\\", "\\\\").replace('"', '\\"')
