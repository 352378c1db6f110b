"""Which graph of a server is meant."""

from __future__ import annotations

from omnigraph.cli.render.output import readable
from omnigraph.cli.settings.addresses import Scope
from omnigraph.cli.settings.servers import Server, split_graph
from omnigraph.errors import InvalidInput, OmnigraphError


def choose_graph(server: Server, scope: Scope, token: str | None) -> tuple[str, str]:
    """The address of the server and the id of the graph that a scope means.

    Without an id the server is asked for candidates, which the `InvalidInput` lists, also when there is one: a
    command never picks a graph by itself.
    """
    whole = split_graph(server.url)
    if whole is not None:
        if scope.graph is not None:
            raise InvalidInput(f"{server.url} is one graph already: `{scope.graph}` cannot be chosen within.")
        return whole
    if scope.graph is not None:
        return server.url, scope.graph
    raise _no_graph(server, scope, token)


def _no_graph(server: Server, scope: Scope, token: str | None) -> InvalidInput:
    from omnigraph.client.entry import list_graphs

    text = f"{scope.origin} is a server; say which of its graphs with --graph <id>"
    try:
        found = [item.graph_id for item in list_graphs(server.url, token)]
    except OmnigraphError as error:
        return InvalidInput(text, hint=f"its graphs cannot be listed: {readable(error.message)}")
    listed = ", ".join(map(readable, found))
    return InvalidInput(
        text, hint=f"it serves: {listed}" if found else "it serves none", details={"graphs": found}
    )
