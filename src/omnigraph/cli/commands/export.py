"""`omnigraph export`: a state of a graph as graph records on stdout or in a file, or as many files in a folder."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Annotated, Literal, TypeAlias

import typer

from omnigraph.api.files import writing
from omnigraph.cli.query_arguments import (
    BranchOption,
    EngineOption,
    SnapshotOption,
    SparkOption,
    read_state,
    refuse_local_options,
)
from omnigraph.cli.render.output import data_stdout, note, warn
from omnigraph.cli.render.progress import Report, shown_progress
from omnigraph.cli.scope import Uri, opened_graph, resolve

Format: TypeAlias = Literal["ndjson", "parquet"]


def export(
    ctx: typer.Context,
    uri: Uri = None,
    branch: BranchOption = None,
    snapshot: SnapshotOption = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only this node or edge type; may be repeated."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="PATH",
            help="Write a file, packed if .gz, or many into a folder, DIR/; whole or not at all.",
        ),
    ] = None,
    format: Annotated[  # noqa: A002 - the name of the option
        Format, typer.Option("--format", metavar="FORMAT", help="ndjson, or parquet into a folder.")
    ] = "ndjson",
    engine: EngineOption = "auto",
    spark: SparkOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the export that is in the folder.")
    ] = False,
    jsonl: Annotated[bool, typer.Option("--jsonl", hidden=True)] = False,
) -> None:
    """Write a state as graph records, one JSON line each, in an order that only depends on what is in it.

    What is written loads back unchanged. Into a folder, a name that ends in /, go many files in no order.
    """
    if jsonl:
        warn("--jsonl does nothing: exports are always JSON lines")
    if out is None and (format == "parquet" or engine == "spark"):
        raise typer.BadParameter("many files need a folder", param_hint="'--out'")
    target = resolve(ctx, uri)
    refuse_local_options(ctx, target)
    line, commit = read_state(branch, snapshot)
    quiet = target.chosen.quiet
    # On a terminal the records themselves show how far it has come.
    silent = quiet or (out is None and sys.stdout is not None and sys.stdout.isatty())
    with opened_graph(target, "r") as graph, shown_progress("exporting", silent=silent) as report:
        progress = None if report is None else _summed(report)
        if out is None:
            graph.export(data_stdout(), branch=line, at=commit, types=types, progress=progress)
            return
        with writing(out):
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
        note(f"exported {records} records to {out}")


def _summed(report: Report) -> Report:
    """A report that takes how many rows have been added, where the other takes how many there are."""
    done: Counter[str] = Counter()

    def add(stage: str, rows: int) -> None:
        done[stage] += rows
        report(stage, done[stage])

    return add
