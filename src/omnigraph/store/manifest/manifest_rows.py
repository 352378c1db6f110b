"""The stored form of the rows of `__manifest`: JSON with a checksum over the key and the text.

Rows that were written before format 2 have no checksum. JSON contains no line break, so a line break separates the
text from its checksum.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from omnigraph.errors import StorageError
from omnigraph.store.file_digests import digest_text
from omnigraph.store.manifest.records import Body

T = TypeVar("T")


def encode_row(key: str, text: str) -> str:
    """Return the stored form of a row.

    >>> encode_row("registry", "{}")
    '{}\\n7f672c4eec638436d9b9c62471302e52'
    """
    return f"{text}\n{_checksum(key, text)}"


def decode_row(file: str, key: str, stored: str) -> str:
    """Return the text of a row after checking it; `StorageError` if the checksum does not match."""
    text, separator, checksum = stored.rpartition("\n")
    if not separator:
        return stored
    if checksum != _checksum(key, text):
        raise damaged_row(file, key, "its checksum does not match")
    return text


def parse_row(file: str, key: str, text: str, parse: Callable[[Body], T]) -> T:
    """Return the record of a row; `StorageError` if the text is not such a record."""
    try:
        return parse(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged_row(file, key, f"it cannot be parsed ({type(error).__name__}: {error})") from error


def damaged_row(file: str, key: str, problem: str) -> StorageError:
    """Return the error of a row that does not hold what was written."""
    return StorageError(
        f"row '{key}' of {file} is damaged: {problem}",
        kind="permanent",
        details={"reason": "damaged", "file": file, "row": key, "problem": problem},
        hint="run `omnigraph verify` for the extent of the damage, and restore the file from a backup",
    )


def _checksum(key: str, text: str) -> str:
    return digest_text(f"{key}\n{text}")
