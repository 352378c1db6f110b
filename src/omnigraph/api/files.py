"""Files as the API reads and writes them: a written one is there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[str]]:
    """A text file that takes its name when everything has been written; on an error what was there stays."""
    target = Path(path)
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


def read_schema(schema: str | Path) -> tuple[str, str]:
    """Text, or the text of a file, and its name: a path is a `Path`, or one line that ends in ``.pg``."""
    if isinstance(schema, Path) or (schema.endswith(".pg") and "\n" not in schema):
        path = Path(schema)
        return path.read_text(encoding="utf-8"), str(path)
    return schema, "<schema>"
