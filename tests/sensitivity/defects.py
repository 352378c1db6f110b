"""Mutation testing with planted defects: each one breaks one promise, and the tests it names must fail.

A defect is a file `defects/<name>.toml`:

- `breaks`: the promise that the defect breaks, in one sentence.
- `caught_by`: pytest node ids; at least one of these tests must fail while the defect is planted.
- `environment`: environment variables for those tests (optional).
- `edits`: replacements in source files. `old` is one or more whole lines that occur exactly once in `file`;
  `new` replaces them. The lines are code: they hold no comments and no docstrings, so a defect survives edits of
  the text around it.

`make sensitivity` plants each defect in a copy of the tree and runs its tests. See `--help` for the options.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent / "defects"
OUTPUT = ROOT / "build" / "sensitivity"
COPIED = (
    "src",
    "tests",
    "docs",
    "examples",
    "scripts",
    "pyproject.toml",
    "README.md",
    "CONTRIBUTING.md",
    "Makefile",
)
# Seconds after which one wait of a test, one test, and all tests of a defect count as hung.
HANG_SECONDS = 120
TEST_TIMEOUT = 300
DEFECT_TIMEOUT = 1_800

Verdict: TypeAlias = Literal["caught", "MISSED", "BROKEN"]


class DefectError(Exception):
    """A defect that cannot be planted: its text does not occur exactly once."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement of whole lines in one file."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Defect:
    """One planted defect."""

    name: str
    breaks: str
    caught_by: tuple[str, ...]
    edits: tuple[Edit, ...]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome for one defect. `by` names the tests that failed, or the reason why the tests did not run."""

    name: str
    verdict: Verdict
    seconds: float
    by: tuple[str, ...] = ()


def all_defects() -> list[Defect]:
    """Return every planted defect, sorted by name."""
    return [_read(path) for path in sorted(FOLDER.glob("*.toml"))]


def _read(path: Path) -> Defect:
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    edits = tuple(Edit(**edit) for edit in document["edits"])
    return Defect(
        path.stem, document["breaks"], tuple(document["caught_by"]), edits, document.get("environment", {})
    )


def occurrences(text: str, lines: str) -> list[int]:
    """Return the offsets at which the given whole lines occur in a text."""
    return [found.start() for found in re.finditer(f"^{re.escape(lines)}", text, re.MULTILINE)]


def planted(defect: Defect, root: Path = ROOT) -> dict[str, str]:
    """Return the changed files with their new text. Every `old` is looked up in the unchanged text.

    Raises `DefectError` when an `old` does not occur exactly once or when two edits overlap.
    """
    texts: dict[str, str] = {}
    for file in dict.fromkeys(edit.file for edit in defect.edits):
        path = root / file
        if not path.exists():
            raise DefectError(f"{file} does not exist{_hint(defect, file, root)}")
        text = path.read_text(encoding="utf-8")
        spans = []
        for edit in (edit for edit in defect.edits if edit.file == file):
            found = occurrences(text, edit.old)
            if len(found) != 1:
                hint = _hint(defect, file, root)
                raise DefectError(f"{file} contains these lines {len(found)} times{hint}:\n{edit.old}")
            spans.append((found[0], found[0] + len(edit.old), edit.new))
        spans.sort(reverse=True)
        for (start, _, _), (_, end, _) in itertools.pairwise(spans):
            if end > start:
                raise DefectError(f"two edits of {file} overlap")
        for start, end, new in spans:
            text = text[:start] + new + text[end:]
        texts[file] = text
    return texts


def moved_to(defect: Defect, file: str, root: Path = ROOT) -> list[str]:
    """Return the source files that contain every `old` of a file's edits exactly once."""
    wanted = [edit.old for edit in defect.edits if edit.file == file]
    return [
        str(path.relative_to(root))
        for path, text in _sources(root)
        if all(len(occurrences(text, old)) == 1 for old in wanted)
    ]


def _hint(defect: Defect, file: str, root: Path) -> str:
    found = moved_to(defect, file, root)
    if len(found) == 1:
        return f"; the lines are now in {found[0]}, so set `file` to that, or run with --relocate"
    return f"; the lines occur in {', '.join(found) or 'no source file'}"


@cache
def _sources(root: Path) -> list[tuple[Path, str]]:
    return [(path, path.read_text(encoding="utf-8")) for path in sorted((root / "src").rglob("*.py"))]


def relocate(defect: Defect) -> list[str]:
    """Point edits whose lines moved to exactly one other file to that file; return what was changed."""
    changed = []
    for file in dict.fromkeys(edit.file for edit in defect.edits):
        path = ROOT / file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if all(len(occurrences(text, edit.old)) == 1 for edit in defect.edits if edit.file == file):
            continue
        found = moved_to(defect, file)
        if len(found) == 1:
            source = FOLDER / f"{defect.name}.toml"
            before = source.read_text(encoding="utf-8")
            source.write_text(
                before.replace(f'file = "{file}"', f'file = "{found[0]}"'),
                encoding="utf-8",
            )
            changed.append(f"{defect.name}: {file} -> {found[0]}")
    return changed


def missing_tests(defect: Defect, root: Path = ROOT) -> list[str]:
    """Return the node ids of `caught_by` whose file, class or function does not exist."""
    return [node for node in defect.caught_by if not _exists(node, root)]


def _exists(node: str, root: Path) -> bool:
    file, *names = node.partition("[")[0].split("::")
    return (root / file).exists() and set(names) <= _definitions(root / file)


@cache
def _definitions(path: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(item.name for item in nodes if isinstance(item, ast.ClassDef | ast.FunctionDef))


def link_tree(target: Path) -> None:
    """Make a copy of the parts of the tree that tests need, of hard links where the file system allows it.

    Compiled files are linked too, so a run compiles only what its defect changes.
    """
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, copy_function=_link)
        else:
            _link(str(source), str(target / name))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def plant(defect: Defect, tree: Path) -> None:
    """Write the changed files into a linked tree without changing the files that it links to."""
    for file, text in planted(defect).items():
        path = tree / file
        path.unlink()
        path.write_text(text, encoding="utf-8")


def run(defect: Defect, *, max_failures: int = 1) -> tuple[Result, str]:
    """Plant one defect, run its tests, and return the outcome with the output of the tests."""
    started = time.monotonic()

    def result(verdict: Verdict, *by: str) -> Result:
        return Result(defect.name, verdict, round(time.monotonic() - started, 1), by)

    with tempfile.TemporaryDirectory(prefix="omnigraph-defect-") as folder:
        tree, home = Path(folder, "tree"), Path(folder, "home")
        tree.mkdir()
        home.mkdir()
        link_tree(tree)
        try:
            plant(defect, tree)
        except DefectError as error:
            return result("BROKEN", "the defect does not apply"), str(error)
        command = [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-o",
                f"timeout={TEST_TIMEOUT}",
            ),
            *(f"--maxfail={max_failures}", f"--basetemp={folder}/tests", *defect.caught_by),
        ]
        environment = {
            "PYTHONPATH": f"{tree / 'src'}:{tree}",
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(home),
            "OMNIGRAPH_HANG_SECONDS": str(HANG_SECONDS),
            **defect.environment,
        }
        try:
            done = subprocess.run(
                command,
                cwd=tree,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=DEFECT_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            output = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else ""
            return result("BROKEN", f"the tests took more than {DEFECT_TIMEOUT} s"), output
    match done.returncode:
        case 0:
            return result("MISSED"), done.stdout
        case 1:
            return result("caught", *_failed(done.stdout)), done.stdout
        case code:
            return result("BROKEN", f"pytest ended with exit code {code}"), done.stdout


def _failed(output: str) -> Iterator[str]:
    for found in re.finditer(r"^(?:FAILED|ERROR) (tests/\S.*?)(?: - .*)?$", output, re.MULTILINE):
        yield found[1]


def recorded(path: Path) -> list[Result]:
    """Return the results of an earlier run, or nothing when there was none."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Result(line["name"], line["verdict"], line["seconds"], tuple(line["by"])) for line in lines]


def run_all(
    defects: Sequence[Defect], output: Path, *, jobs: int, resume: bool, max_failures: int
) -> list[Result]:
    """Run the defects `jobs` at a time and print each outcome as it comes.

    Appends to `output/results.jsonl` and writes the output of the tests to `output/<name>.log`. With `resume`, the
    defects that the file records as caught are not run again.
    """
    output.mkdir(parents=True, exist_ok=True)
    file = output / "results.jsonl"
    caught = {item.name: item for item in recorded(file) if item.verdict == "caught"} if resume else {}
    if not resume:
        file.unlink(missing_ok=True)

    def one(defect: Defect) -> Result:
        if defect.name in caught:
            return caught[defect.name]
        result, text = run(defect, max_failures=max_failures)
        (output / f"{defect.name}.log").write_text(text, encoding="utf-8")
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(result)) + "\n")
        say(f"{result.verdict}  {result.name}: {defect.breaks} ({result.seconds:.0f} s)")
        return result

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, defects))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def summary(results: Sequence[Result], output: Path) -> Iterator[str]:
    """Return the final table: the defects that were not caught, then the totals."""
    for item in results:
        if item.verdict != "caught":
            yield f"{item.verdict:8}{item.name:44}{'; '.join(item.by)}  see {output / item.name}.log"
    counts = Counter(item.verdict for item in results)
    seconds = sum(item.seconds for item in results)
    yield f"{counts['caught']} of {len(results)} planted defects caught in {seconds:.0f} s of test runs"


def main() -> int:
    """Run the defects; the exit code is 1 unless all were caught."""
    parser = argparse.ArgumentParser(prog="tests.sensitivity.defects", description="Run the planted defects.")
    parser.add_argument("names", nargs="*", help="defects to run (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="defects to run at a time (default: 1)")
    parser.add_argument(
        "--resume", action="store_true", help="skip defects that the results file records as caught"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder for results.jsonl and the logs")
    parser.add_argument(
        "--maxfail", type=int, default=1, help="failed tests after which a defect's run stops"
    )
    parser.add_argument(
        "--relocate", action="store_true", help="only correct `file` of edits whose lines moved"
    )
    asked = parser.parse_args()
    wanted = set(asked.names)
    defects = [item for item in all_defects() if not wanted or item.name in wanted]
    unknown = wanted - {item.name for item in defects}
    if unknown:
        parser.error(f"no such defect: {', '.join(sorted(unknown))}")
    if asked.relocate:
        for line in [line for item in defects for line in relocate(item)]:
            say(line)
        return 0
    results = run_all(defects, asked.output, jobs=asked.jobs, resume=asked.resume, max_failures=asked.maxfail)
    for line in summary(results, asked.output):
        say(line)
    return 0 if all(item.verdict == "caught" for item in results) else 1


if __name__ == "__main__":
    sys.exit(main())
