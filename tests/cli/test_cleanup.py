"""`omnigraph cleanup`: required policy, confirmation, and the removed versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.graphs import add_people, make_graph, remove_people, some_days_ago
from tests.cli.running import run


@pytest.fixture
def graph(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph whose history is old: three commits, of which one left nothing behind."""
    with some_days_ago(folder, monkeypatch):
        make_graph("g.omni")
        add_people("g.omni", "Ann")
        remove_people("g.omni", "Ann")
        add_people("g.omni", "Bob")
    return folder


def files(folder: Path) -> int:
    return sum(path.is_file() for path in (folder / "g.omni" / "nodes").rglob("*"))


def document(*args: str) -> Any:
    return json.loads(run("cleanup", "g.omni", "--json", *args).stdout)


def test_cleanup_without_confirmation_removes_nothing_and_prints_the_policy(graph: Path) -> None:
    before = files(graph)
    outcome = run("cleanup", "g.omni", "--keep", "1")
    assert outcome.code == 0
    assert outcome.stderr == (
        "cleanup is destructive — rerun with --confirm. Policy for g.omni: keep 1 versions\n"
    )
    assert outcome.stdout.startswith("cleanup g.omni (keep 1 versions) — would remove 2 versions (")
    assert files(graph) == before


def test_cleanup_confirmed_removes_what_the_preview_listed(graph: Path) -> None:
    before = files(graph)
    foretold = run("cleanup", "g.omni", "--keep", "1").stdout
    outcome = run("cleanup", "g.omni", "--keep", "1", "--confirm")
    assert outcome.code == 0
    assert outcome.stderr == "omnigraph cleanup → g.omni (direct, local)\n"
    assert outcome.stdout == foretold.replace("would remove", "removed")
    assert outcome.stdout.endswith(" bytes) across 2 datasets\n")
    assert files(graph) < before
    assert run("snapshot", "g.omni").stdout.splitlines()[3].endswith(" entities=1")
    assert len(run("commit", "list", "g.omni").stdout.splitlines()) == 4


def test_cleanup_run_twice_removes_nothing_the_second_time(graph: Path) -> None:
    assert graph.is_dir()
    run("cleanup", "g.omni", "--keep", "1", "--confirm")
    again = run("cleanup", "g.omni", "--keep", "1", "--confirm", "--quiet")
    assert (again.code, again.stderr) == (0, "")
    assert (
        again.stdout == "cleanup g.omni (keep 1 versions) — removed 0 versions (0 bytes) across 2 datasets\n"
    )


@pytest.mark.usefixtures("graph")
def test_cleanup_with_both_policies_removes_versions_beyond_both() -> None:
    assert "would remove 0 versions" in run("cleanup", "g.omni", "--keep", "1", "--older-than", "30d").stdout
    outcome = run("cleanup", "g.omni", "--keep", "1", "--older-than", "1d")
    assert outcome.stdout.startswith(
        "cleanup g.omni (keep 1 versions, older than 1d) — would remove 2 versions"
    )


@pytest.mark.usefixtures("graph")
def test_cleanup_json_counts_by_type_and_has_confirmed() -> None:
    found = document("--older-than", "90m")
    person, knows = found.pop("datasets")
    assert found == {
        "uri": "g.omni",
        "keep_versions": None,
        "older_than_secs": 5400,
        "confirmed": False,
        "objects_removed": 0,
        "objects_error": None,
    }
    assert (knows["type_key"], knows["bytes_removed"], knows["old_versions_removed"]) == ("edge:Knows", 0, 0)
    assert (person["type_key"], person["old_versions_removed"], person["error"]) == ("node:Person", 2, None)
    assert person["bytes_removed"] > 0
    assert document("--older-than", "90m", "--confirm") == {
        **found,
        "confirmed": True,
        "datasets": [person, knows],
    }


@pytest.mark.usefixtures("folder")
def test_cleanup_keeps_young_files_unless_grace_is_zero() -> None:
    make_graph("g.omni")
    for name in ("Ann", "Bob"):
        add_people("g.omni", name)
    assert "would remove 0 versions" in run("cleanup", "g.omni", "--keep", "1").stdout
    assert "would remove 1 versions" in run("cleanup", "g.omni", "--keep", "1", "--grace", "0s").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "cleanup requires at least one of --keep or --older-than"),
        (["--older-than", "soon"], "'soon' is not a duration"),
        (["--keep", "0"], "keep: expected at least 1, got 0; the head of a branch is always kept"),
        (["--keep", "1", "--grace", "-1s"], "'-1s' is not a duration"),
    ],
)
@pytest.mark.usefixtures("graph")
def test_cleanup_with_invalid_policy_is_refused(args: list[str], message: str) -> None:
    outcome = run("cleanup", "g.omni", *args, "--confirm")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr.splitlines()[0] == f"error: {message}"


def test_cleanup_with_failing_type_names_it_and_continues(graph: Path) -> None:
    (edges,) = (graph / "g.omni" / "edges").iterdir()
    shutil.rmtree(edges / "_versions")
    outcome = run("cleanup", "g.omni", "--keep", "1", "--confirm", "--quiet")
    assert outcome.code == 1
    assert outcome.stdout.startswith("cleanup g.omni (keep 1 versions) — removed 2 versions (")
    assert outcome.stderr.startswith("error: edge:Knows: ")
