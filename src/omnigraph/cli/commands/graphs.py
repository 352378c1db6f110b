"""`omnigraph graphs`: what a server serves."""

from __future__ import annotations

import os

import typer

from omnigraph.cli.options import GlobalOptions, refuse_options
from omnigraph.cli.render.output import readable, say, say_json
from omnigraph.cli.scope import SHARED, JsonOption
from omnigraph.cli.settings.addresses import find_scope
from omnigraph.cli.settings.config import config_of
from omnigraph.cli.settings.credentials import token_for
from omnigraph.cli.settings.servers import find_server
from omnigraph.errors import InvalidInput

graph_commands = typer.Typer(help="The graphs of a server.", no_args_is_help=True)


@graph_commands.callback()
def root() -> None:
    """Commands about a server itself."""


@graph_commands.command("list", epilog=SHARED)
def list_(ctx: typer.Context, json: JsonOption = False) -> None:
    """List the graphs of a server, with their storage. The server's policy decides who may."""
    from omnigraph.client.entry import list_graphs

    command = ctx.command_path.partition(" ")[2]
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    refuse_options(command, chosen)
    scope = find_scope(lambda: config_of(ctx), None, chosen, os.environ, takes_uri=False)
    if scope.kind != "server":
        raise InvalidInput(
            f"`{command}` asks a server; {scope.origin} addresses a {scope.kind} and does not apply. "
            "Pass --server <name|url>."
        )
    server = find_server(config_of(ctx), scope.value)
    found = list_graphs(server.url, token_for(server, os.environ))
    if json:
        say_json({"graphs": [{"graph_id": item.graph_id, "uri": item.uri} for item in found]})
        return
    for item in found:
        say(f"{readable(item.graph_id)}\t{readable(item.uri)}")
