"""Stored queries, which a server runs by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.api.receipts import Receipt
    from omnigraph.api.result import Result
    from omnigraph.cli.query_arguments import Request


def read_stored(graph: Graph, request: Request, branch: str, at: str | None) -> Result:
    """The rows of a stored read. A stored mutation is refused by the server and not run."""
    from omnigraph.api.result import Result
    from omnigraph.client.graph import RemoteGraph

    assert isinstance(graph, RemoteGraph)
    found = graph.invoke(str(request.name), request.params, branch=branch, at=at, expect_mutation=False)
    assert isinstance(found, Result)
    return found


def mutate_stored(graph: Graph, request: Request, branch: str, if_commit: str | None) -> Receipt:
    """What a stored mutation did. A stored read is refused by the server."""
    from omnigraph.api.receipts import Receipt
    from omnigraph.client.graph import RemoteGraph

    assert isinstance(graph, RemoteGraph)
    found = graph.invoke(
        str(request.name), request.params, branch=branch, if_commit=if_commit, expect_mutation=True
    )
    assert isinstance(found, Receipt)
    return found
