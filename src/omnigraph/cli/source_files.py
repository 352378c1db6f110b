"""Source files on the way in and out: every way a file can fail becomes one readable error."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import typer

from omnigraph.api.files import file_error
from omnigraph.errors import InvalidInput, NotFound, ResourceLimit

STDIN = "-"
STDIN_NAME = "<stdin>"

# Sources are written by people. What is larger is something else, or an endless device.
MAX_BYTES = 64 * 1024 * 1024


def read_source(path: str) -> str:
    """The text of a file, or of stdin for ``-``.

    A byte order mark is dropped; line ends stay as they are. Raises `NotFound` or `InvalidInput` for whatever
    is not a readable UTF-8 file, and `ResourceLimit` for one that is too large to be a source.
    """
    try:
        if path == STDIN:
            data = stdin_bytes().read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise file_error("read", source_name(path), error) from error
    if len(data) > MAX_BYTES:
        raise ResourceLimit(
            f"{source_name(path)} is larger than {MAX_BYTES // 1024 // 1024} MiB",
            hint="this does not look like a source file",
            details={"limit": MAX_BYTES},
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(
            f"{source_name(path)} is not UTF-8 text: byte 0x{data[error.start]:02x} in line {line}",
            details={"path": path, "line": line},
        ) from error


def stdin_bytes() -> BinaryIO:
    """Stdin, of which a process may have none: that is not the same as one without anything in it."""
    if sys.stdin is None:
        raise InvalidInput("there is no stdin to read from")
    return sys.stdin.buffer


def source_name(path: str) -> str:
    """What a path is called in messages."""
    return STDIN_NAME if path == STDIN else path


def refuse_stdin_twice(paths: Iterable[str]) -> None:
    """Stdin can be read only once; a second reader would see an empty text and find nothing wrong with it."""
    if list(paths).count(STDIN) > 1:
        raise typer.BadParameter("stdin (-) can stand for one file only")


def find_sources(paths: Iterable[str], suffixes: tuple[str, ...]) -> list[str]:
    """Every file meant by `paths`, each once: files as named, below directories those with a suffix, sorted.

    Hidden files and directories count only when named. A directory that holds nothing fitting is refused,
    because a check that looked at nothing would look like success.
    """
    found: dict[str, None] = {}
    for path in paths:
        if path == STDIN or not Path(path).is_dir():
            found[path] = None
            continue
        below = sorted(_walk(path, suffixes))
        if not below:
            raise NotFound(f"no {' or '.join(suffixes)} files in {path}", details={"path": path})
        found.update(dict.fromkeys(below))
    return list(found)


def _walk(folder: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    def stop(error: OSError) -> None:
        raise file_error("read", str(error.filename), error)

    for parent, folders, files in os.walk(folder, onerror=stop):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if name.endswith(suffixes) and not name.startswith("."):
                yield str(Path(parent) / name)


def replace_source(path: str, text: str) -> None:
    """Give a file new content, in one step: whoever looks sees the old text or the new one, whole.

    A symbolic link stays and the file it leads to is replaced; permissions, and the owner where that is
    allowed, are kept. A file without write permission is refused even to those whom the system would let
    through. On failure the old file is untouched and nothing is left beside it.
    """
    try:
        target = Path(path).resolve(strict=True)
        before = target.stat()
        if not before.st_mode & 0o222 or not os.access(target, os.W_OK):
            raise InvalidInput(
                f"cannot write {path}: it is read-only",
                hint=f"make it writable first: chmod u+w {path}",
                details={"path": path},
            )
        _replace(target, text.encode("utf-8"), before)
    except OSError as error:
        raise file_error("write", path, error) from error


def _replace(target: Path, data: bytes, before: os.stat_result) -> None:
    # In the same directory, because a rename is atomic only within one file system.
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if hasattr(os, "fchown"):
                _keep_owner(file.fileno(), before)
            # After the owner: changing that clears special bits.
            temporary.chmod(stat.S_IMODE(before.st_mode))
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _keep_owner(handle: int, before: os.stat_result) -> None:
    try:
        os.fchown(handle, before.st_uid, before.st_gid)
    except PermissionError:
        # Only root may give files away; anybody else who may write here keeps the new file as their own.
        return
