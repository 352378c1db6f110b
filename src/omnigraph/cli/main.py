"""The `omnigraph` command: its global options. The subcommands are in the command table.

A start imports the module of one subcommand only, and that module imports the library inside its functions, so that
`--help` and shell completion start quickly.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated, TypeAlias

import typer

from omnigraph.cli.command_line import CommandLine
from omnigraph.cli.command_table import TableGroup
from omnigraph.cli.options import GlobalOptions, capability, refuse_options


class _Program(CommandLine, TableGroup):
    """The root command: the error handler, with the subcommands of the table."""


app = typer.Typer(
    name="omnigraph",
    cls=_Program,
    help="OmniGraph: a typed property-graph database with branches, merges and time travel.",
    epilog="These options may be written before or after the command.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version_and_exit(requested: bool) -> None:
    """Handle `--version`: print the version before any command is parsed, and exit."""
    if requested:
        from omnigraph.cli.commands.version import version

        version()
        raise typer.Exit()


# An option that takes one value. All occurrences are collected, so that a repeated option is an error instead of
# overriding the first.
SingleValue: TypeAlias = list[str] | None


@app.callback()
def root(
    ctx: typer.Context,
    as_: Annotated[
        SingleValue,
        typer.Option("--as", metavar="ACTOR", help="Actor recorded on writes and checked by policy."),
    ] = None,
    store: Annotated[
        SingleValue, typer.Option("--store", metavar="URI", help="Storage URI of the graph.")
    ] = None,
    server: Annotated[
        SingleValue,
        typer.Option(
            "--server", metavar="NAME|URL", help="Server of the graph: a name in your settings, or a URL."
        ),
    ] = None,
    graph: Annotated[
        SingleValue,
        typer.Option("--graph", metavar="ID", help="Id of the graph on the server or in the cluster."),
    ] = None,
    profile: Annotated[
        SingleValue,
        typer.Option("--profile", metavar="NAME", help="Profile in your settings to take the address from."),
    ] = None,
    cluster: Annotated[
        SingleValue,
        typer.Option(
            "--cluster",
            metavar="CONFIG",
            help="Server configuration: a file, a folder, or a name in your settings.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation of a destructive write.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Do not print the graph that is written, nor progress.")
    ] = False,
    verify_reads: Annotated[
        bool,
        typer.Option(
            "--verify-reads", help="Compare every file in storage with its digest when it is first read."
        ),
    ] = False,
    _no_pager: Annotated[
        bool, typer.Option("--no-pager", help="Do not show long output in a pager on a terminal.")
    ] = False,
    _debug: Annotated[bool, typer.Option("--debug", help="Print the Python traceback of a failure.")] = False,
    _version: Annotated[
        bool,
        typer.Option(
            "-v",
            "--version",
            help="Print the version and exit.",
            is_eager=True,
            callback=_print_version_and_exit,
        ),
    ] = False,
) -> None:
    """Store the global options in the context for the command.

    `--debug`, `--no-pager` and `--version` take effect before this runs.
    """
    chosen = GlobalOptions(
        actor=_single_value("--as", as_),
        store=_single_value("--store", store),
        server=_single_value("--server", server),
        graph=_single_value("--graph", graph),
        profile=_single_value("--profile", profile),
        cluster=_single_value("--cluster", cluster),
        yes=yes,
        quiet=quiet,
        verify_reads=verify_reads,
    )
    # `embed` refuses them itself, because its subcommands address a graph.
    if ctx.invoked_subcommand not in (None, "embed") and capability(ctx.invoked_subcommand) == "local":
        refuse_options(ctx.invoked_subcommand, chosen)
    ctx.obj = chosen


def _single_value(option: str, values: SingleValue) -> str | None:
    if values and len(values) > 1:
        raise typer.BadParameter("given more than once", param_hint=f"'{option}'")
    return values[0] if values else None


def main() -> None:
    """Run the command line with the arguments of the process, and exit with the code of the command."""
    if isinstance(sys.stdout, TextIOWrapper):
        # File names may hold bytes that are not text, and a terminal may lack characters. Escape these instead of
        # failing.
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name="omnigraph")
