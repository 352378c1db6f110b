"""Run the command line: in this process for its output, as a child process for streams and exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, Literal

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from omnigraph.cli.main import app
from tests.support.forked import Worker, start_worker
from tests.support.s3 import Bucket
from tests.support.waiting import HANG

ROOT = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("omnigraph")
_PROGRAM = "import sys\nfrom omnigraph_command import main\nsys.argv[0] = 'omnigraph'\nmain()"

# Variables that affect colour and width are removed from the environment.
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
    """The outcome of a command."""

    code: int
    stdout: str
    stderr: str
    output: str


def run(
    *args: str, stdin: str | bytes | BufferedReader = "", env: Mapping[str, str | None] | None = None
) -> Outcome:
    """Run the command line in this process."""
    runner = CliRunner(env={**SETTLED, **(env or {})})
    command = _command_line()
    with runner.isolation(input=stdin if isinstance(stdin, str | bytes) else None) as (
        stdout,
        stderr,
        output,
    ):
        if not isinstance(stdin, str | bytes):
            sys.stdin = TextIOWrapper(stdin)
        try:
            command.main(list(args), prog_name="omnigraph")
            code: Any = 0
        except SystemExit as ended:
            code = ended.code or 0
        sys.stdout.flush()
        sys.stderr.flush()
        texts = [stream.getvalue().decode("utf-8", "replace") for stream in (stdout, stderr, output)]
    return Outcome(code, *texts)


def run_without(stream: Literal["stdin", "stdout"], *args: str) -> tuple[int, str]:
    """Run the command line in this process without one of its streams. Return the exit code and stderr."""
    with CliRunner(env=SETTLED).isolation() as (_, stderr, _):
        setattr(sys, stream, None)
        with pytest.raises(SystemExit) as ended:
            _command_line().main(list(args), prog_name="omnigraph")
        sys.stderr.flush()
        return int(ended.value.code or 0), stderr.getvalue().decode()


@cache
def _command_line() -> Any:
    """Return the Click command, cached: building it takes longer than running most commands."""
    return get_command(app)


def command_tree() -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    """Yield every command that does something, with the words that call it."""

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
        if isinstance(command, TyperGroup):
            for name, child in command.commands.items():
                yield from walk(child, (*words, name))
        else:
            yield words, command

    return walk(_command_line(), ())


def start_process(
    *args: str, environment: Mapping[str, str] | None = None, stdin: int | None = None
) -> Worker:
    """Start the command line in a forked process, which has imported everything."""
    return start_worker(
        _PROGRAM,
        *args,
        environment=environment,
        folder=Path.cwd(),
        stdin=stdin,
        imports=("omnigraph.cli.main", "omnigraph.server.app", "omnigraph_command"),
        finalizes=True,
    )


def run_process(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the command line in a forked process, which has imported everything."""
    with start_process(*args) as process:
        stdout, stderr = process.communicate_bytes(stdin)
        return subprocess.CompletedProcess(args, process.wait(), stdout, stderr)


def run_installed(*args: str | bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the installed command as a child process."""
    return subprocess.run(
        [os.fsencode(COMMAND), *args], input=stdin, capture_output=True, timeout=HANG, check=False
    )


@contextmanager
def serving(*args: str) -> Iterator[str]:
    """Run a server process while the context is active. Yield its host and port."""
    with start_process("serve", *args, "--bind", "127.0.0.1:0") as process:
        try:
            name, _, address = process.stdout.readline().strip().partition("=")
            assert name == "OMNIGRAPH_LISTEN_ADDR"
            yield address
        finally:
            process.send_signal(signal.SIGTERM)


def access(bucket: Bucket) -> dict[str, str]:
    """Return the environment variables with the credentials of a bucket."""
    return {
        "AWS_ENDPOINT_URL": bucket.options["endpoint"],
        "AWS_ACCESS_KEY_ID": bucket.options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": bucket.options["secret_access_key"],
        "AWS_REGION": bucket.options["region"],
    }


def write(path: Path, text: str) -> Path:
    """Write a source file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
