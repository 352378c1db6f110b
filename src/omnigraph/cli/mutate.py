"""`omnigraph mutate`: change a graph by a query of one's own."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.output import complain, say, say_json
from omnigraph.cli.params import (
    NameArgument,
    ParamsFileOption,
    ParamsOption,
    QueryOption,
    QueryStringOption,
    complete_branch,
    graph_on,
    read_request,
    warn_of_old_name,
)
from omnigraph.cli.scope import DurabilityOption, JsonOption, opened, resolve
from omnigraph.errors import PreconditionFailed

# A lost precondition is nobody's mistake: scripts tell it from a failure by this code.
PRECONDITION_LOST = 4


def mutate(
    ctx: typer.Context,
    name: NameArgument = None,
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
    from omnigraph.api.bodies import change_body

    warn_of_old_name(ctx, "mutate")
    target = resolve(ctx, None)
    request = read_request("mutation", name, query, query_string, params, params_file)
    actor = target.chosen.actor
    try:
        with opened(target, "rw", durability) as repository:
            receipt = graph_on(repository, actor).mutate(
                request.source,
                request.params,
                name=request.name,
                branch=branch,
                message=message,
                if_commit=if_commit,
            )
            document = change_body(receipt, branch, actor)
    except PreconditionFailed as error:
        if json:
            say_json({"error": error.message, "precondition_failure": dict(error.details)})
        else:
            complain(error)
        raise typer.Exit(PRECONDITION_LOST) from error
    if json:
        say_json(document)
        return
    say(
        f"changed {branch} via {document['query_name']}:"
        f" {document['affected_nodes']} nodes, {document['affected_edges']} edges"
    )
    if actor is not None:
        say(f"actor_id: {actor}")
