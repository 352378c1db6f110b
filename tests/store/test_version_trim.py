"""Old versions of `__manifest`: which files are removed, what readers and swaps with an old view find then."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import StorageError
from omnigraph.store.file_digests import digest_text
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.lance.version_writer import NextVersion, create_version
from omnigraph.store.manifest import file_swap, version_digests, version_trim
from omnigraph.store.manifest import manifest as manifest_module
from omnigraph.store.manifest.manifest import PATH, Manifest, SwapLost, SwapOutcomeUnknown
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.row_files import SupersededFile
from omnigraph.store.manifest.version_probe import VersionProbe
from omnigraph.store.manifest.version_trim import StoredVersions
from omnigraph.store.objects.object_store import ObjectStore
from tests.support.manifests import child, head_of, make_manifest, move, reopen
from tests.support.places import fresh_memory
from tests.support.repositories import make_graph

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stored(ages: dict[int, float]) -> StoredVersions:
    return StoredVersions({version: NOW - timedelta(seconds=age) for version, age in ages.items()}, {}, {})


@pytest.fixture
def trims_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep two versions, whatever their age, and no uncommitted files."""
    monkeypatch.setattr(version_trim, "KEEP_ALWAYS", 2)
    monkeypatch.setattr(manifest_module, "KEEP_ALWAYS", 2)
    monkeypatch.setattr(version_trim, "YOUNG", timedelta(0))
    monkeypatch.setattr(version_trim, "UNCOMMITTED", timedelta(seconds=-3600))


def trim(manifest: Manifest, uri: str) -> int:
    return manifest.remove_old_versions(ObjectStore.open(uri))


def data_files(uri: str) -> set[str]:
    return {file.name for file in (Path(uri) / PATH / "data").iterdir()}


@pytest.mark.parametrize(
    ("count", "seconds_each", "kept"),
    [
        (256, 3600, None),
        (257, 3600, 2),
        (400, 0.1, None),
        (400, 0.2, 101),
        (5_000, 0.001, 5_000 - 1_023),
    ],
)
def test_oldest_kept_version_follows_count_and_age(count: int, seconds_each: float, kept: int | None) -> None:
    ages = {version: (count - version) * seconds_each for version in range(1, count + 1)}
    assert stored(ages).oldest_kept() == kept


@pytest.mark.usefixtures("trims_early")
def test_trim_removes_files_that_only_old_versions_name(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri)
    records = [move(manifest, manifest.view) for _ in range(6)]
    version = manifest.view.version
    assert trim(manifest, uri) > 0
    versions = {file.name for file in (tmp_path / "graph" / PATH / "_versions").glob("*.manifest")}
    assert versions == {Path(version_file(number)).name for number in (version - 1, version)}
    old_heads = [name for name in data_files(uri) if name.startswith("head-")]
    assert len(old_heads) == len(manifest.view.of_kind("head")) + 1
    assert {file.name for file in manifest.view.files} <= data_files(uri)
    cold = reopen(manifest)
    assert [cold.find_commit(cold.view, record.id) for record in records] == records
    assert trim(manifest, uri) == 0


def test_trim_keeps_the_last_file_of_every_bucket() -> None:
    old = NOW - timedelta(days=1)
    registries = [f"data/registry-0{number}.lance" for number in range(6)]
    buckets = [f"data/branches-x{bound}-0{number}.lance" for bound in ("", "61", "62") for number in range(3)]
    files = StoredVersions({1: old, 2: NOW}, {}, dict.fromkeys([*registries, *buckets], old))
    # The bucket that began at 62 was joined with another one, so its old files are of no use.
    needed = frozenset([registries[5], buckets[2], buckets[5]])
    removed = set(files.other_files_before(2, needed))
    assert removed == {registries[0], buckets[0], buckets[3], *buckets[6:]}


@pytest.mark.usefixtures("trims_early")
def test_trim_in_memory_keeps_the_graph_readable() -> None:
    manifest = make_manifest(fresh_memory())
    records = [move(manifest, manifest.view) for _ in range(6)]
    assert manifest.remove_old_versions(ObjectStore.open("memory://unused")) > 0
    cold = reopen(manifest)
    assert [cold.find_commit(cold.view, record.id) for record in records] == records


@pytest.mark.usefixtures("trims_early")
def test_trim_spares_files_that_are_not_committed_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_trim, "UNCOMMITTED", timedelta(seconds=30))
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri)
    head = head_of(manifest, manifest.view)
    record = child(head.commit)
    written = manifest._write(ManifestChange(heads=[replace(head, commit=record)], commits=[record]))
    for _ in range(6):
        move(manifest, manifest.view)
    trim(manifest, uri)
    assert {item.files[0].path for item in written} <= data_files(uri)


def test_trim_is_due_after_every_hundred_and_twenty_eighth_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_module, "TRIM_EVERY", 4)
    manifest = make_manifest(str(tmp_path / "graph"))
    due = []
    for _ in range(8):
        move(manifest, manifest.view)
        due += [manifest.view.version] if manifest.take_trim() else []
        assert not manifest.take_trim()
    assert due == [4, 8]


@pytest.mark.usefixtures("trims_early")
def test_creating_and_deleting_branches_trims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "TRIM_EVERY", 4)
    graph = make_graph(str(tmp_path / "graph"))
    for number in range(12):
        graph.create_branch(f"agent-{number}")
    versions = tmp_path / "graph" / PATH / "_versions"
    assert len(list(versions.glob("*.manifest"))) <= 6
    for number in range(12):
        graph.delete_branch(f"agent-{number}")
    assert len(list(versions.glob("*.manifest"))) <= 6
    assert graph.warnings == []


@pytest.mark.usefixtures("trims_early")
def test_swap_with_a_view_whose_successors_were_removed_is_lost(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri)
    publisher = reopen(manifest)
    head_of(publisher, publisher.view)
    for _ in range(6):
        move(manifest, manifest.view)
    trim(manifest, uri)
    with pytest.raises(SwapLost):
        move(publisher, publisher.view)


def read_old_commit(reader: Manifest, wanted: str) -> object:
    return reader.find_commit(reader.view, wanted)


def read_all_commits(reader: Manifest, wanted: str) -> object:
    records = list(reader.all_commits(reader.view))
    assert len({record.id for record in records}) == len(records)
    return next(record for record in records if record.id == wanted)


@pytest.mark.parametrize("read", [read_old_commit, read_all_commits])
@pytest.mark.usefixtures("trims_early")
def test_log_of_an_old_view_is_read_from_the_newest_view(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Manifest, str], object],
) -> None:
    monkeypatch.setattr(manifest_module, "LOG_COMPACT_AT", 2)
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri)
    wanted = move(manifest, manifest.view)
    reader = reopen(manifest)
    for _ in range(4):
        move(manifest, manifest.view)
        manifest.compact_log()
    move(manifest, manifest.view)
    trim(manifest, uri)
    assert any(file.name not in data_files(uri) for file in reader.view.of_kind("commit"))
    assert read(reader, wanted.id) == wanted


@pytest.mark.usefixtures("trims_early")
def test_head_of_a_view_that_is_too_old_is_a_transient_error(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri)
    reader = reopen(manifest)
    view = reader.view
    for _ in range(4):
        move(manifest, manifest.view)
    trim(manifest, uri)
    with pytest.raises(SupersededFile) as caught:
        head_of(reader, view)
    assert caught.value.transient


def test_missing_file_of_the_newest_view_is_damage(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri)
    reader = reopen(manifest)
    (file,) = reader.view.of_kind("registry")
    (Path(uri) / PATH / "data" / file.name).unlink()
    with pytest.raises(StorageError, match="is damaged: it is missing"):
        reader.registry(reader.view)


class PausedClock:
    """A clock that advances by an hour at every look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 3_600.0
        return self.now


def test_swap_after_a_pause_writes_removed_files_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri)
    head = head_of(manifest, manifest.view)
    record = child(head.commit)
    monkeypatch.setattr(manifest_module, "boot_clock", PausedClock())
    commit = Manifest._commit
    lost: list[str] = []

    def lose_files(self: Manifest, *arguments: Any) -> ManifestView:
        done = commit(self, *arguments)
        if not lost:
            lost.extend(file.name for file in done.files if file.kind in ("head", "commit"))
            for name in lost:
                (Path(uri) / PATH / "data" / name).unlink()
        return done

    monkeypatch.setattr(Manifest, "_commit", lose_files)
    files = {file.name for file in manifest.view.files}
    with monkeypatch.context() as patch:
        patch.setattr(manifest_module, "UNCOMMITTED", timedelta(seconds=30))
        view = manifest.replace_heads_if_equal(
            manifest.view, [head], ManifestChange(heads=[replace(head, commit=record)], commits=[record])
        )
    assert lost
    assert {file.name for file in view.files} - files <= data_files(uri)
    cold = reopen(manifest)
    assert head_of(cold, cold.view).commit == record
    assert cold.find_commit(cold.view, record.id) == record


def test_swap_by_lance_after_a_pause_into_a_removed_version_has_an_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "graph")
    manifest = reopen(make_manifest(uri))
    monkeypatch.setattr(manifest, "_probe", None)
    monkeypatch.setattr(manifest_module, "boot_clock", PausedClock())
    os.unlink(Path(uri) / PATH / version_file(manifest.view.version))  # noqa: PTH108
    with pytest.raises(SwapOutcomeUnknown):
        move(manifest, manifest.view)


def test_swap_into_a_version_that_is_removed_meanwhile_has_an_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri)

    def pause(folder: str, version: NextVersion) -> bool:
        (Path(uri) / PATH / version_file(manifest.view.version)).unlink()
        return create_version(folder, version)

    monkeypatch.setattr(file_swap, "create_version", pause)
    with pytest.raises(SwapOutcomeUnknown):
        move(manifest, manifest.view)


def test_swap_of_a_view_whose_version_was_removed_is_lost(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri)
    rival = reopen(manifest)
    move(rival, rival.view)
    (Path(uri) / PATH / version_file(manifest.view.version)).unlink()
    with pytest.raises(SwapLost):
        move(manifest, manifest.view)
    assert head_of(reopen(manifest), reopen(manifest).view) == head_of(rival, rival.view)


# --- finding the newest version -------------------------------------------------------------------------


@pytest.mark.parametrize("newer", [0, 1, 2, 3, 4, 5, 8, 13])
def test_probe_finds_the_newest_version(tmp_path: Path, newer: int) -> None:
    (tmp_path / "_versions").mkdir()
    for version in range(5, 6 + newer):
        (tmp_path / version_file(version)).touch()
    probe = VersionProbe.of(tmp_path)
    assert probe is not None
    assert probe.find_newest(5) == 5 + newer


@pytest.mark.parametrize("present", [(), (9,), (6, 7)])
def test_probe_from_a_removed_version_finds_nothing(tmp_path: Path, present: tuple[int, ...]) -> None:
    (tmp_path / "_versions").mkdir()
    for version in present:
        (tmp_path / version_file(version)).touch()
    probe = VersionProbe.of(tmp_path)
    assert probe is not None
    assert probe.find_newest(5) is None


def test_probe_of_a_file_system_that_may_cache_is_not_used() -> None:
    assert VersionProbe.of(Path("/proc")) is None


@pytest.mark.usefixtures("trims_early")
def test_refresh_finds_commits_of_another_handle_after_a_trim(tmp_path: Path) -> None:
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri)
    reader = reopen(manifest)
    for _ in range(5):
        record = move(manifest, manifest.view)
        assert head_of(reader, reader.refresh()).commit == record
    trim(manifest, uri)
    records = [move(manifest, manifest.view) for _ in range(4)]
    trim(manifest, uri)
    assert head_of(reader, reader.refresh()).commit == records[-1]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda lines: lines, id="complete"),
        pytest.param(lambda lines: lines[:-2], id="later-versions-missing"),
        pytest.param(lambda lines: [*lines[:-1], lines[-1][:20]], id="last-line-torn"),
        pytest.param(lambda lines: [*lines[:-1], "9" + lines[-1]], id="last-line-altered"),
        pytest.param(lambda lines: [*lines, recorded_line(900)], id="version-that-was-removed"),
        pytest.param(lambda _: [], id="empty"),
    ],
)
@pytest.mark.usefixtures("trims_early")
def test_open_finds_the_newest_version_whatever_the_log_of_digests_holds(
    tmp_path: Path, change: Callable[[list[str]], list[str]]
) -> None:
    uri = str(tmp_path / "graph")
    manifest = make_manifest(uri)
    records = [move(manifest, manifest.view) for _ in range(6)]
    trim(manifest, uri)
    log = tmp_path / "graph" / version_digests.LOG
    lines = log.read_text().splitlines(keepends=True)
    assert version_digests.last_recorded_version(log.parents[1]) == manifest.view.version
    log.write_text("".join(change(lines)))
    cold = reopen(manifest)
    assert cold.view.version == manifest.view.version
    assert head_of(cold, cold.view).commit == records[-1]


def recorded_line(version: int) -> str:
    line = f"{version} 1 ab"
    return f"{line} {digest_text(line)[:8]}\n"


def test_open_does_not_list_the_versions_of_a_local_graph(tmp_path: Path) -> None:
    manifest = make_manifest(str(tmp_path / "graph"))
    move(manifest, manifest.view)
    versions = tmp_path / "graph" / PATH / "_versions"
    # A later version that does not follow the newest one is found by a listing only.
    (versions / Path(version_file(900)).name).write_bytes(b"")
    assert reopen(manifest).view.version == manifest.view.version
