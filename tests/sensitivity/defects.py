"""Planted defects: patches that break one promise each, with the tests that must notice.

A patch begins with two comment lines, `# what it breaks` and `# caught by: <pytest arguments>`, the latter with
environment variables in front where the tests need one. `make sensitivity`
applies each to a copy of the tree and runs those tests: a defect that they let pass is a hole in the suite.
"""

from __future__ import annotations

import itertools
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent / "defects"
CAUGHT_BY = "# caught by: "
TIMEOUT = 600
COPIED = ("src", "tests", "docs", "examples", "pyproject.toml", "README.md", "CONTRIBUTING.md", "Makefile")


@dataclass(frozen=True, slots=True)
class Defect:
    """One patch."""

    name: str
    path: Path
    breaks: str
    tests: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()


def all_defects() -> list[Defect]:
    """Every planted defect, by name."""
    return [_read(path) for path in sorted(FOLDER.glob("*.patch"))]


def _read(path: Path) -> Defect:
    first, second, *_ = path.read_text().splitlines()
    words = shlex.split(second.removeprefix(CAUGHT_BY)) if second.startswith(CAUGHT_BY) else []
    variables = list(itertools.takewhile(lambda word: "=" in word, words))
    return Defect(
        path.stem,
        path,
        first.removeprefix("#").strip(),
        tuple(words[len(variables) :]),
        tuple((name, value) for name, _, value in (word.partition("=") for word in variables)),
    )


def copy_tree(target: Path) -> None:
    """The parts of the tree that the tests need."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target / name)


def apply(defect: Defect, tree: Path, *, reverse: bool = False) -> subprocess.CompletedProcess[str]:
    """Apply a patch to a copy, or take it back."""
    command = ["git", "apply", "--whitespace=nowarn", *(["--reverse"] if reverse else []), str(defect.path)]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


def is_caught(defect: Defect) -> tuple[bool, str]:
    """Whether its tests turn red, with the end of their output."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-defect-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        applied = apply(defect, tree)
        if applied.returncode:
            return False, f"the patch does not apply: {applied.stderr}"
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *defect.tests]
        environment = {"PYTHONPATH": f"{tree / 'src'}:{tree}", "PATH": _path(), "HOME": folder}
        environment.update(defect.variables)
        try:
            done = subprocess.run(
                command,
                cwd=tree,
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return True, "the tests did not come to an end"
        # 1 is pytest's code for failed tests; anything else means that they did not run as they should.
        return done.returncode == 1, done.stdout[-2000:] + done.stderr[-500:]


def _path() -> str:
    return f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def main() -> int:
    """Run all, or those named on the command line; 1 when any goes unnoticed."""
    wanted = set(sys.argv[1:])
    missed = 0
    defects = [item for item in all_defects() if not wanted or item.name in wanted]
    for defect in defects:
        started = time.monotonic()
        caught, output = is_caught(defect)
        verdict = "caught" if caught else "MISSED"
        sys.stdout.write(f"{verdict}  {defect.name}: {defect.breaks} ({time.monotonic() - started:.0f} s)\n")
        sys.stdout.flush()
        if not caught:
            missed += 1
            sys.stdout.write(output + "\n")
    sys.stdout.write(f"{len(defects) - missed} of {len(defects)} planted defects caught\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
