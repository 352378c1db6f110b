"""The private folder of temporary files, and the removal of stale ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from omnigraph.server.uploads.temporary_files import private_temporary_folder
from tests.support.waiting import HANG

HOLD = """
import sys, tempfile
from pathlib import Path
from omnigraph.server.uploads.temporary_files import private_temporary_folder
with private_temporary_folder() as home:
    folder = tempfile.mkdtemp()
    Path(folder, "upload").write_bytes(b"x")
    print(home, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def hold(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start a process with a private folder and a file in it."""
    found = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "TMPDIR": str(parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert found.stdout is not None
    return found, Path(found.stdout.readline().strip())


def test_private_temporary_folder_is_removed_at_exit(parent: Path) -> None:
    with private_temporary_folder() as home:
        assert Path(tempfile.mkdtemp()).parent == home
        assert home.stat().st_mode & 0o077 == 0
        with private_temporary_folder() as inner:
            assert inner.parent == home
        assert home.is_dir()
    assert list(parent.iterdir()) == []
    assert tempfile.gettempdir() == str(parent)


def test_temporary_folder_of_killed_server_is_removed(parent: Path) -> None:
    alive, kept = hold(parent)
    killed, left = hold(parent)
    with alive, killed:
        killed.send_signal(signal.SIGKILL)
        killed.wait(HANG)
        assert any(left.rglob("upload"))
        with private_temporary_folder():
            assert not left.exists()
            assert any(kept.rglob("upload"))
        alive.communicate("")
    assert list(parent.iterdir()) == []


def test_unrelated_files_in_temporary_directory_are_kept(parent: Path) -> None:
    (parent / "elsewhere").mkdir()
    (parent / "elsewhere" / "kept").touch()
    (parent / "omnigraph-server-a").symlink_to(parent / "elsewhere")
    (parent / "omnigraph-server-a.lock").touch()
    (parent / "omnigraph-server-b").mkdir()
    (parent / "omnigraph-server-b.lock").symlink_to(parent / "elsewhere" / "kept")
    os.mkfifo(parent / "omnigraph-server-c.lock")
    with private_temporary_folder():
        pass
    assert (parent / "elsewhere" / "kept").exists()
    assert (parent / "omnigraph-server-b").is_dir()
