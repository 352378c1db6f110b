"""Completeness checks of files that Lance has written.

pylance 14 does not report an error when the last `write()` of a local file fails, for example because the disk is
full: `write_fragments` and `LanceFileWriter.close` return, and the file on disk is truncated. Files are therefore
checked before a commit refers to them. An object store does not accept a truncated put, because a put has a length;
objects of tables are read back all the same, which gives their digests.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from posixpath import splitext
from typing import Final

from omnigraph.errors import StorageError
from omnigraph.store.lance.protobuf import as_bytes, as_number, read_message

# Lance files and manifests, and Arrow files, end with a magic number that is written last.
_FOOTERS: Final = {".lance": b"LANC", ".manifest": b"LANC", ".arrow": b"ARROW1"}
_LONGEST_FOOTER = 6
_BITMAP = ".bin"
# A manifest file ends with the position of the manifest message (8 bytes), the format version (4) and the footer.
_MANIFEST_FOOTER_BYTES = 16
# Fields of the manifest message in Lance's `table.proto`.
_TRANSACTION_FILE, _TRANSACTION_SECTION = 12, 23
# The portable serialization of 32-bit Roaring bitmaps.
_COOKIE, _COOKIE_WITH_RUNS = 12346, 12347
_OFFSETS_FROM = 4
_LARGEST_ARRAY = 4096
_BITMAP_BYTES = 8192


def check_complete(files: Iterable[Path]) -> None:
    """Raise `StorageError` for a file that is missing or truncated."""
    for file in files:
        try:
            problem = find_problem(file)
        except OSError as error:
            raise StorageError(
                f"{file} cannot be read back: {error.strerror}",
                details={"file": str(file), "errno": error.errno},
            ) from error
        if problem is not None:
            raise incomplete_file(file, problem)


def find_problem(file: Path) -> str | None:
    """Return why a local file is incomplete, None if it is complete. Raises `OSError` if it cannot be read."""
    # Without a buffered stream, because every commit does it for several files.
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        length = size if file.name.endswith(_BITMAP) else _LONGEST_FOOTER
        return check_content(file.name, size, os.pread(descriptor, length, max(0, size - length)))
    finally:
        os.close(descriptor)


def incomplete_file(file: Path | str, problem: str) -> StorageError:
    """The error of a file that was not written completely."""
    return StorageError(
        f"{file} is incomplete: {problem}",
        details={"file": str(file)},
        hint="nothing was committed; check that the disk has free space, then try again",
    )


def check_transaction(transaction: str, data: bytes, manifest: bytes) -> None:
    """Raise `StorageError` unless a transaction file equals the copy inside the manifest file of its version."""
    if data and struct.pack("<I", len(data)) + data in manifest:
        # A search for the bytes is faster than parsing the list of fragments, which comes before the position.
        return
    copy = transaction_copy(manifest)
    if copy is None or copy[1] != data:
        raise incomplete_file(transaction, "it differs from the copy in its version")


def needs_whole_file(name: str) -> bool:
    """Return whether the whole content of a file must be read back, not only its end."""
    return name.endswith((_BITMAP, ".manifest"))


def check_content(name: str, size: int, end: bytes) -> str | None:
    """Return why a file is incomplete, or None. `end` is its end; for bitmaps it is the whole content."""
    if lacks_footer(name, end):
        return f"its footer is missing ({size} bytes in storage)"
    if name.endswith(_BITMAP):
        needed = bitmap_size(end)
        return None if needed == size else f"{size} bytes in storage, a bitmap of {needed} bytes"
    return None if size else "it is empty"


def lacks_footer(name: str, end: bytes) -> bool:
    """Return whether a file of a kind with a footer does not end with it. `end` is the end of the file."""
    return not end.endswith(_FOOTERS.get(splitext(name)[1], b""))


def transaction_copy(manifest: bytes) -> tuple[str, bytes] | None:
    """Return the name and the content of the transaction file from the manifest file of its version.

    None if the manifest file is not in the known form. It ends with the position of a Protobuf message, which gives
    the name of the transaction file and the position of a copy of it.
    """
    try:
        (position,) = struct.unpack_from("<Q", manifest, len(manifest) - _MANIFEST_FOOTER_BYTES)
        fields = read_message(_section(manifest, position))
        name, place = as_bytes(fields[_TRANSACTION_FILE]), as_number(fields[_TRANSACTION_SECTION])
        return f"_transactions/{name.decode()}", _section(manifest, place)
    except (struct.error, KeyError, ValueError):
        return None


def _section(data: bytes, position: int) -> bytes:
    """Return a part of a file that begins with its length."""
    (length,) = struct.unpack_from("<I", data, position)
    section = data[position + 4 : position + 4 + length]
    if len(section) != length:
        raise ValueError
    return section


def bitmap_size(data: bytes) -> int | None:
    """The length of a serialized Roaring bitmap according to its header; None when the header is truncated.

    >>> bitmap_size(struct.pack("<IIHHI", _COOKIE, 1, 0, 1, 16) + struct.pack("<HH", 5, 9))
    20
    """
    try:
        return _bitmap_size(data)
    except struct.error:
        return None


def _bitmap_size(data: bytes) -> int:
    place: int
    (cookie,) = struct.unpack_from("<I", data)
    has_runs = cookie & 0xFFFF == _COOKIE_WITH_RUNS
    if has_runs:
        count, place = (int(cookie) >> 16) + 1, 4
        runs = data[place : place + (count + 7) // 8]
        place += len(runs)
    else:
        (count,) = struct.unpack_from("<I", data, 4)
        runs, place = b"", 8
    described: list[tuple[int, int]] = [
        struct.unpack_from("<HH", data, place + 4 * item) for item in range(count)
    ]
    place += 4 * count
    if not has_runs or count >= _OFFSETS_FROM:
        place += 4 * count
    for number, (_, last) in enumerate(described):
        if runs and runs[number // 8] >> (number % 8) & 1:
            (pairs,) = struct.unpack_from("<H", data, place)
            place += 2 + 4 * pairs
        else:
            place += 2 * (last + 1) if last < _LARGEST_ARRAY else _BITMAP_BYTES
    return place
