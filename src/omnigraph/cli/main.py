"""The `omnigraph` command: registration of the subcommands and the global options.

Command modules import the library inside their functions, so that `--help` and shell completion start quickly.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated, TypeAlias

import typer

from omnigraph.cli.commands.alias import alias
from omnigraph.cli.commands.backup import backup, clone, restore
from omnigraph.cli.commands.blob import blob_commands
from omnigraph.cli.commands.branch import branch_commands
from omnigraph.cli.commands.changes import change_commands
from omnigraph.cli.commands.cleanup import cleanup
from omnigraph.cli.commands.commit import commit_commands
from omnigraph.cli.commands.diff import diff
from omnigraph.cli.commands.embed import embed
from omnigraph.cli.commands.explain import explain
from omnigraph.cli.commands.export import export
from omnigraph.cli.commands.fmt import fmt
from omnigraph.cli.commands.get import get
from omnigraph.cli.commands.graph_settings import settings_commands
from omnigraph.cli.commands.graphs import graph_commands
from omnigraph.cli.commands.init import init
from omnigraph.cli.commands.lint import lint
from omnigraph.cli.commands.load import ingest, load
from omnigraph.cli.commands.login import login, logout
from omnigraph.cli.commands.mcp import mcp
from omnigraph.cli.commands.mutate import mutate
from omnigraph.cli.commands.optimize import optimize
from omnigraph.cli.commands.pipeline import pipeline_commands
from omnigraph.cli.commands.policy import policy_commands
from omnigraph.cli.commands.profile import profile_commands
from omnigraph.cli.commands.queries import query_commands
from omnigraph.cli.commands.query import query
from omnigraph.cli.commands.repair import repair
from omnigraph.cli.commands.revert import revert
from omnigraph.cli.commands.running import cancel, ps
from omnigraph.cli.commands.schema import schema_commands
from omnigraph.cli.commands.serve import serve
from omnigraph.cli.commands.snapshot import snapshot
from omnigraph.cli.commands.tag import tag_commands
from omnigraph.cli.commands.verify import verify
from omnigraph.cli.commands.version import print_version_and_exit, version
from omnigraph.cli.options import GlobalOptions, capability, refuse_options
from omnigraph.cli.shell import CommandLine
from omnigraph.cli.target import EPILOG

app = typer.Typer(
    name="omnigraph",
    cls=CommandLine,
    help="OmniGraph: a typed property-graph database with branches, merges and time travel.",
    epilog="These options may be written before or after the command.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=EPILOG)(init)
app.command(epilog=EPILOG)(load)
app.command(hidden=True, epilog=EPILOG)(ingest)
app.command(epilog=EPILOG)(mutate)
app.command("change", hidden=True, epilog=EPILOG)(mutate)
app.command(epilog=EPILOG)(query)
app.command("read", hidden=True, epilog=EPILOG)(query)
app.command(epilog=EPILOG)(explain)
app.command(epilog=EPILOG)(get)
app.command(epilog=EPILOG)(export)
app.command()(alias)
app.add_typer(blob_commands, name="blob")
app.add_typer(branch_commands, name="branch")
app.add_typer(tag_commands, name="tag")
app.add_typer(commit_commands, name="commit")
app.add_typer(change_commands, name="changes")
app.command(epilog=EPILOG)(diff)
app.command(epilog=EPILOG)(revert)
app.command(epilog=EPILOG)(snapshot)
app.command(epilog=EPILOG)(optimize)
app.command(epilog=EPILOG)(verify)
app.command(epilog=EPILOG)(repair)
app.command(epilog=EPILOG)(cleanup)
app.add_typer(settings_commands, name="settings")
app.command(epilog=EPILOG)(backup)
app.command(epilog=EPILOG)(restore)
app.command(epilog=EPILOG)(clone)
app.command(epilog=EPILOG)(lint)
app.command()(embed)
app.add_typer(schema_commands, name="schema")
app.add_typer(query_commands, name="queries")
app.add_typer(policy_commands, name="policy")
app.add_typer(pipeline_commands, name="pipeline")
app.command()(fmt)
app.command()(serve)
app.command(epilog=EPILOG)(mcp)
app.add_typer(graph_commands, name="graphs")
app.command(epilog=EPILOG)(ps)
app.command(epilog=EPILOG)(cancel)
app.command()(login)
app.command()(logout)
app.add_typer(profile_commands, name="profile")
app.command()(version)


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
    _debug: Annotated[bool, typer.Option("--debug", help="Print the Python traceback of a failure.")] = False,
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
    """Store the global options in the context for the command.

    `--debug` and `--version` take effect before this runs.
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
    if ctx.invoked_subcommand is not None and capability(ctx.invoked_subcommand) == "local":
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
