"""The folder of an export: what may be there before, what is there afterwards, and what a failure leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.errors import InvalidInput, StorageError
from omnigraph.read.export.export_folder import MARKER, ExportFolder
from omnigraph.store.objects.object_store import ObjectStore
from tests.read.exports import files_of
from tests.support.places import fresh_memory

PART = "node-Thing-00000.ndjson"
TABLE = "nodes/Thing/part-00000.parquet"


def put(folder: ExportFolder, *names: str) -> list[str]:
    for name in names:
        folder.store.put(folder.prefix + name, name.encode())
    return list(names)


def keys(folder: ExportFolder) -> list[str]:
    return [info.key for info in folder.store.list()]


@pytest.fixture(params=["local", "memory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "out") if request.param == "local" else f"{fresh_memory()}/out"


def test_the_mark_comes_last_and_tells_what_is_there(target: str) -> None:
    folder = ExportFolder.prepare(target, {})
    names = put(folder, PART, TABLE)
    assert MARKER not in keys(folder)
    folder.publish(names, {"commit": "c"})
    assert keys(folder) == [MARKER, *names]
    assert json.loads(folder.store.get(MARKER).data) == {"commit": "c"}
    assert folder.store.get(TABLE).data == TABLE.encode()


def test_on_a_disk_parts_are_out_of_sight_until_all_are_there(tmp_path: Path) -> None:
    folder = ExportFolder.prepare(str(tmp_path), {})
    names = put(folder, PART)
    assert keys(folder) == []
    assert list(tmp_path.glob("*.ndjson")) == []
    folder.publish(names, {})
    assert [path.name for path in sorted(tmp_path.iterdir())] == [MARKER, PART]


def test_a_folder_that_holds_something_is_refused(target: str) -> None:
    ObjectStore.open(target).put("precious.txt", b"")
    with pytest.raises(InvalidInput, match="is not empty"):
        ExportFolder.prepare(target, {})
    with pytest.raises(InvalidInput, match=r"contains `precious\.txt`, which is not part of an export"):
        ExportFolder.prepare(target, {}, overwrite=True)
    assert ObjectStore.open(target).exists_any()


@pytest.mark.parametrize(
    "name",
    [
        "sub/_SUCCESS",
        "node-Thing-00000.ndjson.bak",
        "x-node-Thing-00000.ndjson",
        "nodes/a/b/part-00000.parquet",
        "part-00000.parquet",
    ],
)
def test_names_that_only_look_like_parts_are_not_overwritten(name: str) -> None:
    target = fresh_memory()
    ObjectStore.open(target).put(name, b"")
    with pytest.raises(InvalidInput, match="not part of an export"):
        ExportFolder.prepare(target, {}, overwrite=True)


def test_an_export_can_be_overwritten_and_nothing_of_it_stays(target: str) -> None:
    before = ExportFolder.prepare(target, {})
    before.publish(put(before, PART, "edge-Old-00007.ndjson", TABLE), {"commit": "old"})
    with pytest.raises(InvalidInput, match="is not empty"):
        ExportFolder.prepare(target, {})
    after = ExportFolder.prepare(target, {}, overwrite=True)
    after.publish(put(after, PART), {"commit": "new"})
    assert keys(after) == [MARKER, PART]
    assert b"new" in after.store.get(MARKER).data


def test_what_fails_on_a_disk_leaves_the_export_before(tmp_path: Path) -> None:
    before = ExportFolder.prepare(str(tmp_path), {})
    before.publish(put(before, PART, TABLE), {"commit": "old"})
    found = files_of(tmp_path)
    failed = ExportFolder.prepare(str(tmp_path), {}, overwrite=True)
    names = put(failed, PART)
    with pytest.raises(StorageError, match="a part of the export is missing in") as caught:
        failed.publish([*names, "node-Thing-00001.ndjson"], {})
    failed.discard(names, caught.value)
    assert files_of(tmp_path) == found
    assert b"old" in (tmp_path / MARKER).read_bytes()


def test_what_fails_on_a_store_is_not_marked_and_removed() -> None:
    target = fresh_memory()
    before = ExportFolder.prepare(target, {})
    before.publish(put(before, PART), {})
    failed = ExportFolder.prepare(target, {}, overwrite=True)
    assert keys(failed) == []
    names = put(failed, PART, TABLE)
    failed.discard([*names, "never-written"], StorageError("the disk is full"))
    assert keys(failed) == []


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("precious", encoding="utf-8")
    with pytest.raises(InvalidInput, match="is a file"):
        ExportFolder.prepare(str(tmp_path / "out"), {}, overwrite=True)
    assert (tmp_path / "out").read_text(encoding="utf-8") == "precious"
