"""Run a stored query of a server by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.api.results.receipts import Receipt
    from omnigraph.api.results.result import Result
    from omnigraph.cli.query_arguments import Request


def read_stored(graph: Graph, request: Request, branch: str, at: str | None) -> Result:
    """Run a stored read and return its rows. The server refuses a stored mutation without running it."""
    from omnigraph.api.results.result import Result
    from omnigraph.client.graph import RemoteGraph

    assert isinstance(graph, RemoteGraph)
    found = graph.invoke(str(request.name), request.params, branch=branch, at=at, expect_mutation=False)
    assert isinstance(found, Result)
    return found


def mutate_stored(graph: Graph, request: Request, branch: str, if_commit: str | None) -> Receipt:
    """Run a stored mutation and return its receipt. The server refuses a stored read."""
    from omnigraph.api.results.receipts import Receipt
    from omnigraph.client.graph import RemoteGraph

    assert isinstance(graph, RemoteGraph)
    found = graph.invoke(
        str(request.name), request.params, branch=branch, if_commit=if_commit, expect_mutation=True
    )
    assert isinstance(found, Receipt)
    return found
