"""Rows of `__manifest`: checksums, rows of format 1 without one, and rows that do not parse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance import LanceOperation

from omnigraph.errors import StorageError
from omnigraph.store.lance.lance_files import get_fragment
from omnigraph.store.manifest import row_files
from omnigraph.store.manifest.manifest import PATH, Manifest
from omnigraph.store.manifest.manifest_files import BUCKETS, ManifestFile
from omnigraph.store.manifest.manifest_rows import StoredRows, decode_row, encode_row, parse_row
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.manifest_writer import write_named_file
from omnigraph.store.manifest.records import CommitRecord
from tests.support.manifests import head_of, make_manifest, move, reopen


@given(st.text(), st.text())
def test_decode_row_intact_row_gives_its_text(key: str, text: str) -> None:
    assert decode_row("f", key, encode_row(key, text)) == text


def test_decode_row_without_checksum_gives_the_row() -> None:
    assert decode_row("f", "registry", '{"format":1}') == '{"format":1}'


@given(st.integers(min_value=0), st.characters(min_codepoint=32, max_codepoint=126))
def test_decode_and_parse_row_one_changed_character_is_a_storage_error(place: int, character: str) -> None:
    stored = encode_row("registry", '{"format":1,"graph":"01ARZ3"}')
    place %= len(stored)
    changed = f"{stored[:place]}{character}{stored[place + 1 :]}"
    if changed == stored:
        return
    with pytest.raises(StorageError, match="row 'registry' of f is damaged"):
        parse_row("f", "registry", decode_row("f", "registry", changed), lambda body: body["format"])


def test_decode_row_of_another_key_is_a_storage_error() -> None:
    with pytest.raises(StorageError, match="row 'commit:b' of f is damaged: its checksum"):
        decode_row("f", "commit:b", encode_row("commit:a", "{}"))


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{}", '{"id":1}', "null"])
def test_parse_row_that_is_no_commit_is_a_storage_error(text: str) -> None:
    with pytest.raises(StorageError, match="row 'commit:a' of f is damaged: it cannot be parsed") as caught:
        parse_row("f", "commit:a", text, CommitRecord.from_body)
    details = caught.value.details
    assert (details["reason"], details["file"], details["row"]) == ("damaged", "f", "commit:a")


KEYS = st.text(max_size=3)


@given(st.dictionaries(KEYS, st.text(max_size=5), max_size=12), st.lists(st.tuples(KEYS, st.none() | KEYS)))
def test_stored_rows_after_changes_equal_rows_encoded_anew(
    texts: dict[str, str], changes: list[tuple[str, str | None]]
) -> None:
    rows = StoredRows.encode(texts.items())
    for key, text in changes:
        if text is None:
            rows = rows.without_row(key)
            texts.pop(key, None)
        else:
            rows = rows.with_row(key, text)
            texts[key] = text
    assert rows == StoredRows.encode(texts.items())
    assert (dict(rows), list(rows)) == (texts, sorted(texts))
    for key in ("", "a", *texts):
        assert dict(rows.texts_after(key)) == {name: texts[name] for name in texts if name > key}
    for position in range(len(rows)):
        first, second = rows.part(0, position), rows.part(position, len(rows))
        assert first.followed_by(second) == rows


def test_check_stored_rows_in_another_order_sorts_them() -> None:
    bodies = [encode_row(key, "{}") for key in ("b", "a")]
    assert StoredRows.check("f", ["b", "a"], bodies) == StoredRows.encode([("a", "{}"), ("b", "{}")])


def test_check_stored_row_of_another_key_is_a_storage_error() -> None:
    rows = StoredRows.encode([("a", "{}"), ("b", "{}"), ("d", "{}")])
    with pytest.raises(StorageError, match="row 'c' of f is damaged: its checksum"):
        StoredRows.check("f", ["a", "b", "c"], rows.stored)


# --- rows in storage --------------------------------------------------------------------------------------


def stored_bodies(view: ManifestView, file: ManifestFile) -> dict[str, str]:
    table = get_fragment(view.dataset, file.fragment).to_table()
    return dict(zip(table["key"].to_pylist(), table["body"].to_pylist(), strict=True))


def test_every_stored_row_has_a_checksum(uri: str) -> None:
    manifest = make_manifest(uri)
    move(manifest, manifest.view)
    view = reopen(manifest).view
    for file in view.files:
        for key, body in stored_bodies(view, file).items():
            assert "\n" in body, file.name
            assert decode_row(file.name, key, body) == body.rpartition("\n")[0]


def damage(manifest: Manifest, kind: str, change: Callable[[str], str]) -> str:
    """Replace the stored body of every row of the first file of a kind; return the name of the file."""
    file = manifest.view.of_kind(kind)[0]
    bodies = {key: change(body) for key, body in stored_bodies(manifest.view, file).items()}
    layout = row_files._BUCKET if kind == BUCKETS else row_files._SMALL
    table = pa.table({"key": list(bodies), "body": list(bodies.values())}, schema=layout.schema)
    write_named_file(manifest.root, PATH, manifest.root.file_session(PATH), file.name, [table], layout)
    return file.name


READS: dict[str, Callable[[Manifest], object]] = {
    "registry": lambda manifest: manifest.registry(manifest.view),
    "head": lambda manifest: head_of(manifest, manifest.view),
    "commit": lambda manifest: list(manifest.all_commits(manifest.view)),
    "schema": lambda manifest: manifest.schema(manifest.view, manifest.view.of_kind("schema")[0].parts[0]),
    "branches": lambda manifest: manifest.branches(manifest.view),
}


@pytest.mark.parametrize("kind", READS)
def test_read_row_with_one_changed_byte_names_row_and_file(tmp_path: Path, kind: str) -> None:
    manifest = make_manifest(str(tmp_path))
    name = damage(manifest, kind, lambda body: body.replace("{", "[", 1))
    with pytest.raises(StorageError, match=rf"row '{kind[:6]}.*' of __manifest/data/{name} is damaged"):
        READS[kind](reopen(manifest))


def test_find_commit_in_a_large_file_checks_the_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = make_manifest(str(tmp_path))
    commit = head_of(manifest, manifest.view).commit
    monkeypatch.setattr(row_files, "_MAX_ROWS_TO_CACHE_FILE", 0)
    assert reopen(manifest).find_commit(manifest.view, commit.id) == commit
    damage(manifest, "commit", lambda body: body.replace("init", "load"))
    again = reopen(manifest)
    with pytest.raises(StorageError, match=f"row 'commit:{commit.id}' of .* is damaged: its checksum"):
        again.find_commit(again.view, commit.id)


def test_rows_of_a_large_log_file_are_compressed_and_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = make_manifest(str(tmp_path))
    rows = {f"commit:{number:04}": f'{{"id":"{number:04}","schema":"{"ab" * 40}"}}' for number in range(600)}
    files = row_files.RowFiles(manifest.root, manifest.refresh)
    monkeypatch.setattr(row_files, "COMPRESSED_ROWS", 601)
    plain = files.write("commit-2-0-1.lance", rows)
    monkeypatch.setattr(row_files, "COMPRESSED_ROWS", 600)
    written = files.write("commit-2-0-2.lance", rows)
    assert (written.files[0].file_size_bytes or 0) < (plain.files[0].file_size_bytes or 0)
    view = manifest.view
    dataset = lance.LanceDataset.commit(
        view.dataset, LanceOperation.Append([written]), read_version=view.version
    )
    stored = [item for item in dataset.get_fragments() if item.metadata.physical_rows == 600]
    table = stored[0].to_table(filter="key = 'commit:0077'")
    assert decode_row("f", "commit:0077", table["body"][0].as_py()) == rows["commit:0077"]
