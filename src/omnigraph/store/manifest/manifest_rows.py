"""The stored form of the rows of `__manifest`: JSON with a checksum over the key and the text.

Rows that were written before format 2 have no checksum. JSON contains no line break, so a line break separates the
text from its checksum.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    # Inlined, because reading a bucket of branches does it for every row.
    if checksum != digest_text(f"{key}\n{text}"):
        raise damaged_row(file, key, "its checksum does not match")
    return text


@dataclass(frozen=True, slots=True)
class StoredRows(Mapping[str, str]):
    """Rows in their stored form, in the order of their keys; as a mapping, their texts by key.

    A change of one row copies the others with their checksums, so none of them is computed again.
    """

    keys_in_order: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()

    @classmethod
    def check(cls, file: str, keys: Sequence[str], stored: Sequence[str]) -> StoredRows:
        """Return the rows of a file after checking them; `StorageError` if a checksum does not match."""
        for key, row in zip(keys, stored, strict=True):
            decode_row(file, key, row)
        return cls.sort(keys, stored)

    @classmethod
    def sort(cls, keys: Sequence[str], stored: Sequence[str]) -> StoredRows:
        """Return rows that need no check, because the digest of their file was compared."""
        ordered = sorted(keys)
        if ordered != keys:
            by_key = dict(zip(keys, stored, strict=True))
            ordered = sorted(by_key)
            stored = [by_key[key] for key in ordered]
        return cls(tuple(ordered), tuple(stored))

    @classmethod
    def encode(cls, texts: Iterable[tuple[str, str]]) -> StoredRows:
        """Return rows, given their keys and texts."""
        pairs = sorted(dict(texts).items())
        return cls(tuple(key for key, _ in pairs), tuple(encode_row(key, text) for key, text in pairs))

    def __len__(self) -> int:
        return len(self.keys_in_order)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys_in_order)

    def __getitem__(self, key: str) -> str:
        position = self._find(key)
        if position is None:
            raise KeyError(key)
        return _text_of(self.stored[position])

    def texts_after(self, key: str | None) -> Iterator[tuple[str, str]]:
        """Yield the keys after a key, or all of them, with their texts, in the order of keys."""
        first = 0 if key is None else bisect_left(self.keys_in_order, key)
        for found, row in zip(self.keys_in_order[first:], self.stored[first:], strict=True):
            if found != key:
                yield found, _text_of(row)

    def with_row(self, key: str, text: str) -> StoredRows:
        """Return the rows with one added or replaced."""
        first = bisect_left(self.keys_in_order, key)
        after = first if self._find(key) is None else first + 1
        return StoredRows(
            (*self.keys_in_order[:first], key, *self.keys_in_order[after:]),
            (*self.stored[:first], encode_row(key, text), *self.stored[after:]),
        )

    def without_row(self, key: str) -> StoredRows:
        """Return the rows without one of them."""
        position = self._find(key)
        if position is None:
            return self
        return self.part(0, position).followed_by(self.part(position + 1, len(self)))

    def part(self, first: int, after: int) -> StoredRows:
        """Return the rows from a position on and before another one."""
        return StoredRows(self.keys_in_order[first:after], self.stored[first:after])

    def followed_by(self, others: StoredRows) -> StoredRows:
        """Return these rows and others, whose keys are all greater."""
        return StoredRows(self.keys_in_order + others.keys_in_order, self.stored + others.stored)

    def _find(self, key: str) -> int | None:
        position = bisect_left(self.keys_in_order, key)
        found = position < len(self.keys_in_order) and self.keys_in_order[position] == key
        return position if found else None


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


def _text_of(stored: str) -> str:
    """Return the text of a row that was checked before."""
    text, separator, _ = stored.rpartition("\n")
    return text if separator else stored


def _checksum(key: str, text: str) -> str:
    return digest_text(f"{key}\n{text}")
