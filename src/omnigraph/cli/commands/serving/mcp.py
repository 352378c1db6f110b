"""`omnigraph mcp`: serve a graph to agents over the Model Context Protocol."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from omnigraph.cli.options import GlobalOptions
from omnigraph.cli.settings.servers import is_url
from omnigraph.cli.target import GraphOrUrlArgument, open_graph, resolve_target
from omnigraph.errors import InvalidInput
from omnigraph.extras import requires


def mcp(
    ctx: typer.Context,
    uri: GraphOrUrlArgument = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Leave out the tools and prompts that write.")
    ] = False,
) -> None:
    """Serve a graph to agents over MCP (Model Context Protocol), on stdin and stdout.

    An MCP client starts this command. On a server the bearer token identifies the caller, and the policy decides.
    """
    with requires("mcp", "the MCP server"):
        from omnigraph.mcp.server import serve_stdio

    if uri is not None and is_url(uri):
        chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
        if chosen.server is not None:
            raise InvalidInput(f"two graphs addressed: {uri} and --server {chosen.server}; pass exactly one.")
        ctx.obj, uri = replace(chosen, server=uri), None
    target = resolve_target(ctx, uri)
    with open_graph(target, "r" if read_only else "rw") as graph:
        serve_stdio(graph, read_only=read_only)
