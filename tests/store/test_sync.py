"""Syncing of local files and of the directories above them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.errors import InvalidInput, StorageError
from omnigraph.store.sync import make_directories, sync_files, sync_tree
from tests.support.waiting import HANG

ROOT = Path(__file__).parents[2]

STRACE = ["strace", "-f", "-y", "-qq", "-e", "trace=fsync"]
SYNC = """
import json, sys
from pathlib import Path
from omnigraph.store import sync
name, *arguments = json.loads(sys.argv[1])
match name:
    case "files": sync.sync_files([Path(path) for path in arguments])
    case "tree": sync.sync_tree(Path(arguments[0]), [Path(path) for path in arguments[1:]])
    case "make": sync.make_directories(Path(arguments[0]))
"""


def synced(folder: Path, *arguments: str) -> list[str]:
    """Return the paths below `folder` that a call syncs, in the order in which the syncs start."""
    trace = folder.parent / "trace"
    subprocess.run(
        [*STRACE, "-o", str(trace), sys.executable, "-c", SYNC, json.dumps(arguments)],
        cwd=ROOT,
        check=True,
        timeout=HANG,
    )
    text = trace.read_text()
    paths = re.findall(r"fsync\(\d+<([^>]*)>", text)
    assert len(re.findall(r"= 0$", text, re.MULTILINE)) == len(paths)
    return [Path(path).relative_to(folder).as_posix() for path in paths]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    for name in ("a/one", "a/two", "b/deep/er/three"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    return folder


@pytest.mark.faults
def test_files_and_their_folders_are_synced_each_once(folder: Path) -> None:
    one, two = str(folder / "a/one"), str(folder / "a/two")
    assert sorted(synced(folder, "files", one, two, one)) == ["a", "a/one", "a/two"]


@pytest.mark.faults
def test_every_folder_up_to_the_root_is_synced_once(folder: Path) -> None:
    files = [str(folder / "a/one"), str(folder / "b/deep/er/three")]
    found = synced(folder, "tree", str(folder), *files)
    assert sorted(found) == [".", "a", "a/one", "b", "b/deep", "b/deep/er", "b/deep/er/three"]


@pytest.mark.faults
def test_the_names_of_new_folders_are_synced(folder: Path) -> None:
    assert synced(folder, "make", str(folder / "new/and/deep")) == ["new/and", "new", "."]
    assert synced(folder, "make", str(folder / "new/and/deep")) == []


def test_a_missing_file_is_an_error(folder: Path) -> None:
    with pytest.raises(StorageError) as caught:
        sync_files([folder / "missing"])
    assert not caught.value.transient


def test_one_file_that_is_missing_among_others_is_an_error(folder: Path) -> None:
    with pytest.raises(StorageError, match="missing"):
        sync_files([folder / "a/one", folder / "missing", folder / "a/two"])


def test_a_file_elsewhere_does_not_belong_to_the_tree(folder: Path) -> None:
    with pytest.raises(InvalidInput):
        sync_tree(folder / "a", [folder / "b/deep/er/three"])


def test_syncing_nothing_is_fine(folder: Path) -> None:
    sync_files([])
    sync_tree(folder, [])


def test_a_folder_below_a_file_cannot_be_made(folder: Path) -> None:
    with pytest.raises(StorageError):
        make_directories(folder / "a/one/more")
