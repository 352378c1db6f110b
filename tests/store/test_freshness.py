"""Change detection of directories: a directory counts as unchanged only if this is certain."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from omnigraph.graph.repository import Repository
from omnigraph.store.manifest.freshness import DirectoryState, is_unchanged, read_directory_state
from tests.support.places import fresh_memory
from tests.support.repositories import handle, make_graph, put

SECOND = 1_000_000_000
LONG_AGO = 60 * SECOND
# Its type is not one of the local file systems.
STRANGE = Path("/proc")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory on a local file system."""
    assert read_directory_state(tmp_path) is not None, "run with --basetemp on a disk of this machine's own"
    return tmp_path


def settle(folder: Path, ago: int = LONG_AGO) -> None:
    """Set the modification time of a directory to the past."""
    then = time.time_ns() - ago
    os.utime(folder, ns=(then, then))


def versions_of(graph: Repository) -> Path:
    return Path(graph.location.path) / "__manifest" / "_versions"


def test_a_folder_is_unchanged_until_something_is_made_renamed_or_removed_in_it(folder: Path) -> None:
    for change in (
        lambda: (folder / "a").touch(),
        lambda: (folder / "a").rename(folder / "b"),
        lambda: (folder / "b").unlink(),
    ):
        settle(folder)
        seen = read_directory_state(folder)
        assert is_unchanged(folder, seen)
        change()
        assert not is_unchanged(folder, seen)


@pytest.mark.parametrize("ago", [0, SECOND // 1_000, SECOND, 2 * SECOND])
def test_a_folder_that_changed_a_moment_before_the_look_is_not_trusted(folder: Path, ago: int) -> None:
    settle(folder, ago)
    seen = read_directory_state(folder)
    # With a coarse clock a change may get the time of the previous one.
    assert seen is not None
    assert seen.modified == folder.stat().st_mtime_ns
    assert not is_unchanged(folder, seen)


def test_a_time_in_the_future_is_not_trusted(tmp_path: Path) -> None:
    settle(tmp_path, -LONG_AGO)
    assert not is_unchanged(tmp_path, read_directory_state(tmp_path))


def test_a_look_is_judged_by_the_time_of_the_look_not_by_the_present(folder: Path) -> None:
    settle(folder)
    modified = folder.stat().st_mtime_ns
    assert is_unchanged(folder, DirectoryState(modified, modified + 3 * SECOND))
    # The modification time was too recent when the state was read: a later change could have the same time.
    assert not is_unchanged(folder, DirectoryState(modified, modified + SECOND))


@pytest.mark.skipif(not STRANGE.exists(), reason="there is no such file system here")
def test_a_look_at_a_file_system_of_unknown_kind_tells_nothing() -> None:
    assert STRANGE.stat().st_mtime_ns
    assert read_directory_state(STRANGE) is None
    assert not is_unchanged(STRANGE, None)


def test_a_folder_that_is_not_there_tells_nothing(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert read_directory_state(missing) is None
    assert not is_unchanged(missing, DirectoryState(0, LONG_AGO))


# --- handles ------------------------------------------------------------------------------------------------


def test_commits_in_quick_succession_are_each_seen_by_the_next_look(tmp_path: Path) -> None:
    writer = make_graph(str(tmp_path / "g"))
    reader = handle(writer, "r")
    seen = []
    for number in range(50):
        commit = put(writer, {"a": str(number)})
        seen.append(reader.snapshot().commit_id == commit.id)
    assert seen == [True] * 50
    writer.close()
    reader.close()


def test_a_commit_right_after_a_settled_look_is_seen(tmp_path: Path) -> None:
    writer = make_graph(str(tmp_path / "g"))
    reader = handle(writer, "r")
    for number in range(20):
        settle(versions_of(writer))
        before = reader.snapshot().commit_id
        assert reader.snapshot().commit_id == before
        commit = put(writer, {"a": str(number)})
        assert reader.snapshot().commit_id == commit.id
    writer.close()
    reader.close()


def test_a_look_before_the_folder_has_settled_does_not_hide_a_commit_of_the_same_tick(tmp_path: Path) -> None:
    writer = make_graph(str(tmp_path / "g"))
    reader = handle(writer, "r")
    folder = versions_of(writer)
    reader.snapshot()
    tick = folder.stat().st_mtime_ns
    commit = put(writer, {"a": "1"})
    # Simulate a coarse clock that gives both changes the same time.
    os.utime(folder, ns=(tick, tick))
    assert reader.snapshot().commit_id == commit.id
    writer.close()
    reader.close()


def test_a_settled_folder_is_not_looked_into_again(folder: Path) -> None:
    graph = make_graph(str(folder / "g"))
    versions = versions_of(graph)
    settle(versions)
    known = graph.snapshot().commit_id
    then = versions.stat()
    put(handle(graph), {"a": "1"})
    # A change that keeps the modification time is not detected. This shows that the time was used.
    os.utime(versions, ns=(then.st_mtime_ns, then.st_mtime_ns))
    assert graph.snapshot().commit_id == known
    versions.touch()
    assert graph.snapshot().commit_id != known
    graph.close()


def test_a_handle_sees_its_own_commits_on_a_folder_that_has_settled(tmp_path: Path) -> None:
    graph = make_graph(str(tmp_path / "g"))
    for number in range(3):
        settle(versions_of(graph))
        graph.snapshot()
        commit = put(graph, {"a": str(number)})
        assert graph.snapshot().commit_id == commit.id
    graph.close()


def test_graphs_that_are_not_in_a_folder_are_asked_every_time() -> None:
    writer = make_graph(fresh_memory())
    reader = handle(writer, "r")
    for number in range(5):
        commit = put(writer, {"a": str(number)})
        assert reader.snapshot().commit_id == commit.id
