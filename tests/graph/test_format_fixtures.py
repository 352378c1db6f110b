"""Graphs that releases of every format wrote: each opens, reads, writes, merges and is migrated in place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.api.local.local_graph import LocalGraph
from omnigraph.errors import UnsupportedFormat
from omnigraph.graph.format_version import CURRENT, OLDEST_SUPPORTED, check_format
from omnigraph.graph.repository import Repository
from omnigraph.store.file_digests import parse_digests
from tests.fixtures.formats.build import FOLDER, PHOTO, rows_of
from tests.maintain.damage import find_damage, flip_bit, verify_path

FORMATS = range(OLDEST_SUPPORTED, CURRENT + 1)
OPEN = "import sys, omnigraph as og; sys.stdin.read(); og.open(sys.argv[1], durability='os').close()"


@pytest.fixture(params=FORMATS)
def number(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def folder(number: int, tmp_path: Path) -> Path:
    """The graph of the archive of one format."""
    with tarfile.open(FOLDER / f"format-{number}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "graph"


@pytest.fixture
def expected(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder.parent / "expected.json").read_text(encoding="utf-8"))
    return found


def stored_format(folder: Path) -> int:
    graph = Repository.open(str(folder), mode="r")
    version = graph.manifest.registry(graph.manifest.view).format
    graph.close()
    return version


def check_rows(graph: og.Graph, expected: dict[str, Any]) -> None:
    for state, rows in expected.items():
        kind, name = state.split(" ")
        found = rows_of(graph, branch=name) if kind == "branch" else rows_of(graph, at=name)
        assert found == rows, state


def test_open_for_reading_reads_all_states_and_changes_nothing(
    folder: Path, number: int, expected: dict[str, Any]
) -> None:
    assert set(expected) >= {"branch main", "branch open", "branch trial"}
    before = sorted(str(file) for file in folder.rglob("*"))
    with og.open(folder, mode="r") as graph:
        check_rows(graph, expected)
        assert len(graph.commits()) > 10
        found = graph.get("Person", "photo")
        assert found is not None
        assert found["photo"] is not None
        assert graph.indexes()
    assert stored_format(folder) == number
    assert sorted(str(file) for file in folder.rglob("*")) == before
    assert len(PHOTO) == 10_240


def test_open_for_writing_migrates_then_writes_and_merges(folder: Path, expected: dict[str, Any]) -> None:
    with og.open(folder, durability="os") as graph:
        assert stored_format(folder) == CURRENT
        check_rows(graph, expected)
        graph.mutate('query one() { update Person set { age: 7 } where name = "p07" }')
        assert graph.branches.merge("open").outcome == "merged"
        ages = {row["name"]: row["age"] for row in rows_of(graph)["people"]}
        assert (ages["p05"], ages["p07"], ages["p01"], ages["p02"]) == (55, 7, 100, 200)
        assert {"name": "Core"} in rows_of(graph)["firms"]
        graph.optimize()
        graph.revert(graph.commits(limit=2)[1].id)
        graph.cleanup(keep=1, grace="0s", confirm=True)
    with og.open(folder, mode="r") as graph:
        assert {"name": "Core"} not in rows_of(graph)["firms"]
        assert len(rows_of(graph)["people"]) == len(expected["branch main"]["people"])


def test_backup_of_every_format_restores_to_a_graph_that_can_be_written(
    folder: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    og.backup(folder, tmp_path / "backup")
    check_rows(og.open(tmp_path / "backup"), expected)
    og.restore(tmp_path / "backup", tmp_path / "restored", verify="full")
    with og.open(tmp_path / "restored") as graph:
        check_rows(graph, expected)
        graph.branches.create("after")
    og.clone(folder, tmp_path / "clone")
    assert rows_of(og.open(tmp_path / "clone")) == rows_of(og.open(folder, "r"))


def test_migrated_graph_records_digests_of_new_files_only(folder: Path, number: int) -> None:
    with og.open(folder, durability="os") as graph:
        graph.mutate('query one() { insert Firm { name: "Last" } }')
        assert isinstance(graph, LocalGraph)
        manifest = graph._repository.manifest
        commits = list(manifest.all_commits(manifest.refresh()))
        digests = {commit.id: list(parse_digests(commit.files)) for commit in commits}
        newest = max(commits, key=lambda commit: commit.created_at)
        assert len(digests.pop(newest.id)) >= 3
        merges = {commit.id for commit in commits if commit.merged_parent is not None}
        assert all(bool(found) == (number > 1) for id_, found in digests.items() if id_ not in merges)


@pytest.mark.parametrize("number", [OLDEST_SUPPORTED], indirect=True)
def test_verify_record_of_a_migrated_graph_leaves_no_file_without_a_digest(folder: Path, number: int) -> None:
    with og.open(folder, durability="os") as graph:
        assert isinstance(graph, LocalGraph)
        graph.verify(all_commits=True, record=True)
        assert graph.verify(all_commits=True).not_recorded == 0
        old = [file for file in graph._repository.manifest.refresh().files if file.digest is None]
    kinds = {file.kind: f"__manifest/data/{file.name}" for file in old}
    assert {*kinds} >= ({"commit", "schema"} if number < 3 else set())
    for name in kinds.values():
        data = (folder / name).read_bytes()
        # The last bytes are those of the footer; no reader looks at the format number there.
        flip_bit(folder / name, (len(data) - 7) * 8)
        assert find_damage(verify_path(folder), name) is not None
        (folder / name).write_bytes(data)


def test_two_processes_that_migrate_at_once_both_succeed(folder: Path, expected: dict[str, Any]) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", OPEN, str(folder)], stdin=subprocess.PIPE, env=environment)
        for _ in range(2)
    ]
    for process in processes:
        # Both have imported the library when their input ends.
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait() for process in processes] == [0, 0]
    assert stored_format(folder) == CURRENT
    with og.open(folder, mode="r") as graph:
        check_rows(graph, expected)


def test_release_of_format_1_refuses_format_2() -> None:
    with pytest.raises(UnsupportedFormat, match="has format 2, this release of omnigraph supports up to 1"):
        check_format(2, current=1, oldest=1)
