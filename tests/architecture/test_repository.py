"""Habits of the whole repository: short files, no machine's own paths, a Makefile that explains itself."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.architecture.modules import PACKAGE, ROOT

LONGEST_FILE = 600
NOT_OURS = {".git", ".venv", "build", "dist"}
CACHES = ("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", "spark-warehouse")

# Homes and checkouts of one machine. Written in pieces, so that this file does not break its own rule.
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(?:" + "|".join(("root", "home", "Users", "work")) + r")/\w")
UNFINISHED = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")


def text_files() -> list[tuple[str, str]]:
    """Every file of the project that is text, by its path below the root."""
    found = []
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if parts[0] in NOT_OURS or any(part in CACHES for part in parts) or not path.is_file():
            continue
        try:
            found.append((path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return found


def lines_matching(pattern: re.Pattern[str], path: str, text: str) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", makefile(), flags=re.MULTILINE))


def test_every_source_file_is_short_enough_to_read() -> None:
    lengths = {
        path.relative_to(PACKAGE).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".lark")
    }
    assert {path: lines for path, lines in lengths.items() if lines > LONGEST_FILE} == {}


@pytest.mark.parametrize("folder", ["root", "home", "Users", "work"])
def test_a_planted_machine_path_is_found(folder: str) -> None:
    assert lines_matching(MACHINE_PATH, "a.md", f'run "/{folder}/ana/bin/tool" first')


@pytest.mark.parametrize("text", ["docs/work/page.md", "https://example.org/home/x", "$HOME/work/a"])
def test_a_path_that_only_looks_alike_is_left_alone(text: str) -> None:
    assert lines_matching(MACHINE_PATH, "a.md", text) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert [line for path, text in text_files() for line in lines_matching(MACHINE_PATH, path, text)] == []


def test_nothing_is_marked_as_unfinished() -> None:
    sources = [(path, text) for path, text in text_files() if path.startswith(("src/", "tests/", "scripts/"))]
    assert [line for path, text in sources for line in lines_matching(UNFINISHED, path, text)] == []


def test_the_repository_is_seen() -> None:
    paths = {path for path, _ in text_files()}
    assert {"Makefile", "pyproject.toml", ".ci/run", "src/omnigraph/errors.py"} <= paths


def test_help_lists_every_target() -> None:
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make ([a-z-]+) +\S", listed, flags=re.MULTILINE)) == targets()


def test_every_target_is_phony() -> None:
    # A file called `test` or `demo` must not turn a command into a no-op.
    declared = re.search(r"^\.PHONY: (.*)$", makefile(), flags=re.MULTILINE)
    assert declared is not None
    assert set(declared.group(1).split()) == targets()


SCRIPTS = [
    ".ci/run",
    "scripts/bootstrap",
    "scripts/demo",
    "scripts/generate-async",
    "scripts/layer-diagram",
    "scripts/parser-tables",
    "scripts/smoke-wheel",
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_executable_and_stop_at_the_first_failure(script: str) -> None:
    path: Path = ROOT / script
    assert path.stat().st_mode & 0o111
    assert "set -euo pipefail" in path.read_text(encoding="utf-8")
