"""`omnigraph optimize`: few large pieces of storage instead of many small ones, and complete indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.confirmation import announce
from omnigraph.cli.query_arguments import BranchOption, EngineOption, SparkOption
from omnigraph.cli.render.output import complain, count, say, say_json
from omnigraph.cli.render.progress import shown_progress
from omnigraph.cli.scope import DurabilityOption, JsonOption, Uri, opened_graph, resolve
from omnigraph.cli.shell import FAILURE
from omnigraph.errors import StorageError

if TYPE_CHECKING:
    from omnigraph.maintain.optimize import TypeOptimization


def optimize(
    ctx: typer.Context,
    uri: Uri = None,
    branch: BranchOption = None,
    message: Annotated[
        str | None, typer.Option("--message", metavar="TEXT", help="Recorded with the commit.")
    ] = None,
    engine: EngineOption = "auto",
    spark: SparkOption = None,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Make a graph quick to read again, as one commit, or none when there is nothing to do.

    Small pieces of storage become large ones, the space of deleted rows is left out, and indexes cover every row.
    What queries find never changes. Others may read and write meanwhile.
    """
    from omnigraph.graph.branch_names import MAIN

    target = resolve(ctx, uri)
    announce(target)
    with (
        opened_graph(target, "rw", durability) as graph,
        shown_progress("optimizing", silent=json or target.chosen.quiet) as report,
    ):
        done = graph.optimize(
            branch=MAIN if branch is None else branch,
            engine=engine,
            spark=spark,
            message=message,
            progress=report,
        )
    if json:
        say_json({"uri": target.uri, "datasets": [item.to_json() for item in done.datasets]})
    else:
        say(f"optimize {target.uri} — {count(len(done.datasets), 'dataset')}")
        for item in done.datasets:
            say(f"{item.type_key}: {_describe(item)}")
    failed = [item for item in done.datasets if item.skipped == "Failed"]
    for item in failed:
        complain(StorageError(f"{item.type_key}: {item.error}"))
    if failed:
        raise typer.Exit(FAILURE)


def _describe(item: TypeOptimization) -> str:
    if item.skipped is not None:
        return f"skipped ({item.skipped})"
    if not item.committed:
        return "no-op"
    parts = []
    if item.fragments_removed:
        parts.append(f"frags {item.fragments_removed} → {item.fragments_added} ✓")
    if item.indexes:
        parts.append(f"indexes {', '.join(item.indexes)} ✓")
    return ", ".join(parts) or "✓"
