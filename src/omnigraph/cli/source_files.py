"""Read, find and replace source files. Every file system failure becomes an `OmnigraphError`."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import typer

from omnigraph.api.files.local_files import file_error
from omnigraph.errors import InvalidInput, NotFound, ResourceLimit

STDIN = "-"
STDIN_NAME = "<stdin>"

# A larger file is not a hand-written source. The limit also stops reads of endless devices.
MAX_BYTES = 64 * 1024 * 1024


def read_source(path: str) -> str:
    """Return the text of a file, or of stdin for ``-``.

    A byte order mark is removed; line endings are kept. Raises `NotFound` if the file does not exist,
    `InvalidInput` if it cannot be read or is not UTF-8, and `ResourceLimit` if it is larger than `MAX_BYTES`.
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
    """Return stdin as bytes. Raises `InvalidInput` if the process has no stdin."""
    if sys.stdin is None:
        raise InvalidInput("cannot read stdin: it is closed")
    return sys.stdin.buffer


def source_name(path: str) -> str:
    """Return the name of a path in messages."""
    return STDIN_NAME if path == STDIN else path


def refuse_stdin_twice(paths: Iterable[str]) -> None:
    """Raise a usage error if more than one path is stdin: it can be read only once."""
    if list(paths).count(STDIN) > 1:
        raise typer.BadParameter("stdin (-) can be used for one file only")


def find_sources(paths: Iterable[str], suffixes: tuple[str, ...]) -> list[str]:
    """Return the files that `paths` name, without duplicates; a directory means the files with a suffix below it.

    Files of a directory are sorted. Hidden files and directories are included only if they are named. Raises
    `NotFound` for a directory without matching files: a check of no files must not succeed.
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
    """Replace the content of a file atomically: a concurrent reader sees the old text or the new text.

    A symbolic link is kept and its target is replaced. Permissions are kept, and the owner if the process may set
    it. Raises `InvalidInput` for a file without write permission, even if the process could write it (root). After
    a failure the old file is unchanged and no temporary file remains.
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
    # In the same directory: a rename is atomic only within one file system.
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if hasattr(os, "fchown"):
                _keep_owner(file.fileno(), before)
            # After the owner: chown clears the setuid and setgid bits.
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
        # Only root may change the owner. Otherwise the new file belongs to the user who runs the command.
        return
