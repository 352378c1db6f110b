"""`omnigraph explain`: how a read would be run."""

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
from omnigraph.cli.render.output import say
from omnigraph.cli.scope import opened_graph, resolve


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
    """Show how a read would be run: what is scanned, how edges are followed, and why."""
    target = resolve(ctx, None)
    request = read_request("query", name, query, query_string, params, params_file)
    line, commit = read_state(branch, snapshot)
    with opened_graph(target, "r") as graph:
        text = graph.explain(request.source, request.params, name=request.name, branch=line, at=commit)
    say(text.rstrip("\n"))
