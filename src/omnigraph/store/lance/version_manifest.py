"""The fragments of a version, read from its manifest file without opening the version.

Opening a version costs Lance about a millisecond of several threads, and reading one small file a hundredth of it.
The message is defined in Lance's `table.proto`. A file with a feature that this module does not know, or one that
cannot be decoded, gives None; the caller then opens the version, and Lance reports the problem.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from lance.fragment import FragmentMetadata

from omnigraph.store.lance.lance_files import file_name
from omnigraph.store.lance.protobuf import Value, as_bytes, as_number, read_field, read_fields

# The end of a manifest file: the position of the message, the format version and the magic number.
MANIFEST_FOOTER: Final = struct.Struct("<QHH4s")
SECTION_LENGTH: Final = struct.Struct("<I")
_MAGIC: Final = b"LANC"
_SEPARATOR: Final = "|"
# Field numbers of the messages.
_FRAGMENTS, _VERSION, _READER_FLAGS = 2, 3, 9
# The fields of a version without indexes, configuration, tags and other places for its files.
PLAIN_FIELDS: Final = frozenset({1, 2, 3, 5, 7, 9, 10, 11, 12, 13, 15, 23})
# The columns and the metadata of the schema.
_SCHEMA: Final = (1, 5)
_ID, _FILES, _DELETIONS, _PHYSICAL_ROWS = 1, 2, 3, 4
_FILE_PATH, _FILE_SIZE = 1, 6
_DELETION_KIND, _DELETION_VERSION, _DELETION_ID, _DELETED_ROWS = 1, 2, 3, 4
# Files with other fields are in other places. Fragments with other fields have overlays or row ids.
_FILE_FIELDS: Final = frozenset(range(1, 7))
_DELETION_FIELDS: Final = frozenset(range(1, 5))
_DELETION_SUFFIXES: Final = ("arrow", "bin")
# Features that a reader must know: deletion files, and data files of several versions of the file format.
_DELETION_FILES, MIXED_FILE_VERSIONS = 1, 256
_KNOWN_FLAGS: Final = _DELETION_FILES | MIXED_FILE_VERSIONS
# The key of a fragment: its field number and the wire type of bytes.
_FRAGMENT_KEY: Final = _FRAGMENTS << 3 | 2
# Versions share most fragments with the versions before them.
_PARSED_FRAGMENTS: Final = 1 << 14


@dataclass(frozen=True, slots=True)
class StoredFragment:
    """A fragment of a version. Equal fragments hold the same rows.

    `files` joins the names of its data files and identifies what was written, across versions and branches.
    `deletions` is the name of its deletion file. `rows` counts the live rows, `physical_rows` the written ones.
    `sizes` are the sizes of the data files, None where the version does not state it.
    """

    id: int
    files: str
    deletions: str | None
    rows: int
    physical_rows: int
    sizes: tuple[int | None, ...] = field(compare=False)

    @property
    def nbytes(self) -> int:
        """The bytes of the data files, as far as they are known."""
        return sum(size or 0 for size in self.sizes)

    @property
    def file_names(self) -> list[str]:
        """The names of the data files."""
        return self.files.split(_SEPARATOR)

    @classmethod
    def of(cls, meta: FragmentMetadata) -> StoredFragment:
        """Return a fragment as Lance describes it."""
        deletions: Any = meta.deletion_file
        return cls(
            meta.id,
            _SEPARATOR.join(map(file_name, meta.files)),
            None if deletions is None else deletions.path(meta.id),
            meta.num_rows,
            meta.physical_rows,
            tuple(item.file_size_bytes for item in meta.files),
        )


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version, the number that its manifest file states, and its fragments in row order.

    `columns` is what it states about its columns. Versions with equal bytes have equal schemas. `is_plain` tells
    whether it has no other fields than `PLAIN_FIELDS`.
    """

    version: int
    fragments: tuple[StoredFragment, ...]
    columns: bytes = field(default=b"", compare=False)
    is_plain: bool = field(default=False, compare=False)


def read_version(file: str, version: int) -> StoredVersion | None:
    """Return a version, given the path of its manifest file on a local disk; None if it must be opened by Lance.

    That is also so if the file does not exist, or states another version.
    """
    try:
        # Without a buffered stream, because every read after a commit does it.
        with open(file, "rb", 0) as stream:  # noqa: PTH123
            found = parse_version(stream.read())
    except OSError:
        return None
    return found if found is not None and found.version == version else None


def parse_version(data: bytes) -> StoredVersion | None:
    """Return the version of a manifest file from its content; None if it must be opened by Lance."""
    try:
        return _parse_message(read_manifest_message(data))
    except (struct.error, IndexError, OverflowError, ValueError):
        return None


def read_manifest_message(data: bytes) -> bytes:
    """Return the message of a manifest file from its content; `ValueError` or `struct.error` if it is malformed."""
    position, _, _, magic = MANIFEST_FOOTER.unpack_from(data, len(data) - MANIFEST_FOOTER.size)
    (length,) = SECTION_LENGTH.unpack_from(data, position)
    start = position + SECTION_LENGTH.size
    if magic != _MAGIC or start + length > len(data) - MANIFEST_FOOTER.size:
        raise ValueError("not a manifest file")
    return data[start : start + length]


def _parse_message(message: bytes) -> StoredVersion | None:
    parts = split_message(message)
    fragments = []
    for data in parts.fragments:
        fragment = _parse_fragment(data)
        if fragment is None:
            return None
        fragments.append(fragment)
    version = flags = 0
    columns = []
    for number, value, encoded in parts.others:
        if number in _SCHEMA:
            columns.append(encoded)
        elif number == _VERSION:
            version = as_number(value)
        elif number == _READER_FLAGS:
            flags = as_number(value)
    if flags & ~_KNOWN_FLAGS:
        return None
    is_plain = all(number in PLAIN_FIELDS for number, _, _ in parts.others)
    return StoredVersion(version, tuple(fragments), b"".join(columns), is_plain)


@dataclass(frozen=True, slots=True)
class MessageParts:
    """The message of a manifest file: its fragments, and its other fields as number, value and encoded field."""

    fragments: list[bytes]
    others: list[tuple[int, Value, bytes]]


def split_message(message: bytes) -> MessageParts:
    """Return the parts of a message; `ValueError` or `IndexError` if it is malformed."""
    parts = MessageParts([], [])
    position, end = 0, len(message)
    while position < end:
        if message[position] == _FRAGMENT_KEY:
            # Most fields are fragments, whose length takes one or two bytes.
            size = message[position + 1]
            start = position + 2
            if size >= 0x80 and message[start] < 0x80:
                size = (size & 0x7F) | message[start] << 7
                start += 1
            if size < 1 << 14 and start + size <= end:
                position = start + size
                parts.fragments.append(message[start:position])
                continue
        start = position
        number, value, position = read_field(message, position)
        if number == _FRAGMENTS:
            # A fragment of many files.
            parts.fragments.append(as_bytes(value))
        else:
            parts.others.append((number, value, message[start:position]))
    return parts


@lru_cache(maxsize=_PARSED_FRAGMENTS)
def _parse_fragment(data: bytes) -> StoredFragment | None:
    id_ = physical_rows = deleted = 0
    names: list[str] = []
    sizes: list[int | None] = []
    deletions: bytes | None = None
    for number, value in read_fields(data):
        if number == _ID:
            id_ = as_number(value)
        elif number == _FILES:
            file = _parse_file(as_bytes(value))
            if file is None:
                return None
            names.append(file[0])
            sizes.append(file[1])
        elif number == _DELETIONS:
            deletions = as_bytes(value)
        elif number == _PHYSICAL_ROWS:
            physical_rows = as_number(value)
        else:
            return None
    if not names or not physical_rows:
        return None
    name = None
    if deletions is not None:
        fields = dict(read_fields(deletions))
        deleted = as_number(fields.get(_DELETED_ROWS, 0))
        if not _DELETION_FIELDS.issuperset(fields) or not 0 < deleted <= physical_rows:
            return None
        kind, version, number = (
            as_number(fields.get(item, 0)) for item in (_DELETION_KIND, _DELETION_VERSION, _DELETION_ID)
        )
        name = f"_deletions/{id_}-{version}-{number}.{_DELETION_SUFFIXES[kind]}"
    rows = physical_rows - deleted
    return StoredFragment(id_, _SEPARATOR.join(names), name, rows, physical_rows, tuple(sizes))


def _parse_file(data: bytes) -> tuple[str, int | None] | None:
    fields = dict(read_fields(data))
    if not _FILE_FIELDS.issuperset(fields) or _FILE_PATH not in fields:
        return None
    return as_bytes(fields[_FILE_PATH]).decode(), as_number(fields.get(_FILE_SIZE, 0)) or None
