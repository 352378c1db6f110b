"""Digests that commits record, and digests that are recorded later, are read as one mapping."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph.store.file_digests import FileDigest, format_digests
from omnigraph.store.manifest import recorded_files
from omnigraph.store.manifest.manifest import LOG_COMPACT_AT, Manifest
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.records import CommitRecord
from tests.support.manifests import child, head_of, make_manifest, reopen

PATH = "nodes/1"


def digest(number: int, size: int = 1) -> FileDigest:
    return FileDigest(f"data/{number}.lance", size, f"{number:032x}")


def commit_files(manifest: Manifest, *files: FileDigest) -> CommitRecord:
    """Publish a commit that introduces files."""
    head = head_of(manifest, manifest.view)
    record = replace(child(head.commit), files=format_digests({PATH: files}))
    change = ManifestChange(heads=[replace(head, commit=record)], commits=[record])
    manifest.replace_heads_if_equal(manifest.view, [head], change)
    return record


def recorded(manifest: Manifest) -> dict[tuple[str, str], FileDigest]:
    return dict(manifest.recorded_files(manifest.refresh()))


def test_recorded_files_of_commits_and_later_records_are_all_returned(uri: str) -> None:
    manifest = make_manifest(uri)
    assert recorded(manifest) == {}
    commit_files(manifest, digest(1), digest(2))
    assert manifest.record_files({PATH: [digest(3)]}, 7) == 1
    expected = {(PATH, f"data/{number}.lance"): digest(number) for number in (1, 2, 3)}
    assert recorded(manifest) == expected
    assert recorded(reopen(manifest)) == expected


def test_record_files_with_a_digest_of_its_commit_keeps_that_digest(uri: str) -> None:
    manifest = make_manifest(uri)
    commit_files(manifest, digest(1))
    assert manifest.record_files({PATH: [digest(1, size=9)]}, 7) == 0
    assert recorded(reopen(manifest)) == {(PATH, "data/1.lance"): digest(1)}


def test_record_files_twice_keeps_the_first_digest(uri: str) -> None:
    manifest = make_manifest(uri)
    version = manifest.refresh().version
    assert manifest.record_files({PATH: [digest(1)]}, 7) == 1
    assert manifest.record_files({PATH: [digest(1, size=9)]}, 8) == 0
    assert manifest.refresh().version == version + 1
    assert recorded(reopen(manifest)) == {(PATH, "data/1.lance"): digest(1)}


def test_record_files_beside_a_publish_of_another_handle_loses_nothing(uri: str) -> None:
    manifest = make_manifest(uri)
    other = reopen(manifest)
    commit_files(other, digest(1))
    manifest._swap(
        manifest.view,
        remove=(),
        change=ManifestChange(digests=list(recorded_files.new_digest_records({PATH: [digest(2)]}, 7))),
    )
    assert set(recorded(reopen(manifest)).values()) == {digest(1), digest(2)}


def test_record_files_more_than_one_row_holds_are_all_recorded(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_files, "_FILES_PER_RECORD", 2)
    manifest = make_manifest(uri)
    files = {PATH: [digest(number) for number in range(3)], "edges/2": [digest(9), digest(8)]}
    assert manifest.record_files(files, 7) == 5
    assert len(manifest.view.of_kind("digests")) == 3
    expected = {(path, item.name): item for path, items in files.items() for item in items}
    assert recorded(reopen(manifest)) == expected


def test_recorded_files_after_log_compaction_are_unchanged() -> None:
    manifest = make_manifest("memory://recorded-files-compaction")
    for number in range(LOG_COMPACT_AT):
        manifest.record_files({PATH: [digest(number)]}, 7)
        commit_files(manifest, digest(1000 + number))
    before = recorded(manifest)
    assert len(before) == 2 * LOG_COMPACT_AT
    while manifest.compact_log():
        pass
    assert len(manifest.view.of_kind("digests")) == 1
    assert recorded(reopen(manifest)) == before
    assert recorded(manifest) == before


def test_head_row_holds_no_digests_and_commit_row_does(uri: str) -> None:
    manifest = make_manifest(uri)
    record = commit_files(manifest, digest(1))
    again = reopen(manifest)
    assert head_of(again, again.view).commit.files == ""
    found = again.find_commit(again.view, record.id)
    assert found is not None
    assert found.files == record.files == "nodes/1\tdata/1.lance\t1\t" + f"{1:032x}"
