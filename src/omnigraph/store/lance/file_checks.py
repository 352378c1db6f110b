"""Completeness checks of files that Lance has written to a local disk.

pylance 14 does not report an error when the last `write()` of a local file fails, for example because the disk is
full: `write_fragments` and `LanceFileWriter.close` return, and the file on disk is truncated. Files are therefore
checked before a commit refers to it. An object store needs no check: a put has a length, and a short one fails.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from omnigraph.errors import StorageError

# Lance files and manifests, and Arrow files, end with a magic number that is written last.
_FOOTERS: Final = {".lance": b"LANC", ".manifest": b"LANC", ".arrow": b"ARROW1"}
_BITMAP = ".bin"
# The portable serialization of 32-bit Roaring bitmaps.
_COOKIE, _COOKIE_WITH_RUNS = 12346, 12347
_OFFSETS_FROM = 4
_LARGEST_ARRAY = 4096
_BITMAP_BYTES = 8192


def check_complete(files: Iterable[Path]) -> None:
    """Raise `StorageError` for a file that is missing or truncated."""
    for file in files:
        try:
            with file.open("rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                problem = _problem(file, stream.fileno(), size)
        except OSError as error:
            raise StorageError(
                f"{file} cannot be read back: {error.strerror}",
                details={"file": str(file), "errno": error.errno},
            ) from error
        if problem is not None:
            raise incomplete_file(file, problem)


def incomplete_file(file: Path, problem: str) -> StorageError:
    """The error of a file that was not written completely."""
    return StorageError(
        f"{file} is incomplete: {problem}",
        details={"file": str(file)},
        hint="nothing was committed; check that the disk has free space, then try again",
    )


def check_transaction(transaction: Path, version: Path) -> None:
    """Raise `StorageError` unless a transaction file equals the copy inside the manifest file of its version."""
    try:
        data, manifest = transaction.read_bytes(), version.read_bytes()
    except OSError as error:
        raise StorageError(
            f"{error.filename} cannot be read back: {error.strerror}", details={"file": str(error.filename)}
        ) from error
    # Length first: a truncated file is a prefix of the copy.
    if not data or struct.pack("<I", len(data)) + data not in manifest:
        raise incomplete_file(transaction, "it differs from the copy in its version")


def _problem(file: Path, descriptor: int, size: int) -> str | None:
    footer = _FOOTERS.get(file.suffix)
    if footer is not None:
        found = os.pread(descriptor, len(footer), max(0, size - len(footer)))
        return None if found == footer else f"its footer is missing ({size} bytes on disk)"
    if file.suffix == _BITMAP:
        needed = bitmap_size(os.pread(descriptor, size, 0))
        return None if needed == size else f"{size} bytes on disk, a bitmap of {needed} bytes"
    if not size:
        return "it is empty"
    return None


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
