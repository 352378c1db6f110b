"""Running the command line: in this process for its answers, as a process for streams and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from omnigraph.cli.main import app

ROOT = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("omnigraph")

# What decides over colour and width must not come from whoever runs the tests.
SETTLED: dict[str, str | None] = {"NO_COLOR": "1", "FORCE_COLOR": None, "COLUMNS": "100"}

PEOPLE = """\
node Person {
  name: String @key
  age: I32?
}

edge Knows: Person -> Person
"""

READ = """\
query everybody() {
  match {
    $p: Person
  }
  return { $p.name }
}
"""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str
    output: str


def run(*args: str, stdin: str | bytes = "", env: dict[str, str | None] | None = None) -> Outcome:
    """Run the command line in this process."""
    runner = CliRunner(env={**SETTLED, **(env or {})})
    command = _command_line()
    with runner.isolation(input=stdin) as (stdout, stderr, output):
        try:
            command.main(list(args), prog_name="omnigraph")
            code: Any = 0
        except SystemExit as ended:
            code = ended.code or 0
        sys.stdout.flush()
        sys.stderr.flush()
        texts = [stream.getvalue().decode("utf-8", "replace") for stream in (stdout, stderr, output)]
    return Outcome(code, *texts)


@cache
def _command_line() -> Any:
    """The commands as the program has them; to put them together takes longer than to run most of them."""
    return get_command(app)


def run_process(*args: str | bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the installed command as a process of its own."""
    return subprocess.run(
        [os.fsencode(COMMAND), *args], input=stdin, capture_output=True, timeout=60, check=False
    )


def write(path: Path, text: str) -> Path:
    """Put a source where a command will look for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
