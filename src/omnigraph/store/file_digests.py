"""Digests of files: the size and a 128-bit hash, which tell whether a file still holds the bytes that were written.

The hash is XXH3 (xxHash, 128 bits). It detects accidental changes, such as bit flips, truncation and replacement,
at the speed of memory. It is not cryptographic: it does not protect against an attacker who can write to storage.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xxhash import xxh3_128, xxh3_128_hexdigest

from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.sync import storage_error_from_os

__all__ = [
    "FileDigest",
    "digest_bytes",
    "digest_chunks",
    "digest_file",
    "digest_text",
    "format_digests",
    "parse_digests",
    "read_stored_file",
]

_CHUNK_BYTES = 1024 * 1024
# More than the longest footer of a file.
_END_BYTES = 64


@dataclass(frozen=True, slots=True)
class FileDigest:
    """The size and the digest of a file. `name` is relative to the table of the file."""

    name: str
    size: int
    digest: str


def digest_chunks(name: str, chunks: Iterable[bytes | memoryview]) -> FileDigest:
    """Return the digest of a file that is read in chunks.

    >>> digest_chunks("data/a.lance", [b"ab", b"c"])
    FileDigest(name='data/a.lance', size=3, digest='06b05ab6733a618578af5f94892f3950')
    """
    state, size = xxh3_128(), 0
    for chunk in chunks:
        state.update(chunk)
        size += len(chunk)
    return FileDigest(name, size, state.hexdigest())


def read_stored_file(
    objects: ObjectStore, path: str, name: str, *, keep_content: bool = False
) -> tuple[FileDigest, bytes]:
    """Read a file of a table with one request; return its digest and its last bytes, or all with `keep_content`.

    Otherwise memory holds one chunk. Raises `NotFound` and `StorageError`.
    """
    kept = bytearray()

    def chunks() -> Iterator[bytes]:
        for chunk in objects.read_chunks(f"{path}/{name}"):
            kept.extend(chunk if keep_content else chunk[-_END_BYTES:])
            if not keep_content:
                del kept[:-_END_BYTES]
            yield chunk

    return digest_chunks(name, chunks()), bytes(kept)


def digest_bytes(name: str, data: bytes) -> FileDigest:
    """Return the digest of a file that is in memory.

    >>> digest_bytes("data/a.lance", b"abc") == digest_chunks("data/a.lance", [b"ab", b"c"])
    True
    """
    return FileDigest(name, len(data), xxh3_128_hexdigest(data))


def digest_file(path: Path, name: str) -> FileDigest:
    """Return the digest of a local file. Memory holds one chunk. Raises `StorageError`."""
    try:
        return digest_chunks(name, _file_chunks(path))
    except OSError as error:
        raise storage_error_from_os(error, f"cannot read {path}") from error


def _file_chunks(path: Path) -> Iterator[memoryview]:
    """Yield the content of a local file. A chunk is valid until the next one. Raises `OSError`."""
    with path.open("rb", buffering=0) as stream:
        size = os.fstat(stream.fileno()).st_size
        buffer = memoryview(bytearray(max(1, min(size, _CHUNK_BYTES))))
        while count := stream.readinto(buffer):
            yield buffer[:count]


def digest_text(text: str) -> str:
    """Return the digest of a text.

    >>> digest_text("abc")
    '06b05ab6733a618578af5f94892f3950'
    """
    return xxh3_128_hexdigest(text.encode())


def format_digests(files: Mapping[str, Sequence[FileDigest]]) -> str:
    """Return digests by table path as one text, one line for each file.

    >>> format_digests({"nodes/1": [FileDigest("data/a.lance", 3, "06b05a")]})
    'nodes/1\\tdata/a.lance\\t3\\t06b05a'
    """
    return "\n".join(
        f"{path}\t{file.name}\t{file.size}\t{file.digest}" for path, items in files.items() for file in items
    )


def parse_digests(text: str) -> Iterator[tuple[str, FileDigest]]:
    """Yield the table path and the digest of each line; `ValueError` for a malformed line."""
    for line in text.splitlines():
        path, name, size, digest = line.split("\t")
        yield path, FileDigest(name, int(size), digest)
