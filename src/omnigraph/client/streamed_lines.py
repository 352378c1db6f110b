"""Lines of text in a streamed response."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.errors import StorageError
from omnigraph.protocol.codec import END


def lines_of(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Split chunks at line ends: each result is one or more whole lines.

    >>> list(lines_of(iter([b"a\\nb", b"b", b"\\n", b"c"])))
    [b'a\\n', b'bb\\n', b'c']
    """
    rest: list[bytes] = []
    for chunk in chunks:
        end = chunk.rfind(b"\n") + 1
        if not end:
            rest.append(chunk)
            continue
        yield b"".join((*rest, chunk[:end]))
        rest = [chunk[end:]] if end < len(chunk) else []
    if rest:
        yield b"".join(rest)


def lines_to_end(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Split chunks at line ends and drop the last line, which marks a complete stream.

    Raises `StorageError` if the marker is missing, because then the response was truncated.

    >>> list(lines_to_end(iter([b"a\\nb", b'b\\n{"end":true}\\n'])))
    [b'a\\n', b'bb\\n']
    """
    held = b""
    for lines in lines_of(chunks):
        if held:
            yield held
        held = lines
    rest = held.removesuffix(END)
    if rest == held or (rest and not rest.endswith(b"\n")):
        raise StorageError("the response of the server was truncated", transient=True)
    if rest:
        yield rest
