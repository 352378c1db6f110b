"""`omnigraph explain`: print the plan of a query."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from omnigraph.cli.query_arguments import (
    BranchOption,
    NameArgument,
    ParamsFileOption,
    ParamsOption,
    QueryOption,
    QueryStringOption,
    SnapshotOption,
    read_request,
    read_state,
)
from omnigraph.cli.render.output import count, print_line
from omnigraph.cli.target import open_graph, resolve_target


def explain(
    ctx: typer.Context,
    name: NameArgument = None,
    query: QueryOption = None,
    query_string: QueryStringOption = None,
    params: ParamsOption = None,
    params_file: ParamsFileOption = None,
    branch: BranchOption = None,
    snapshot: SnapshotOption = None,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Run the query too, and print its rows and times.")
    ] = False,
) -> None:
    """Print the plan of a query: scans, traversals, and why they were chosen."""
    target = resolve_target(ctx, None)
    request = read_request("query", name, query, query_string, params, params_file)
    line, commit = read_state(branch, snapshot)
    with open_graph(target, "r") as graph:
        text = graph.explain(request.source, request.params, name=request.name, branch=line, at=commit)
        timings = []
        # The second run finds the tables in the cache of the process.
        for run in ("first run", "again") if analyze else ():
            wall, processor = time.perf_counter(), time.process_time()
            rows = len(graph.query(request.source, request.params, name=request.name, branch=line, at=commit))
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            timings.append(
                f"{run}: {count(rows, 'row')} in {wall * 1000:.1f} ms, processor {processor * 1000:.1f} ms"
            )
    print_line(text.rstrip("\n"))
    for timing in timings:
        print_line(timing)
