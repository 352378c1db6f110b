"""`omnigraph studio`: open the web interface of a graph, a folder of graphs, or a server."""

from __future__ import annotations

import os
import re
import webbrowser
from typing import Annotated

import typer

from omnigraph.cli.commands.serving.hosted_address import find_hosting
from omnigraph.cli.options import GlobalOptions
from omnigraph.cli.render.output import print_line
from omnigraph.cli.settings.servers import is_url
from omnigraph.errors import InvalidInput
from omnigraph.extras import requires

_TOKENS = "OMNIGRAPH_SERVER_BEARER_TOKEN"
_GRAPH_URL = re.compile(r"(?P<server>.+)/graphs/(?P<graph>[^/]+)/?\Z")


def studio(
    ctx: typer.Context,
    address: Annotated[
        str,
        typer.Argument(
            metavar="GRAPH|FOLDER|CONFIG|URL",
            help="A graph, a folder of *.omni graphs, a server configuration, or the URL of a server.",
        ),
    ],
    bind: Annotated[
        str,
        typer.Option(
            "--bind",
            metavar="HOST:PORT",
            help="Address to listen on. Port 0 is a free one.",
            show_default=True,
        ),
    ] = "127.0.0.1:0",
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
) -> None:
    """Open the Studio, a web interface, and print its address.

    For graphs in storage a server is started that accepts only requests of this machine, until it is interrupted. A
    server with a URL must have been started with --studio.
    """
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    for option in chosen.names():
        raise InvalidInput(f"`studio` takes the address as its argument; {option} does not apply.")
    if is_url(address):
        _show(_served_studio(address), opens=not no_open)
        return
    with requires("server", "the Studio"):
        from omnigraph.server.run import ServeOptions, serve

    hosting = find_hosting(address)
    environment = dict(os.environ)
    if not isinstance(hosting, str):
        # The tokens of a server do not apply to graphs that this user opens alone.
        environment = {name: value for name, value in environment.items() if not name.startswith(_TOKENS)}
    options = ServeOptions(bind, unauthenticated=True, workers=1, studio=True)
    serve(hosting, options, environment, lambda url: _show(f"{url}/studio/", opens=not no_open))


def _served_studio(url: str) -> str:
    """Return the address of the Studio of a server; `InvalidInput` if the server does not serve it."""
    import httpx

    from omnigraph.client.entry import check_url

    found = _GRAPH_URL.match(url)
    server = check_url(found["server"] if found else url)
    try:
        status = httpx.get(f"{server}/studio/", follow_redirects=True).status_code
    except httpx.HTTPError as error:
        raise InvalidInput(f"the server at {server} does not respond: {error}") from error
    if status != 200:
        raise InvalidInput(
            f"the server at {server} does not serve the Studio",
            hint="start it with `omnigraph serve --studio`",
        )
    return f"{server}/studio/" + (f"#/{found['graph']}/query" if found else "")


def _show(address: str, *, opens: bool) -> None:
    print_line(f"Studio: {address}")
    if opens:
        webbrowser.open(address)
