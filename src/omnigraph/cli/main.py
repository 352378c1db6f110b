"""The `omnigraph` command and its parts.

Command modules import the library inside their functions: asking for help must stay cheap.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from omnigraph.cli.fmt import fmt
from omnigraph.cli.lint import lint
from omnigraph.cli.schema import schema_commands
from omnigraph.cli.shell import CommandLine
from omnigraph.cli.version import print_version_and_exit, version

app = typer.Typer(
    name="omnigraph",
    cls=CommandLine,
    help="OmniGraph: a typed property-graph database that branches, merges and time-travels.",
    epilog="--debug and --version may also stand after a command.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(lint)
app.add_typer(schema_commands, name="schema")
app.command()(fmt)
app.command()(version)


@app.callback()
def root(
    _debug: Annotated[bool, typer.Option("--debug", help="Show the Python trace of a failure.")] = False,
    _version: Annotated[
        bool,
        typer.Option(
            "-v",
            "--version",
            help="Print the version and exit.",
            is_eager=True,
            callback=print_version_and_exit,
        ),
    ] = False,
) -> None:
    """Both options have done their work by the time this runs; they are declared for the help."""


def main() -> None:
    """Run the command line on this process's arguments and exit with the command's code."""
    if isinstance(sys.stdout, TextIOWrapper):
        # A file name need not be text, and a terminal need not show everything; neither is worth a failure.
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name="omnigraph")
