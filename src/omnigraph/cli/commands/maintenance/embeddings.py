"""`omnigraph embed status` and `omnigraph embed refresh`: the stored embeddings of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.confirmation import announce
from omnigraph.cli.query_arguments import BranchOption, MessageOption
from omnigraph.cli.render.output import count, print_json, print_line
from omnigraph.cli.render.progress_bar import show_progress
from omnigraph.cli.target import JsonOption, UriArgument, open_graph, resolve_target

if TYPE_CHECKING:
    from omnigraph.maintain.embedding_status import EmbeddingStatus

TypesOption = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TYPE", help="Only this node type. Repeatable."),
]


def status(
    ctx: typer.Context,
    uri: UriArgument = None,
    branch: BranchOption = None,
    types: TypesOption = None,
    json: JsonOption = False,
) -> None:
    """Count the current, stale and missing vectors of each property with an embedding provider.

    A vector is stale if its text, or the model in the schema, has changed since it was computed.
    """
    from omnigraph.graph.branch_names import MAIN

    target = resolve_target(ctx, uri)
    with open_graph(target, "r") as graph:
        found = graph.embeddings.status(branch=branch or MAIN, types=types or None)
    if json:
        print_json({"uri": target.uri, "embeddings": [item.to_json() for item in found]})
        return
    if not found:
        print_line("no property has an embedding provider")
    for item in found:
        print_line(_describe(item))


def refresh(
    ctx: typer.Context,
    uri: UriArgument = None,
    branch: BranchOption = None,
    types: TypesOption = None,
    unrecorded: Annotated[
        bool,
        typer.Option(
            "--unrecorded", help="Also vectors that were stored before the property had a provider."
        ),
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the stale vectors of rows without a text.")
    ] = False,
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", metavar="N", min=1, help="Rows of one commit.")
    ] = 2_000,
    message: MessageOption = None,
    json: JsonOption = False,
) -> None:
    """Compute the missing and stale vectors again, and commit them in batches.

    An interrupted refresh continues where it ended when the command is run again.
    """
    from omnigraph.graph.branch_names import MAIN

    target = resolve_target(ctx, uri)
    announce(target)
    with (
        open_graph(target, "rw") as graph,
        show_progress("refreshing", silent=json or target.chosen.quiet) as report,
    ):
        done = graph.embeddings.refresh(
            branch=branch or MAIN,
            types=types or None,
            unrecorded=unrecorded,
            remove=remove,
            batch_rows=batch_rows,
            message=message,
            progress=report,
        )
    if json:
        print_json({"uri": target.uri, **done.to_json()})
        return
    removed = f", removed {done.removed:,}" if done.removed else ""
    print_line(f"computed {count(done.computed, 'vector')}{removed} in {count(len(done.commits), 'commit')}")


def _describe(item: EmbeddingStatus) -> str:
    counts = [f"{item.current:,} current", f"{item.stale:,} stale", f"{item.missing:,} missing"]
    counts += [f"{item.unrecorded:,} unrecorded"] if item.unrecorded else []
    others = {model: number for model, number in item.models.items() if model != item.model}
    text = ", ".join(f"{number:,} of model {model}" for model, number in others.items())
    return (
        f"{item.type_name}.{item.property_name}: {', '.join(counts)} (model {item.model}, "
        f"dimension {item.dimension}, provider {item.provider}){f'; {text}' if text else ''}"
    )
