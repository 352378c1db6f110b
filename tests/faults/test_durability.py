"""Durability: every file and directory entry of an acknowledged write has been synced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import wanted_cuts
from tests.support.crash import copy_graph, worker
from tests.support.synced import Call, Disk, read_calls, trace
from tests.support.workload import KINDS, Setting, Task, check_invariants, look

pytestmark = [pytest.mark.faults, pytest.mark.slow]

# A hint file of Lance. A test below shows that nothing depends on it.
HINT = "latest_version_hint.json"
# Files whose loss changes nothing: a hint, temporary files, and the digests of old versions of the manifest.
UNSYNCED = (HINT, "/.tmp", "__manifest/_digests")
SAMPLE = ["init", "mixed", "index", "bulk", "group", "create-branch"]


def acknowledged_disk(calls: list[Call], root: str) -> Disk:
    """Return the state of the disk when the write was acknowledged."""
    disk = Disk(root)
    for call in calls:
        if call.name == "write" and '"ACK' in call.text:
            return disk
        disk.apply(call)
    raise AssertionError("nothing was acknowledged")


def lost_files(disk: Disk) -> list[str]:
    """What would be lost, without files that need not be synced."""
    return [item for item in disk.lost() if not any(part in item for part in UNSYNCED)]


@pytest.mark.parametrize("kind", ["init", *KINDS] if wanted_cuts() == "all" else SAMPLE)
def test_everything_is_synced_before_it_is_acknowledged(
    kind: str, tmp_path: Path, settings: Callable[[Setting], Path]
) -> None:
    uri = copy_graph(settings("nothing" if kind == "init" else KINDS[kind].setting), tmp_path / "graph")
    disk = acknowledged_disk(trace(worker(Task(kind, uri)), tmp_path / "calls"), uri)
    if kind != "heal":
        assert any(name.startswith("__manifest/_versions/") for name in disk.made())
    assert lost_files(disk) == []


def test_the_operating_system_decides_when_it_is_asked_to(
    tmp_path: Path, settings: Callable[[Setting], Path]
) -> None:
    uri = copy_graph(settings("small"), tmp_path / "graph")
    calls = trace(worker(Task("bulk", uri, durability="os")), tmp_path / "calls")
    disk = acknowledged_disk(calls, uri)
    assert disk.made()
    assert disk.syncs == 0


@pytest.mark.parametrize(
    "hint",
    [
        b"",
        b"\0" * 13,
        b'{"version":',
        b'{"version":1}',
        b'{"version":999999}',
        b'{"version":18446744073709551615}',
    ],
    ids=["empty", "zeros", "torn", "old", "from-the-future", "absurd"],
)
def test_a_lost_or_torn_hint_changes_nothing(
    hint: bytes, tmp_path: Path, settings: Callable[[Setting], Path]
) -> None:
    # It is written after a commit and not synced, so any of these states may exist after a power failure.
    uri = copy_graph(settings("small"), tmp_path / "graph")
    before = look(uri)
    (Path(uri) / "__manifest" / "_versions" / HINT).write_bytes(hint)
    assert look(uri) == before
    assert check_invariants(uri).state == before


def test_a_file_that_was_only_written_would_be_lost() -> None:
    lines = [
        '7 openat(AT_FDCWD, "/g/a.tmp", O_WRONLY|O_CREAT|O_EXCL, 0666) = 9</g/a.tmp>',
        '7 write(9</g/a.tmp>, "x", 1) = 1',
        '7 rename("/g/a.tmp", "/g/a" <unfinished ...>',
        '8 mkdir("/g/b", 0777) = 0',
        "7 <... rename resumed>) = 0",
    ]
    disk = Disk("/g")
    for call in read_calls(lines):
        disk.apply(call)
    assert disk.lost() == ["the content of a", "the name a", "the name b"]
    for call in read_calls(["7 fsync(9</g/a>) = 0", "7 fsync(9</g>) = 0"]):
        disk.apply(call)
    assert disk.lost() == []
    for call in read_calls(['7 write(9</g/a>, "y", 1) = 1']):
        disk.apply(call)
    assert disk.lost() == ["the content of a"]
