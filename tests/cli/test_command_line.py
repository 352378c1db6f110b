"""All commands: global options, streams, exit codes, and no Python traceback without --debug."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from omnigraph import __version__
from omnigraph.cli.command_line import CommandLine
from omnigraph.cli.render.output import print_internal_error, print_note, print_warning
from omnigraph.graph.format_version import CURRENT
from tests.cli.running import COMMAND, READ, run, run_installed, run_without, write
from tests.support.waiting import HANG

pytestmark = pytest.mark.usefixtures("folder")

# Interrupts the program when it comes to import a module.
INTERRUPT = """\
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""

VERSION = f"omnigraph {__version__}\ninternal-schema {CURRENT}\n"


@pytest.mark.parametrize("args", [["version"], ["--version"], ["-v"], ["lint", "--version"], ["fmt", "-v"]])
def test_version_option_is_accepted_anywhere(args: list[str]) -> None:
    outcome = run(*args)
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, VERSION, "")


def test_help_lists_every_command() -> None:
    outcome = run("--help")
    assert outcome.code == 0
    assert all(f" {command} " in outcome.stdout for command in ("lint", "schema", "fmt", "version"))
    assert "--show-completion" in outcome.stdout


@pytest.mark.parametrize(
    "args", [["nonsense"], ["lint", "--nonsense"], ["schema", "nonsense"], ["schema", "check"]]
)
def test_invalid_command_line_is_a_usage_error_on_stderr(args: list[str]) -> None:
    outcome = run(*args)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "Usage: omnigraph" in outcome.stderr


@pytest.mark.parametrize(
    "args", [["--debug", "schema", "check", "x.pg"], ["schema", "check", "x.pg", "--debug"]]
)
def test_debug_option_anywhere_shows_the_traceback(args: list[str]) -> None:
    outcome = run(*args)
    assert outcome.code == 1
    assert "Traceback (most recent call last)" in outcome.stderr
    assert outcome.stderr.endswith("error: no such file: x.pg\n")
    assert "Traceback" not in run("schema", "check", "x.pg").stderr


def test_global_option_after_double_dash_is_an_argument() -> None:
    outcome = run("schema", "check", "--", "--debug")
    assert (outcome.code, outcome.stderr) == (1, "error: no such file: --debug\n")


def test_missing_file_suggests_the_nearest_name() -> None:
    outcome = run("schema", "check", "peopel.pg")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr == "error: no such file: peopel.pg\nhint: did you mean `people.pg`?\n"


def test_directory_instead_of_file_is_refused() -> None:
    outcome = run("lint", "--schema", ".", "--query", "read.gq")
    assert (outcome.code, outcome.stderr) == (1, "error: . is a directory, not a file\n")


def test_broken_symlink_is_refused(folder: Path) -> None:
    (folder / "lost.pg").symlink_to("gone.pg")
    outcome = run("schema", "check", "lost.pg")
    assert (outcome.code, outcome.stderr) == (1, "error: lost.pg is a broken symbolic link\n")


def test_symlink_loop_is_refused(folder: Path) -> None:
    (folder / "loop.pg").symlink_to("loop.pg")
    outcome = run("schema", "check", "loop.pg")
    assert outcome.code == 1
    assert outcome.stderr.startswith("error: cannot read loop.pg: ")


def test_unreadable_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # The tests may run as root, whom no permission stops.
    def locked(*_args: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", locked)
    outcome = run("schema", "check", "people.pg")
    assert (outcome.code, outcome.stderr) == (1, "error: cannot read people.pg: permission denied\n")


def test_file_with_invalid_utf8_is_refused_with_the_position(folder: Path) -> None:
    (folder / "latin.pg").write_bytes("// fine\n// caf\xe9\n".encode("latin-1"))
    outcome = run("schema", "check", "latin.pg")
    assert (outcome.code, outcome.stderr) == (1, "error: latin.pg is not UTF-8 text: byte 0xe9 in line 2\n")


def test_endless_file_is_refused() -> None:
    outcome = run("schema", "check", "/dev/zero")
    assert outcome.code == 1
    assert outcome.stderr.startswith("error: /dev/zero is larger than 64 MiB\n")


def test_unexpected_exception_prints_internal_error() -> None:
    defective = typer.Typer(cls=CommandLine)

    @defective.command()
    def divide() -> None:
        raise ZeroDivisionError("division by zero")

    @defective.callback()
    def root() -> None:
        """With a callback the one command is a subcommand, as in the real tree."""

    outcome = CliRunner().invoke(defective, ["divide"])
    assert (outcome.exit_code, outcome.stdout) == (1, "")
    assert outcome.stderr == (
        "error: internal error: ZeroDivisionError: division by zero\n"
        "hint: this is a bug in omnigraph, not in your input; --debug prints the Python traceback\n"
    )


def test_error_message_escapes_control_characters() -> None:
    outcome = run("schema", "check", "\x1b]0;pwn\x07\u202e.pg")
    assert (outcome.code, outcome.stderr) == (1, "error: no such file: \\x1b]0;pwn\\x07\\u202e.pg\n")
    coloured = run("schema", "check", "\x1b[2J.pg", env={"NO_COLOR": None, "FORCE_COLOR": "1"})
    assert coloured.stderr == "\x1b[1;31merror:\x1b[0m no such file: \\x1b[2J.pg\n"


@pytest.mark.parametrize(
    "tell", [print_warning, print_note, lambda text: print_internal_error(ValueError(text))]
)
def test_warnings_and_notes_escape_control_characters(
    tell: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    tell("two\nlines\x1b[2J\r\x9b1A\u200b")
    assert "two\nlines\\x1b[2J\\r\\x9b1A\\u200b\n" in capsys.readouterr().err


def test_color_is_printed_only_if_forced_or_on_a_terminal() -> None:
    plain = run("schema", "check", "people.pg")
    forced = run("schema", "check", "people.pg", env={"NO_COLOR": None, "FORCE_COLOR": "1"})
    assert "\x1b" not in plain.stdout
    assert forced.stdout.startswith("\x1b[32mOK\x1b[0m    schema people.pg")


def test_installed_command_sets_streams_and_exit_codes(folder: Path) -> None:
    write(folder / "wrong.gq", READ.replace("name", "naem"))
    good = run_installed("lint", "--schema", "people.pg", "--query", "read.gq")
    assert (good.returncode, good.stderr) == (0, b"")
    bad = run_installed("lint", "--schema", "people.pg", "--query", "wrong.gq")
    assert (bad.returncode, bad.stderr) == (1, b"")
    assert bad.stdout.startswith(b"ERROR query `everybody`")
    usage = run_installed("lint", "--nonsense")
    assert (usage.returncode, usage.stdout) == (2, b"")
    assert b"Traceback" not in usage.stderr


def test_json_output_with_undecodable_file_name_is_valid() -> None:
    name = b"caf\xff.gq"
    Path(os.fsdecode(name)).write_text(READ, encoding="utf-8")
    found = run_installed("lint", "--schema", "people.pg", "--query", name, "--json")
    assert (found.returncode, found.stderr) == (0, b"")
    assert os.fsencode(json.loads(found.stdout)["query_path"]) == name


def test_closed_pipe_ends_the_command_silently() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        gone = subprocess.run(
            [COMMAND, "lint", "--schema", "people.pg", "--query", "read.gq", "--json"],
            stdout=write_end,
            stderr=subprocess.PIPE,
            timeout=HANG,
            check=False,
        )
    finally:
        os.close(write_end)
    assert (gone.returncode, gone.stderr) == (1, b"")


@pytest.mark.parametrize(
    ("program", "module"),
    [("omnigraph", "omnigraph.cli.commands.version"), ("omnigraph-server", "omnigraph.errors")],
)
def test_interrupt_during_startup_ends_silently(folder: Path, program: str, module: str) -> None:
    write(folder / "sitecustomize.py", INTERRUPT.format(module=module))
    ended = subprocess.run(
        [COMMAND.with_name(program), "--version"],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        timeout=HANG,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    "args",
    [["snapshot", "g\udcff.omni"], ["get", "Person", "\udcff"], ["query", "-e", "\udcff"], ["--as=\udcff"]],
)
def test_undecodable_argument_is_refused(args: list[str]) -> None:
    outcome = run(*args)
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr == f"error: an argument is not valid Unicode text: {args[-1]}\n".replace(
        "\udcff", "\\udcff"
    )


@pytest.mark.parametrize(
    "args", [["fmt", "--check", "a\udcff.pg"], ["lint", "--query=a\udcff.gq", "--schema", "people.pg"]]
)
def test_undecodable_file_name_is_accepted(args: list[str]) -> None:
    assert "no such file: a\\udcff" in run(*args).stderr


def test_closed_stdout_fails() -> None:
    write(Path("people.pg"), "node  Person { name: String @key }")
    found = run_without("stdout", "fmt", "--diff", "people.pg")
    assert found == (1, "error: cannot write the output: stdout is closed\n")


def test_closed_stdin_is_refused() -> None:
    assert run_without("stdin", "schema", "check", "-") == (1, "error: cannot read stdin: it is closed\n")


def test_full_disk_prints_one_error() -> None:
    with Path("/dev/full").open("wb") as full:
        failed = subprocess.run(
            [COMMAND, "schema", "check", "people.pg"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=HANG,
            check=False,
        )
    assert failed.returncode == 1
    assert failed.stderr == b"error: cannot write the output: No space left on device\n"


def test_shell_completion_offers_commands() -> None:
    asked = {"_OMNIGRAPH_COMPLETE": "complete_bash", "COMP_WORDS": "omnigraph li", "COMP_CWORD": "1"}
    found = subprocess.run(
        [COMMAND], env={**os.environ, **asked}, capture_output=True, text=True, timeout=HANG, check=False
    )
    assert found.stdout.split() == ["lint"]
