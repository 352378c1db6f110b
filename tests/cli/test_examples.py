"""The examples are valid, except those that show errors."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.cli.running import ROOT, run
from tests.support.waiting import HANG

EXAMPLES = sorted(
    folder.name
    for folder in (ROOT / "examples").iterdir()
    if (folder / "schema.pg").is_file() and folder.name != "mistakes"
)


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_the_examples_are_seen() -> None:
    assert {"research", "social"} <= set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_neither_errors_nor_warnings(name: str) -> None:
    folder = Path("examples") / name
    assert run("schema", "check", str(folder)).code == 0
    outcome = run("lint", "--schema", str(folder / "schema.pg"), str(folder), "--json")
    assert outcome.code == 0
    reports = json.loads(outcome.stdout)
    assert [(item["errors"], item["warnings"], item["infos"]) for item in reports] == [(0, 0, 0)] * len(
        reports
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_the_one_layout(name: str) -> None:
    assert run("fmt", "--check", f"examples/{name}").code == 0


def test_the_next_schema_of_the_social_example_is_reachable() -> None:
    outcome = run(
        "schema", "plan", "--from", "examples/social/schema.pg", "--schema", "examples/social/schema_next.pg"
    )
    assert "supported: yes\n" in outcome.stdout


def test_every_mistaken_query_is_refused() -> None:
    outcome = run(
        "lint", "--schema", "examples/social/schema.pg", "--query", "examples/mistakes/queries.gq", "--json"
    )
    assert {item["status"] for item in json.loads(outcome.stdout)["results"]} == {"error"}


def script(path: str) -> ModuleType:
    """A script of the examples, loaded without running it."""
    spec = importlib.util.spec_from_file_location("script", ROOT / "examples" / path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules["script"] = found
    try:
        spec.loader.exec_module(found)
    finally:
        del sys.modules["script"]
    return found


def write_books(path: Path) -> None:
    """Write the data of the demo with a tenth of its size."""
    data = script("books/make_data.py")
    for name in ("READERS", "BOOKS", "FOLLOWS", "RATINGS"):
        setattr(data, name, getattr(data, name) // 10)
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in data.records()), encoding="utf-8")


def test_every_local_command_of_the_demo_ends_with_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    demo = script("demo.py")
    on_spark = next(number for number, step in enumerate(demo.STEPS) if "--engine spark" in step.command)
    write_books(Path(demo.DATA))
    kept: dict[str, str] = {}
    for step in demo.STEPS[:on_spark]:
        command = step.command
        for name, value in kept.items():
            command = command.replace(f"<{name}>", value)
        program, *words = shlex.split(command)
        if program == "omnigraph":
            outcome = run(*words)
            assert outcome.code == step.code, f"{command}\n{outcome.output}"
            if step.keep is not None:
                kept[step.keep] = outcome.stdout.partition(" ")[0]


@pytest.mark.long
def test_the_demo_runs_through_from_any_directory(tmp_path: Path) -> None:
    tour = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py"],
        cwd=tmp_path,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert tour.returncode == 0, tour.stdout + tour.stderr
    # What goes there is what commands say about their target, the refused change, the lost race and the conflict.
    lines = tour.stderr.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("error: merge conflicts"))
    table, (answers, example) = lines[start + 1 : start + 4], lines[start + 6 : start + 8]
    assert table[0].split()[:3] == ["id", "|", "kind"]
    assert answers.startswith("resolve them with --resolve ours")
    assert example.split()[0].rstrip(":") == table[2].split()[0]
    del lines[start + 1 : start + 8]
    said = [line.split(" ", 3)[:3] for line in lines]
    assert said == [
        ["omnigraph", "load", "→"],
        ["omnigraph", "branch", "create"],
        ["error:", "@range", "violation"],
        ["error:", "precondition", "failed"],
        ["omnigraph", "branch", "merge"],
        ["error:", "merge", "conflicts:"],
        ["omnigraph", "branch", "merge"],
        ["omnigraph", "revert", "→"],
        ["exported", "39057", "records"],
        ["omnigraph", "load", "→"],
    ]
    assert "with append: 40811 entities across 2 node types and 2 edge types" in tour.stdout
    assert (
        "on branch archive with append: 550000 entities across 1 node types and 1 edge types" in tour.stdout
    )
    assert "changed trial via withdraw: 1 nodes, 1753 edges" in tour.stdout
    # The newest rating, the one before it from an earlier commit, and the newest again after a merge was undone.
    assert re.findall(r"^Leo Gold .* \| (\d) +$", tour.stdout, flags=re.MULTILINE) == ["4", "5", "4"]
    assert "\x1b" not in tour.stdout
    assert "Try next," in tour.stdout
