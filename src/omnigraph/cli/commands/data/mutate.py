"""`omnigraph mutate`: run a mutation."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.completion import complete_branch
from omnigraph.cli.precondition import report_lost_precondition
from omnigraph.cli.query_arguments import (
    ExternalBlobsOption,
    IdempotencyKeyOption,
    MessageOption,
    ParamsFileOption,
    ParamsOption,
    QueryOption,
    QueryStringOption,
    StoredNameArgument,
    read_request,
    refuse_local_options,
    warn_renamed_command,
)
from omnigraph.cli.render.output import print_json, print_line
from omnigraph.cli.stored_query import mutate_stored
from omnigraph.cli.target import DurabilityOption, JsonOption, open_graph, resolve_target
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
            help="Branch to write.",
            show_default=True,
            autocompletion=complete_branch,
        ),
    ] = "main",
    if_commit: Annotated[
        str | None,
        typer.Option(
            "--if-commit", metavar="ID", help="Write only if the branch is at this commit; else exit with 4."
        ),
    ] = None,
    message: MessageOption = None,
    idempotency_key: IdempotencyKeyOption = None,
    external_blobs: ExternalBlobsOption = None,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Run a mutation atomically, as one commit."""
    from omnigraph.protocol.result_bodies import change_body

    warn_renamed_command(ctx, "mutate")
    target = resolve_target(ctx, None)
    refuse_local_options(ctx, target)
    request = read_request(
        "mutation", name, query, query_string, params, params_file, stored=target.is_served
    )
    if request.is_stored and message is not None:
        raise InvalidInput("a stored mutation takes no message; --message does not apply.")
    if request.is_stored and idempotency_key is not None:
        raise InvalidInput("a stored mutation takes no key; --idempotency-key does not apply.")
    with (
        report_lost_precondition(json=json),
        open_graph(target, "rw", durability, external_blobs=external_blobs) as graph,
    ):
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
                idempotency_key=idempotency_key,
            )
        document = change_body(receipt, branch, graph.actor)
    if json:
        print_json(document)
        return
    if receipt.replayed and receipt.commit is not None:
        print_line(f"already applied to {branch} as commit {receipt.commit.id}")
        return
    print_line(
        f"changed {branch} via {document['query_name']}:"
        f" {document['affected_nodes']} nodes, {document['affected_edges']} edges"
    )
    if document["actor_id"] is not None:
        print_line(f"actor_id: {document['actor_id']}")
