"""Asking for help, or importing the package, does not pay for storage, Spark or HTTP."""

from __future__ import annotations

import subprocess
import sys

from tests.support.waiting import HANG

HEAVY = (
    "duckdb", "fastapi", "fastavro", "lance", "obstore", "omnigraph.server", "pandas", "polars", "pyarrow",
    "pyspark", "starlette", "uvicorn",
)  # fmt: skip

# The last line of output names the heavy modules that are loaded, so that output before it does not matter.
REPORT = f"""
import sys
print()
print(*sorted(name for name in {HEAVY!r} if name in sys.modules))
"""

RUN_HELP = """
import sys
from omnigraph.cli.main import main
sys.argv = ["omnigraph", {arguments}]
try:
    main()
except SystemExit as exit:
    assert not exit.code, exit.code
"""


def heavy_modules_after(code: str) -> list[str]:
    """The heavy modules loaded by running `code` in a Python of its own."""
    run = subprocess.run(
        [sys.executable, "-c", code + REPORT], capture_output=True, text=True, timeout=HANG, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()[-1].split()


def test_the_probe_sees_a_heavy_module() -> None:
    assert "pyarrow" in heavy_modules_after("import pyarrow")


def test_importing_the_package_is_light() -> None:
    assert heavy_modules_after("import omnigraph") == []


def test_importing_the_languages_is_light() -> None:
    assert heavy_modules_after("import omnigraph.lang") == []


def test_importing_the_catalog_loads_no_storage_and_no_engine() -> None:
    # It maps types to Arrow's, so pyarrow itself is its business.
    assert set(heavy_modules_after("import omnigraph.catalog")) <= {"pyarrow"}


def test_command_line_help_imports_no_heavy_module() -> None:
    commands = ['"--help"', '"--version"', '"version"', '"lint", "--help"', '"serve", "--help"']
    # One process for all: a module that any of them imports is still there at the end.
    assert heavy_modules_after("\n".join(RUN_HELP.format(arguments=command) for command in commands)) == []


def test_a_command_imports_no_other_command() -> None:
    code = RUN_HELP.format(arguments='"version"') + (
        "\nprint(*(name for name in sys.modules if name.startswith('omnigraph.cli.commands.')))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG, check=True
    )
    assert run.stdout.splitlines()[-1] == "omnigraph.cli.commands.version"
