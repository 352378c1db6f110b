"""`omnigraph graphs`: list the graphs of a server."""

from __future__ import annotations

import os

import typer

from omnigraph.cli.options import GlobalOptions, refuse_options
from omnigraph.cli.render.output import escape_unprintable, print_json, print_line
from omnigraph.cli.settings.config import load_config
from omnigraph.cli.settings.credentials import token_for
from omnigraph.cli.settings.graph_address import find_address
from omnigraph.cli.settings.servers import find_server
from omnigraph.cli.target import EPILOG, JsonOption
from omnigraph.errors import InvalidInput

graph_commands = typer.Typer(help="List the graphs of a server.", no_args_is_help=True)


@graph_commands.callback()
def root() -> None:
    """List the graphs of a server."""


@graph_commands.command("list", epilog=EPILOG)
def list_(ctx: typer.Context, json: JsonOption = False) -> None:
    """List the graphs of a server with their storage URIs. The policy of the server must allow it."""
    from omnigraph.client.entry import list_graphs

    command = ctx.command_path.partition(" ")[2]
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    refuse_options(command, chosen)
    scope = find_address(lambda: load_config(ctx), None, chosen, os.environ, takes_uri=False)
    if scope.kind != "server":
        raise InvalidInput(
            f"`{command}` queries a server; {scope.origin} addresses a {scope.kind} and does not apply. "
            "Pass --server <name|url>."
        )
    server = find_server(load_config(ctx), scope.value)
    found = list_graphs(server.url, token_for(server, os.environ))
    if json:
        print_json({"graphs": [{"graph_id": item.graph_id, "uri": item.uri} for item in found]})
        return
    for item in found:
        print_line(f"{escape_unprintable(item.graph_id)}\t{escape_unprintable(item.uri)}")
