"""The `omnigraph` command and its parts.

Command modules import the library inside their functions: asking for help must stay cheap.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated, TypeAlias

import typer

from omnigraph.cli.commands.alias import alias
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
from omnigraph.cli.commands.graphs import graph_commands
from omnigraph.cli.commands.init import init
from omnigraph.cli.commands.lint import lint
from omnigraph.cli.commands.load import ingest, load
from omnigraph.cli.commands.login import login, logout
from omnigraph.cli.commands.mutate import mutate
from omnigraph.cli.commands.optimize import optimize
from omnigraph.cli.commands.policy import policy_commands
from omnigraph.cli.commands.profile import profile_commands
from omnigraph.cli.commands.queries import query_commands
from omnigraph.cli.commands.query import query
from omnigraph.cli.commands.repair import repair
from omnigraph.cli.commands.revert import revert
from omnigraph.cli.commands.schema import schema_commands
from omnigraph.cli.commands.serve import serve
from omnigraph.cli.commands.snapshot import snapshot
from omnigraph.cli.commands.version import print_version_and_exit, version
from omnigraph.cli.options import GlobalOptions, capability, refuse_options
from omnigraph.cli.scope import SHARED
from omnigraph.cli.shell import CommandLine

app = typer.Typer(
    name="omnigraph",
    cls=CommandLine,
    help="OmniGraph: a typed property-graph database that branches, merges and time-travels.",
    epilog="All of these may also stand after a command.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=SHARED)(init)
app.command(epilog=SHARED)(load)
app.command(hidden=True, epilog=SHARED)(ingest)
app.command(epilog=SHARED)(mutate)
app.command("change", hidden=True, epilog=SHARED)(mutate)
app.command(epilog=SHARED)(query)
app.command("read", hidden=True, epilog=SHARED)(query)
app.command(epilog=SHARED)(explain)
app.command(epilog=SHARED)(get)
app.command(epilog=SHARED)(export)
app.command()(alias)
app.add_typer(blob_commands, name="blob")
app.add_typer(branch_commands, name="branch")
app.add_typer(commit_commands, name="commit")
app.add_typer(change_commands, name="changes")
app.command(epilog=SHARED)(diff)
app.command(epilog=SHARED)(revert)
app.command(epilog=SHARED)(snapshot)
app.command(epilog=SHARED)(optimize)
app.command(epilog=SHARED)(repair)
app.command(epilog=SHARED)(cleanup)
app.command(epilog=SHARED)(lint)
app.command()(embed)
app.add_typer(schema_commands, name="schema")
app.add_typer(query_commands, name="queries")
app.add_typer(policy_commands, name="policy")
app.command()(fmt)
app.command()(serve)
app.add_typer(graph_commands, name="graphs")
app.command()(login)
app.command()(logout)
app.add_typer(profile_commands, name="profile")
app.command()(version)


# What a later occurrence would silently overrule is collected, so that it can be refused.
Once: TypeAlias = list[str] | None


@app.callback()
def root(
    ctx: typer.Context,
    as_: Annotated[Once, typer.Option("--as", metavar="ACTOR", help="On whose behalf to write.")] = None,
    store: Annotated[Once, typer.Option("--store", metavar="URI", help="The graph, by its storage.")] = None,
    server: Annotated[
        Once, typer.Option("--server", metavar="NAME|URL", help="The server of the graph.")
    ] = None,
    graph: Annotated[
        Once, typer.Option("--graph", metavar="ID", help="The graph, by its id on the server.")
    ] = None,
    profile: Annotated[
        Once, typer.Option("--profile", metavar="NAME", help="A scope that your settings name.")
    ] = None,
    cluster: Annotated[
        Once, typer.Option("--cluster", metavar="CONFIG", help="What is served, by its file or folder.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Agree to a destructive write to what is not local.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Do not say which graph is about to be written.")
    ] = False,
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
    """Keep what was said for the command; the last two options have done their work by the time this runs."""
    chosen = GlobalOptions(
        actor=_once("--as", as_),
        store=_once("--store", store),
        server=_once("--server", server),
        graph=_once("--graph", graph),
        profile=_once("--profile", profile),
        cluster=_once("--cluster", cluster),
        yes=yes,
        quiet=quiet,
    )
    if ctx.invoked_subcommand is not None and capability(ctx.invoked_subcommand) == "local":
        refuse_options(ctx.invoked_subcommand, chosen)
    ctx.obj = chosen


def _once(option: str, values: Once) -> str | None:
    if values and len(values) > 1:
        raise typer.BadParameter("given more than once", param_hint=f"'{option}'")
    return values[0] if values else None


def main() -> None:
    """Run the command line on this process's arguments and exit with the command's code."""
    if isinstance(sys.stdout, TextIOWrapper):
        # A file name need not be text, and a terminal need not show everything; neither is worth a failure.
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name="omnigraph")
