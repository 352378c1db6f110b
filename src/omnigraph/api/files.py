"""Files as the API reads and writes them: a written one is there whole or not at all, and what fails says why."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

from omnigraph.errors import InvalidInput, NotFound, OmnigraphError


@contextmanager
def replacing(path: str | Path) -> Iterator[TextIOWrapper]:
    """A text file that takes its name when everything has been written; on an error what was there stays."""
    target = Path(path)
    with writing(path):
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(descriptor)
        draft = Path(name)
        try:
            with draft.open("w", encoding="utf-8", newline="\n") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            # A temporary file keeps others out; one that people asked for has the rights they usually give.
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
def writing(path: str | Path) -> Iterator[None]:
    """Whatever keeps a result from being written to a file ends as one readable error."""
    try:
        yield
    except OSError as error:
        folder = Path(path).parent
        if not folder.is_dir():
            raise NotFound(f"no such folder: {folder}", details={"path": str(path)}) from error
        if isinstance(error, FileNotFoundError):
            # Nobody expects the file to be there; it is the folder that takes none, as those of the system do.
            reason = f"no file can be made in {folder}"
            raise InvalidInput(f"cannot write {path}: {reason}", details={"path": str(path)}) from error
        raise file_error("write", str(path), error) from error


def read_schema(schema: str | Path) -> tuple[str, str]:
    """Text, or the text of a file, and its name: a path is a `Path`, or one line that ends in ``.pg``."""
    if isinstance(schema, str) and schema.endswith(".pg") and "\n" not in schema:
        schema = Path(schema)
    return _read_source(schema, "schema")


def read_query(query: str | Path) -> str:
    """Text, or the text of the file at a `Path`. No text names a file: servers are sent texts by anybody."""
    return _read_source(query, "query")[0]


def _read_source(given: str | Path, kind: str) -> tuple[str, str]:
    if isinstance(given, str):
        return given, f"<{kind}>"
    # Annotations keep nobody from passing something else.
    if not isinstance(given, Path):
        raise InvalidInput(f"a {kind} is a text or the path of a file, not a value of {type(given).__name__}")
    path = str(given)
    try:
        return given.read_text(encoding="utf-8-sig"), path
    except OSError as error:
        raise file_error("read", path, error) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text", details={"path": path}) from error


def file_error(action: str, path: str, error: OSError) -> OmnigraphError:
    """What the system said about a file, in one sentence, with the nearest name when there is none such."""
    if isinstance(error, FileNotFoundError):
        if Path(path).is_symlink():
            return NotFound(f"{path} is a link that leads nowhere", details={"path": path})
        return NotFound(f"no such file: {path}", hint=_near(path), details={"path": path})
    if isinstance(error, IsADirectoryError):
        return InvalidInput(f"{path} is a directory, not a file", details={"path": path})
    if isinstance(error, PermissionError):
        return InvalidInput(f"cannot {action} {path}: permission denied", details={"path": path})
    reason = (error.strerror or str(error)).lower()
    return InvalidInput(f"cannot {action} {path}: {reason}", details={"path": path})


def _near(path: str) -> str | None:
    from omnigraph.lang.suggestions import nearest_name

    wanted = Path(path)
    try:
        names = [item.name for item in wanted.parent.iterdir()]
    except OSError:
        return None
    name = nearest_name(wanted.name, sorted(names))
    return f"did you mean `{wanted.parent / name}`?" if name else None
