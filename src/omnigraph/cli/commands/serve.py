"""`omnigraph serve`: graphs for clients over HTTP."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from omnigraph.cli.options import GlobalOptions
from omnigraph.errors import InvalidInput
from omnigraph.extras import requires


def serve(
    ctx: typer.Context,
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG",
            help="A YAML file that names graphs, here or at an s3:// address, or a folder of *.omni graphs.",
        ),
    ] = None,
    bind: Annotated[
        str, typer.Option("--bind", metavar="HOST:PORT", help="Where to listen.", show_default=True)
    ] = "127.0.0.1:8080",
    unauthenticated: Annotated[
        bool, typer.Option("--unauthenticated", help="Serve everybody; without it tokens are needed.")
    ] = False,
    require_all_graphs: Annotated[
        bool, typer.Option("--require-all-graphs", help="Do not start unless every graph can be served.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Listen beyond this machine although everybody is served.")
    ] = False,
) -> None:
    """Serve graphs over HTTP until it is stopped.

    Tokens come from the environment: OMNIGRAPH_SERVER_BEARER_TOKENS_FILE names a JSON file from actors to tokens.
    The address is printed once requests are answered; the log goes to stderr.
    """
    with requires("server", "the HTTP server"):
        from omnigraph.server.run import ServeOptions
        from omnigraph.server.run import serve as run

    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    for option in chosen.given():
        if option != "--cluster":
            raise InvalidInput(f"`serve` names its graphs in CONFIG; {option} does not apply.")
    if (config is None) == (chosen.cluster is None):
        raise typer.BadParameter("say once what to serve", param_hint="'CONFIG'")
    options = ServeOptions(bind, unauthenticated, require_all_graphs, force)
    run(config or str(chosen.cluster), options, os.environ)


def main() -> None:
    """The command `omnigraph-server`: `omnigraph serve` under a name of its own."""
    from omnigraph.cli.main import app

    app(["serve", *sys.argv[1:]], prog_name="omnigraph")
