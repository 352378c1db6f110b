"""Digests of files: any change of the bytes changes them, and their text form is exact."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import StorageError
from omnigraph.store.file_digests import (
    FileDigest,
    digest_chunks,
    digest_file,
    digest_text,
    format_digests,
    parse_digests,
)


def test_digest_file_larger_than_a_chunk_equals_digest_of_its_bytes(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    (tmp_path / "a").write_bytes(data)
    assert digest_file(tmp_path / "a", "data/a") == digest_chunks("data/a", [data])


@pytest.mark.parametrize("position", [0, 1_000, 2_559_999])
def test_digest_file_one_flipped_bit_gives_another_digest(tmp_path: Path, position: int) -> None:
    data = bytearray(bytes(range(256)) * 10_000)
    before = digest_chunks("a", [bytes(data)])
    data[position] ^= 1
    (tmp_path / "a").write_bytes(data)
    after = digest_file(tmp_path / "a", "a")
    assert (after.size, after.digest != before.digest) == (before.size, True)


def test_digest_file_missing_file_is_a_storage_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot read .*absent: No such file"):
        digest_file(tmp_path / "absent", "absent")


@given(st.binary(), st.integers(min_value=0, max_value=50))
def test_digest_chunks_any_cut_gives_the_same_digest(data: bytes, cut: int) -> None:
    assert digest_chunks("a", [data[:cut], data[cut:]]) == digest_chunks("a", [data])


_NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)
_DIGESTS = st.builds(FileDigest, _NAMES, st.integers(min_value=0), _NAMES.map(digest_text))


@given(st.dictionaries(_NAMES, st.lists(_DIGESTS, unique_by=lambda item: item.name)))
def test_format_digests_parsed_again_gives_the_same_digests(files: dict[str, list[FileDigest]]) -> None:
    parsed = set(parse_digests(format_digests(files)))
    assert parsed == {(path, item) for path, items in files.items() for item in items}


def test_parse_digests_malformed_line_raises_value_error() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        list(parse_digests("nodes/1\tdata/a.lance\t3"))
