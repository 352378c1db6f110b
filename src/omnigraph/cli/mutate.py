"""`omnigraph mutate`: change a graph by a query of one's own."""

from __future__ import annotations

import json as json_
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.files import read_source
from omnigraph.cli.output import complain, say, say_json
from omnigraph.cli.scope import DurabilityOption, JsonOption, opened, resolve
from omnigraph.errors import InvalidInput, PreconditionFailed

if TYPE_CHECKING:
    from omnigraph.api.commits import Receipt
    from omnigraph.graph.repository import Repository

# A lost precondition is nobody's mistake: scripts tell it from a failure by this code.
PRECONDITION_LOST = 4


def mutate(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which query of the source, when it has several.")
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", metavar="FILE", help="The .gq file; - for stdin.")
    ] = None,
    query_string: Annotated[
        str | None, typer.Option("-e", "--query-string", metavar="GQ", help="The query itself.")
    ] = None,
    params: Annotated[str | None, typer.Option("--params", metavar="JSON", help="Its parameters.")] = None,
    params_file: Annotated[
        str | None, typer.Option("--params-file", metavar="FILE", help="Its parameters, from a file.")
    ] = None,
    branch: Annotated[
        str, typer.Option("--branch", metavar="BRANCH", help="Where to write.", show_default=True)
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
    from omnigraph.api.graph import Graph

    target = resolve(ctx, None)
    source = _source(name, query, query_string)
    values = _params(params, params_file)
    actor = target.chosen.actor
    try:
        with opened(target, "rw", durability) as repository:
            graph = Graph(repository, actor, {})
            receipt = graph.mutate(
                source, values, name=name, branch=branch, message=message, if_commit=if_commit
            )
            document = _describe(receipt, branch, actor, repository)
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


def _source(name: str | None, query: str | None, query_string: str | None) -> str:
    if query is not None and query_string is not None:
        raise typer.BadParameter("pass one of --query and -e", param_hint="'-e'")
    if query is not None:
        return read_source(query)
    if query_string is not None:
        return query_string
    raise InvalidInput(
        "a stored mutation is run by a server; pass the source with --query FILE or -e GQ"
        if name is not None
        else "no mutation given",
        hint="pass --query FILE or -e GQ",
    )


def _params(params: str | None, params_file: str | None) -> Any:
    if params is not None and params_file is not None:
        raise typer.BadParameter("pass one of --params and --params-file", param_hint="'--params-file'")
    text = read_source(params_file) if params_file is not None else params
    if text is None:
        return None
    try:
        return json_.loads(text)
    except ValueError as error:
        raise InvalidInput(f"the parameters are not JSON: {error}") from error


def _describe(receipt: Receipt, branch: str, actor: str | None, repository: Repository) -> dict[str, Any]:
    from omnigraph.cli.commit import describe_commit

    commit = None if receipt.commit is None else describe_commit(repository.commit(receipt.commit.id))
    return {
        "branch": branch,
        "query_name": receipt.query_name,
        "affected_nodes": receipt.affected_nodes,
        "affected_edges": receipt.affected_edges,
        "actor_id": actor,
        "commit": commit,
    }
