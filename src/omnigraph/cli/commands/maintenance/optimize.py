"""`omnigraph optimize`: compaction and index maintenance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from omnigraph.cli.confirmation import announce
from omnigraph.cli.failures import FAILURE
from omnigraph.cli.query_arguments import BranchOption, EngineOption, MessageOption, SparkOption
from omnigraph.cli.render.output import count, print_error, print_json, print_line
from omnigraph.cli.render.progress_bar import show_progress
from omnigraph.cli.target import DurabilityOption, JsonOption, UriArgument, open_graph, resolve_target
from omnigraph.errors import StorageError

if TYPE_CHECKING:
    from omnigraph.maintain.optimize import TypeOptimization


def optimize(
    ctx: typer.Context,
    uri: UriArgument = None,
    branch: BranchOption = None,
    message: MessageOption = None,
    engine: EngineOption = "auto",
    spark: SparkOption = None,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Compact the tables of a branch and update its indexes, as one commit. No commit is made if nothing changes.

    Compaction merges small fragments into large ones and drops deleted rows. Indexes are extended to cover all
    rows. Query results do not change. Concurrent reads and writes continue.
    """
    from omnigraph.graph.branch_names import MAIN

    target = resolve_target(ctx, uri)
    announce(target)
    with (
        open_graph(target, "rw", durability) as graph,
        show_progress("optimizing", silent=json or target.chosen.quiet) as report,
    ):
        done = graph.optimize(
            branch=MAIN if branch is None else branch,
            engine=engine,
            spark=spark,
            message=message,
            progress=report,
        )
    if json:
        print_json({"uri": target.uri, "datasets": [item.to_json() for item in done.datasets]})
    else:
        print_line(f"optimize {target.uri} — {count(len(done.datasets), 'dataset')}")
        for item in done.datasets:
            print_line(f"{item.type_key}: {_describe(item)}")
    failed = [item for item in done.datasets if item.skipped == "Failed"]
    for item in failed:
        print_error(StorageError(f"{item.type_key}: {item.error}"))
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
