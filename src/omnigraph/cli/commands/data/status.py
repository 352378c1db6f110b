"""`omnigraph status`: what a graph holds, in a few lines."""

from __future__ import annotations

from typing import Any

import typer

from omnigraph.cli.query_arguments import BranchOption
from omnigraph.cli.render.log_lines import log_lines
from omnigraph.cli.render.output import count, print_json, print_line
from omnigraph.cli.render.terminal import terminal_width
from omnigraph.cli.target import JsonOption, UriArgument, open_graph, resolve_target

_BRANCHES = 1_000


def status(
    ctx: typer.Context, uri: UriArgument = None, branch: BranchOption = None, json: JsonOption = False
) -> None:
    """Print the address, the newest commit, the numbers of nodes, edges, branches and tags of a graph."""
    from omnigraph.api.results.commits import Commit
    from omnigraph.protocol.result_bodies import commit_body, snapshot_body

    target = resolve_target(ctx, uri)
    name = branch or "main"
    with open_graph(target, "r") as graph:
        head = graph.snapshot(name)
        branches = len(graph.branches.list(limit=_BRANCHES))
        tags = [tag for tag in graph.tags.list() if tag.commit_id == head.commit_id]
        tag_count = len(graph.tags.list())
    commit = Commit.of(head.commit)
    described = snapshot_body(head, name)
    kinds: dict[str, list[int]] = {"node": [], "edge": []}
    for item in described["datasets"]:
        kinds[item["entity_kind"]].append(item["entity_count"])
    document: dict[str, Any] = {
        "uri": target.uri,
        "branch": name,
        "head": {**commit_body(commit), "operation": commit.operation},
        "tags_of_head": [tag.name for tag in tags],
        "nodes": sum(kinds["node"]),
        "node_types": len(kinds["node"]),
        "edges": sum(kinds["edge"]),
        "edge_types": len(kinds["edge"]),
        "branches": branches,
        "tags": tag_count,
        "internal_schema_version": described["internal_schema_version"],
    }
    if json:
        print_json(document)
        return
    names = {commit.id: document["tags_of_head"]}
    print_line(f"graph     {target.uri}")
    print_line(f"branch    {name}")
    print_line("head      " + "".join(log_lines([commit], names, draw=False, width=terminal_width())))
    for kind in ("node", "edge"):
        print_line(f"{kind}s     {document[f'{kind}s']:,} of {count(document[f'{kind}_types'], 'type')}")
    more = " or more" if branches == _BRANCHES else ""
    print_line(f"branches  {branches:,}{more}")
    print_line(f"tags      {tag_count:,}")
