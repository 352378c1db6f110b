"""`omnigraph explain`: print the plan of a query."""

from __future__ import annotations

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
from omnigraph.cli.render.output import print_line
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
) -> None:
    """Print the plan of a query without running it: scans, traversals, and why they were chosen."""
    target = resolve_target(ctx, None)
    request = read_request("query", name, query, query_string, params, params_file)
    line, commit = read_state(branch, snapshot)
    with open_graph(target, "r") as graph:
        text = graph.explain(request.source, request.params, name=request.name, branch=line, at=commit)
    print_line(text.rstrip("\n"))
