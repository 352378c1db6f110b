"""`omnigraph mutate`: change a graph by a query of one's own."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.completion import complete_branch
from omnigraph.cli.precondition import told_precondition
from omnigraph.cli.query_arguments import (
    ParamsFileOption,
    ParamsOption,
    QueryOption,
    QueryStringOption,
    StoredNameArgument,
    read_request,
    refuse_local_options,
    warn_of_old_name,
)
from omnigraph.cli.render.output import say, say_json
from omnigraph.cli.scope import DurabilityOption, JsonOption, opened_graph, resolve
from omnigraph.cli.stored_query import mutate_stored
from omnigraph.errors import InvalidInput


def mutate(
    ctx: typer.Context,
    name: StoredNameArgument = None,
    query: QueryOption = None,
    query_string: QueryStringOption = None,
    params: ParamsOption = None,
    params_file: ParamsFileOption = None,
    branch: Annotated[
        str,
        typer.Option(
            "--branch",
            metavar="BRANCH",
            help="Where to write.",
            show_default=True,
            autocompletion=complete_branch,
        ),
    ] = "main",
    if_commit: Annotated[
        str | None,
        typer.Option("--if-commit", metavar="ID", help="Only if the branch still stands at this commit."),
    ] = None,
    message: Annotated[
        str | None, typer.Option("--message", metavar="TEXT", help="Recorded with the commit.")
    ] = None,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Run a mutation as one commit: all of it happens, or nothing."""
    from omnigraph.protocol.result_bodies import change_body

    warn_of_old_name(ctx, "mutate")
    target = resolve(ctx, None)
    refuse_local_options(ctx, target)
    request = read_request(
        "mutation", name, query, query_string, params, params_file, stored=target.is_served
    )
    if request.is_stored and message is not None:
        raise InvalidInput("a stored mutation has no message; --message does not apply.")
    with told_precondition(json=json), opened_graph(target, "rw", durability) as graph:
        if request.is_stored:
            receipt = mutate_stored(graph, request, branch, if_commit)
        else:
            receipt = graph.mutate(
                request.source,
                request.params,
                name=request.name,
                branch=branch,
                message=message,
                if_commit=if_commit,
            )
        document = change_body(receipt, branch, graph.actor)
    if json:
        say_json(document)
        return
    say(
        f"changed {branch} via {document['query_name']}:"
        f" {document['affected_nodes']} nodes, {document['affected_edges']} edges"
    )
    if document["actor_id"] is not None:
        say(f"actor_id: {document['actor_id']}")
