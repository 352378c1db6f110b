"""Local files of the API: atomic writes, source texts, and readable errors."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

from omnigraph.errors import InvalidInput, NotFound, OmnigraphError


@contextmanager
def atomic_write(path: str | Path) -> Iterator[TextIOWrapper]:
    """Write a text file that is renamed into place when it is complete and synced.

    On an error the existing file stays as it is.
    """
    target = Path(path)
    with readable_write_errors(path):
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(descriptor)
        draft = Path(name)
        try:
            with draft.open("w", encoding="utf-8", newline="\n") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            # mkstemp creates a private file. The result gets the usual permissions of a new file.
            draft.chmod(0o666 & ~_umask())
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


@contextmanager
def readable_write_errors(path: str | Path) -> Iterator[None]:
    """Convert an `OSError` while a file is written into `NotFound` or `InvalidInput`."""
    try:
        yield
    except OSError as error:
        folder = Path(path).parent
        if not folder.is_dir():
            raise NotFound(f"no such folder: {folder}", details={"path": str(path)}) from error
        if isinstance(error, FileNotFoundError):
            # The file need not exist. A folder of a virtual file system such as /proc cannot hold it.
            reason = f"no file can be created in {folder}"
            raise InvalidInput(f"cannot write {path}: {reason}", details={"path": str(path)}) from error
        raise file_error("write", str(path), error) from error


def read_schema(schema: str | Path) -> tuple[str, str]:
    """Return schema text and its name. `schema` is a `Path`, one line that ends in ``.pg``, or the text itself."""
    if isinstance(schema, str) and schema.endswith(".pg") and "\n" not in schema:
        schema = Path(schema)
    return _read_source(schema, "schema")


def read_query(query: str | Path) -> str:
    """Return query text, or the text of the file at a `Path`.

    A string is never a file name, because servers receive strings from clients.
    """
    return _read_source(query, "query")[0]


def _read_source(source: str | Path, kind: str) -> tuple[str, str]:
    if isinstance(source, str):
        return source, f"<{kind}>"
    # Callers without a type checker can pass any value.
    if not isinstance(source, Path):
        raise InvalidInput(f"a {kind} is a string or a Path, not a value of {type(source).__name__}")
    path = str(source)
    try:
        return source.read_text(encoding="utf-8-sig"), path
    except OSError as error:
        raise file_error("read", path, error) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text", details={"path": path}) from error


def file_error(action: str, path: str, error: OSError) -> OmnigraphError:
    """Return the error for an `OSError` of a file. For a missing file the hint is the most similar name."""
    if isinstance(error, FileNotFoundError):
        if Path(path).is_symlink():
            return NotFound(f"{path} is a broken symbolic link", details={"path": path})
        return NotFound(f"no such file: {path}", hint=_similar_name(path), details={"path": path})
    if isinstance(error, IsADirectoryError):
        return InvalidInput(f"{path} is a directory, not a file", details={"path": path})
    if isinstance(error, PermissionError):
        return InvalidInput(f"cannot {action} {path}: permission denied", details={"path": path})
    reason = (error.strerror or str(error)).lower()
    return InvalidInput(f"cannot {action} {path}: {reason}", details={"path": path})


def _similar_name(path: str) -> str | None:
    from omnigraph.lang.suggestions import nearest_name

    missing = Path(path)
    try:
        names = [item.name for item in missing.parent.iterdir()]
    except OSError:
        return None
    name = nearest_name(missing.name, sorted(names))
    return f"did you mean `{missing.parent / name}`?" if name else None
