"""The next version of a dataset on a local disk, derived from the manifest file of the version before it.

A commit of Lance looks for the newest version, loads the transactions since, and passes every file to another
thread. That is most of the time of a small commit. The manifest file of the next version is that of its base with
some fragments removed and some added, so it is made from the bytes of the base. The messages are defined in Lance's
`table.proto` and `transaction.proto`. A base with a field that this module does not know gives None, and the caller
commits through Lance. Lance reads the transaction to rebase commits of its own over the version.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from lance.fragment import DataFile, FragmentMetadata

from omnigraph.store.lance.lance_files import (
    file_name,
    new_detached_version,
    parse_version_file,
    version_file,
)
from omnigraph.store.lance.protobuf import (
    Value,
    as_bytes,
    as_number,
    encode_bytes,
    encode_number,
    encode_packed,
    read_message,
)
from omnigraph.store.lance.version_manifest import (
    MANIFEST_FOOTER,
    MIXED_FILE_VERSIONS,
    PLAIN_FIELDS,
    SECTION_LENGTH,
    read_manifest_message,
    split_message,
)

# Field numbers of the manifest message.
_FIELDS, _FRAGMENTS, _VERSION, _METADATA, _TIMESTAMP, _READER_FLAGS, _WRITER_FLAGS = 1, 2, 3, 5, 7, 9, 10
_MAX_FRAGMENT_ID, _TRANSACTION_FILE, _WRITER, _DATA_FORMAT, _TRANSACTION_SECTION = 11, 12, 13, 15, 23
# Fields that the next version shares with its base.
_SHARED: Final = frozenset({_FIELDS, _METADATA, _READER_FLAGS, _WRITER_FLAGS, _WRITER, _DATA_FORMAT})
_FORMAT_VERSION = 2
# Field numbers of fragments and data files.
_ID, _FILES, _PHYSICAL_ROWS = 1, 2, 4
_PATH, _COLUMNS, _COLUMN_INDICES, _MAJOR, _MINOR, _SIZE = range(1, 7)
# Field numbers of a transaction, of its operations, and of the groups of a rewrite.
_READ_VERSION, _UUID, _REWRITE, _UPDATE = 1, 2, 104, 108
_GROUPS, _OLD_FRAGMENTS, _NEW_FRAGMENTS = 3, 1, 2
_UPDATE_NEW = 3
# What the parts of a malformed file raise.
_MALFORMED: Final = (struct.error, IndexError, KeyError, OverflowError, ValueError)
# Lance lists the versions if this file is missing, and probes for later versions than the one that it states.
_HINT: Final = "_versions/latest_version_hint.json"


@dataclass(frozen=True, slots=True)
class NextVersion:
    """The files of a version: its manifest file and its transaction file. Nothing is written yet.

    `first_id` is the id of the first of its new fragments. The others follow.
    """

    version: int
    first_id: int
    manifest: bytes
    transaction: bytes
    transaction_file: str

    @property
    def is_detached(self) -> bool:
        """Whether the version is not part of the HEAD lineage."""
        return parse_version_file(version_file(self.version)) is None

    @property
    def files(self) -> dict[str, bytes]:
        """The content of both files by their names, relative to the dataset."""
        return {self.transaction_file: self.transaction, version_file(self.version): self.manifest}


def rewrite_fragments(
    base: bytes, removed: Collection[int], new: Sequence[FragmentMetadata]
) -> NextVersion | None:
    """Return the version that replaces fragments, given by their ids, by new ones; None if Lance must commit it.

    `base` is the content of the manifest file of the version before. The new fragments get the next free ids in
    their order, as in a commit of Lance.
    """

    def encode(old: Sequence[bytes], written: Sequence[bytes]) -> bytes:
        return encode_bytes(_REWRITE, encode_bytes(_GROUPS, _encode_group(old, written)))

    try:
        return _follow(base, removed, new, None, encode)
    except _MALFORMED:
        return None


def append_fragments(base: bytes, new: Sequence[FragmentMetadata]) -> NextVersion | None:
    """Return a detached version that adds fragments to those of another one; None if Lance must commit it."""

    def encode(_: Sequence[bytes], written: Sequence[bytes]) -> bytes:
        return encode_bytes(_UPDATE, b"".join(encode_bytes(_UPDATE_NEW, data) for data in written))

    try:
        return _follow(base, (), new, new_detached_version(), encode)
    except _MALFORMED:
        return None


def _follow(
    base: bytes,
    removed: Collection[int],
    new: Sequence[FragmentMetadata],
    version: int | None,
    encode_operation: Callable[[Sequence[bytes], Sequence[bytes]], bytes],
) -> NextVersion | None:
    """Return the version that follows another one. `version` is its number, None for the successor of its base."""
    parts = split_message(read_manifest_message(base))
    numbers = {number: value for number, value, _ in parts.others}
    if not numbers.keys() <= PLAIN_FIELDS or not all(map(_is_plain, new)):
        return None
    if not _allows_file_versions(numbers, new):
        return None
    if _MAX_FRAGMENT_ID not in numbers and parts.fragments:
        return None
    old: list[bytes] = []
    kept: list[bytes] = parts.fragments
    if removed:
        kept = []
        for data in parts.fragments:
            (old if _fragment_id(data) in removed else kept).append(data)
        if len(old) != len(removed):
            return None
    read_version = as_number(numbers[_VERSION])
    version = read_version + 1 if version is None else version
    # A table without fragments states no largest id.
    first = as_number(numbers[_MAX_FRAGMENT_ID]) + 1 if _MAX_FRAGMENT_ID in numbers else 0
    written = [_encode_fragment(item) for item in new]
    uuid = str(uuid4())
    transaction = b"".join(
        [
            encode_number(_READ_VERSION, read_version),
            encode_bytes(_UUID, uuid.encode()),
            encode_operation(old, written),
        ]
    )
    file = f"{read_version}-{uuid}.txn"
    added = [
        data if not first + index else encode_number(_ID, first + index) + data
        for index, data in enumerate(written)
    ]
    changed = {
        _VERSION: encode_number(_VERSION, version),
        _TIMESTAMP: encode_bytes(_TIMESTAMP, _timestamp()),
        _MAX_FRAGMENT_ID: encode_number(_MAX_FRAGMENT_ID, first + len(written) - 1),
        _TRANSACTION_FILE: encode_bytes(_TRANSACTION_FILE, file.encode()),
        _TRANSACTION_SECTION: encode_number(_TRANSACTION_SECTION, 0),
    }
    fields = [
        *((number, encoded) for number, _, encoded in parts.others if number in _SHARED),
        (_FRAGMENTS, b"".join(encode_bytes(_FRAGMENTS, data) for data in (*kept, *added))),
        *changed.items(),
    ]
    # The sort is stable: repeated fields keep their order.
    message = b"".join(encoded for _, encoded in sorted(fields, key=lambda item: item[0]))
    return NextVersion(
        version, first, _encode_file(base, transaction, message), transaction, f"_transactions/{file}"
    )


def _encode_file(base: bytes, transaction: bytes, message: bytes) -> bytes:
    """Return a manifest file: the transaction, the message, and the footer in the format version of the base."""
    _, major, minor, magic = MANIFEST_FOOTER.unpack_from(base, len(base) - MANIFEST_FOOTER.size)
    section = SECTION_LENGTH.pack(len(transaction)) + transaction
    footer = MANIFEST_FOOTER.pack(len(section), major, minor, magic)
    return section + SECTION_LENGTH.pack(len(message)) + message + footer


def _encode_group(old: Iterable[bytes], new: Iterable[bytes]) -> bytes:
    fields = [encode_bytes(_OLD_FRAGMENTS, data) for data in old]
    return b"".join([*fields, *(encode_bytes(_NEW_FRAGMENTS, data) for data in new)])


def _is_plain(fragment: FragmentMetadata) -> bool:
    """Return whether a fragment consists of data files in the folder of the dataset, and of nothing else."""
    return (
        bool(fragment.files)
        and fragment.id == 0
        and fragment.physical_rows > 0
        and fragment.deletion_file is None
        and fragment.row_id_meta is None
        and fragment.created_at_version_meta is None
        and fragment.last_updated_at_version_meta is None
        and not fragment.overlays
        and all(file.base_id is None and file.file_size_bytes for file in fragment.files)
    )


def _allows_file_versions(numbers: Mapping[int, Value], new: Iterable[FragmentMetadata]) -> bool:
    """Return whether a version may name new files. Lance sets the flags that allow files of several versions."""
    flags = as_number(numbers.get(_READER_FLAGS, 0)) & as_number(numbers.get(_WRITER_FLAGS, 0))
    if flags & MIXED_FILE_VERSIONS:
        return True
    stated = as_bytes(read_message(as_bytes(numbers[_DATA_FORMAT]))[_FORMAT_VERSION]).decode()
    found = {f"{file.file_major_version}.{file.file_minor_version}" for item in new for file in item.files}
    return found <= {stated}


def _encode_fragment(fragment: FragmentMetadata) -> bytes:
    """Return a fragment without its id."""
    files = [encode_bytes(_FILES, _encode_data_file(file)) for file in fragment.files]
    return b"".join([*files, encode_number(_PHYSICAL_ROWS, fragment.physical_rows)])


def _encode_data_file(file: DataFile) -> bytes:
    fields = [
        encode_bytes(_PATH, file_name(file).encode()),
        encode_bytes(_COLUMNS, encode_packed(file.fields)),
        encode_bytes(_COLUMN_INDICES, encode_packed(file.column_indices)),
        encode_number(_MAJOR, file.file_major_version),
    ]
    if file.file_minor_version:
        fields.append(encode_number(_MINOR, file.file_minor_version))
    return b"".join([*fields, encode_number(_SIZE, file.file_size_bytes or 0)])


def _fragment_id(data: bytes) -> int:
    """Return the id of a fragment, which is its first field; it is not stored if it is 0."""
    if data[0] != _ID << 3:
        return 0
    number = shift = 0
    for byte in data[1:]:
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number
        shift += 7
    raise ValueError("a fragment has no end")


def _timestamp() -> bytes:
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    fields = encode_number(1, seconds)
    return fields + encode_number(2, nanoseconds) if nanoseconds else fields


def create_version(folder: str, version: NextVersion) -> bool:
    """Write the files of a version into a dataset; False if the version exists already: nothing changed.

    The manifest file appears at once and complete. Neither file is synced. Raises `OSError`; the version does not
    exist then. A failure, or a process that dies, leaves files that no version refers to.
    """
    transaction, manifest = (f"{folder}/{name}" for name in version.files)
    temporary = f"{folder}/_versions/.tmp{uuid4().hex}"
    try:
        _write_new(transaction, version.transaction)
        _write_new(temporary, version.manifest)
        os.link(temporary, manifest)
    except FileExistsError:
        _remove(transaction)
        return False
    finally:
        _remove(temporary)
    if not version.is_detached:
        with suppress(OSError):
            _write_hint(f"{folder}/{_HINT}", version.version)
    return True


def _write_new(file: str, data: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        written = 0
        while written < len(data):
            written += os.write(descriptor, data[written:])
    finally:
        os.close(descriptor)


def _write_hint(file: str, version: int) -> None:
    """State the newest version. In place: it is one small write, and no version depends on it."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        data = b'{"version":%d}' % version
        os.write(descriptor, data)
        os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)


def _remove(file: str) -> None:
    with suppress(OSError):
        os.unlink(file)  # noqa: PTH108 - every commit does it
