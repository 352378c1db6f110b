"""`omnigraph ps` and `omnigraph cancel`: list and cancel the running requests of a graph on a server."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.failures import FAILURE
from omnigraph.cli.render.output import escape_unprintable, print_json, print_line
from omnigraph.cli.target import JsonOption, UriArgument, open_graph, resolve_target
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.client.graph import RemoteGraph

_SHOWN_TEXT = 60


def ps(ctx: typer.Context, uri: UriArgument = None, json: JsonOption = False) -> None:
    """List the running requests of a graph on a server, the oldest first. Needs permission for `admin`."""
    target = resolve_target(ctx, uri)
    with open_graph(target, "r") as graph:
        found = _remote(graph).running_queries()
    if json:
        entries = [{**asdict(item), "started_at": item.started_at.isoformat()} for item in found]
        print_json({"queries": entries})
        return
    if not found:
        print_line("(nothing is running)")
    for item in found:
        text = " ".join((item.query or "").split())[:_SHOWN_TEXT]
        actor = escape_unprintable(item.actor_id or "-")
        print_line(
            f"{item.id}  {item.seconds:8.1f} s  {item.memory_bytes / 1e6:8.1f} MB  {item.state}"
            f"  {actor}  {item.operation}  {escape_unprintable(text)}".rstrip()
        )


def cancel(
    ctx: typer.Context,
    query_id: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the request, as `omnigraph ps` lists it.")
    ],
    uri: UriArgument = None,
    json: JsonOption = False,
) -> None:
    """Cancel a running request of a graph on a server. Needs permission for `admin`.

    A write that has begun is completed. The command then fails.
    """
    target = resolve_target(ctx, uri)
    with open_graph(target, "r") as graph:
        cancelled = _remote(graph).cancel_query(query_id)
    if json:
        print_json({"id": query_id, "cancelled": cancelled})
    else:
        print_line(
            f"cancelled {query_id}" if cancelled else f"{query_id} is a write that cannot be cancelled"
        )
    if not cancelled:
        raise typer.Exit(FAILURE)


def _remote(graph: Graph) -> RemoteGraph:
    from omnigraph.client.graph import RemoteGraph

    if not isinstance(graph, RemoteGraph):
        raise InvalidInput(
            "only a server has running requests",
            hint="name a graph on a server, such as --server URL --graph ID",
        )
    return graph
