"""The machine has what the suites need: a Java that Spark accepts, and a strace that can cut a writer off."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.waiting import HANG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]

RENAMES = """
import os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
for number in range(5):
    (folder / f"{number}.tmp").write_text("x")
    os.rename(folder / f"{number}.tmp", folder / f"{number}.done")
"""


JAVA_17 = """#!/bin/sh
echo 'openjdk version "17.0.15" 2025-04-15' >&2
"""


def bootstrap(*parts: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts" / "bootstrap", *parts],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


class Machine:
    """A machine with nothing on its PATH but what a test puts there, and a checkout of its own."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        self.tools = folder / "tools"
        self.tools.mkdir()
        (self.checkout / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "bootstrap", self.checkout / "scripts")
        for tool in ("bash", "cat", "chmod", "dirname", "env", "head", "sed", "sh"):
            (self.tools / tool).symlink_to(str(shutil.which(tool)))
        self.tool("mkdir", "exit 0")
        self.tool("id", "echo 1000")

    def tool(self, name: str, script: str) -> None:
        path = self.tools / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def become_root(self, packages: dict[str, str]) -> None:
        """Be root, with an apt-get that has just these packages; each brings one tool."""
        self.tool("id", "echo 0")
        shelf = self.tools.parent / "packages"
        shelf.mkdir()
        for package, tool in packages.items():
            (shelf / package).write_text(tool, encoding="utf-8")
        # The package is the last argument. Every tool installed here answers like a Java 17.
        self.tool(
            "apt-get",
            f"""[ "$1" = update ] && exit 0
for package in "$@"; do :; done
[ -f "{shelf}/$package" ] || exit 100
tool="{self.tools}/$(cat "{shelf}/$package")"
cat > "$tool" <<'END'
{JAVA_17}END
chmod 755 "$tool"
""",
        )

    def bootstrap(self, *parts: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.checkout / "scripts" / "bootstrap", *parts],
            env={"PATH": str(self.tools)},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("toolchain")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()


@pytest.mark.spark
@pytest.mark.long
def test_spark_runs_on_the_java_that_was_found(spark: SparkSession) -> None:
    assert spark.range(100).selectExpr("sum(id) as total").collect()[0]["total"] == 4950


@pytest.mark.faults
@pytest.mark.parametrize("cut", [1, 3, 5])
def test_strace_kills_a_process_at_its_nth_rename(tmp_path: Path, cut: int) -> None:
    calls = "rename,renameat,renameat2"
    injection = f"inject={calls}:signal=SIGKILL:when={cut}"
    strace = ["strace", "-f", "-o", str(tmp_path / "trace"), "-e", f"trace={calls}", "-e", injection]
    run = subprocess.run(
        [*strace, sys.executable, "-c", RENAMES, tmp_path],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert run.returncode != 0
    # A kill at the entry of a call keeps the kernel from carrying it out, so the last rename is missing.
    assert len(list(tmp_path.glob("*.done"))) == cut - 1


def test_a_java_home_without_a_java_is_named_in_one_sentence(tmp_path: Path) -> None:
    run = bootstrap("java", JAVA_HOME=str(tmp_path))
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert "JAVA_HOME" in run.stderr


@pytest.mark.parametrize(
    ("banner", "accepted"),
    [
        ('openjdk version "17.0.15" 2025-04-15', True),
        ('openjdk version "21" 2023-09-19', True),
        ('java version "1.8.0_402"', False),
        ('openjdk version "11.0.2" 2019-01-15', False),
    ],
)
def test_only_java_17_and_newer_is_accepted(tmp_path: Path, banner: str, accepted: bool) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    assert (bootstrap("java", JAVA_HOME=str(tmp_path)).returncode == 0) == accepted


def test_an_unknown_part_is_refused() -> None:
    assert bootstrap("coffee").returncode == 1


def one_sentence(run: subprocess.CompletedProcess[str]) -> str:
    """What a failed run says, which is a single line."""
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    return run.stderr


def test_a_machine_without_a_new_python_gets_one_clear_sentence(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.tool("python3", "exit 1")
    assert "Python 3.11" in one_sentence(machine.bootstrap("python"))
    assert not (machine.checkout / ".venv").exists()


def test_a_python_without_ensurepip_names_the_package_that_has_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.tool("python3.12", 'case "$2" in *ensurepip*) exit 1;; *print*) echo 3.12;; esac')
    assert "python3.12-venv" in one_sentence(machine.bootstrap("python"))


# A Python that records what it is asked to install, with the variables that pip reads.
RECORDING_PYTHON = """case "$*" in
  "-m venv --clear .venv") /bin/mkdir -p .venv/bin && /bin/cp "$0" .venv/bin/python ;;
  "--version") echo "Python 3.13.0" ;;
  *" install "*) echo "$* constraint=$PIP_CONSTRAINT build=$PIP_BUILD_CONSTRAINT" >> installed ;;
esac"""


def test_bootstrap_python_builds_in_isolation_with_the_pinned_versions(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.tool("python3.13", RECORDING_PYTHON)
    run = machine.bootstrap("python")
    assert run.returncode == 0, run.stderr
    installed = (machine.checkout / "installed").read_text(encoding="utf-8").splitlines()
    assert len(installed) == 1
    # A new environment lacks what pyspark's build needs, so pip must provide it, at the pinned version.
    assert "--no-build-isolation" not in installed[0]
    assert installed[0].endswith("--editable .[dev] constraint=constraints.txt build=constraints.txt")


def test_ci_runs_every_check_with_an_empty_pip_cache(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (machine.checkout / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", machine.checkout / ".ci")
    machine.tool("make", 'echo "$1 $PIP_NO_CACHE_DIR"')
    run = subprocess.run(
        [machine.checkout / ".ci" / "run"],
        env={"PATH": str(machine.tools)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(run.stdout.splitlines()) == ["check 1", "smoke 1", "test 1"]


@pytest.mark.parametrize("part", ["java", "strace"])
def test_without_root_a_missing_tool_is_named_in_one_sentence(tmp_path: Path, part: str) -> None:
    assert part in one_sentence(Machine(tmp_path).bootstrap(part)).lower()


@pytest.mark.parametrize("package", ["openjdk-17-jre-headless", "default-jre-headless"])
def test_root_gets_whichever_java_package_the_system_has(tmp_path: Path, package: str) -> None:
    machine = Machine(tmp_path)
    machine.become_root({package: "java"})
    run = machine.bootstrap("java")
    assert run.returncode == 0, run.stderr
    assert f"installing {package}" in run.stderr
    assert machine.bootstrap("java").stderr == ""


def test_root_gets_strace(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.become_root({"strace": "strace"})
    assert machine.bootstrap("strace").returncode == 0
    assert machine.bootstrap("strace").stderr == ""


def test_an_old_java_is_replaced_by_a_package(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.tool("java", """echo 'java version "1.8.0_402"' >&2""")
    machine.become_root({"openjdk-17-jre-headless": "java"})
    assert machine.bootstrap("java").returncode == 0


def test_a_system_without_a_java_package_says_so(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.become_root({})
    run = machine.bootstrap("java")
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == "bootstrap: no Java runtime could be installed"


def test_every_test_that_needs_spark_is_where_make_test_looks_for_it() -> None:
    line = next(
        line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("SPARK_TESTS")
    )
    places = [ROOT / place for place in line.partition(":=")[2].split()]
    mark = "pytest.mark." + "spark"
    marked = [
        path for path in (ROOT / "tests").rglob("test_*.py") if mark in path.read_text(encoding="utf-8")
    ]
    assert marked
    assert [path for path in marked if not any(path.is_relative_to(place) for place in places)] == []
