"""Objects on a local disk: syncing, state after a crash, locks."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from omnigraph.errors import NotFound, StorageError
from omnigraph.store.objects.local_backend import is_temporary
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.sync import Durability
from tests.store.local_writer import MARK
from tests.support.waiting import HANG

ROOT = Path(__file__).parents[2]
NEW = b"new" * 1000
CALLS = "fsync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat"
Work = Literal["put", "create", "replace", "delete"]


def write(
    root: Path, work: Work, key: str, *, durability: Durability = "full", inject: str | None = None
) -> tuple[int, list[str], list[str]]:
    """Run a write under strace; return the exit code, the output and the system calls of the write."""
    trace = root.parent / "trace"
    task = {"root": str(root), "work": work, "key": key, "durability": durability}
    command = ["strace", "-f", "-y", "-qq", "-o", str(trace), "-e", f"trace={CALLS},write"]
    if inject:
        command += ["-e", f"inject={inject}"]
    run = subprocess.run(
        [*command, sys.executable, "-m", "tests.support.lean", "tests.store.local_writer", json.dumps(task)],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    calls = trace.read_text().splitlines()
    begun = next(number for number, call in enumerate(calls) if MARK in call)
    return (
        run.returncode,
        run.stdout.splitlines(),
        [call for call in calls[begun + 1 :] if "write(" not in call],
    )


def name_of(call: str) -> str:
    """Return the name of a system call."""
    return call.split(None, 1)[1].partition("(")[0]


def steps(calls: list[str], root: Path) -> list[str]:
    """Describe system calls in short sentences: the action on the temporary file, the object or a directory."""
    said = []
    for call in calls:
        match = re.search(r"(fsync|rename|link|unlink|mkdir)\w*\((.*)\) = 0", call)
        if match is None:
            continue
        verb, arguments = match.groups()
        path = re.search(r"[<\"]([^>\"]*)[>\"]", arguments[arguments.find(str(root)) - 1 :])
        assert path is not None, call
        name = Path(path.group(1)).relative_to(root.parent).as_posix()
        said.append(f"{verb} {'temporary' if is_temporary(Path(name).name) else name}")
    return said


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "graph"
    folder.mkdir()
    return folder


@pytest.mark.faults
class TestUnderStrace:
    def test_a_put_is_synced_before_and_after_its_rename(self, root: Path) -> None:
        code, _, calls = write(root, "put", "new/a")
        assert code == 0
        assert steps(calls, root) == [
            "mkdir graph/new",
            "fsync graph",
            "fsync graph",
            "fsync temporary",
            "rename temporary",
            "fsync graph/new",
        ]

    def test_a_creation_is_synced_before_and_after_its_link(self, root: Path) -> None:
        _, _, calls = write(root, "create", "a")
        assert steps(calls, root) == [
            "fsync temporary",
            "link temporary",
            "unlink temporary",
            "fsync graph",
        ]

    def test_a_replacement_and_a_delete_are_synced(self, root: Path) -> None:
        ObjectStore.open(str(root)).put("a", b"old")
        _, _, calls = write(root, "replace", "a")
        assert steps(calls, root) == ["fsync temporary", "rename temporary", "fsync graph"]
        _, _, calls = write(root, "delete", "a")
        assert steps(calls, root) == ["unlink graph/a", "fsync graph"]

    @pytest.mark.parametrize("work", ["put", "create", "replace", "delete"])
    def test_durability_os_syncs_nothing(self, root: Path, work: Work) -> None:
        if work != "create":
            ObjectStore.open(str(root)).put("a", b"old")
        code, _, calls = write(root, work, "a", durability="os")
        assert code == 0
        assert [step for step in steps(calls, root) if step.startswith("fsync")] == []

    @pytest.mark.parametrize("work", ["put", "create", "replace", "delete"])
    def test_a_writer_killed_at_any_step_leaves_the_old_or_the_new(self, root: Path, work: Work) -> None:
        if work != "create":
            ObjectStore.open(str(root)).put("a", b"old")
        code, _, calls = write(root, work, "a")
        assert code == 0
        # strace counts each kind of call separately.
        kinds = ("fsync", "rename", "link,linkat", "unlink")
        counts = {kind: sum(name_of(call) in kind.split(",") for call in calls) for kind in kinds}
        assert sum(counts.values()) == {"put": 4, "create": 4, "replace": 4, "delete": 2}[work]
        for kind, count in counts.items():
            for nth in range(1, count + 1):
                self.check_cut(root, work, f"{kind}:signal=SIGKILL:when={nth}")

    def check_cut(self, root: Path, work: Work, inject: str) -> None:
        """Kill a writer, and check the state that it left."""
        store = ObjectStore.open(str(root))
        old = b"" if work == "create" else b"old"
        store.delete("a")
        if old:
            store.put("a", old)
        code, _, _ = write(root, work, "a", inject=inject)
        assert code != 0
        try:
            data = store.get("a").data
        except NotFound:
            data = b""
        assert data in (old, b"" if work == "delete" else NEW)
        # No lock remains, and listings omit temporary files.
        store.put("a", b"after")
        assert [found.key for found in store.list()] == ["a"]

    def test_a_name_that_cannot_be_synced_is_an_unknown_outcome(self, root: Path) -> None:
        # The second sync is that of the directory, after the rename.
        code, output, _ = write(root, "put", "a", inject="fsync:error=EIO:when=2")
        assert (code, output[-1]) == (0, '"unknown"')
        assert ObjectStore.open(str(root)).get("a").data == NEW

    def test_content_that_cannot_be_synced_never_shows(self, root: Path) -> None:
        code, _, _ = write(root, "put", "a", inject="fsync:error=EIO:when=1")
        assert code != 0
        assert list(root.iterdir()) == []


def test_a_leftover_of_a_crash_is_no_object(root: Path) -> None:
    store = ObjectStore.open(str(root))
    (root / ".omnigraph-0123.tmp").write_bytes(b"half")
    assert list(store.list()) == []
    assert not store.exists_any()


def test_a_failed_write_leaves_nothing_behind(root: Path) -> None:
    store = ObjectStore.open(str(root))
    store.put("a/b", b"1")
    with pytest.raises(StorageError) as caught:
        store.put("a", b"2")
    assert not caught.value.transient
    assert [path.name for path in root.iterdir()] == ["a"]


def test_a_path_through_a_file_is_an_error_not_a_crash(root: Path) -> None:
    store = ObjectStore.open(str(root))
    store.put("a", b"1")
    with pytest.raises(StorageError):
        store.put("a/b", b"2")
    store.delete("a/b")
    assert list(store.list("a")) == []


def test_a_folder_that_vanished_is_made_again(root: Path) -> None:
    store = ObjectStore.open(str(root))
    store.put("a/b", b"1")
    store.delete("a/b")
    (root / "a").rmdir()
    store.put("a/b", b"2")
    assert store.get("a/b").data == b"2"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a directory as a conditional replace does between comparison and rename."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@pytest.mark.parametrize("work", ["put", "replace", "delete"])
def test_a_change_waits_for_a_replace_in_progress(root: Path, work: Work) -> None:
    store = ObjectStore.open(str(root))
    tag = store.put("a", b"old")
    changes: dict[Work, Callable[[], object]] = {
        "put": lambda: store.put("a", b"new"),
        "replace": lambda: store.replace_if_matches("a", b"new", tag),
        "delete": lambda: store.delete("a"),
    }
    with ThreadPoolExecutor(1) as threads:
        with locked(root):
            change = threads.submit(changes[work])
            with pytest.raises(TimeoutError):
                change.result(timeout=0.1)
            assert store.get("a").data == b"old"
        change.result(HANG)
    assert [found.size for found in store.list()] == ([] if work == "delete" else [3])
    assert work == "delete" or store.get("a").data == b"new"


def test_a_holder_that_never_lets_go_is_waited_for_only_so_long(root: Path) -> None:
    store = ObjectStore.open(str(root), {"retry_timeout": "50ms"})
    with locked(root), pytest.raises(StorageError) as caught:
        store.put("a", b"1")
    assert caught.value.transient
    assert list(root.iterdir()) == []
