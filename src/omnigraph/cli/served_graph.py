"""Select the graph of a server that an address names."""

from __future__ import annotations

from omnigraph.cli.render.output import escape_unprintable
from omnigraph.cli.settings.graph_address import GraphAddress
from omnigraph.cli.settings.servers import ServerEntry, split_graph
from omnigraph.errors import InvalidInput, OmnigraphError


def choose_graph(server: ServerEntry, scope: GraphAddress, token: str | None) -> tuple[str, str]:
    """Return the URL of the server and the id of the graph.

    Raises `InvalidInput` if the address has no graph id. The error lists the graphs of the server. A graph is never
    selected implicitly, even if the server has only one.
    """
    whole = split_graph(server.url)
    if whole is not None:
        if scope.graph is not None:
            raise InvalidInput(
                f"{server.url} addresses a single graph; graph `{scope.graph}` cannot be selected in it."
            )
        return whole
    if scope.graph is not None:
        return server.url, scope.graph
    raise _no_graph(server, scope, token)


def _no_graph(server: ServerEntry, scope: GraphAddress, token: str | None) -> InvalidInput:
    from omnigraph.client.entry import list_graphs

    text = f"{scope.origin} is a server: choose one of its graphs with --graph <id>"
    try:
        found = [item.graph_id for item in list_graphs(server.url, token)]
    except OmnigraphError as error:
        return InvalidInput(text, hint=f"could not list its graphs: {escape_unprintable(error.message)}")
    listed = ", ".join(map(escape_unprintable, found))
    return InvalidInput(
        text,
        hint=f"graphs on the server: {listed}" if found else "the server has no graphs",
        details={"graphs": found},
    )
