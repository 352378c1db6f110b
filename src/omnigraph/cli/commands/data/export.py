"""`omnigraph export`: write a state of a graph to stdout, a file or a folder."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Annotated, Literal, TypeAlias

import typer

from omnigraph.api.files.local_files import readable_write_errors
from omnigraph.cli.query_arguments import (
    BranchOption,
    EngineOption,
    SnapshotOption,
    SparkOption,
    read_state,
    refuse_local_options,
)
from omnigraph.cli.render.output import count, data_stdout, print_note, print_warning
from omnigraph.cli.render.progress_bar import Report, show_progress
from omnigraph.cli.target import UriArgument, open_graph, resolve_target

Format: TypeAlias = Literal["ndjson", "parquet"]


def export(
    ctx: typer.Context,
    uri: UriArgument = None,
    branch: BranchOption = None,
    snapshot: SnapshotOption = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only this node or edge type. Repeatable."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="PATH",
            help="Write a file, compressed if it ends in .gz, or many files into a folder, DIR/. All or nothing.",
        ),
    ] = None,
    format: Annotated[  # noqa: A002 - the name of the option
        Format, typer.Option("--format", metavar="FORMAT", help="ndjson; or parquet, which needs a folder.")
    ] = "ndjson",
    engine: EngineOption = "auto",
    spark: SparkOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier export in the folder.")
    ] = False,
    jsonl: Annotated[bool, typer.Option("--jsonl", hidden=True)] = False,
) -> None:
    """Export a state of the graph as graph records, one JSON line each, in a deterministic order.

    `omnigraph load` reads the output. A PATH that ends in / is a folder. It gets many files, in no particular
    order.
    """
    if jsonl:
        print_warning("--jsonl has no effect: exports are always JSON lines")
    if out is None and (format == "parquet" or engine == "spark"):
        raise typer.BadParameter("Parquet and Spark exports need a folder", param_hint="'--out'")
    target = resolve_target(ctx, uri)
    refuse_local_options(ctx, target)
    line, commit = read_state(branch, snapshot)
    quiet = target.chosen.quiet
    # If the records are printed on the terminal, a progress bar would be mixed with them.
    silent = quiet or (out is None and sys.stdout is not None and sys.stdout.isatty())
    with open_graph(target, "r") as graph, show_progress("exporting", silent=silent) as report:
        progress = None if report is None else _cumulative(report)
        if out is None:
            graph.export(data_stdout(), branch=line, at=commit, types=types, progress=progress)
            return
        with readable_write_errors(out):
            records = graph.export(
                out,
                branch=line,
                at=commit,
                types=types,
                progress=progress,
                format=format,
                engine=engine,
                spark=spark,
                overwrite=overwrite,
            )
    if not quiet:
        print_note(f"exported {count(records, 'record')} to {out}")


def _cumulative(report: Report) -> Report:
    """Return a callback that takes increments and reports the running totals."""
    done: Counter[str] = Counter()

    def add(stage: str, rows: int) -> None:
        done[stage] += rows
        report(stage, done[stage])

    return add
