"""Checks of a manifest file of `__manifest` that need no recorded digest.

An object store has no log of digests of version files. Nearly everything in such a file is stated elsewhere too:
its transaction in a file of its own, its columns and files in the versions before, and the position of each part in
the lengths of the others. Only the file itself states its time and the release of Lance that wrote it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from omnigraph.store.lance.protobuf import Value, as_bytes, as_number, read_field, read_message

# The end of a manifest file: the position of the message, the format version and the magic number.
_FOOTER: Final = struct.Struct("<QHH4s")
_LENGTH: Final = struct.Struct("<I")
# Field numbers of the message `Manifest` in Lance's `table.proto`.
_FRAGMENTS, _VERSION, _TIME, _MAX_FRAGMENT = 2, 3, 7, 11
_TRANSACTION, _LIBRARY, _TRANSACTION_POSITION = 12, 13, 21
# The fields that differ between versions. All others are equal in all versions of a graph.
_OWN: Final = frozenset((_VERSION, _TIME, _MAX_FRAGMENT, _TRANSACTION, _LIBRARY, _TRANSACTION_POSITION))
_FRAGMENT_ID, _LIBRARY_NAME = 1, 1
_MD5_LENGTH: Final = 32


@dataclass(frozen=True, slots=True)
class _VersionText:
    """The parts of a version file. `common` is what all versions state, `fragments` have their ids and the rest."""

    transaction: bytes
    message: bytes
    transaction_name: str
    version: int
    max_fragment: int
    fragments: tuple[tuple[int, bytes], ...]
    common: tuple[bytes, ...]


def find_alteration(
    version: int, data: bytes, names: Collection[str], transaction: bytes | None, older: Sequence[bytes]
) -> str | None:
    """Return what is wrong with a version file; None if it can be what was written.

    `transaction` is the content of the transaction file that it was committed with, None if there is none, and
    `names` are its possible names. `older` are files of versions before it. One that cannot be parsed is ignored.
    """
    try:
        found = _parse(data)
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        return f"its content cannot be parsed: {error}"
    if found.version != version:
        return f"it states the version {found.version}"
    if transaction is not None and found.transaction != transaction:
        return "it differs from its transaction file"
    if f"_transactions/{found.transaction_name}" not in names:
        return f"it names {found.transaction_name}, expected {' or '.join(names)}"
    others = list(_parse_all(older))
    if others and found.common not in [item.common for item in others]:
        return "what it states about its columns and its format differs from the versions before"
    before = next((item for item in others if item.version == found.version - 1), None)
    if before is None:
        return None
    return _compare_fragments(found, before, [item.message for item in others])


def _compare_fragments(found: _VersionText, before: _VersionText, older: Sequence[bytes]) -> str | None:
    """Compare the files that a version names with those of its transaction and of the version before."""
    kept = {*before.fragments}
    new = [item for item in found.fragments if item not in kept]
    first = before.max_fragment + 1
    if sorted(id_ for id_, _ in new) != [*range(first, first + len(new))]:
        return "the numbers of its files do not follow those of the version before"
    if found.max_fragment != before.max_fragment + len(new):
        return f"it states the highest fragment {found.max_fragment}, expected {first + len(new) - 1}"
    texts = (found.transaction, *older)
    if not all(any(text in other for other in texts) for _, text in new):
        return "a file that it names is neither in its transaction nor in the versions before"
    return None


def differs_from_tag(data: bytes, tag: str | None, other: bytes, other_tag: str | None) -> bool:
    """Return whether an object is not the one that its store received, as far as entity tags show it.

    Many stores use the MD5 of an object as its entity tag, and keep it with the object. Whether this one does so is
    shown by another object, which was written in the same way and is known to be intact.
    """
    if tag is None or len(tag.strip('"')) != _MD5_LENGTH or other_tag is None:
        return False
    return _md5(other) == other_tag.strip('"') and _md5(data) != tag.strip('"')


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _parse_all(files: Iterable[bytes]) -> Iterable[_VersionText]:
    for data in files:
        try:
            yield _parse(data)
        except (struct.error, ValueError, UnicodeDecodeError):
            continue


def _parse(data: bytes) -> _VersionText:
    """Return the parts of a version file: its transaction, its message and its footer, with nothing between."""
    start, major, minor, magic = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)
    (size,) = _LENGTH.unpack_from(data)
    transaction = data[_LENGTH.size : _LENGTH.size + size]
    if start != _LENGTH.size + size:
        raise ValueError("its message does not follow its transaction")
    (length,) = _LENGTH.unpack_from(data, start)
    message = data[start + _LENGTH.size : len(data) - _FOOTER.size]
    if len(message) != length:
        raise ValueError(f"its message has {len(message)} bytes, expected {length}")
    own: dict[int, Value] = {}
    common = [struct.pack("<HH4s", major, minor, magic)]
    fragments, position = [], 0
    while position < length:
        begin = position
        number, value, position = read_field(message, position)
        if number == _FRAGMENTS:
            # The transaction describes a new fragment without its id, which is the first field.
            id_, after = _fragment_id(as_bytes(value))
            fragments.append((id_, as_bytes(value)[after:]))
        elif number in own:
            raise ValueError(f"field {number} occurs twice")
        elif number in _OWN:
            own[number] = value
        else:
            common.append(message[begin:position])
    if own.get(_TRANSACTION_POSITION, 0) != 0:
        raise ValueError("its transaction is not at its beginning")
    common.append(as_bytes(read_message(as_bytes(own.get(_LIBRARY, b""))).get(_LIBRARY_NAME, b"")))
    return _VersionText(
        transaction,
        message,
        as_bytes(own.get(_TRANSACTION, b"")).decode(),
        as_number(own.get(_VERSION, 0)),
        as_number(own.get(_MAX_FRAGMENT, 0)),
        tuple(fragments),
        tuple(common),
    )


def _fragment_id(fragment: bytes) -> tuple[int, int]:
    """Return the id of a fragment and the position of its second field. An id of 0 is not stored."""
    number, value, position = read_field(fragment, 0)
    return (as_number(value), position) if number == _FRAGMENT_ID else (0, 0)
