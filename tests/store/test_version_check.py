"""The manifest file of a version of `__manifest` is compared with everything that states the same as it does."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.store.lance.lance_files import parse_version_file
from omnigraph.store.lance.protobuf import read_field
from omnigraph.store.manifest.version_check import differs_from_tag, find_alteration
from tests.support.workload import folding_at

COMMITS = 8
# Coprime to the bits of a byte.
BIT_STEP = 5
# What only the version file states: its time, and the release of Lance that wrote it.
TIME, LIBRARY = 7, 13


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return `__manifest` of a graph with a compacted log and a merge. Two handles commit in turns."""
    path = tmp_path_factory.mktemp("graph") / "g"
    first = og.init(path, schema="node City { name: String @key }", durability="os")
    second = og.open(path, durability="os")
    with folding_at(4):
        for number in range(COMMITS):
            handle = (first, second)[number % 2]
            handle.load({"City": [{"name": f"c{number}"}]})
    first.branches.create("work")
    second.load({"City": [{"name": "w"}]}, branch="work")
    first.branches.merge("work")
    first.close()
    second.close()
    return path / "__manifest"


def versions_of(folder: Path) -> dict[int, bytes]:
    found = {
        parse_version_file(f"_versions/{file.name}"): file for file in folder.glob("_versions/*.manifest")
    }
    return {version: found[version].read_bytes() for version in sorted(v for v in found if v is not None)}


def transaction_of(folder: Path, data: bytes) -> tuple[list[str], bytes]:
    """Return the name and the content of the transaction file that a version names."""
    (file,) = (file for file in folder.glob("_transactions/*.txn") if file.name.encode() in data)
    return [f"_transactions/{file.name}"], file.read_bytes()


def fields_of(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of the message of a version file: number, position and end."""
    position = 4 + int.from_bytes(data[:4], "little") + 4
    while position < len(data) - 16:
        number, _, end = read_field(data, position)
        yield number, position, end
        position = end


def test_versions_as_written_have_no_alteration(folder: Path) -> None:
    versions = versions_of(folder)
    assert len(versions) > COMMITS
    for version, data in versions.items():
        older = [versions[number] for number in (version - 2, version - 1) if number in versions]
        names, transaction = transaction_of(folder, data)
        for known in (transaction, None):
            assert find_alteration(version, data, names, known, older) is None, version


def test_flipped_bits_of_a_version_are_found_except_in_its_time_and_its_library(folder: Path) -> None:
    versions = versions_of(folder)
    newest = max(versions)
    data, older = versions[newest], [versions[newest - 2], versions[newest - 1]]
    names, transaction = transaction_of(folder, data)
    exempt = [range(start, end) for number, start, end in fields_of(data) if number in (TIME, LIBRARY)]
    silent = []
    for bit in range(0, len(data) * 8, BIT_STEP):
        altered = bytearray(data)
        altered[bit // 8] ^= 1 << bit % 8
        is_found = find_alteration(newest, bytes(altered), names, transaction, older) is not None
        if not is_found and not any(bit // 8 in field for field in exempt):
            silent.append((bit, data[bit // 8 - 4 : bit // 8 + 4]))
    assert len(exempt) == 2
    assert silent == []


def test_entity_tags_show_an_alteration_only_where_they_are_the_md5_of_the_content() -> None:
    tag, other_tag = (f'"{hashlib.md5(data).hexdigest()}"' for data in (b"a", b"b"))
    assert differs_from_tag(b"x", tag, b"b", other_tag)
    assert not differs_from_tag(b"a", tag, b"b", other_tag)
    # Encrypted and multipart objects, and other stores.
    for unknown in (None, '"0x8DC"', f'{tag[:-1]}-2"'):
        assert not differs_from_tag(b"x", unknown, b"b", other_tag)
        assert not differs_from_tag(b"x", tag, b"b", unknown)
    assert not differs_from_tag(b"x", tag, b"c", other_tag)
